/* minimise.c: the trimmed, minimal automaton of any deterministic one.
 *
 * States that cannot be reached, or cannot reach acceptance, go first. States from which only
 * finitely many strings are accepted are then merged from the ends backwards, in one pass; the
 * others by refining classes (first: acceptance and the length of the shortest string) until nothing
 * changes. A round costs the edges of the states that it looks at, counted in the pool's steps. */
#include <string.h>

#include "lang_impl.h"

/* What minimisation knows of the trimmed automaton: class of each state, the representatives. */
typedef struct classes {
    const dfa *d;
    uint32_t *class;      /* of a state */
    uint32_t *order;      /* finite states first, each after its successors */
    uint32_t n_finite;    /* how many states are finite */
    uint32_t n_fixed;     /* classes of finite states: 0 … n_fixed - 1 */
    uint32_t *table;      /* a state, or UINT32_MAX */
    uint32_t table_size;
    uint32_t *rep;        /* of a class */
    uint32_t *slots, n_slots; /* places of the table taken in this round */
    uint32_t n_classes;
} classes;

static int mark_reachable(lang_set *s, const dfa *d, uint8_t *live) {
    uint32_t *stack = scratch_alloc(s, (d->n_states + 1ull) * sizeof *stack);
    if (!stack)
        return 0;
    uint32_t n = 0;
    stack[n++] = d->start;
    live[d->start] = 1;
    while (n) {
        uint32_t i = stack[--n];
        for (uint32_t e = d->first[i]; e < d->first[i + 1]; e++) {
            if (!live[d->edges[e].to]) {
                live[d->edges[e].to] = 1;
                stack[n++] = d->edges[e].to;
            }
        }
    }
    return 1;
}

/* Sources of the edges into each state: from[first[i] … first[i + 1] - 1]. */
static int sources(lang_set *s, const dfa *d, uint32_t **first_out, uint32_t **from_out) {
    uint32_t *first = scratch_zero(s, (d->n_states + 2ull) * sizeof *first);
    uint32_t *from = scratch_alloc(s, (d->n_edges + 1ull) * sizeof *from);
    if (!first || !from)
        return 0;
    for (uint32_t e = 0; e < d->n_edges; e++)
        first[d->edges[e].to + 2]++;
    for (uint32_t i = 2; i < d->n_states + 2; i++)
        first[i] += first[i - 1];
    for (uint32_t i = 0; i < d->n_states; i++)
        for (uint32_t e = d->first[i]; e < d->first[i + 1]; e++)
            from[first[d->edges[e].to + 1]++] = i;
    *first_out = first;
    *from_out = from;
    return 1;
}

/* Letters to the nearest accepting state, UINT32_MAX: none. */
static int shortest(lang_set *s, const dfa *d, const uint32_t *first, const uint32_t *from, uint32_t *length) {
    uint32_t *queue = scratch_alloc(s, (d->n_states + 1ull) * sizeof *queue);
    if (!queue)
        return 0;
    uint32_t n = 0;
    for (uint32_t i = 0; i < d->n_states; i++) {
        length[i] = d->accept[i] ? 0 : UINT32_MAX;
        if (d->accept[i])
            queue[n++] = i;
    }
    for (uint32_t q = 0; q < n; q++) {
        for (uint32_t k = first[queue[q]]; k < first[queue[q] + 1]; k++) {
            if (length[from[k]] == UINT32_MAX) {
                length[from[k]] = length[queue[q]] + 1;
                queue[n++] = from[k];
            }
        }
    }
    return 1;
}

