/* unicode.c: Unicode properties as ECMA-262 names them in \p{…}: General_Category values, Script=…, and
 * binary properties, of Unicode 15.1. Script_Extensions, and names that the tables do not have, are unknown:
 * the caller refuses them by name. */
#include <string.h>

#include "regex.h"
#include "unicode_properties.h"

#define COUNT(table) (sizeof(table) / sizeof *(table))

/* Whether `name` is one of the words of `words`. */
static int one_of(const char *words, const char *name, uint64_t len) {
    while (*words) {
        uint64_t n = strcspn(words, " ");
        if (n == len && memcmp(words, name, n) == 0)
            return 1;
        words += n + (words[n] == ' ');
    }
    return 0;
}

/* The row of a table that has the name; -1: none. */
static int find_name(const char *const *table, size_t n, const char *name, uint64_t len) {
    for (size_t i = 0; i < n; i++)
        if (len && one_of(table[i], name, len))
            return (int)i;
    return -1;
}

/* Categories 0 … 31 as bits: one of them, or a group such as L or LC; 0: unknown. */
static uint32_t categories(const char *name, uint64_t len) {
    static const struct { const char *names, *first; } groups[] = {
        {"L Letter", "L"}, {"M Mark Combining_Mark", "M"}, {"N Number", "N"}, {"P Punctuation punct", "P"},
        {"S Symbol", "S"}, {"Z Separator", "Z"},           {"C Other", "C"},
    };
    int one = find_name(category_names, COUNT(category_names), name, len);
    if (one >= 0)
        return 1u << one;
    if (one_of("LC Cased_Letter", name, len))
        return 7; /* Lu, Ll, Lt are the first three */
    uint32_t set = 0;
    for (size_t g = 0; g < COUNT(groups); g++)
        for (uint32_t i = 0; len && one_of(groups[g].names, name, len) && i < COUNT(category_names); i++)
            set |= (uint32_t)(category_names[i][0] == groups[g].first[0]) << i;
    return set;
}

/* Add the ranges of a table of (first code point << shift | value) whose value's bit is in the set. */
static int add_ranges(lang_set *s, charset *c, const uint32_t *table, size_t n, int shift, uint64_t set) {
    for (size_t i = 0; i < n; i++) {
        uint32_t end = i + 1 < n ? (table[i + 1] >> shift) - 1 : 0x10FFFF;
        if (set >> (table[i] & ((1u << shift) - 1)) & 1 && !charset_add_points(s, c, table[i] >> shift, end))
            return 0;
    }
    return 1;
}

static int add_binary(lang_set *s, charset *c, int row) {
    for (uint32_t i = binary_first[row]; i < binary_first[row + 1]; i += 2) {
        uint32_t end = i + 1 < binary_first[row + 1] ? binary_ranges[i + 1] - 1 : 0x10FFFF;
        if (!charset_add_points(s, c, binary_ranges[i], end))
            return 0;
    }
    return 1;
}

int charset_add_property(lang_set *s, charset *c, const char *name, uint64_t len, int *known) {
    const char *equals = memchr(name, '=', len);
    const char *value = equals ? equals + 1 : name;
    uint64_t n = len - (uint64_t)(value - name), of = equals ? (uint64_t)(equals - name) : 0;
    uint64_t assigned = ~((uint64_t)1 << (COUNT(category_names) - 1));
    int script = -1, binary = -1;
    uint64_t set = 0;
    *known = 1;
    if (equals && one_of("Script sc", name, of))
        script = find_name(script_names, COUNT(script_names), value, n);
    else if (!equals || one_of("General_Category gc", name, of))
        set = categories(value, n);
    if (!equals && !set)
        binary = find_name(binary_names, COUNT(binary_names), name, len);
    if (!equals && one_of("Assigned", name, len))
        set = assigned;
    if (!equals && one_of("Any", name, len))
        return charset_add(s, c, 0, LAST_LETTER);
    if (!equals && one_of("ASCII", name, len))
        return charset_add(s, c, 0, 0x7F);
    if (script >= 0)
        return add_ranges(s, c, script_ranges, COUNT(script_ranges), 6, (uint64_t)1 << (script + 1));
    if (set)
        return add_ranges(s, c, category_ranges, COUNT(category_ranges), 5, set);
    if (binary >= 0)
        return add_binary(s, c, binary);
    *known = 0;
    return s->pool->status == ENGINE_OK;
}
