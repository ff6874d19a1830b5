/* cfg_build.c: the automata that the recogniser runs on, made from the nondeterministic one.
 *
 * Each rule that can be reached is made deterministic by subsets, calls being letters like bytes; where
 * that would blow up, its states stay single and their edges overlap (`plain`). States that can never
 * end, and calls of rules that cannot, are left out. Refused: a grammar that admits nothing. All memory
 * is the pool's. */
#include "cfg_build.h"
#include "tokens.h"

#include <stdlib.h>
#include <string.h>

typedef struct subset {
    const uint32_t *members; /* ascending */
    uint32_t n, hash;
} subset;

typedef struct builder {
    const nfa *a;
    pool *p;
    cfg_state *states;
    cfg_edge *edges;
    cfg_return *calls;       /* `start` holds the rule until all rules are made */
    uint32_t n_states, n_edges, n_calls, room_states, room_edges, room_calls;
    subset *subsets;         /* by state; only those of the rule in work count */
    uint32_t base;           /* first state of the rule in work */
    uint32_t *table, table_size; /* subset -> state - base + 1 */
    uint32_t *mark, stamp;   /* by NFA state */
    uint32_t *set, n_set, room_set; /* the subset in work: a stack first, then its members */
    uint32_t *starts;        /* by rule: first state; CFG_NONE */
    uint32_t *queue, n_queue;
    uint32_t *seen, rule;    /* by NFA state: the last rule in whose subsets it was, plus 1 */
    uint32_t n_seen;         /* NFA states in subsets of the rule in work */
    uint64_t weight;         /* members of those subsets */
    int plain;
} builder;

/* ---- Subsets --------------------------------------------------------------------------------- */

/* Room for n more of something; 0 once the pool failed. */
static int room_for(pool *p, void **array, uint32_t n, uint32_t *room, uint64_t more, uint64_t size)
{
    if (n + more <= *room)
        return 1;
    uint64_t grown = (n + more) * 2;
    if (grown > UINT32_MAX / 2) {
        (void)pool_fail(p, ENGINE_EUNSUPPORTED, "the grammar needs too many states: simplify it");
        return 0;
    }
    void *at = pool_grow(p, *array, n * size, grown * size);
    if (at == NULL)
        return 0;
    *array = at;
    *room = (uint32_t)grown;
    return 1;
}

static int visit(builder *b, uint32_t x)
{
    if (b->a->distance[x] == CFG_INFINITE || b->mark[x] == b->stamp)
        return 1;
    b->mark[x] = b->stamp;
    if (!room_for(b->p, (void **)&b->set, b->n_set, &b->room_set, 1, sizeof *b->set))
        return 0;
    b->set[b->n_set++] = x;
    return 1;
}

/* Whether an edge is passed without reading: an empty one, or a call of a rule that admits the empty text. */
static int is_empty(const nfa *a, uint32_t label)
{
    return label == NFA_EMPTY || (nfa_is_call(label) && !(label & NFA_STRICT) && nfa_cost(a, nfa_rule(label)) == 0);
}

/* Whether a member says anything: its edges read, or it ends the rule. */
static int is_member(const nfa *a, uint32_t x)
{
    if (x < 2 * a->n_rules && (x & 1) != 0)
        return 1;
    for (uint64_t i = a->first[x]; i < a->first[x + 1]; i++)
        if (a->edges[i].label != NFA_EMPTY && a->distance[a->edges[i].to] != CFG_INFINITE)
            return 1;
    return 0;
}

static int by_number(const void *x, const void *y)
{
    uint32_t a = *(const uint32_t *)x, b = *(const uint32_t *)y;
    return a < b ? -1 : a > b;
}

/* Close b->set over what reads nothing; keep its members, sorted. */
static int close_set(builder *b)
{
    uint32_t kept = 0;
    for (uint32_t k = 0; k < b->n_set; k++) {
        uint32_t x = b->set[k];
        for (uint64_t i = b->a->first[x]; i < b->a->first[x + 1]; i++)
            if (is_empty(b->a, b->a->edges[i].label) && !visit(b, b->a->edges[i].to))
                return 0;
        if (!pool_step(b->p, 1 + b->a->first[x + 1] - b->a->first[x]))
            return 0;
    }
    for (uint32_t k = 0; k < b->n_set; k++)
        if (is_member(b->a, b->set[k]))
            b->set[kept++] = b->set[k];
    b->n_set = kept;
    if (kept > 1)
        qsort(b->set, kept, sizeof *b->set, by_number);
    return 1;
}

