/* fuzz_lang.c: libFuzzer target of languages: patterns, words, number ranges and their products.
 *
 * Byte 0 chooses: bit 0 search, bit 1 whether the rest is one pattern, two patterns cut at a byte 0xFF,
 * words cut at newlines (bit 2), or numbers cut at newlines (bit 3). All is made within 32 MiB and two
 * million steps, or refused with a text. Promises: states are trimmed and reach acceptance at the
 * distance that they give, edges are disjoint and agree with steps, a complement's complement is the
 * language itself, and products obey de Morgan. */
#include <stdint.h>
#include <string.h>

#include "lang.h"
#include "walk.h"

enum { STATES = 300, EDGES = 64, PIECES = 64 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The bytes that a code point takes within a JSON string. */
static uint32_t cost(uint32_t c)
{
    if (c == '"' || c == '\\' || (c >= 8 && c <= 13 && c != 11))
        return 2;
    if (c < 0x20)
        return 6;
    return c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
}

/* One state: its edges, and that an edge brings acceptance as near as its distance says. */
static uint32_t check_state(const lang *l, uint32_t state, uint32_t next)
{
    lang_edge edges[EDGES];
    uint32_t n = lang_edges(l, state, edges, EDGES), distance = lang_distance(l, state), best = UINT32_MAX;
    uint32_t onward = lang_start(l);
    walk_require(distance != UINT32_MAX && (distance == 0) == lang_accepts(l, state), "every state reaches acceptance");
    for (uint32_t i = 0; i < n && i < EDGES; i++) {
        walk_require(edges[i].lo <= edges[i].hi && (i == 0 || edges[i].lo > edges[i - 1].hi), "edges ascend");
        walk_require(lang_step(l, state, edges[i].lo) == edges[i].to && lang_step(l, state, edges[i].hi) == edges[i].to,
                     "steps follow edges");
        uint32_t to = lang_distance(l, edges[i].to) + cost(edges[i].lo);
        best = to < best ? to : best;
        if (i == next % n)
            onward = edges[i].to;
    }
    walk_require(distance == 0 || n > EDGES || best >= distance, "no edge is nearer than the distance");
    walk_require(lang_count(l, state) > 0, "a live state has words");
    return onward;
}

static void check(lang_set *s, const lang *l, const uint8_t *data, size_t size)
{
    uint32_t state = lang_start(l);
    for (size_t i = 0; state != LANG_DEAD && i < STATES && i < size; i++)
        state = check_state(l, state, data[i]);
    const lang *other = lang_not(s, l);
    if (other == NULL)
        return;
    walk_require(lang_holds(l, (const char *)data, 0) != lang_holds(other, (const char *)data, 0), "a complement is one");
    const lang *back = lang_not(s, other);
    walk_require(back == NULL || back == l, "the complement of the complement is the language");
}

static void check_two(lang_set *s, const lang *a, const lang *b)
{
    const lang *left = lang_not(s, lang_and(s, a, b));
    const lang *right = lang_or(s, lang_not(s, a), lang_not(s, b));
    walk_require(!left || !right || left == right, "products obey de Morgan");
}

/* Pieces of the input, cut at a byte; how many. */
static uint64_t cut(const uint8_t *data, size_t size, uint8_t at, const char **texts, uint64_t *lens)
{
    uint64_t n = 0;
    for (size_t begin = 0, i = 0; i <= size && n < PIECES; i++) {
        if (i < size && data[i] != at)
            continue;
        texts[n] = (const char *)data + begin;
        lens[n++] = i - begin;
        begin = i + 1;
    }
    return n;
}

static const lang *number_range(pool *p, lang_set *s, const char **texts, const uint64_t *lens, uint64_t n, uint8_t bits)
{
    lang_decimal room[3];
    lang_range range = {.integer = bits >> 4 & 1, .min_exclusive = bits >> 5 & 1, .max_exclusive = bits >> 6 & 1};
    const lang_decimal **to[3] = {&range.min, &range.max, &range.multiple_of};
    for (uint64_t i = 0; i < n && i < 3; i++) {
        if (lens[i] == 0)
            continue;
        if (!lang_decimal_parse(p, texts[i], lens[i], &room[i]))
            return NULL;
        *to[i] = &room[i];
    }
    return lang_numbers(s, &range);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    const char *texts[PIECES];
    uint64_t lens[PIECES];
    uint8_t bits = data[0];
    pool p;
    pool_init(&p, 32 << 20, 2000000);
    lang_set *s = lang_set_new(&p);
    uint64_t n = cut(data + 1, size - 1, bits & 12 ? '\n' : 0xFF, texts, lens);
    const lang *l, *other = NULL;
    walk_require(s != NULL, "a set fits into its memory");
    if (bits & 4) {
        l = lang_words_of(s, texts, lens, n);
    } else if (bits & 8) {
        l = number_range(&p, s, texts, lens, n, bits);
    } else {
        l = lang_regex(s, texts[0], lens[0], bits & 1);
        if (l && n > 1)
            other = lang_regex(s, texts[1], lens[1], bits & 2);
    }
    if (l)
        check(s, l, data, size);
    if (l && other)
        check_two(s, l, other);
    walk_require(p.status == ENGINE_OK || p.error[0] != '\0', "a refusal has a text");
    pool_free(&p);
    return 0;
}
