/* lang_ops.c: and, or, minus, not of languages, and the strings of finite ones.
 *
 * Products are explored from the start, so only pairs that occur are made; what passes the caps of a
 * language is refused by name. Languages that only bound the length combine as intervals where the
 * result is one. Results are remembered by the operands' numbers. */
#include <string.h>

#include "lang_impl.h"

enum { OP_AND = 1, OP_OR = 2, OP_MINUS = 3 };

/* ---- Results remembered ------------------------------------------------------------------- */

static uint32_t memo_place(const lang_set *s, uint64_t key) {
    uint32_t at = (uint32_t)mix64(0, key) & (s->memo_size - 1);
    while (s->memo[at].key && s->memo[at].key != key)
        at = (at + 1) & (s->memo_size - 1);
    return at;
}

static const lang *remember(lang_set *s, uint64_t key, const lang *result) {
    if (!result)
        return NULL;
    if (2 * s->n_memo + 2 > s->memo_size) {
        lang_memo *old = s->memo;
        uint32_t size = s->memo_size;
        lang_memo *memo = pool_alloc(s->pool, 2ull * size * sizeof *memo);
        if (!memo)
            return NULL;
        s->memo = memo;
        s->memo_size = 2 * size;
        for (uint32_t i = 0; i < size; i++)
            if (old[i].key)
                memo[memo_place(s, old[i].key)] = old[i];
    }
    s->memo[memo_place(s, key)] = (lang_memo){key, result};
    s->n_memo++;
    return result;
}

/* ---- Products ----------------------------------------------------------------------------- */

typedef struct pairs {
    uint64_t *pair;       /* a << 32 | b of a state */
    uint32_t n, cap;
    uint32_t *table;
    uint32_t table_size;
} pairs;

/* The number of a pair, new or known; UINT32_MAX: failed. */
static uint32_t pair_number(lang_set *s, pairs *p, uint32_t a, uint32_t b) {
    uint64_t key = (uint64_t)a << 32 | b;
    if (2 * p->n + 2 > p->table_size) {
        uint32_t size = p->table_size ? 2 * p->table_size : 64;
        uint32_t *table = scratch_alloc(s, size * sizeof *table);
        uint64_t *pair = scratch_alloc(s, (size / 2 + 1) * sizeof *pair);
        if (!table || !pair)
            return UINT32_MAX;
        memset(table, 0xFF, size * sizeof *table);
        if (p->n)
            memcpy(pair, p->pair, p->n * sizeof *pair);
        p->table = table;
        p->pair = pair;
        p->table_size = size;
        for (uint32_t i = 0; i < p->n; i++) {
            uint32_t at = (uint32_t)mix64(1, pair[i]) & (size - 1);
            while (table[at] != UINT32_MAX)
                at = (at + 1) & (size - 1);
            table[at] = i;
        }
    }
    uint32_t at = (uint32_t)mix64(1, key) & (p->table_size - 1);
    while (p->table[at] != UINT32_MAX) {
        if (p->pair[p->table[at]] == key)
            return p->table[at];
        at = (at + 1) & (p->table_size - 1);
    }
    p->table[at] = p->n;
    p->pair[p->n] = key;
    return p->n++;
}

/* A state's edges as letters, whatever the language is kept as. */
typedef struct edge_list {
    const lang_edge *edges;
    uint32_t n;
    lang_edge one;
} edge_list;

static void edges_of(const lang *l, uint32_t state, edge_list *out) {
    out->n = 0;
    out->edges = &out->one;
    if (state == LANG_DEAD)
        return;
    if (l->is_length) {
        uint32_t to = lang_step(l, state, 0);
        out->one = (lang_edge){0, LAST_LETTER, to};
        out->n = to != LANG_DEAD;
        return;
    }
    out->edges = l->edges + l->first[state];
    out->n = l->first[state + 1] - l->first[state];
}