static void begin_set(builder *b)
{
    b->n_set = 0;
    b->stamp++;
}

static int table_grow(builder *b)
{
    uint32_t size = b->table_size == 0 ? 64 : b->table_size * 2;
    uint32_t *table = pool_alloc(b->p, size * sizeof *table);
    if (table == NULL)
        return 0;
    for (uint32_t i = b->base; i < b->n_states; i++) {
        uint32_t at = b->subsets[i].hash & (size - 1);
        while (table[at] != 0)
            at = (at + 1) & (size - 1);
        table[at] = i - b->base + 1;
    }
    b->table = table;
    b->table_size = size;
    return 1;
}

static int add_state(builder *b, uint32_t hash)
{
    uint32_t room = b->room_states;
    if (!room_for(b->p, (void **)&b->states, b->n_states, &b->room_states, 1, sizeof *b->states) ||
        !room_for(b->p, (void **)&b->subsets, b->n_states, &room, 1, sizeof *b->subsets))
        return 0;
    uint32_t *members = pool_alloc(b->p, b->n_set * sizeof *members);
    if (members == NULL)
        return 0;
    cfg_state state = {.distance = CFG_INFINITE};
    for (uint32_t k = 0; k < b->n_set; k++) {
        uint32_t x = b->set[k];
        members[k] = x;
        b->n_seen += b->seen[x] != b->rule + 1;
        b->seen[x] = b->rule + 1;
        state.distance = b->a->distance[x] < state.distance ? b->a->distance[x] : state.distance;
        state.end |= x < 2 * b->a->n_rules && (x & 1) != 0;
    }
    b->weight += b->n_set;
    b->states[b->n_states] = state;
    b->subsets[b->n_states] = (subset){members, b->n_set, hash};
    b->n_states++;
    return 1;
}

/* The state of the set in work (closed here), new where it was not met. CFG_NONE: the pool failed. */
static uint32_t state_of_set(builder *b)
{
    uint32_t hash = 0;
    if (!close_set(b) || (2 * (b->n_states - b->base) >= b->table_size && !table_grow(b)))
        return CFG_NONE;
    for (uint32_t k = 0; k < b->n_set; k++)
        hash = (hash ^ b->set[k]) * 2654435761u + (hash >> 15);
    uint32_t at = hash & (b->table_size - 1);
    for (; b->table[at] != 0; at = (at + 1) & (b->table_size - 1)) {
        const subset *known = &b->subsets[b->base + b->table[at] - 1];
        if (known->n == b->n_set && memcmp(known->members, b->set, b->n_set * sizeof *b->set) == 0)
            return b->base + b->table[at] - 1;
    }
    if (!add_state(b, hash))
        return CFG_NONE;
    b->table[at] = b->n_states - b->base;
    return b->n_states - 1;
}

/* ---- Edges ----------------------------------------------------------------------------------- */

static int put_edge(builder *b, uint32_t state, uint32_t lo, uint32_t hi, uint32_t to)
{
    cfg_state *from = &b->states[state];
    cfg_edge *last = from->n_edges > 0 ? &b->edges[b->n_edges - 1] : NULL;
    for (uint32_t c = lo; c <= hi; c++)
        b->states[state].set[c / 64] |= (uint64_t)1 << (c % 64);
    if (!b->plain && last != NULL && last->to == to && last->hi + 1u == lo) {
        last->hi = (uint8_t)hi;
        return 1;
    }
    if (!room_for(b->p, (void **)&b->edges, b->n_edges, &b->room_edges, 1, sizeof *b->edges))
        return 0;
    b->edges[b->n_edges++] = (cfg_edge){(uint8_t)lo, (uint8_t)hi, to};
    from->n_edges++;
    return pool_step(b->p, 1);
}

/* For each byte of lo … hi the same members move. */
static int put_class(builder *b, uint32_t state, uint32_t lo, uint32_t hi)
{
    const subset from = b->subsets[state];
    begin_set(b);
    for (uint32_t k = 0; k < from.n; k++)
        for (uint64_t i = b->a->first[from.members[k]]; i < b->a->first[from.members[k] + 1]; i++) {
            const nfa_edge *e = &b->a->edges[i];
            if (e->label < NFA_CALL && e->label >> 8 <= lo && (e->label & 0xFF) >= hi && !visit(b, e->to))
                return 0;
        }
    if (!pool_step(b->p, from.n))
        return 0;
    if (b->n_set == 0)
        return 1;
    uint32_t to = state_of_set(b);
    return to != CFG_NONE && put_edge(b, state, lo, hi, to);
}

