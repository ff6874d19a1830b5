/* lang.c: languages as values: interning, canonical numbers, and what may be asked of one (lang.h).
 *
 * A language is entered once its automaton is minimal; states are then numbered breadth first from
 * the start along ascending edges, so equal languages have equal arrays. Distances and counts are
 * found on entry. Languages that only bound the length are two numbers; an automaton that turns out
 * to be one is entered as that. All memory is the pool's. */
#include <string.h>

#include "lang_impl.h"

/* ---- Scratch ------------------------------------------------------------------------------ */

void *scratch_alloc(lang_set *s, uint64_t bytes) {
    bytes = (bytes + 15) & ~(uint64_t)15;
    if (s->pool->status != ENGINE_OK)
        return NULL;
    while (s->current->size - s->current->used < bytes) {
        if (s->current->next) {
            s->current = s->current->next;
            s->current->used = 0;
            continue;
        }
        uint64_t size = bytes > s->current->size * 2 ? bytes : s->current->size * 2;
        if (size > (8u << 20) && bytes <= (8u << 20))
            size = 8u << 20;
        scratch_block *block = pool_alloc(s->pool, sizeof *block);
        unsigned char *data = pool_alloc(s->pool, size);
        if (!block || !data)
            return NULL;
        *block = (scratch_block){.size = size, .data = data};
        s->current->next = block;
        s->current = block;
    }
    void *at = s->current->data + s->current->used;
    s->current->used += bytes;
    return at;
}

void *scratch_zero(lang_set *s, uint64_t bytes) {
    void *at = scratch_alloc(s, bytes);
    if (at)
        memset(at, 0, bytes);
    return at;
}

scratch_mark scratch_here(lang_set *s) {
    return (scratch_mark){s->current, s->current->used};
}

void scratch_release(lang_set *s, scratch_mark mark) {
    s->current = mark.block;
    s->current->used = mark.used;
}

/* ---- The set ------------------------------------------------------------------------------ */

static int same(const lang *a, const lang *b) {
    if (a->hash != b->hash || a->n_states != b->n_states || a->n_edges != b->n_edges ||
        a->is_length != b->is_length || a->min != b->min || a->max != b->max)
        return 0;
    if (a->n_states == 0)
        return 1;
    return memcmp(a->first, b->first, (a->n_states + 1) * sizeof *a->first) == 0 &&
           memcmp(a->edges, b->edges, a->n_edges * sizeof *a->edges) == 0 &&
           memcmp(a->accept, b->accept, a->n_states) == 0;
}

static uint64_t hash_of(const lang *l) {
    uint64_t h = mix64(l->is_length ? l->min + 1 : 0, l->is_length ? l->max : l->n_states);
    for (uint32_t i = 0; i < l->n_states; i++)
        h = mix64(h, (uint64_t)l->first[i] << 1 | l->accept[i]);
    for (uint32_t i = 0; i < l->n_edges; i++)
        h = mix64(mix64(h, (uint64_t)l->edges[i].lo << 32 | l->edges[i].hi), l->edges[i].to);
    return h;
}

static int grow_table(lang_set *s) {
    uint32_t size = s->table_size * 2;
    const lang **table = pool_alloc(s->pool, size * sizeof *table);
    if (!table)
        return 0;
    for (uint32_t i = 0; i < s->table_size; i++) {
        if (!s->table[i])
            continue;
        uint32_t at = (uint32_t)s->table[i]->hash & (size - 1);
        while (table[at])
            at = (at + 1) & (size - 1);
        table[at] = s->table[i];
    }
    s->table = table;
    s->table_size = size;
    return 1;
}

/* Where l is in the table, or the free place where it belongs. */
static uint32_t place_of(const lang_set *s, const lang *l) {
    uint32_t at = (uint32_t)l->hash & (s->table_size - 1);
    while (s->table[at] && !same(s->table[at], l))
        at = (at + 1) & (s->table_size - 1);
    return at;
}

static const lang *enter(lang_set *s, lang *l) {
    if (2 * s->n_langs + 2 > s->table_size && !grow_table(s))
        return NULL;
    l->id = s->n_langs++;
    s->table[place_of(s, l)] = l;
    return l;
}

