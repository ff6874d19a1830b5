/* cfg_nfa.c: rules as one nondeterministic automaton over bytes, and the fewest bytes from each of its
 * states to the end of its rule (Knuth's generalisation of Dijkstra's algorithm: a call costs what the
 * rule's shortest text has).
 *
 * Small rules that do not recur, and rules mentioned once, are copied into their callers: less is left
 * to the stack. Refused: rules that are mentioned and not defined. All memory is the pool's. */
#include <string.h>

#include "cfg_build.h"

enum { COPY_SMALL = 24, COPY_ONCE = 256, COPY_DEPTH = 16 };

/* ---- Which rules are copied ---------------------------------------------------------------- */

typedef struct mentions {
    uint32_t *pairs;         /* caller, called */
    uint64_t n, room;
    uint32_t *uses;          /* by rule, saturating */
} mentions;

static int mention(cfg_source *s, mentions *m, uint32_t caller, uint32_t called, uint32_t copies)
{
    if (m->n == m->room) {
        uint64_t room = m->room * 2 + 64;
        m->pairs = pool_grow(s->p, m->pairs, m->n * 2 * sizeof *m->pairs, room * 2 * sizeof *m->pairs);
        if (m->pairs == NULL)
            return 0;
        m->room = room;
    }
    m->pairs[2 * m->n] = caller;
    m->pairs[2 * m->n++ + 1] = called;
    m->uses[called] += m->uses[called] < 2 ? (copies > 1 ? 2 : 1) : 0;
    return pool_step(s->p, 1);
}

/* Calls in an expression; recursion is as deep as groups may be nested. */
static int find_mentions(cfg_source *s, mentions *m, uint32_t caller, const cfg_expr *e, uint32_t copies)
{
    if (e->kind == CFG_CALL)
        return mention(s, m, caller, e->n, copies);
    if (e->kind == CFG_REPEAT)
        return find_mentions(s, m, caller, e->part, e->max == 1 || (e->max == CFG_NONE && e->min == 0) ? copies : 2);
    if (e->kind == CFG_SEQUENCE || e->kind == CFG_CHOICE)
        for (uint32_t i = 0; i < e->n; i++)
            if (!find_mentions(s, m, caller, e->parts[i], copies))
                return 0;
    return 1;
}

/* Who mentions a rule: list[first[r]] … list[first[r + 1] - 1]. */
typedef struct callers {
    uint64_t *first;
    uint32_t *list;
} callers;

static int find_callers(cfg_source *s, const mentions *m, callers *c)
{
    c->first = pool_alloc(s->p, ((uint64_t)s->n_rules + 2) * sizeof *c->first);
    c->list = pool_alloc(s->p, m->n * sizeof *c->list);
    if (c->first == NULL || c->list == NULL)
        return 0;
    for (uint64_t i = 0; i < m->n; i++)
        c->first[m->pairs[2 * i + 1] + 2]++;
    for (uint32_t r = 0; r < s->n_rules; r++)
        c->first[r + 2] += c->first[r + 1];
    for (uint64_t i = 0; i < m->n; i++)
        c->list[c->first[m->pairs[2 * i + 1] + 1]++] = m->pairs[2 * i];
    return 1;
}

/* Rules in an order in which a rule stands behind all that it calls; those in or above cycles are left
 * out. Returns how many; order [n_rules]. */
static uint32_t leaves_first(cfg_source *s, const mentions *m, const callers *c, uint32_t *order)
{
    uint32_t n = s->n_rules, *open = pool_alloc(s->p, n * sizeof *open), n_order = 0;
    if (open == NULL)
        return 0;
    for (uint64_t i = 0; i < m->n; i++)
        open[m->pairs[2 * i]]++;
    for (uint32_t r = 0; r < n; r++)
        if (open[r] == 0)
            order[n_order++] = r;
    for (uint32_t k = 0; k < n_order; k++)
        for (uint64_t i = c->first[order[k]]; i < c->first[order[k] + 1]; i++)
            if (--open[c->list[i]] == 0)
                order[n_order++] = c->list[i];
    return n_order;
}