/* d without the states that are not live, and the lengths of shortest strings in the new numbers. */
static int trim(lang_set *s, const dfa *d, dfa *out, uint32_t **length_out) {
    uint32_t *first, *from, *number, *length;
    uint8_t *live = scratch_zero(s, d->n_states);
    number = scratch_alloc(s, d->n_states * sizeof *number);
    length = scratch_alloc(s, d->n_states * sizeof *length);
    if (!live || !number || !length || !mark_reachable(s, d, live) || !sources(s, d, &first, &from) ||
        !shortest(s, d, first, from, length) || !dfa_init(s, out, d->n_states, d->n_edges))
        return 0;
    uint32_t n = 0;
    for (uint32_t i = 0; i < d->n_states; i++) {
        number[i] = live[i] && length[i] != UINT32_MAX ? n++ : UINT32_MAX;
        if (number[i] != UINT32_MAX)
            length[number[i]] = length[i];
    }
    for (uint32_t i = 0; i < d->n_states; i++) {
        if (number[i] == UINT32_MAX)
            continue;
        if (!dfa_state(s, out, d->accept[i]))
            return 0;
        for (uint32_t e = d->first[i]; e < d->first[i + 1]; e++) {
            uint32_t to = number[d->edges[e].to];
            if (to != UINT32_MAX && !dfa_edge(s, out, d->edges[e].lo, d->edges[e].hi, to))
                return 0;
        }
    }
    dfa_close(out);
    out->start = number[d->start];
    *length_out = length;
    return 1;
}

/* The next run of a state's edges that lead into one class; 0 at the end. *e moves on. */
static int next_run(const classes *c, uint32_t *e, uint32_t end, lang_edge *run) {
    if (*e == end)
        return 0;
    *run = c->d->edges[*e];
    run->to = c->class[run->to];
    while (++*e < end && c->d->edges[*e].lo == run->hi + 1 && c->class[c->d->edges[*e].to] == run->to)
        run->hi = c->d->edges[*e].hi;
    return 1;
}

static uint64_t signature(const classes *c, uint32_t i, uint32_t seed) {
    uint64_t h = mix64(seed, c->d->accept[i]);
    uint32_t e = c->d->first[i];
    lang_edge run;
    while (next_run(c, &e, c->d->first[i + 1], &run))
        h = mix64(mix64(h, (uint64_t)run.lo << 32 | run.hi), run.to);
    return h;
}

static int alike(const classes *c, uint32_t a, uint32_t b) {
    if (c->d->accept[a] != c->d->accept[b])
        return 0;
    uint32_t ea = c->d->first[a], eb = c->d->first[b];
    lang_edge ra, rb;
    for (;;) {
        int more = next_run(c, &ea, c->d->first[a + 1], &ra);
        if (more != next_run(c, &eb, c->d->first[b + 1], &rb))
            return 0;
        if (!more)
            return 1;
        if (ra.lo != rb.lo || ra.hi != rb.hi || ra.to != rb.to)
            return 0;
    }
}

/* Finite states, each after all its successors; then the others. */
static int order_states(lang_set *s, classes *c, uint32_t length_of_order) {
    const dfa *d = c->d;
    uint32_t *first, *from;
    uint32_t *left = scratch_alloc(s, (d->n_states + 1ull) * sizeof *left);
    if (!left || !sources(s, d, &first, &from))
        return 0;
    uint32_t n = 0;
    for (uint32_t i = 0; i < d->n_states; i++) {
        left[i] = d->first[i + 1] - d->first[i];
        if (left[i] == 0)
            c->order[n++] = i;
    }
    for (uint32_t q = 0; q < n; q++)
        for (uint32_t k = first[c->order[q]]; k < first[c->order[q] + 1]; k++)
            if (--left[from[k]] == 0)
                c->order[n++] = from[k];
    c->n_finite = n;
    for (uint32_t i = 0; i < d->n_states; i++)
        if (left[i] != 0)
            c->order[n++] = i;
    return n == length_of_order;
}

/* The state of the table that i is like, entered if there is none. same: classes must be equal too. */
static uint32_t find_like(classes *c, uint32_t i, int same) {
    uint64_t h = signature(c, i, same ? c->class[i] + 1 : 0);
    uint32_t at = (uint32_t)h & (c->table_size - 1);
    while (c->table[at] != UINT32_MAX) {
        uint32_t other = c->table[at];
        if ((!same || c->class[other] == c->class[i]) && alike(c, other, i))
            return other;
        at = (at + 1) & (c->table_size - 1);
    }
    c->table[at] = i;
    if (same)
        c->slots[c->n_slots++] = at;
    return i;
}