lang_set *lang_set_new(pool *p) {
    lang_set *s = pool_alloc(p, sizeof *s);
    if (!s)
        return NULL;
    s->pool = p;
    s->table_size = 64;
    s->table = pool_alloc(p, s->table_size * sizeof *s->table);
    s->memo_size = 64;
    s->memo = pool_alloc(p, s->memo_size * sizeof *s->memo);
    s->blocks = s->current = pool_alloc(p, sizeof *s->blocks);
    if (!s->table || !s->memo || !s->blocks)
        return NULL;
    s->blocks->size = 16u << 10;
    s->blocks->data = pool_alloc(p, s->blocks->size);
    if (!s->blocks->data)
        return NULL;
    lang *none = pool_alloc(p, sizeof *none);
    if (!none)
        return NULL;
    none->hash = hash_of(none);
    s->empty = enter(s, none);
    s->all = lang_length(s, 0, LANG_NO_MAX);
    return s->all ? s : NULL;
}

const lang *lang_length(lang_set *s, uint32_t min, uint32_t max) {
    if (min > max)
        return lang_empty(s);
    if (min > LANG_MAX_MIN) {
        (void)pool_fail(s->pool, ENGINE_EUNSUPPORTED, "a minimum length of %u is more than %u, the most that is held",
                        min, LANG_MAX_MIN);
        return NULL;
    }
    lang key = {.is_length = 1, .min = min, .max = max};
    key.hash = hash_of(&key);
    uint32_t at = place_of(s, &key);
    if (s->table[at])
        return s->table[at];
    lang *l = pool_alloc(s->pool, sizeof *l);
    if (!l)
        return NULL;
    *l = key;
    return enter(s, l);
}

const lang *lang_empty(lang_set *s) {
    return s->empty;
}

const lang *lang_all(lang_set *s) {
    return s->all;
}

/* ---- Automata in the making --------------------------------------------------------------- */

int dfa_init(lang_set *s, dfa *d, uint32_t states, uint32_t edges) {
    memset(d, 0, sizeof *d);
    d->cap_states = states < 8 ? 8 : states;
    d->cap_edges = edges < 16 ? 16 : edges;
    d->first = scratch_alloc(s, (d->cap_states + 1ull) * sizeof *d->first);
    d->accept = scratch_alloc(s, d->cap_states);
    d->edges = scratch_alloc(s, (uint64_t)d->cap_edges * sizeof *d->edges);
    if (!d->first || !d->accept || !d->edges)
        return 0;
    d->first[0] = 0;
    return 1;
}

static int too_large(lang_set *s) {
    (void)pool_fail(s->pool, ENGINE_EUNSUPPORTED,
                    "a language of strings needs more than %u states or %u edges: simplify it", LANG_MAX_STATES,
                    LANG_MAX_EDGES);
    return 0;
}

int dfa_state(lang_set *s, dfa *d, int accepting) {
    if (d->n_states == d->cap_states) {
        if (d->n_states >= LANG_MAX_STATES)
            return too_large(s);
        uint32_t cap = d->cap_states * 2;
        uint32_t *first = scratch_alloc(s, (cap + 1ull) * sizeof *first);
        uint8_t *accept = scratch_alloc(s, cap);
        if (!first || !accept)
            return 0;
        memcpy(first, d->first, d->n_states * sizeof *first);
        memcpy(accept, d->accept, d->n_states);
        d->first = first;
        d->accept = accept;
        d->cap_states = cap;
    }
    d->first[d->n_states] = d->n_edges;
    d->accept[d->n_states++] = accepting != 0;
    return pool_step(s->pool, 1);
}

int dfa_edge(lang_set *s, dfa *d, uint32_t lo, uint32_t hi, uint32_t to) {
    if (d->n_edges > d->first[d->n_states - 1]) {
        lang_edge *last = &d->edges[d->n_edges - 1];
        if (last->to == to && last->hi + 1 == lo) {
            last->hi = hi;
            return 1;
        }
    }
    if (d->n_edges == d->cap_edges) {
        if (d->n_edges >= LANG_MAX_EDGES)
            return too_large(s);
        lang_edge *edges = scratch_alloc(s, d->cap_edges * 2ull * sizeof *edges);
        if (!edges)
            return 0;
        memcpy(edges, d->edges, d->n_edges * sizeof *edges);
        d->edges = edges;
        d->cap_edges *= 2;
    }
    d->edges[d->n_edges++] = (lang_edge){lo, hi, to};
    return pool_step(s->pool, 1);
}

void dfa_close(dfa *d) {
    d->first[d->n_states] = d->n_edges;
}