static int alive(int op, uint32_t a, uint32_t b) {
    if (op == OP_AND)
        return a != LANG_DEAD && b != LANG_DEAD;
    if (op == OP_OR)
        return a != LANG_DEAD || b != LANG_DEAD;
    return a != LANG_DEAD;
}

static int accepts(int op, int a, int b) {
    return op == OP_AND ? a && b : op == OP_OR ? a || b : a && !b;
}

/* Merge the edges of both sides: wherever either changes its target, a new edge begins. */
static int pair_edges(lang_set *s, dfa *d, pairs *p, int op, const edge_list *a, const edge_list *b) {
    uint32_t i = 0, j = 0, at = 0;
    while (i < a->n || j < b->n) {
        uint32_t ta = LANG_DEAD, tb = LANG_DEAD, end = LAST_LETTER;
        if (i < a->n) {
            if (a->edges[i].lo > at) {
                end = a->edges[i].lo - 1;
            } else {
                ta = a->edges[i].to;
                end = a->edges[i].hi;
            }
        }
        if (j < b->n) {
            if (b->edges[j].lo > at) {
                end = b->edges[j].lo - 1 < end ? b->edges[j].lo - 1 : end;
            } else {
                tb = b->edges[j].to;
                end = b->edges[j].hi < end ? b->edges[j].hi : end;
            }
        }
        if (alive(op, ta, tb)) {
            uint32_t to = pair_number(s, p, ta, tb);
            if (to == UINT32_MAX || !dfa_edge(s, d, at, end, to))
                return 0;
        }
        if (i < a->n && a->edges[i].hi <= end)
            i++;
        if (j < b->n && b->edges[j].hi <= end)
            j++;
        at = end + 1;
    }
    return 1;
}

static const lang *product(lang_set *s, int op, const lang *a, const lang *b) {
    scratch_mark mark = scratch_here(s);
    const lang *result = NULL;
    pairs p = {0};
    dfa d;
    if (!dfa_init(s, &d, a->n_states + b->n_states, a->n_edges + b->n_edges) ||
        pair_number(s, &p, lang_start(a), lang_start(b)) == UINT32_MAX)
        goto done;
    for (uint32_t i = 0; i < p.n; i++) {
        uint32_t sa = (uint32_t)(p.pair[i] >> 32), sb = (uint32_t)p.pair[i];
        edge_list ea, eb;
        edges_of(a, sa, &ea);
        edges_of(b, sb, &eb);
        if (!dfa_state(s, &d, accepts(op, lang_accepts(a, sa), lang_accepts(b, sb))) ||
            !pair_edges(s, &d, &p, op, &ea, &eb))
            goto done;
    }
    dfa_close(&d);
    result = lang_from_dfa(s, &d);
done:
    scratch_release(s, mark);
    return result;
}

/* ---- Lengths ------------------------------------------------------------------------------ */

/* The result where both only bound the length and it is one interval; else NULL. */
static const lang *of_lengths(lang_set *s, int op, const lang *a, const lang *b) {
    uint32_t low = a->min > b->min ? a->min : b->min, high = a->max < b->max ? a->max : b->max;
    if (op == OP_AND)
        return lang_length(s, low, high);
    if (op == OP_OR) {
        if (high != LANG_NO_MAX && low > high + 1)
            return NULL; /* a gap between them */
        return lang_length(s, a->min < b->min ? a->min : b->min, a->max > b->max ? a->max : b->max);
    }
    if (low > high)
        return a;
    if (b->min > a->min && b->max < a->max)
        return NULL; /* a hole in the middle */
    if (b->min <= a->min)
        return b->max >= a->max ? s->empty : lang_length(s, b->max + 1, a->max);
    return lang_length(s, a->min, b->min - 1);
}