static void merge_finite(classes *c) {
    memset(c->table, 0xFF, c->table_size * sizeof *c->table);
    for (uint32_t q = 0; q < c->n_finite; q++) {
        uint32_t i = c->order[q], like = find_like(c, i, 0);
        if (like == i) {
            c->rep[c->n_classes] = i;
            c->class[i] = c->n_classes++;
        } else {
            c->class[i] = c->class[like];
        }
    }
    c->n_fixed = c->n_classes;
}

/* ---- Refinement of the infinite states ---------------------------------------------------------- */

/* A round looks at the states of which a successor has changed its class since they were looked at; the
 * others of a class agree as before. Within a class, those that agree keep together: the ones not looked at
 * keep the class's number, or else the largest group does. */
typedef struct rounds {
    uint32_t *first, *from;   /* sources of edges */
    uint32_t *dirty, n_dirty; /* states to look at */
    uint8_t *is_dirty;
    uint32_t *group;          /* of a dirty state: the state that stands for its group */
    uint32_t *members;        /* of a group, by that state */
    uint32_t *size;           /* of a class */
    uint32_t *looked_at;      /* of a class: how many of it are dirty */
    uint32_t *largest;        /* of a class: its largest group */
    uint32_t *changed;
} rounds;

static int init_rounds(lang_set *s, classes *c, rounds *r, const uint32_t *length) {
    uint32_t n = c->d->n_states;
    uint32_t *seed = scratch_alloc(s, (2ull * n + 2) * sizeof *seed);
    memset(r, 0, sizeof *r);
    r->dirty = scratch_alloc(s, (n + 1ull) * sizeof *r->dirty);
    r->is_dirty = scratch_zero(s, n + 1ull);
    r->group = scratch_alloc(s, (n + 1ull) * sizeof *r->group);
    r->members = scratch_alloc(s, (n + 1ull) * sizeof *r->members);
    r->size = scratch_zero(s, (n + 1ull) * sizeof *r->size);
    r->looked_at = scratch_zero(s, (n + 1ull) * sizeof *r->looked_at);
    r->largest = scratch_alloc(s, (n + 1ull) * sizeof *r->largest);
    r->changed = scratch_alloc(s, (n + 1ull) * sizeof *r->changed);
    c->slots = scratch_alloc(s, (n + 1ull) * sizeof *c->slots);
    if (!seed || !r->dirty || !r->is_dirty || !r->group || !r->members || !r->size || !r->looked_at || !r->largest ||
        !r->changed || !c->slots || !sources(s, c->d, &r->first, &r->from))
        return 0;
    memset(seed, 0xFF, (2ull * n + 2) * sizeof *seed);
    memset(c->table, 0xFF, c->table_size * sizeof *c->table);
    for (uint32_t q = c->n_finite; q < n; q++) {
        uint32_t i = c->order[q], key = 2 * length[i] + c->d->accept[i];
        if (seed[key] == UINT32_MAX)
            seed[key] = c->n_classes++;
        c->class[i] = seed[key];
        r->size[seed[key]]++;
        r->dirty[r->n_dirty++] = i;
    }
    return 1;
}

/* Sort the dirty states into groups that agree. */
static int group_dirty(lang_set *s, classes *c, rounds *r) {
    uint64_t cost = 0;
    c->n_slots = 0;
    for (uint32_t q = 0; q < r->n_dirty; q++) {
        uint32_t i = r->dirty[q], k = c->class[i], like = find_like(c, i, 1);
        if (like == i)
            r->members[i] = 0;
        r->group[i] = like;
        r->members[like]++;
        if (r->looked_at[k]++ == 0 || r->members[like] > r->members[r->largest[k]])
            r->largest[k] = like;
        cost += 1 + c->d->first[i + 1] - c->d->first[i];
    }
    for (uint32_t q = 0; q < c->n_slots; q++)
        c->table[c->slots[q]] = UINT32_MAX;
    return pool_step(s->pool, cost);
}