/* ---- Entering ----------------------------------------------------------------------------- */

/* States in breadth-first order from the start: order[new] = old. All are reachable. */
static int canonical_order(lang_set *s, const dfa *d, uint32_t *order, uint32_t *number) {
    memset(number, 0xFF, d->n_states * sizeof *number);
    uint32_t n = 0;
    order[n] = d->start;
    number[d->start] = n++;
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t e = d->first[order[i]]; e < d->first[order[i] + 1]; e++) {
            uint32_t to = d->edges[e].to;
            if (number[to] == UINT32_MAX) {
                order[n] = to;
                number[to] = n++;
            }
        }
    }
    return pool_step(s->pool, d->n_edges + d->n_states);
}

/* Whether the automaton (canonical) is one that only bounds the length. */
static int length_of(const lang *l, uint32_t *min, uint32_t *max) {
    uint32_t accepted = 0;
    for (uint32_t i = 0; i < l->n_states; i++) {
        uint32_t n = l->first[i + 1] - l->first[i];
        const lang_edge *e = &l->edges[l->first[i]];
        int last = i + 1 == l->n_states;
        if (n > 1 || (n == 1 && (e->lo != 0 || e->hi != LAST_LETTER)) || (n == 0 && !last))
            return 0;
        if (n == 1 && e->to != i + 1 && !(last && e->to == i))
            return 0;
        if (l->accept[i] && !accepted++)
            *min = i;
        else if (!l->accept[i] && accepted)
            return 0;
        if (last)
            *max = n == 0 ? i : LANG_NO_MAX;
    }
    return l->n_states != 0 && *min <= LANG_MAX_MIN;
}

/* Bytes that the cheapest of the letters lo … hi takes within a JSON string. */
static uint32_t edge_cost(uint32_t lo, uint32_t hi) {
    static const struct { uint32_t lo, hi, cost; } costs[] = {
        {0x20, 0x21, 1}, {0x23, 0x5B, 1}, {0x5D, 0x7F, 1}, {0x22, 0x22, 2}, {0x5C, 0x5C, 2}, {0x08, 0x0A, 2},
        {0x0C, 0x0D, 2}, {0x80, 0x7FF, 2}, {0x800, 0xFFFF - 0x800, 3}, {0x10000 - 0x800, LAST_LETTER, 4},
    };
    for (uint32_t i = 0; i < sizeof costs / sizeof *costs; i++)
        if (lo <= costs[i].hi && costs[i].lo <= hi)
            return costs[i].cost;
    return 6;
}

/* Edges by their target: from[first[t] … first[t + 1] - 1], with their costs. */
typedef struct reversed {
    uint32_t *first, *from;
    uint8_t *cost;
} reversed;

static int reverse(lang_set *s, const lang *l, reversed *r) {
    r->first = scratch_zero(s, (l->n_states + 2ull) * sizeof *r->first);
    r->from = scratch_alloc(s, (l->n_edges + 1ull) * sizeof *r->from);
    r->cost = scratch_alloc(s, l->n_edges + 1ull);
    if (!r->first || !r->from || !r->cost)
        return 0;
    for (uint32_t e = 0; e < l->n_edges; e++)
        r->first[l->edges[e].to + 2]++;
    for (uint32_t i = 2; i < l->n_states + 2; i++)
        r->first[i] += r->first[i - 1];
    for (uint32_t i = 0; i < l->n_states; i++) {
        for (uint32_t e = l->first[i]; e < l->first[i + 1]; e++) {
            uint32_t at = r->first[l->edges[e].to + 1]++;
            r->from[at] = i;
            r->cost[at] = (uint8_t)edge_cost(l->edges[e].lo, l->edges[e].hi);
        }
    }
    return 1;
}