/* The size of an expression with its copies in it. */
static uint64_t copied_size(const nfa *a, const uint64_t *sizes, const cfg_expr *e)
{
    uint64_t size = 0;
    if (e->kind == CFG_CALL)
        return a->inlined[e->n] ? sizes[e->n] : 1;
    if (e->kind == CFG_REPEAT)
        return copied_size(a, sizes, e->part) * (e->max == CFG_NONE ? e->min + 1 : e->max);
    if (e->kind != CFG_SEQUENCE && e->kind != CFG_CHOICE)
        return e->size;
    for (uint32_t i = 0; i < e->n; i++)
        size += copied_size(a, sizes, e->parts[i]);
    return size < COPY_ONCE * 2 ? size : COPY_ONCE * 2;
}

/* Whether an expression admits the empty text, as far as is known of the rules. */
static int empty_too(const nfa *a, const cfg_expr *e)
{
    if (e->kind == CFG_CALL)
        return a->nullable[e->n];
    if (!e->may_be_empty)
        return 0;
    if (e->kind == CFG_REPEAT)
        return e->min == 0 || empty_too(a, e->part);
    if (e->kind != CFG_SEQUENCE && e->kind != CFG_CHOICE)
        return 1;
    for (uint32_t i = 0; i < e->n; i++)
        if (empty_too(a, e->parts[i]) != (e->kind == CFG_SEQUENCE))
            return e->kind == CFG_CHOICE;
    return e->kind == CFG_SEQUENCE;
}

/* Rules that admit the empty text: each that is found may make its callers so. */
static void find_nullable(nfa *a, const cfg_source *s, const callers *c, uint32_t *queue)
{
    uint32_t n = 0;
    for (uint32_t r = 0; r < s->n_rules; r++)
        if (!a->nullable[r] && empty_too(a, s->rules[r].body)) {
            a->nullable[r] = 1;
            queue[n++] = r;
        }
    for (uint32_t k = 0; k < n; k++)
        for (uint64_t i = c->first[queue[k]]; i < c->first[queue[k] + 1]; i++) {
            uint32_t r = c->list[i];
            if (a->nullable[r] || !empty_too(a, s->rules[r].body))
                continue;
            a->nullable[r] = 1;
            queue[n++] = r;
            if (!pool_step(s->p, s->rules[r].body->n + 1))
                return;
        }
}

static engine_status choose_copies(nfa *a, cfg_source *s, const cfg_expr *document)
{
    mentions m = {.uses = pool_alloc(s->p, s->n_rules * sizeof *m.uses)};
    uint32_t *order = pool_alloc(s->p, s->n_rules * sizeof *order);
    uint64_t *sizes = pool_alloc(s->p, s->n_rules * sizeof *sizes);
    if (m.uses == NULL || order == NULL || sizes == NULL)
        return s->p->status;
    for (uint32_t r = 0; r < s->n_rules; r++)
        if (!find_mentions(s, &m, r, s->rules[r].body, 1))
            return s->p->status;
    uint64_t inner = m.n; /* what the document mentions counts as a use, not as a caller */
    if (!find_mentions(s, &m, 0, document, 1))
        return s->p->status;
    m.n = inner;
    callers c;
    if (!find_callers(s, &m, &c))
        return s->p->status;
    find_nullable(a, s, &c, order);
    uint32_t n = leaves_first(s, &m, &c, order);
    for (uint32_t k = 0; k < n; k++) {
        uint32_t r = order[k];
        sizes[r] = copied_size(a, sizes, s->rules[r].body);
        a->inlined[r] = sizes[r] <= COPY_SMALL && !s->rules[r].whole;
    }
    for (uint32_t r = 0; r < s->n_rules; r++)
        if (m.uses[r] == 1 && s->rules[r].body->size <= COPY_ONCE && !s->rules[r].whole)
            a->inlined[r] = 1;
    return s->p->status;
}