/* Give new numbers to the groups that leave their class; how many states changed. */
static uint32_t split(classes *c, rounds *r) {
    uint32_t n = 0;
    for (uint32_t q = 0; q < r->n_dirty; q++) {
        uint32_t i = r->dirty[q], k = c->class[r->group[i]];
        r->is_dirty[i] = 0;
        if (r->group[i] == i && (r->looked_at[k] < r->size[k] || r->largest[k] != i))
            r->members[i] = c->n_classes++; /* from here on: the group's new class */
        else if (r->group[i] == i)
            r->members[i] = k;
    }
    for (uint32_t q = 0; q < r->n_dirty; q++)
        r->looked_at[c->class[r->dirty[q]]] = 0;
    for (uint32_t q = 0; q < r->n_dirty; q++) {
        uint32_t i = r->dirty[q], to = r->members[r->group[i]];
        if (to == c->class[i])
            continue;
        r->size[c->class[i]]--;
        r->size[to]++;
        c->class[i] = to;
        r->changed[n++] = i;
    }
    return n;
}

static int refine(lang_set *s, classes *c, const uint32_t *length) {
    rounds r;
    if (!init_rounds(s, c, &r, length))
        return 0;
    while (r.n_dirty) {
        if (!group_dirty(s, c, &r))
            return 0;
        uint32_t n = split(c, &r);
        r.n_dirty = 0;
        for (uint32_t q = 0; q < n; q++) {
            uint32_t i = r.changed[q];
            for (uint32_t k = r.first[i]; k < r.first[i + 1]; k++) {
                uint32_t from = r.from[k];
                if (!r.is_dirty[from] && r.size[c->class[from]] > 1) {
                    r.is_dirty[from] = 1;
                    r.dirty[r.n_dirty++] = from;
                }
            }
        }
    }
    for (uint32_t q = c->n_finite; q < c->d->n_states; q++)
        c->rep[c->class[c->order[q]]] = c->order[q];
    return 1;
}

static int quotient(lang_set *s, const classes *c, dfa *out) {
    if (!dfa_init(s, out, c->n_classes, c->d->n_edges))
        return 0;
    for (uint32_t k = 0; k < c->n_classes; k++) {
        uint32_t i = c->rep[k], e = c->d->first[i];
        lang_edge run;
        if (!dfa_state(s, out, c->d->accept[i]))
            return 0;
        while (next_run(c, &e, c->d->first[i + 1], &run))
            if (!dfa_edge(s, out, run.lo, run.hi, run.to))
                return 0;
    }
    dfa_close(out);
    out->start = c->class[c->d->start];
    return 1;
}

int dfa_minimise(lang_set *s, const dfa *d, dfa *out) {
    dfa trimmed;
    uint32_t *length;
    memset(out, 0, sizeof *out);
    if (d->n_states == 0)
        return s->pool->status == ENGINE_OK;
    if (!trim(s, d, &trimmed, &length))
        return 0;
    if (trimmed.start == UINT32_MAX)
        return 1;
    uint32_t n = trimmed.n_states;
    classes c = {.d = &trimmed, .table_size = 16};
    while (c.table_size < 2 * n)
        c.table_size *= 2;
    c.table = scratch_alloc(s, c.table_size * sizeof *c.table);
    c.class = scratch_alloc(s, n * sizeof *c.class);
    c.order = scratch_alloc(s, n * sizeof *c.order);
    c.rep = scratch_alloc(s, n * sizeof *c.rep);
    if (!c.table || !c.class || !c.order || !c.rep || !order_states(s, &c, n))
        return 0;
    merge_finite(&c);
    return (c.n_finite == n || refine(s, &c, length)) && quotient(s, &c, out);
}