/* Least cost to acceptance, by Dial's buckets: costs are at most 6, so seven lists in a ring do. */
static int fill_distance(lang_set *s, const lang *l, const reversed *r, uint32_t *distance) {
    uint32_t *next = scratch_alloc(s, (l->n_edges + l->n_states + 1ull) * sizeof *next);
    uint32_t *who = scratch_alloc(s, (l->n_edges + l->n_states + 1ull) * sizeof *who);
    if (!next || !who)
        return 0;
    uint32_t head[7] = {0}, n = 1, left = 0; /* entry 0 ends a list */
    memset(distance, 0xFF, l->n_states * sizeof *distance);
    for (uint32_t i = 0; i < l->n_states; i++) {
        if (l->accept[i]) {
            distance[i] = 0;
            next[n] = head[0];
            who[n] = i;
            head[0] = n++;
            left++;
        }
    }
    for (uint32_t d = 0; left; d++) {
        while (head[d % 7]) {
            uint32_t entry = head[d % 7], i = who[entry];
            head[d % 7] = next[entry];
            left--;
            if (distance[i] != d)
                continue;
            for (uint32_t k = r->first[i]; k < r->first[i + 1]; k++) {
                uint32_t from = r->from[k], cost = d + r->cost[k];
                if (distance[from] <= cost)
                    continue;
                distance[from] = cost;
                next[n] = head[cost % 7];
                who[n] = from;
                head[cost % 7] = n++;
                left++;
            }
        }
    }
    return 1;
}

static uint64_t saturating_add(uint64_t a, uint64_t b) {
    if (a == LANG_INFINITE || b == LANG_INFINITE)
        return LANG_INFINITE;
    return a > LANG_INFINITE - 1 - b ? LANG_INFINITE - 1 : a + b;
}

static uint64_t saturating_mul(uint64_t a, uint64_t b) {
    if (a == LANG_INFINITE)
        return LANG_INFINITE;
    return a && b > (LANG_INFINITE - 1) / a ? LANG_INFINITE - 1 : a * b;
}

/* Strings to acceptance: from the states without edges backwards; what a cycle can be reached from is
 * never freed of its last edge, and stays infinite. */
static int fill_count(lang_set *s, const lang *l, const reversed *r, uint64_t *count) {
    uint32_t *left = scratch_alloc(s, (l->n_states + 1ull) * sizeof *left);
    uint32_t *stack = scratch_alloc(s, (l->n_states + 1ull) * sizeof *stack);
    if (!left || !stack)
        return 0;
    uint32_t n = 0;
    for (uint32_t i = 0; i < l->n_states; i++) {
        count[i] = LANG_INFINITE;
        left[i] = l->first[i + 1] - l->first[i];
        if (left[i] == 0)
            stack[n++] = i;
    }
    while (n) {
        uint32_t i = stack[--n];
        uint64_t sum = l->accept[i];
        for (uint32_t e = l->first[i]; e < l->first[i + 1]; e++)
            sum = saturating_add(sum, saturating_mul(count[l->edges[e].to], l->edges[e].hi - l->edges[e].lo + 1));
        count[i] = sum;
        for (uint32_t k = r->first[i]; k < r->first[i + 1]; k++)
            if (--left[r->from[k]] == 0)
                stack[n++] = r->from[k];
    }
    return 1;
}

/* Classes of ASCII letters that no state tells apart, and the target of each class, for small automata. */
static int fill_ascii(lang_set *s, lang *l) {
    uint8_t cut[129] = {1};
    for (uint32_t e = 0; e < l->n_edges; e++) {
        if (l->edges[e].lo < 128)
            cut[l->edges[e].lo] = 1;
        if (l->edges[e].hi < 128)
            cut[l->edges[e].hi + 1] = 1;
    }
    uint8_t class[128];
    uint32_t n = 0;
    for (uint32_t c = 0; c < 128; c++) {
        n += c != 0 && cut[c];
        class[c] = (uint8_t)n;
    }
    n++;
    if ((uint64_t)n * l->n_states > (1u << 13))
        return 1;
    uint8_t *map = pool_alloc(s->pool, 128);
    uint32_t *ascii = pool_alloc(s->pool, (uint64_t)n * l->n_states * sizeof *ascii);
    if (!map || !ascii)
        return 0;
    memcpy(map, class, 128);
    memset(ascii, 0xFF, (uint64_t)n * l->n_states * sizeof *ascii);
    for (uint32_t i = 0; i < l->n_states; i++) {
        for (uint32_t e = l->first[i]; e < l->first[i + 1] && l->edges[e].lo < 128; e++) {
            uint32_t hi = l->edges[e].hi < 128 ? l->edges[e].hi : 127;
            for (uint32_t c = class[l->edges[e].lo]; c <= class[hi]; c++)
                ascii[i * n + c] = l->edges[e].to;
        }
    }
    l->ascii_class = map;
    l->ascii = ascii;
    l->n_classes = n;
    return 1;
}

