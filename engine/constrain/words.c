/* words.c: the language of given words, and UTF-8.
 *
 * Sorted words are added one after the other to an automaton that stays minimal: what the last word
 * does not share with the next is frozen, each state merged with an equal one that was frozen before
 * (Daciuk, Mihov, Watson, Watson 2000). Time and memory are those of the words. */
#include <stdlib.h>
#include <string.h>

#include "lang_impl.h"

uint32_t utf8_next(const char *text, uint64_t len, uint64_t *at) {
    const unsigned char *t = (const unsigned char *)text + *at;
    uint64_t left = len - *at;
    uint32_t c = t[0], n = c < 0x80 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
    if (c < 0x80) {
        (*at)++;
        return c;
    }
    if (c < 0xC2 || c > 0xF4 || left < n)
        return UINT32_MAX;
    c &= 0x7Fu >> n;
    for (uint32_t i = 1; i < n; i++) {
        if ((t[i] & 0xC0) != 0x80)
            return UINT32_MAX;
        c = c << 6 | (t[i] & 0x3Fu);
    }
    if ((n == 3 && c < 0x800) || (n == 4 && c < 0x10000) || c > 0x10FFFF || (c >= 0xD800 && c < 0xE000))
        return UINT32_MAX;
    *at += n;
    return c;
}

uint32_t utf8_put(uint32_t c, char out[4]) {
    unsigned char *o = (unsigned char *)out;
    if (c < 0x80) {
        o[0] = (unsigned char)c;
        return 1;
    }
    if (c < 0x800) {
        o[0] = (unsigned char)(0xC0 | c >> 6);
        o[1] = (unsigned char)(0x80 | (c & 0x3F));
        return 2;
    }
    if (c < 0x10000) {
        o[0] = (unsigned char)(0xE0 | c >> 12);
        o[1] = (unsigned char)(0x80 | (c >> 6 & 0x3F));
        o[2] = (unsigned char)(0x80 | (c & 0x3F));
        return 3;
    }
    o[0] = (unsigned char)(0xF0 | c >> 18);
    o[1] = (unsigned char)(0x80 | (c >> 12 & 0x3F));
    o[2] = (unsigned char)(0x80 | (c >> 6 & 0x3F));
    o[3] = (unsigned char)(0x80 | (c & 0x3F));
    return 4;
}

typedef struct word {
    const char *text;
    uint64_t len;
} word;

static int compare_words(const void *pa, const void *pb) {
    const word *a = pa, *b = pb;
    uint64_t n = a->len < b->len ? a->len : b->len;
    int c = n ? memcmp(a->text, b->text, n) : 0;
    return c ? c : (a->len > b->len) - (a->len < b->len);
}

/* A state on the path of the last word: its edges so far; the last one leads to the next of the path. */
typedef struct open_state {
    uint32_t first_edge, accept;   /* into open_edges, which are stacked */
} open_state;

typedef struct builder {
    dfa d;                  /* frozen states */
    uint32_t *table;        /* of frozen states, by content */
    uint32_t table_size;
    open_state *path;
    lang_edge *open_edges;  /* of the path's states, one after the other; `to` of a path edge is not set */
    uint32_t n_path, n_open;
    uint32_t letters_cap;
} builder;

static uint64_t content_hash(const lang_edge *edges, uint32_t n, uint32_t accept) {
    uint64_t h = mix64(2, accept);
    for (uint32_t i = 0; i < n; i++)
        h = mix64(mix64(h, (uint64_t)edges[i].lo << 32 | edges[i].hi), edges[i].to);
    return h;
}

static int grow_frozen(lang_set *s, builder *b) {
    uint32_t size = b->table_size ? b->table_size * 2 : 64;
    uint32_t *table = scratch_alloc(s, size * sizeof *table);
    if (!table)
        return 0;
    memset(table, 0xFF, size * sizeof *table);
    for (uint32_t i = 0; i < b->d.n_states; i++) {
        uint32_t end = i + 1 < b->d.n_states ? b->d.first[i + 1] : b->d.n_edges;
        uint32_t at = (uint32_t)content_hash(b->d.edges + b->d.first[i], end - b->d.first[i], b->d.accept[i]);
        for (at &= size - 1; table[at] != UINT32_MAX;)
            at = (at + 1) & (size - 1);
        table[at] = i;
    }
    b->table = table;
    b->table_size = size;
    return 1;
}

/* Join edges to neighbouring letters that lead to one state; how many remain. */
static uint32_t join_edges(lang_edge *edges, uint32_t n) {
    uint32_t m = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (m && edges[m - 1].to == edges[i].to && edges[m - 1].hi + 1 == edges[i].lo)
            edges[m - 1].hi = edges[i].hi;
        else
            edges[m++] = edges[i];
    }
    return m;
}

