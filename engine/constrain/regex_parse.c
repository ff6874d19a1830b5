/* regex_parse.c: reads a pattern of ECMA-262: the grammar of the `u` flag, with what the plain grammar
 * allows besides where schemas use it: escapes of any punctuation, a lone `]`, `}` or `{`, `-` beside a
 * class. Refused by name with the offset: backreferences, lookbehind, inline flags, other dialects'
 * escapes and groups, `{,n}` (which dialects read differently). Malformed patterns are ENGINE_EFORMAT. */
#include <string.h>

#include "regex.h"

enum { MAX_DEPTH = 250, MAX_NODES = 200000 };

typedef struct reader {
    lang_set *s;
    regex *r;
    const char *text;
    uint64_t len, at;
    uint32_t depth;
} reader;

static int fail(reader *p, engine_status status, uint64_t at, const char *what) {
    (void)pool_fail(p->s->pool, status, "pattern, byte %llu: %s", (unsigned long long)at, what);
    return 0;
}

static int malformed(reader *p, const char *what) {
    return fail(p, ENGINE_EFORMAT, p->at, what);
}

static int more(const reader *p) {
    return p->at < p->len;
}

static char peek(const reader *p) {
    return p->at < p->len ? p->text[p->at] : '\0';
}

static int take(reader *p, char c) {
    if (!more(p) || p->text[p->at] != c)
        return 0;
    p->at++;
    return 1;
}

static int looking_at(const reader *p, const char *what) {
    uint64_t n = strlen(what);
    return p->len - p->at >= n && memcmp(p->text + p->at, what, n) == 0;
}

/* ---- Making nodes ---------------------------------------------------------------------------- */

static uint32_t new_node(reader *p, regex_node node) {
    regex *r = p->r;
    if (r->n_nodes == r->cap_nodes) {
        if (r->n_nodes >= MAX_NODES) {
            (void)fail(p, ENGINE_EUNSUPPORTED, p->at, "the pattern is longer than can be held");
            return REGEX_NONE;
        }
        uint32_t cap = r->cap_nodes ? r->cap_nodes * 2 : 64;
        regex_node *nodes = scratch_alloc(p->s, cap * sizeof *nodes);
        if (!nodes)
            return REGEX_NONE;
        if (r->n_nodes)
            memcpy(nodes, r->nodes, r->n_nodes * sizeof *nodes);
        r->nodes = nodes;
        r->cap_nodes = cap;
    }
    int two = node.kind == NODE_CAT || node.kind == NODE_ALT;
    if (two || node.kind == NODE_REPEAT || node.kind == NODE_LOOK) {
        const regex_node *a = &r->nodes[node.a], *b = &r->nodes[two ? node.b : node.a];
        node.uses_begin = a->uses_begin | b->uses_begin;
        node.uses_word = a->uses_word | b->uses_word;
    }
    r->nodes[r->n_nodes] = node;
    return pool_step(p->s->pool, 1) ? r->n_nodes++ : REGEX_NONE;
}

/* The node of a finished set; equal sets are kept once. */
static uint32_t set_node(reader *p, const charset *c) {
    regex *r = p->r;
    uint32_t i = 0;
    for (; i < r->n_sets && i < 64; i++)
        if (r->sets[i].n == c->n && (c->n == 0 || memcmp(r->sets[i].ranges, c->ranges, c->n * sizeof *c->ranges) == 0))
            return new_node(p, (regex_node){.kind = NODE_SET, .a = i});
    if (r->n_sets == r->cap_sets) {
        uint32_t cap = r->cap_sets ? r->cap_sets * 2 : 16;
        charset *sets = scratch_alloc(p->s, cap * sizeof *sets);
        if (!sets)
            return REGEX_NONE;
        if (r->n_sets)
            memcpy(sets, r->sets, r->n_sets * sizeof *sets);
        r->sets = sets;
        r->cap_sets = cap;
    }
    r->sets[r->n_sets] = *c;
    return new_node(p, (regex_node){.kind = NODE_SET, .a = r->n_sets++});
}