/* Copy a canonical automaton out of scratch, with distances and counts, and enter it. */
static const lang *enter_copy(lang_set *s, const lang *key) {
    lang *l = pool_alloc(s->pool, sizeof *l);
    uint64_t n = key->n_states;
    uint32_t *first = pool_alloc(s->pool, (n + 1) * sizeof *first);
    lang_edge *edges = pool_alloc(s->pool, key->n_edges * sizeof *edges);
    uint8_t *accept = pool_alloc(s->pool, n);
    uint32_t *distance = pool_alloc(s->pool, n * sizeof *distance);
    uint64_t *count = pool_alloc(s->pool, n * sizeof *count);
    reversed r;
    if (!l || !first || !edges || !accept || !distance || !count || !reverse(s, key, &r))
        return NULL;
    memcpy(first, key->first, (n + 1) * sizeof *first);
    if (key->n_edges)
        memcpy(edges, key->edges, key->n_edges * sizeof *edges);
    memcpy(accept, key->accept, n);
    *l = *key;
    l->first = first;
    l->edges = edges;
    l->accept = accept;
    l->distance = distance;
    l->count = count;
    if (!fill_distance(s, l, &r, distance) || !fill_count(s, l, &r, count) || !fill_ascii(s, l))
        return NULL;
    return enter(s, l);
}

/* The automaton with canonical numbers, as a language in scratch. */
static int canonical(lang_set *s, const dfa *d, lang *key) {
    uint32_t n = d->n_states, m = 0;
    uint32_t *order = scratch_alloc(s, n * sizeof *order);
    uint32_t *number = scratch_alloc(s, n * sizeof *number);
    uint32_t *first = scratch_alloc(s, (n + 1ull) * sizeof *first);
    lang_edge *edges = scratch_alloc(s, (d->n_edges + 1ull) * sizeof *edges);
    uint8_t *accept = scratch_alloc(s, n);
    if (!order || !number || !first || !edges || !accept || !canonical_order(s, d, order, number))
        return 0;
    for (uint32_t i = 0; i < n; i++) {
        first[i] = m;
        accept[i] = d->accept[order[i]];
        for (uint32_t e = d->first[order[i]]; e < d->first[order[i] + 1]; e++) {
            lang_edge edge = {d->edges[e].lo, d->edges[e].hi, number[d->edges[e].to]};
            if (m > first[i] && edges[m - 1].to == edge.to && edges[m - 1].hi + 1 == edge.lo)
                edges[m - 1].hi = edge.hi;
            else
                edges[m++] = edge;
        }
    }
    first[n] = m;
    *key = (lang){.n_states = n, .n_edges = m, .first = first, .edges = edges, .accept = accept};
    return 1;
}

const lang *lang_from_minimal(lang_set *s, const dfa *d) {
    if (s->pool->status != ENGINE_OK)
        return NULL;
    if (d->n_states == 0)
        return s->empty;
    scratch_mark mark = scratch_here(s);
    lang key = {0};
    const lang *found = NULL;
    uint32_t min = 0, max = 0;
    if (!canonical(s, d, &key))
        goto done;
    if (length_of(&key, &min, &max)) {
        found = lang_length(s, min, max);
        goto done;
    }
    key.hash = hash_of(&key);
    found = s->table[place_of(s, &key)];
    if (!found)
        found = enter_copy(s, &key);
done:
    scratch_release(s, mark);
    return found;
}

const lang *lang_from_dfa(lang_set *s, const dfa *d) {
    scratch_mark mark = scratch_here(s);
    dfa least;
    const lang *l = dfa_minimise(s, d, &least) ? lang_from_minimal(s, &least) : NULL;
    scratch_release(s, mark);
    return l;
}

/* ---- Reading ------------------------------------------------------------------------------ */

int lang_is_empty(const lang *l) {
    return l->n_states == 0 && !l->is_length;
}

int lang_is_all(const lang *l) {
    return l->is_length && l->min == 0 && l->max == LANG_NO_MAX;
}

int lang_is_length(const lang *l, uint32_t *min, uint32_t *max) {
    if (!l->is_length)
        return 0;
    if (min)
        *min = l->min;
    if (max)
        *max = l->max;
    return 1;
}

uint32_t lang_id(const lang *l) {
    return l->id;
}

uint32_t lang_start(const lang *l) {
    return lang_is_empty(l) ? LANG_DEAD : 0;
}