/* ---- Expressions to edges ------------------------------------------------------------------ */

static uint32_t new_state(nfa *a)
{
    if (a->n_states >= NFA_EMPTY - 1 || !pool_step(a->s->p, 1))
        return 0;
    return a->n_states++;
}

static int add_edge(nfa *a, uint32_t from, uint32_t to, uint32_t label)
{
    if (a->n_edges == a->room) {
        uint64_t room = a->room * 2 + 256;
        a->edges = pool_grow(a->s->p, a->edges, a->n_edges * sizeof *a->edges, room * sizeof *a->edges);
        if (a->edges == NULL)
            return 0;
        a->room = room;
    }
    a->edges[a->n_edges++] = (nfa_edge){from, to, label};
    return pool_step(a->s->p, 1);
}

static int add_bytes(nfa *a, uint32_t from, uint32_t to, uint32_t lo, uint32_t hi)
{
    return add_edge(a, from, to, (lo & 0xFF) << 8 | (hi & 0xFF));
}

/* Code points lo … hi of one UTF-8 length n whose last n - 1 - same bytes are free: one path. */
static int add_path(nfa *a, uint32_t from, uint32_t to, uint32_t lo, uint32_t hi)
{
    char b[4], e[4];
    uint32_t n = cfg_utf8(lo, b), at = from;
    (void)cfg_utf8(hi, e);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t next = i + 1 == n ? to : new_state(a);
        if (!add_bytes(a, at, next, (unsigned char)b[i], (unsigned char)e[i]))
            return 0;
        at = next;
    }
    return 1;
}

/* Split lo … hi until each piece is a product of byte ranges: a piece's bytes after the first that
 * differs run from 0x80 to 0xBF. Pieces that remain are cut off at the left. */
static int add_range(nfa *a, uint32_t from, uint32_t to, uint32_t lo, uint32_t hi)
{
    static const uint32_t last[4] = {0x7F, 0x7FF, 0xFFFF, 0x10FFFF};
    while (lo <= hi) {
        uint32_t n = lo <= last[0] ? 0 : lo <= last[1] ? 1 : lo <= last[2] ? 2 : 3;
        uint32_t end = hi < last[n] ? hi : last[n];
        for (uint32_t i = 1; i <= n; i++) {
            uint32_t low = ((uint32_t)1 << (6 * i)) - 1;
            if ((lo & ~low) == (end & ~low))
                continue;
            if ((lo & low) != 0) {
                end = lo | low;
                break;
            }
            if ((end & low) != low) {
                end = (end & ~low) - 1;
            }
        }
        if (!add_path(a, from, to, lo, end))
            return 0;
        if (end == hi)
            break;
        lo = end + 1;
    }
    return 1;
}

/* The same, whether or not the surrogates lie within. */
static int add_characters(nfa *a, uint32_t from, uint32_t to, uint32_t lo, uint32_t hi)
{
    if (lo < 0xD800 && !add_range(a, from, to, lo, hi < 0xD800 ? hi : 0xD7FF))
        return 0;
    return hi <= 0xDFFF || add_range(a, from, to, lo > 0xDFFF ? lo : 0xE000, hi);
}

static int add_text(nfa *a, uint32_t from, uint32_t to, const cfg_expr *e)
{
    if (e->n == 0)
        return add_edge(a, from, to, NFA_EMPTY);
    for (uint32_t i = 0; i < e->n; i++) {
        uint32_t next = i + 1 == e->n ? to : new_state(a), byte = (unsigned char)e->text[i];
        if (!add_bytes(a, from, next, byte, byte))
            return 0;
        from = next;
    }
    return 1;
}

static int add_language(nfa *a, uint32_t from, uint32_t to, const cfg_language *l)
{
    uint32_t base = a->n_states;
    for (uint32_t i = 0; i < l->n_states; i++)
        if (new_state(a) == 0)
            return 0;
    if (l->n_states > 0 && !add_edge(a, from, base, NFA_EMPTY))
        return 0;
    for (uint32_t i = 0; i < l->n_states; i++) {
        if (l->accepts[i] && !add_edge(a, base + i, to, NFA_EMPTY))
            return 0;
        for (uint32_t k = l->first[i]; k < l->first[i + 1]; k++)
            if (!add_characters(a, base + i, base + l->edges[k].to, l->edges[k].lo, l->edges[k].hi))
                return 0;
    }
    return 1;
}