static uint32_t one_letter(reader *p, uint32_t code_point) {
    charset c = {0};
    if (!charset_add_points(p->s, &c, code_point, code_point))
        return REGEX_NONE;
    return set_node(p, &c);
}

/* ---- Escapes --------------------------------------------------------------------------------- */

static int hex(char c) {
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Exactly n hexadecimal digits; UINT32_MAX where they are not there (nothing is taken then). */
static uint32_t hex_digits(reader *p, uint32_t n) {
    uint32_t value = 0;
    if (p->len - p->at < n)
        return UINT32_MAX;
    for (uint32_t i = 0; i < n; i++) {
        int digit = hex(p->text[p->at + i]);
        if (digit < 0)
            return UINT32_MAX;
        value = value << 4 | (uint32_t)digit;
    }
    p->at += n;
    return value;
}

/* After \u: four digits, a pair of surrogates so written, or {digits}. */
static int unicode_escape(reader *p, uint32_t *out) {
    if (take(p, '{')) {
        uint32_t value = 0, n = 0;
        for (; hex(peek(p)) >= 0 && more(p) && value <= 0x10FFFF; n++)
            value = value << 4 | (uint32_t)hex(p->text[p->at++]);
        if (n == 0 || value > 0x10FFFF || !take(p, '}'))
            return malformed(p, "\\u{…} needs hexadecimal digits up to 10FFFF");
        *out = value;
        return 1;
    }
    uint32_t high = hex_digits(p, 4);
    if (high == UINT32_MAX)
        return malformed(p, "\\u needs four hexadecimal digits");
    *out = high;
    if (high >= 0xD800 && high < 0xDC00 && looking_at(p, "\\u")) {
        uint64_t back = p->at;
        p->at += 2;
        uint32_t low = hex_digits(p, 4);
        if (low != UINT32_MAX && low >= 0xDC00 && low < 0xE000)
            *out = 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
        else
            p->at = back;
    }
    return 1;
}

/* \p{…} or \P{…}, after the letter. */
static int property(reader *p, charset *c, int negative) {
    uint64_t at = p->at;
    if (!take(p, '{'))
        return malformed(p, "\\p needs a property in braces");
    uint64_t begin = p->at;
    while (more(p) && peek(p) != '}')
        p->at++;
    uint64_t n = p->at - begin;
    if (!take(p, '}'))
        return malformed(p, "\\p{ has no closing brace");
    charset set = {0};
    int known;
    if (!charset_add_property(p->s, &set, p->text + begin, n, &known))
        return 0;
    if (!known)
        return fail(p, ENGINE_EUNSUPPORTED, at - 2, "a Unicode property that is not known");
    if (!charset_finish(p->s, &set) || (negative && !charset_negate(p->s, &set)))
        return 0;
    return charset_add_set(p->s, c, &set);
}

/* An escape that stands for one character, after the backslash. */
static int single_escape(reader *p, uint32_t *out) {
    static const char letters[] = "tnvfr", values[] = "\t\n\v\f\r";
    uint64_t at = p->at - 1;
    char c = peek(p);
    const char *found = c ? strchr(letters, c) : NULL;
    if (!more(p))
        return malformed(p, "the pattern ends in a backslash");
    if ((unsigned char)c >= 0x80) { /* the character itself */
        *out = utf8_next(p->text, p->len, &p->at);
        return *out != UINT32_MAX || malformed(p, "no UTF-8");
    }
    p->at++;
    if (found) {
        *out = (uint32_t)values[found - letters];
    } else if (c == 'x') {
        *out = hex_digits(p, 2);
        if (*out == UINT32_MAX)
            return malformed(p, "\\x needs two hexadecimal digits");
    } else if (c == 'u') {
        return unicode_escape(p, out);
    } else if (c == 'c') {
        char letter = (char)(peek(p) | 0x20);
        if (!more(p) || letter < 'a' || letter > 'z')
            return malformed(p, "\\c needs a letter");
        *out = (uint32_t)p->text[p->at++] & 31;
    } else if (c == '0' && !(peek(p) >= '0' && peek(p) <= '9')) {
        *out = 0;
    } else if (c >= '0' && c <= '9') {
        return fail(p, ENGINE_EUNSUPPORTED, at, "a backreference or an octal escape: no automaton holds a backreference");
    } else if (c == 'k') {
        return fail(p, ENGINE_EUNSUPPORTED, at, "a backreference: no automaton holds one");
    } else if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
        return fail(p, ENGINE_EUNSUPPORTED, at, "an escape that ECMA-262 does not have");
    } else {
        *out = (uint32_t)c;
    }
    return 1;
}