uint32_t lang_step(const lang *l, uint32_t state, uint32_t code_point) {
    if (state == LANG_DEAD || code_point > 0x10FFFF || (code_point >= 0xD800 && code_point < 0xE000))
        return LANG_DEAD;
    if (l->is_length) {
        if (l->max == LANG_NO_MAX)
            return state < l->min ? state + 1 : l->min;
        return state < l->max ? state + 1 : LANG_DEAD;
    }
    if (l->ascii && code_point < 128)
        return l->ascii[state * l->n_classes + l->ascii_class[code_point]];
    uint32_t letter = letter_of(code_point), lo = l->first[state], hi = l->first[state + 1];
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (l->edges[mid].hi < letter)
            lo = mid + 1;
        else
            hi = mid;
    }
    if (lo == l->first[state + 1] || l->edges[lo].lo > letter)
        return LANG_DEAD;
    return l->edges[lo].to;
}

int lang_accepts(const lang *l, uint32_t state) {
    if (state == LANG_DEAD)
        return 0;
    return l->is_length ? state >= l->min : l->accept[state];
}

uint32_t lang_distance(const lang *l, uint32_t state) {
    if (state == LANG_DEAD)
        return UINT32_MAX;
    if (l->is_length)
        return state < l->min ? l->min - state : 0;
    return l->distance[state];
}

uint64_t lang_count(const lang *l, uint32_t state) {
    if (state == LANG_DEAD)
        return 0;
    if (!l->is_length)
        return l->count[state];
    if (l->max == LANG_NO_MAX)
        return LANG_INFINITE;
    uint64_t sum = 0, power = 1;
    for (uint32_t i = state; i <= l->max; i++) {
        if (power == LANG_INFINITE - 1)
            return power;
        if (i >= l->min)
            sum = saturating_add(sum, power);
        power = saturating_mul(power, LETTERS);
    }
    return sum;
}

/* Append the letters lo … hi as one or two edges of code points. */
static uint32_t put_edge(lang_edge *out, uint32_t cap, uint32_t n, lang_edge e) {
    lang_edge part = {code_point_of(e.lo), code_point_of(e.hi), e.to};
    if (e.lo < SURROGATES && e.hi >= SURROGATES) {
        if (n < cap)
            out[n] = (lang_edge){e.lo, SURROGATES - 1, e.to};
        n++;
        part.lo = 0xE000;
    }
    if (n < cap)
        out[n] = part;
    return n + 1;
}

uint32_t lang_edges(const lang *l, uint32_t state, lang_edge *out, uint32_t cap) {
    if (state == LANG_DEAD)
        return 0;
    uint32_t n = 0;
    if (l->is_length) {
        uint32_t to = lang_step(l, state, 0);
        return to == LANG_DEAD ? 0 : put_edge(out, cap, 0, (lang_edge){0, LAST_LETTER, to});
    }
    for (uint32_t e = l->first[state]; e < l->first[state + 1]; e++)
        n = put_edge(out, cap, n, l->edges[e]);
    return n;
}

int lang_next_edge(const lang *l, uint32_t state, uint32_t from, lang_edge *out) {
    if (state == LANG_DEAD || from > 0x10FFFF)
        return 0;
    from = from >= SURROGATES && from < 0xE000 ? 0xE000 : from;
    uint32_t letter = letter_of(from);
    lang_edge e = {0, LAST_LETTER, LANG_DEAD};
    if (l->is_length) {
        e.to = lang_step(l, state, 0);
        if (e.to == LANG_DEAD)
            return 0;
    } else {
        uint32_t lo = l->first[state], hi = l->first[state + 1];
        while (lo < hi) {
            uint32_t mid = lo + (hi - lo) / 2;
            if (l->edges[mid].hi < letter)
                lo = mid + 1;
            else
                hi = mid;
        }
        if (lo == l->first[state + 1])
            return 0;
        e = l->edges[lo];
    }
    e.lo = e.lo < letter ? letter : e.lo;
    (void)put_edge(out, 1, 0, e);
    return 1;
}

int lang_holds(const lang *l, const char *text, uint64_t len) {
    uint32_t state = lang_start(l);
    for (uint64_t at = 0; at < len && state != LANG_DEAD;) {
        uint32_t code_point = utf8_next(text, len, &at);
        if (code_point == UINT32_MAX)
            return 0;
        state = lang_step(l, state, code_point);
    }
    return lang_accepts(l, state);
}