static int add_expr(nfa *a, uint32_t from, uint32_t to, const cfg_expr *e);

static int add_call(nfa *a, uint32_t from, uint32_t to, uint32_t rule, uint32_t strict)
{
    if (!a->needed[rule])
        a->queue[a->n_queue++] = rule;
    a->needed[rule] = 1;
    return add_edge(a, from, to, (NFA_CALL + rule) | strict);
}

static int add_call_or_copy(nfa *a, uint32_t from, uint32_t to, uint32_t rule)
{
    if (!a->inlined[rule] || a->depth >= COPY_DEPTH)
        return add_call(a, from, to, rule, 0);
    a->depth++;
    int good = add_expr(a, from, to, a->s->rules[rule].body);
    a->depth--;
    return good;
}

/* min copies, then copies that may be left out, or a loop. Of a rule that admits the empty text none is
 * needed, and copies that read nothing are left out: else each place would pass to all later ones. */
static int add_repeat(nfa *a, uint32_t from, uint32_t to, const cfg_expr *e)
{
    int strict = e->part->kind == CFG_CALL && a->nullable[e->part->n];
    uint32_t min = strict ? 0 : e->min, copies = e->max == CFG_NONE ? (min > 0 ? min : 1) : e->max;
    if (copies == 0)
        return add_edge(a, from, to, NFA_EMPTY);
    for (uint32_t i = 0; i < copies; i++) {
        uint32_t begin = new_state(a), end = new_state(a);
        if (!add_edge(a, from, begin, NFA_EMPTY) ||
            !(strict ? add_call(a, begin, end, e->part->n, NFA_STRICT) : add_expr(a, begin, end, e->part)))
            return 0;
        if (i >= min && !add_edge(a, from, to, NFA_EMPTY))
            return 0;
        if (i + 1 == copies && e->max == CFG_NONE && !add_edge(a, end, begin, NFA_EMPTY))
            return 0;
        from = end;
    }
    return add_edge(a, from, to, NFA_EMPTY);
}

/* Edges for e between two states: none enters `from`, none leaves `to`. */
static int add_expr(nfa *a, uint32_t from, uint32_t to, const cfg_expr *e)
{
    switch (e->kind) {
    case CFG_TEXT:
        return add_text(a, from, to, e);
    case CFG_SET:
        for (uint32_t i = 0; i < e->n; i++)
            if (!add_characters(a, from, to, e->ranges[i].lo, e->ranges[i].hi))
                return 0;
        return 1;
    case CFG_LANGUAGE:
        return add_language(a, from, to, e->language);
    case CFG_SEQUENCE:
        for (uint32_t i = 0; i < e->n; i++) {
            uint32_t next = i + 1 == e->n ? to : new_state(a);
            if (!add_expr(a, from, next, e->parts[i]))
                return 0;
            from = next;
        }
        return 1;
    case CFG_CHOICE:
        for (uint32_t i = 0; i < e->n; i++)
            if (!add_expr(a, from, to, e->parts[i]))
                return 0;
        return 1;
    case CFG_REPEAT:
        return add_repeat(a, from, to, e);
    default:
        return add_call_or_copy(a, from, to, e->n);
    }
}

/* ---- Distances ----------------------------------------------------------------------------- */

/* A heap of (distance << 32 | state), least first. */
typedef struct heap {
    uint64_t *at;
    uint64_t n, room;
} heap;