/* Whether the escape after the backslash is a class; if so it is added to c. -1: failed. */
static int class_escape(reader *p, charset *c) {
    char letter = peek(p);
    if (!letter || !strchr("dDwWsSpP", letter))
        return 0;
    p->at++;
    int good = letter == 'p' || letter == 'P' ? property(p, c, letter == 'P') : charset_add_class(p->s, c, letter);
    return good ? 1 : -1;
}

/* ---- Classes --------------------------------------------------------------------------------- */

/* One member of a class: 1 with *point set, 2 where it was a class of its own (added), 0: failed. */
static int class_member(reader *p, charset *c, uint32_t *point) {
    if (take(p, '\\')) {
        int kind = class_escape(p, c);
        if (kind)
            return kind < 0 ? 0 : 2;
        if (take(p, 'b')) {
            *point = '\b';
            return 1;
        }
        return single_escape(p, point);
    }
    *point = utf8_next(p->text, p->len, &p->at);
    return *point != UINT32_MAX || malformed(p, "no UTF-8");
}

/* After the opening bracket. */
static uint32_t class_node(reader *p) {
    uint64_t begin = p->at;
    charset c = {0};
    int negative = take(p, '^');
    while (!take(p, ']')) {
        if (!more(p)) {
            (void)fail(p, ENGINE_EFORMAT, begin - 1, "a class that is not closed");
            return REGEX_NONE;
        }
        uint64_t at = p->at;
        uint32_t lo = 0, hi = 0;
        int kind = class_member(p, &c, &lo);
        if (kind == 0)
            return REGEX_NONE;
        if (peek(p) == '-' && p->at + 1 < p->len && p->text[p->at + 1] != ']') {
            p->at++;
            int second = class_member(p, &c, &hi);
            if (second == 0)
                return REGEX_NONE;
            if (kind == 1 && second == 1 && lo > hi) {
                (void)fail(p, ENGINE_EFORMAT, at, "a range whose end comes before its beginning");
                return REGEX_NONE;
            }
            int spans = kind == 1 && second == 1; /* else the dash beside a class is itself */
            if (!(spans ? charset_add_points(p->s, &c, lo, hi) : charset_add(p->s, &c, '-', '-')) ||
                (kind == 2 && second == 1 && !charset_add_points(p->s, &c, hi, hi)))
                return REGEX_NONE;
        }
        if (kind == 1 && !charset_add_points(p->s, &c, lo, lo))
            return REGEX_NONE;
    }
    if (!charset_finish(p->s, &c) || (negative && !charset_negate(p->s, &c)))
        return REGEX_NONE;
    return set_node(p, &c);
}

/* ---- Atoms, quantifiers, alternatives -------------------------------------------------------- */

static uint32_t alternatives(reader *p);