/* Cut 0 … 255 where any member's edge begins or ends, and treat each piece as one letter. */
static int put_bytes(builder *b, uint32_t state)
{
    const subset from = b->subsets[state];
    uint8_t cut[257] = {0};
    for (uint32_t k = 0; k < from.n; k++)
        for (uint64_t i = b->a->first[from.members[k]]; i < b->a->first[from.members[k] + 1]; i++) {
            uint32_t label = b->a->edges[i].label;
            if (label < NFA_CALL) {
                cut[label >> 8] = 1;
                cut[(label & 0xFF) + 1] = 1;
            }
        }
    for (uint32_t lo = 0; lo < 256;) {
        uint32_t hi = lo;
        while (hi < 255 && !cut[hi + 1])
            hi++;
        if (!put_class(b, state, lo, hi))
            return 0;
        lo = hi + 1;
    }
    return 1;
}

static int by_low_byte(const void *x, const void *y)
{
    const cfg_edge *a = x, *b = y;
    return a->lo != b->lo ? a->lo - b->lo : a->to < b->to ? -1 : a->to > b->to;
}

static int put_bytes_plain(builder *b, uint32_t state)
{
    const subset from = b->subsets[state];
    for (uint32_t k = 0; k < from.n; k++)
        for (uint64_t i = b->a->first[from.members[k]]; i < b->a->first[from.members[k] + 1]; i++) {
            const nfa_edge *e = &b->a->edges[i];
            if (e->label >= NFA_CALL || b->a->distance[e->to] == CFG_INFINITE)
                continue;
            begin_set(b);
            uint32_t to = visit(b, e->to) ? state_of_set(b) : CFG_NONE;
            if (to == CFG_NONE || !put_edge(b, state, e->label >> 8, e->label & 0xFF, to))
                return 0;
        }
    if (b->states[state].n_edges > 1)
        qsort(b->edges + b->states[state].edges, b->states[state].n_edges, sizeof *b->edges, by_low_byte);
    return 1;
}

static int put_call(builder *b, uint32_t state, uint32_t rule)
{
    uint32_t to = state_of_set(b);
    if (to == CFG_NONE ||
        !room_for(b->p, (void **)&b->calls, b->n_calls, &b->room_calls, 1, sizeof *b->calls))
        return 0;
    b->calls[b->n_calls++] = (cfg_return){rule, to};
    b->states[state].n_calls++;
    if (b->starts[rule] == CFG_NONE) {
        b->starts[rule] = 0;
        b->queue[b->n_queue++] = rule;
    }
    return 1;
}

/* Calls, those of one rule as one letter; of each member alone where plain. */
static int put_calls(builder *b, uint32_t state)
{
    const subset from = b->subsets[state];
    for (uint32_t k = 0; k < from.n; k++)
        for (uint64_t i = b->a->first[from.members[k]]; i < b->a->first[from.members[k] + 1]; i++) {
            uint32_t label = b->a->edges[i].label, known = 0, n = b->states[state].n_calls;
            if (!nfa_is_call(label) || nfa_cost(b->a, nfa_rule(label)) == CFG_INFINITE ||
                b->a->distance[b->a->edges[i].to] == CFG_INFINITE)
                continue;
            while (!b->plain && known < n && b->calls[b->states[state].calls + known].start != nfa_rule(label))
                known++;
            if (!b->plain && known < n)
                continue;
            begin_set(b);
            for (uint32_t m = b->plain ? k : 0; m < (b->plain ? k + 1 : from.n); m++)
                for (uint64_t j = b->a->first[from.members[m]]; j < b->a->first[from.members[m] + 1]; j++)
                    if (nfa_is_call(b->a->edges[j].label) && nfa_rule(b->a->edges[j].label) == nfa_rule(label) &&
                        (!b->plain || i == j) && !visit(b, b->a->edges[j].to))
                        return 0;
            if (!pool_step(b->p, from.n) || !put_call(b, state, nfa_rule(label)))
                return 0;
        }
    return 1;
}

/* ---- Rules ------------------------------------------------------------------------------------ */

/* Whether subsets grow out of proportion to the states that they are made of. */
static int too_large(const builder *b)
{
    return !b->plain && (b->n_states - b->base > 2 * b->n_seen + 1000 || b->weight > 200 * (uint64_t)b->n_seen + 100000);
}