static int heap_push(pool *p, heap *h, uint64_t value)
{
    if (h->n == h->room) {
        uint64_t room = h->room * 2 + 256;
        h->at = pool_grow(p, h->at, h->n * sizeof *h->at, room * sizeof *h->at);
        if (h->at == NULL)
            return 0;
        h->room = room;
    }
    uint64_t i = h->n++;
    for (; i > 0 && h->at[(i - 1) / 2] > value; i = (i - 1) / 2)
        h->at[i] = h->at[(i - 1) / 2];
    h->at[i] = value;
    return 1;
}

static uint64_t heap_pop(heap *h)
{
    uint64_t top = h->at[0], value = h->at[--h->n], i = 0;
    for (uint64_t k = 1; k < h->n; k = 2 * i + 1) {
        k += k + 1 < h->n && h->at[k + 1] < h->at[k];
        if (h->at[k] >= value)
            break;
        h->at[i] = h->at[k];
        i = k;
    }
    h->at[i] = value;
    return top;
}

/* Edges by one end, as lists of indices: those with key k are list[first[k]] … list[first[k + 1] - 1]. */
typedef struct edge_index {
    uint64_t *first, *list;
} edge_index;

static uint32_t edge_key(const nfa_edge *e, int by_rule)
{
    return !by_rule ? e->to : nfa_is_call(e->label) ? nfa_rule(e->label) : CFG_NONE;
}

static int index_edges(nfa *a, edge_index *x, uint32_t n_keys, int by_rule)
{
    x->first = pool_alloc(a->s->p, ((uint64_t)n_keys + 2) * sizeof *x->first);
    x->list = pool_alloc(a->s->p, a->n_edges * sizeof *x->list);
    if (x->first == NULL || x->list == NULL || !pool_step(a->s->p, a->n_edges + n_keys))
        return 0;
    for (uint64_t i = 0; i < a->n_edges; i++)
        if (edge_key(&a->edges[i], by_rule) != CFG_NONE)
            x->first[edge_key(&a->edges[i], by_rule) + 2]++;
    for (uint32_t k = 0; k < n_keys; k++)
        x->first[k + 2] += x->first[k + 1];
    for (uint64_t i = 0; i < a->n_edges; i++)
        if (edge_key(&a->edges[i], by_rule) != CFG_NONE)
            x->list[x->first[edge_key(&a->edges[i], by_rule) + 1]++] = i;
    return 1;
}

/* A way to leave e.from was found that takes `cost` bytes. */
static int relax(nfa *a, heap *h, uint32_t from, uint64_t cost)
{
    a->capped |= cost > CFG_MAX_COST;
    if (cost > CFG_MAX_COST || cost >= a->distance[from])
        return 1;
    a->distance[from] = (uint32_t)cost;
    return heap_push(a->s->p, h, cost << 32 | from);
}

/* State x is settled: what leads to it, and, where it begins a rule, what calls that. */
static int settle(nfa *a, heap *h, const edge_index *into, const edge_index *calls, const uint8_t *done, uint32_t x)
{
    uint64_t d = a->distance[x];
    for (uint64_t i = into->first[x]; i < into->first[x + 1]; i++) {
        const nfa_edge *e = &a->edges[into->list[i]];
        uint64_t cost = e->label == NFA_EMPTY ? 0 : 1;
        if (nfa_is_call(e->label)) {
            if (!done[2 * nfa_rule(e->label)])
                continue;
            cost = nfa_cost(a, nfa_rule(e->label));
        }
        if (!relax(a, h, e->from, d + cost))
            return 0;
    }
    if (x >= 2 * a->n_rules || (x & 1) != 0)
        return 1;
    for (uint64_t i = calls->first[x / 2]; i < calls->first[x / 2 + 1]; i++) {
        const nfa_edge *e = &a->edges[calls->list[i]];
        if (done[e->to] && !relax(a, h, e->from, d + a->distance[e->to]))
            return 0;
    }
    return 1;
}