/* A group's kind, after `(?`; the name of a named one is skipped. *look is set for a lookahead. */
static int group_kind(reader *p, int *look, int *negative) {
    uint64_t at = p->at - 2;
    if (take(p, ':'))
        return 1;
    if (peek(p) == '=' || peek(p) == '!') {
        *look = 1;
        *negative = p->text[p->at++] == '!';
        return 1;
    }
    if (looking_at(p, "<=") || looking_at(p, "<!"))
        return fail(p, ENGINE_EUNSUPPORTED, at, "lookbehind is not held");
    if (!take(p, '<'))
        return fail(p, ENGINE_EUNSUPPORTED, at, "a group (inline flags, or another dialect's) that is not held");
    uint64_t begin = p->at;
    while (more(p) && peek(p) != '>' && peek(p) != ')')
        p->at++;
    if (p->at == begin || !take(p, '>'))
        return fail(p, ENGINE_EFORMAT, at, "a group's name is not closed");
    return 1;
}

/* After the opening parenthesis. */
static uint32_t group_node(reader *p, int *look) {
    uint64_t begin = p->at - 1;
    int negative = 0;
    if (take(p, '?') && !group_kind(p, look, &negative))
        return REGEX_NONE;
    if (++p->depth > MAX_DEPTH) {
        (void)fail(p, ENGINE_EUNSUPPORTED, begin, "groups are nested deeper than 250");
        return REGEX_NONE;
    }
    uint32_t inside = alternatives(p);
    p->depth--;
    if (inside == REGEX_NONE)
        return inside;
    if (!take(p, ')')) {
        (void)fail(p, ENGINE_EFORMAT, begin, "a group that is not closed");
        return REGEX_NONE;
    }
    if (!*look)
        return inside;
    p->r->n_looks++;
    return new_node(p, (regex_node){.kind = NODE_LOOK, .negative = (uint8_t)negative, .a = inside});
}

/* After a backslash outside a class. *assertion: it takes no quantifier. */
static uint32_t escape_node(reader *p, int *assertion) {
    if (peek(p) == 'b' || peek(p) == 'B') {
        *assertion = 1;
        uint8_t kind = p->text[p->at++] == 'b' ? NODE_WORD : NODE_NOT_WORD;
        return new_node(p, (regex_node){.kind = kind, .uses_begin = 1, .uses_word = 1});
    }
    charset c = {0};
    int kind = class_escape(p, &c);
    if (kind)
        return kind > 0 && charset_finish(p->s, &c) ? set_node(p, &c) : REGEX_NONE;
    uint32_t point;
    return single_escape(p, &point) ? one_letter(p, point) : REGEX_NONE;
}

static uint32_t any_node(reader *p) {
    charset c = {0};
    if (!charset_add(p->s, &c, '\n', '\n') || !charset_add(p->s, &c, '\r', '\r') ||
        !charset_add(p->s, &c, 0x2028, 0x2029) || !charset_negate(p->s, &c))
        return REGEX_NONE;
    return set_node(p, &c);
}

/* {n}, {n,} or {n,m} at the reader; 0: it is none (nothing taken). Numbers saturate. */
static int braces(reader *p, uint32_t *min, uint32_t *max) {
    uint64_t at = p->at + 1;
    uint64_t bound[2] = {0, REGEX_NO_MAX};
    for (int i = 0; i < 2; i++) {
        uint64_t begin = at, value = 0;
        for (; at < p->len && p->text[at] >= '0' && p->text[at] <= '9'; at++)
            value = value > 400000000 ? value : value * 10 + (uint64_t)(p->text[at] - '0');
        if (at > begin)
            bound[i] = value;
        else if (i == 0)
            return 0;
        if (i == 0 && at < p->len && p->text[at] == '}')
            bound[1] = bound[0];
        if (i == 0 && at < p->len && p->text[at] == '}')
            break;
        if (i == 0 && (at >= p->len || p->text[at++] != ','))
            return 0;
    }
    if (at >= p->len || p->text[at] != '}')
        return 0;
    p->at = at + 1;
    *min = (uint32_t)bound[0];
    *max = (uint32_t)bound[1];
    return 1;
}