/* Of where letters, digits and blanks lead, what most bytes lead to; and the classes that do so as a whole. */
static void find_runs(const builder *b, cfg_state *s)
{
    static const uint8_t samples[3] = {'a', '0', ' '};
    uint32_t to[256], most = 0;
    memset(to, 0xFF, sizeof to);
    for (uint32_t k = s->edges; k < s->edges + s->n_edges; k++)
        for (uint32_t byte = b->edges[k].lo; byte <= b->edges[k].hi; byte++)
            to[byte] = b->edges[k].to;
    for (uint32_t i = 0; i < 3; i++) {
        uint32_t n = 0;
        for (uint32_t byte = 0; byte < 256; byte++)
            n += to[byte] == to[samples[i]];
        if (to[samples[i]] != CFG_NONE && n > most) {
            most = n;
            s->next = to[samples[i]];
        }
    }
    s->runs = most > 0 ? UINT64_MAX : 0;
    for (uint32_t byte = 0; byte < 256; byte++)
        if (to[byte] != s->next)
            s->runs &= ~((uint64_t)1 << byte_class((uint8_t)byte));
}

/* The automaton of one rule; 0 once the pool failed, -1 where subsets blow up. */
static int build_rule(builder *b, uint32_t rule)
{
    b->base = b->n_states;
    b->rule = rule;
    b->weight = b->n_seen = 0;
    b->table_size = 0;
    begin_set(b);
    uint32_t first = visit(b, 2 * rule) ? state_of_set(b) : CFG_NONE;
    if (first == CFG_NONE)
        return 0;
    for (uint32_t state = first; state < b->n_states; state++) {
        b->states[state].edges = b->n_edges;
        b->states[state].calls = b->n_calls;
        if (!(b->plain ? put_bytes_plain(b, state) : put_bytes(b, state)) || !put_calls(b, state))
            return 0;
        if (too_large(b))
            return -1;
    }
    b->starts[rule] = first;
    for (uint32_t i = first; i < b->n_states; i++) {
        cfg_state *state = &b->states[i];
        state->single = !b->plain;
        if (state->single)
            find_runs(b, state);
        state->document = rule == b->a->n_rules - 1;
        state->tail = state->end && state->n_edges == 0 && state->n_calls == 0 && !state->document;
    }
    return 1;
}

static int build_rules(builder *b)
{
    for (uint32_t k = 0; k < b->n_queue; k++) {
        uint32_t states = b->n_states, edges = b->n_edges, calls = b->n_calls;
        b->plain = 0;
        int built = build_rule(b, b->queue[k]);
        if (built < 0) {
            b->n_states = states;
            b->n_edges = edges;
            b->n_calls = calls;
            b->plain = 1;
            built = build_rule(b, b->queue[k]);
        }
        if (built == 0)
            return 0;
    }
    for (uint32_t i = 0; i < b->n_calls; i++)
        b->calls[i].start = b->starts[b->calls[i].start];
    return 1;
}

engine_status cfg_build(cfg_source *s, const cfg_expr *document, uint64_t at, cfg **out)
{
    nfa a;
    builder b = {.a = &a, .p = s->p};
    if (cfg_nfa_build(&a, s, document) != ENGINE_OK)
        return s->p->status;
    if (nfa_cost(&a, a.n_rules - 1) == CFG_INFINITE)
        return cfg_refuse(s, ENGINE_EUNSUPPORTED, at,
                          "the grammar admits no text: each way through this rule calls it again");
    b.mark = pool_alloc(s->p, a.n_states * sizeof *b.mark);
    b.seen = pool_alloc(s->p, a.n_states * sizeof *b.seen);
    b.starts = pool_alloc(s->p, a.n_rules * sizeof *b.starts);
    b.queue = pool_alloc(s->p, a.n_rules * sizeof *b.queue);
    cfg *made = pool_alloc(s->p, sizeof *made);
    if (b.mark == NULL || b.seen == NULL || b.starts == NULL || b.queue == NULL || made == NULL)
        return s->p->status;
    memset(b.starts, 0xFF, a.n_rules * sizeof *b.starts);
    b.queue[b.n_queue++] = a.n_rules - 1;
    b.starts[a.n_rules - 1] = 0;
    if (!build_rules(&b))
        return s->p->status;
    *made = (cfg){.states = b.states, .edges = b.edges, .calls = b.calls, .n_states = b.n_states};
    made->start = b.starts[a.n_rules - 1];
    *out = made;
    return ENGINE_OK;
}