static engine_status find_distances(nfa *a)
{
    pool *p = a->s->p;
    edge_index into, calls;
    heap h = {0};
    uint8_t *done = pool_alloc(p, a->n_states);
    a->distance = pool_alloc(p, a->n_states * sizeof *a->distance);
    if (done == NULL || a->distance == NULL || !index_edges(a, &into, a->n_states, 0) ||
        !index_edges(a, &calls, a->n_rules, 1))
        return p->status;
    memset(a->distance, 0xFF, a->n_states * sizeof *a->distance);
    for (uint32_t r = 0; r < a->n_rules; r++)
        if (!relax(a, &h, 2 * r + 1, 0))
            return p->status;
    while (h.n > 0) {
        uint32_t x = (uint32_t)heap_pop(&h);
        if (done[x])
            continue;
        done[x] = 1;
        if (!pool_step(p, 1) || !settle(a, &h, &into, &calls, done, x))
            return p->status;
    }
    return p->status;
}

/* What has an ending, but none within the limit, was not given a distance: refuse it. */
static engine_status refuse_endless(nfa *a)
{
    for (uint64_t i = 0; a->capped && i < a->n_edges; i++) {
        const nfa_edge *e = &a->edges[i];
        uint64_t cost = e->label == NFA_EMPTY ? 0 : e->label < NFA_CALL ? 1 : nfa_cost(a, nfa_rule(e->label));
        if (a->distance[e->from] == CFG_INFINITE && a->distance[e->to] != CFG_INFINITE && cost != CFG_INFINITE)
            return pool_fail(a->s->p, ENGINE_EUNSUPPORTED,
                             "%s grammar: a part of it has no text shorter than %u bytes: lower its repetitions",
                             a->s->notation, CFG_MAX_COST);
    }
    return a->s->p->status;
}

/* ---- Together ------------------------------------------------------------------------------ */

static engine_status sort_edges(nfa *a)
{
    uint64_t *first = pool_alloc(a->s->p, ((uint64_t)a->n_states + 2) * sizeof *first);
    nfa_edge *sorted = pool_alloc(a->s->p, a->n_edges * sizeof *sorted);
    if (first == NULL || sorted == NULL)
        return a->s->p->status;
    for (uint64_t i = 0; i < a->n_edges; i++)
        first[a->edges[i].from + 2]++;
    for (uint32_t k = 0; k < a->n_states; k++)
        first[k + 2] += first[k + 1];
    for (uint64_t i = 0; i < a->n_edges; i++)
        sorted[first[a->edges[i].from + 1]++] = a->edges[i];
    a->edges = sorted;
    a->first = first;
    return ENGINE_OK;
}

engine_status cfg_nfa_build(nfa *a, cfg_source *s, const cfg_expr *document)
{
    for (uint32_t r = 0; r < s->n_rules; r++)
        if (s->rules[r].body == NULL)
            return cfg_refuse(s, ENGINE_EFORMAT, s->rules[r].at, "%.*s is not defined",
                              (int)(s->rules[r].len < 100 ? s->rules[r].len : 100), s->rules[r].name);
    *a = (nfa){.s = s, .n_rules = s->n_rules + 1};
    a->inlined = pool_alloc(s->p, s->n_rules + 1);
    a->nullable = pool_alloc(s->p, s->n_rules + 1);
    a->needed = pool_alloc(s->p, s->n_rules + 1);
    a->queue = pool_alloc(s->p, ((uint64_t)s->n_rules + 1) * sizeof *a->queue);
    if (a->inlined == NULL || a->nullable == NULL || a->needed == NULL || a->queue == NULL)
        return s->p->status;
    if (choose_copies(a, s, document) != ENGINE_OK)
        return s->p->status;
    a->n_states = 2 * a->n_rules;
    if (!add_expr(a, 2 * s->n_rules, 2 * s->n_rules + 1, document))
        return s->p->status;
    for (uint32_t k = 0; k < a->n_queue; k++)
        if (!add_expr(a, 2 * a->queue[k], 2 * a->queue[k] + 1, s->rules[a->queue[k]].body))
            return s->p->status;
    if (find_distances(a) != ENGINE_OK || refuse_endless(a) != ENGINE_OK)
        return s->p->status;
    return sort_edges(a);
}