/* `{,n}` is text to ECMA-262 without `u`, an error with it, and a quantifier to others. */
static int open_brace(reader *p) {
    uint64_t at = p->at + 1;
    if (at >= p->len || p->text[at] != ',')
        return 1;
    for (at++; at < p->len && p->text[at] >= '0' && p->text[at] <= '9';)
        at++;
    if (at < p->len && p->text[at] == '}' && at > p->at + 2)
        return fail(p, ENGINE_EUNSUPPORTED, p->at, "a quantifier without its lower bound: write {0,n}");
    return 1;
}

static uint32_t atom(reader *p, int *assertion) {
    uint64_t at = p->at;
    uint32_t min, max;
    char c = peek(p);
    if (c == '{' && (!open_brace(p) || braces(p, &min, &max))) {
        (void)fail(p, ENGINE_EFORMAT, at, "a quantifier with nothing to repeat");
        return REGEX_NONE;
    }
    if (c == '*' || c == '+' || c == '?') {
        (void)malformed(p, "a quantifier with nothing to repeat");
        return REGEX_NONE;
    }
    uint32_t point = utf8_next(p->text, p->len, &p->at);
    if (point == UINT32_MAX) {
        (void)malformed(p, "no UTF-8");
        return REGEX_NONE;
    }
    *assertion = c == '^' || c == '$';
    switch (c) {
    case '(':
        return group_node(p, assertion);
    case '[':
        return class_node(p);
    case '\\':
        return escape_node(p, assertion);
    case '.':
        return any_node(p);
    case '^':
        return new_node(p, (regex_node){.kind = NODE_BEGIN, .uses_begin = 1});
    case '$':
        return new_node(p, (regex_node){.kind = NODE_END});
    default:
        return one_letter(p, point);
    }
}

/* An atom with its quantifier. */
static uint32_t term(reader *p) {
    int assertion = 0;
    uint32_t node = atom(p, &assertion);
    if (node == REGEX_NONE)
        return node;
    uint32_t min = 1, max = 1;
    uint64_t at = p->at;
    if (take(p, '*'))
        min = 0, max = REGEX_NO_MAX;
    else if (take(p, '+'))
        max = REGEX_NO_MAX;
    else if (take(p, '?'))
        min = 0;
    else if (peek(p) != '{' || !braces(p, &min, &max))
        return node;
    (void)take(p, '?'); /* lazy: the same language */
    if (assertion || min > max) {
        (void)fail(p, ENGINE_EFORMAT, at, assertion ? "a quantifier after an assertion" : "a quantifier whose bounds cross");
        return REGEX_NONE;
    }
    return new_node(p, (regex_node){.kind = NODE_REPEAT, .a = node, .min = min, .max = max});
}

static uint32_t sequence(reader *p) {
    uint32_t node = REGEX_NONE;
    while (more(p) && peek(p) != '|' && peek(p) != ')') {
        uint32_t next = term(p);
        if (next == REGEX_NONE)
            return next;
        node = node == REGEX_NONE ? next : new_node(p, (regex_node){.kind = NODE_CAT, .a = node, .b = next});
        if (node == REGEX_NONE)
            return node;
    }
    return node == REGEX_NONE ? new_node(p, (regex_node){.kind = NODE_EMPTY}) : node;
}

static uint32_t alternatives(reader *p) {
    uint32_t node = sequence(p);
    while (node != REGEX_NONE && take(p, '|')) {
        uint32_t next = sequence(p);
        if (next == REGEX_NONE)
            return next;
        node = new_node(p, (regex_node){.kind = NODE_ALT, .a = node, .b = next});
    }
    return node;
}

int regex_parse(lang_set *s, regex *r, const char *pattern, uint64_t len) {
    reader p = {.s = s, .r = r, .text = pattern, .len = len};
    memset(r, 0, sizeof *r);
    r->text = pattern;
    r->len = len;
    r->root = alternatives(&p);
    if (r->root != REGEX_NONE && more(&p)) {
        (void)malformed(&p, "a closing parenthesis without an opening one");
        return 0;
    }
    return r->root != REGEX_NONE;
}