/* Cases that need no product; NULL where one is needed, or on failure. */
static const lang *simple(lang_set *s, int op, const lang *a, const lang *b) {
    int no_a = lang_is_empty(a), no_b = lang_is_empty(b);
    if (op == OP_AND) {
        if (a == b || no_a || lang_is_all(b))
            return a;
        if (no_b || lang_is_all(a))
            return b;
    } else if (op == OP_OR) {
        if (a == b || no_b || lang_is_all(a))
            return a;
        if (no_a || lang_is_all(b))
            return b;
    } else if (a == b || no_a || lang_is_all(b)) {
        return s->empty;
    } else if (no_b) {
        return a;
    }
    return a->is_length && b->is_length ? of_lengths(s, op, a, b) : NULL;
}

static const lang *combine(lang_set *s, int op, const lang *a, const lang *b) {
    if (s->pool->status != ENGINE_OK || !a || !b)
        return NULL;
    const lang *result = simple(s, op, a, b);
    if (result || s->pool->status != ENGINE_OK)
        return result;
    if (op != OP_MINUS && a->id > b->id) {
        const lang *swap = a;
        a = b;
        b = swap;
    }
    uint64_t key = (uint64_t)op << 60 | (uint64_t)a->id << 30 | b->id;
    uint32_t at = memo_place(s, key);
    if (s->memo[at].key)
        return s->memo[at].result;
    return remember(s, key, product(s, op, a, b));
}

const lang *lang_and(lang_set *s, const lang *a, const lang *b) {
    return combine(s, OP_AND, a, b);
}

const lang *lang_or(lang_set *s, const lang *a, const lang *b) {
    return combine(s, OP_OR, a, b);
}

const lang *lang_minus(lang_set *s, const lang *a, const lang *b) {
    return combine(s, OP_MINUS, a, b);
}

const lang *lang_not(lang_set *s, const lang *a) {
    return combine(s, OP_MINUS, s->all, a);
}

/* ---- The strings of a finite language ------------------------------------------------------- */

typedef struct partial {
    uint32_t state, len;
    char *text;
} partial;

/* The strings one letter longer than those of `from`, in their order. */
static int longer(lang_set *s, const lang *l, const partial *from, uint32_t n, partial *to, uint32_t *n_to,
                  uint32_t cap) {
    *n_to = 0;
    for (uint32_t i = 0; i < n; i++) {
        edge_list list;
        edges_of(l, from[i].state, &list);
        for (uint32_t e = 0; e < list.n; e++) {
            for (uint32_t letter = list.edges[e].lo; letter <= list.edges[e].hi; letter++) {
                char *text = scratch_alloc(s, from[i].len + 4);
                if (!text || *n_to == cap || !pool_step(s->pool, 1))
                    return 0;
                memcpy(text, from[i].text, from[i].len);
                uint32_t len = from[i].len + utf8_put(code_point_of(letter), text + from[i].len);
                to[(*n_to)++] = (partial){list.edges[e].to, len, text};
            }
        }
    }
    return 1;
}

uint32_t lang_enumerate(lang_set *s, const lang *l, uint32_t cap, const char **texts, uint64_t *lens) {
    uint64_t count = lang_count(l, lang_start(l));
    if (count > cap || count == 0)
        return 0;
    scratch_mark mark = scratch_here(s);
    partial *now = scratch_alloc(s, count * sizeof *now), *next = scratch_alloc(s, count * sizeof *next);
    uint32_t n = 1, done = 0;
    if (!now || !next)
        return 0;
    now[0] = (partial){lang_start(l), 0, ""};
    while (n) {
        for (uint32_t i = 0; i < n; i++) {
            if (!lang_accepts(l, now[i].state))
                continue;
            char *copy = pool_alloc(s->pool, now[i].len + 1ull);
            if (!copy)
                goto fail;
            memcpy(copy, now[i].text, now[i].len);
            texts[done] = copy;
            lens[done++] = now[i].len;
        }
        partial *swap = now;
        if (!longer(s, l, now, n, next, &n, (uint32_t)count))
            goto fail;
        now = next;
        next = swap;
    }
    scratch_release(s, mark);
    return done;
fail:
    scratch_release(s, mark);
    return 0;
}