/* Freeze the last state of the path; the number of the frozen state like it. UINT32_MAX: failed. */
static uint32_t freeze_last(lang_set *s, builder *b) {
    open_state *last = &b->path[--b->n_path];
    lang_edge *edges = b->open_edges + last->first_edge;
    uint32_t n = join_edges(edges, b->n_open - last->first_edge);
    b->n_open = last->first_edge;
    if (2 * b->d.n_states + 2 > b->table_size && !grow_frozen(s, b))
        return UINT32_MAX;
    uint32_t at = (uint32_t)content_hash(edges, n, last->accept) & (b->table_size - 1);
    for (; b->table[at] != UINT32_MAX; at = (at + 1) & (b->table_size - 1)) {
        uint32_t i = b->table[at], end = i + 1 < b->d.n_states ? b->d.first[i + 1] : b->d.n_edges;
        if (b->d.accept[i] == last->accept && end - b->d.first[i] == n &&
            (n == 0 || memcmp(b->d.edges + b->d.first[i], edges, n * sizeof *edges) == 0))
            return i;
    }
    b->table[at] = b->d.n_states;
    if (!dfa_state(s, &b->d, (int)last->accept))
        return UINT32_MAX;
    for (uint32_t e = 0; e < n; e++)
        if (!dfa_edge(s, &b->d, edges[e].lo, edges[e].hi, edges[e].to))
            return UINT32_MAX;
    return b->d.n_states - 1;
}

/* Freeze the path behind its first `keep` states. */
static int freeze_to(lang_set *s, builder *b, uint32_t keep) {
    while (b->n_path > keep) {
        uint32_t number = freeze_last(s, b);
        if (number == UINT32_MAX)
            return 0;
        b->open_edges[b->n_open - 1].to = number;
    }
    return 1;
}

/* Add a word, given as letters; greater than all before. */
static int add_word(lang_set *s, builder *b, const uint32_t *letters, uint32_t n) {
    uint32_t shared = 0;
    while (shared < n && shared + 1 < b->n_path) {
        uint32_t end = b->path[shared + 1].first_edge; /* the edge on the path is the last of its state */
        if (b->open_edges[end - 1].lo != letters[shared])
            break;
        shared++;
    }
    if (!freeze_to(s, b, shared + 1))
        return 0;
    for (uint32_t i = shared; i < n; i++) {
        b->open_edges[b->n_open++] = (lang_edge){letters[i], letters[i], LANG_DEAD};
        b->path[b->n_path++] = (open_state){b->n_open, 0};
    }
    b->path[b->n_path - 1].accept = 1;
    return pool_step(s->pool, n + 1);
}

static int malformed(lang_set *s, const word *w, uint64_t at) {
    (void)pool_fail(s->pool, ENGINE_EFORMAT, "a string that is no UTF-8 at byte %llu of %llu", (unsigned long long)at,
                    (unsigned long long)w->len);
    return 0;
}

static int add_all(lang_set *s, builder *b, const word *words, uint64_t n, uint32_t *letters) {
    b->path[b->n_path++] = (open_state){0, 0};
    for (uint64_t i = 0; i < n; i++) {
        uint32_t m = 0;
        for (uint64_t at = 0; at < words[i].len;) {
            uint32_t code_point = utf8_next(words[i].text, words[i].len, &at);
            if (code_point == UINT32_MAX)
                return malformed(s, &words[i], at);
            letters[m++] = letter_of(code_point);
        }
        if (!add_word(s, b, letters, m))
            return 0;
    }
    return 1;
}

/* Room for the longest word, and for the open edges: each state of the path may have one per word. */
static int init_builder(lang_set *s, builder *b, const word *words, uint64_t n, uint32_t **letters) {
    uint64_t longest = 0, total = 0;
    for (uint64_t i = 0; i < n; i++) {
        longest = words[i].len > longest ? words[i].len : longest;
        total += words[i].len;
    }
    if (longest > LANG_MAX_EDGES || total > 16ull * LANG_MAX_EDGES) {
        (void)pool_fail(s->pool, ENGINE_EUNSUPPORTED, "strings of %llu bytes in all are more than can be held",
                        (unsigned long long)total);
        return 0;
    }
    uint64_t open = total < n + longest ? total : n + longest;
    b->path = scratch_alloc(s, (longest + 2) * sizeof *b->path);
    b->open_edges = scratch_alloc(s, (open + 1) * sizeof *b->open_edges);
    *letters = scratch_alloc(s, (longest + 1) * sizeof **letters);
    return b->path && b->open_edges && *letters &&
           dfa_init(s, &b->d, (uint32_t)(total / 4 < 4096 ? total / 4 : 4096), (uint32_t)(total < 4096 ? total : 4096));
}

const lang *lang_words_of(lang_set *s, const char *const *texts, const uint64_t *lens, uint64_t n) {
    if (n == 0)
        return s->pool->status == ENGINE_OK ? s->empty : NULL;
    scratch_mark mark = scratch_here(s);
    const lang *result = NULL;
    builder b = {0};
    uint32_t *letters;
    word *words = scratch_alloc(s, n * sizeof *words);
    if (!words)
        goto done;
    for (uint64_t i = 0; i < n; i++)
        words[i] = (word){texts[i], lens[i]};
    if (n > 1)
        qsort(words, n, sizeof *words, compare_words);
    uint64_t kept = 1;
    for (uint64_t i = 1; i < n; i++)
        if (compare_words(&words[i], &words[kept - 1]) != 0)
            words[kept++] = words[i];
    if (!init_builder(s, &b, words, kept, &letters) || !add_all(s, &b, words, kept, letters) || !freeze_to(s, &b, 1))
        goto done;
    b.d.start = freeze_last(s, &b);
    dfa_close(&b.d);
    if (b.d.start != UINT32_MAX)
        result = lang_from_minimal(s, &b.d);
done:
    scratch_release(s, mark);
    return result;
}
