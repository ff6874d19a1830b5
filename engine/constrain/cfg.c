/* cfg.c: reads text under a context-free grammar, byte by byte: doc_ops over the automata of cfg.h.
 *
 * A position is a set of items, each a state of a rule's automaton with the node of the call that it
 * works for (a graph-structured stack, which is all that an Earley reader knows without the origins
 * that only parse trees need). One step moves items over a byte, then closes the set: states that call
 * open nodes, states that end go on where their node was called. Nodes are made in one step and never
 * changed after it. Rules that admit the empty text are passed over when building, so a node can be
 * left only in a later step than it was opened in; that is what makes left recursion, open or hidden,
 * ordinary. Every item can be completed: distance(state) + distance(node) bytes are enough.
 *
 * A step that would take more than EFFORT units of work (grammars ambiguous without measure) fails the
 * arena, unless it is towards the ending: endings are found without knowing the other ways. The program
 * belongs to the pool, positions to their arenas. */
#include <stdlib.h>
#include <string.h>

#include "cfg.h"

enum { EFFORT = 1 << 17, FEW = 24, ROOM = 48, COPY_LINKS = 16, MERGE_DEPTH = 8, MERGE_EFFORT = 1000, MERGES_EFFORT = 20000, KERNEL = 4 };
#define FAR (1u << 31)       /* texts longer than this are not begun */

/* A node while its step is on. */
typedef struct fresh_node {
    cfg_node node;
    struct fresh_node *next;       /* of the same step */
    const struct cfg_node *same;   /* an older node that goes on alike */
    struct dependent *dependents;  /* nodes that go on where this one does: tail calls */
    cfg_link **end;                /* where the next link is put */
    cfg_link *sent;                /* last link that dependents have, too */
    uint32_t start;                /* first state of the rule that is called */
    uint32_t n_links;
    int queued;
    struct fresh_node *queue;
} fresh_node;

typedef struct dependent {
    struct dependent *next;
    fresh_node *node;
    uint32_t state;          /* where its end leads, in the rule that it ends */
} dependent;

/* A step in work. */
typedef struct frontier {
    const cfg *g;
    doc_arena *arena;
    uint32_t at;
    uint32_t n, room;
    cfg_item *items;
    uint32_t *table, table_size; /* item -> index + 1, once there are more than FEW */
    fresh_node *fresh, **fresh_end;
    fresh_node **by_start;       /* open addressing by start state, once there are more than FEW */
    uint32_t n_fresh, by_start_size;
    uint32_t effort, limit, merge_effort, n_kernel; /* merge_effort: comparisons left for merging nodes */
    int accepting, failed;
    cfg_item own[ROOM];
} frontier;

/* ---- Sets of items ------------------------------------------------------------------------------ */

static void *take(frontier *f, uint64_t bytes)
{
    void *at = doc_arena_alloc(f->arena, bytes);
    if (at == NULL)
        f->failed = 1;
    return at;
}

/* Count work; 0 past the limit. */
static int work(frontier *f, uint32_t n)
{
    f->effort += n;
    f->failed |= f->effort > f->limit;
    return !f->failed;
}

static uint32_t item_hash(const cfg_node *node, uint32_t state)
{
    uint64_t h = ((uint64_t)(uintptr_t)node >> 4 ^ (uint64_t)state << 32) * 0x9E3779B97F4A7C15u;
    return (uint32_t)(h >> 32);
}

static void table_put(frontier *f, uint32_t index)
{
    uint32_t at = item_hash(f->items[index].node, f->items[index].state) & (f->table_size - 1);
    while (f->table[at] != 0)
        at = (at + 1) & (f->table_size - 1);
    f->table[at] = index + 1;
}

static int table_grow(frontier *f)
{
    uint32_t size = f->table_size == 0 ? 4 * FEW : f->table_size;
    while (size < 4 * f->n || (size & (size - 1)) != 0)
        size = (size | (size - 1)) + 1;
    f->table = take(f, size * sizeof *f->table);
    if (f->table == NULL)
        return 0;
    memset(f->table, 0, size * sizeof *f->table);
    f->table_size = size;
    for (uint32_t i = 0; i < f->n; i++)
        table_put(f, i);
    return 1;
}

static int has_item(const frontier *f, const cfg_node *node, uint32_t state)
{
    if (f->table_size == 0) {
        for (uint32_t i = 0; i < f->n; i++)
            if (f->items[i].state == state && f->items[i].node == node)
                return 1;
        return 0;
    }
    uint32_t at = item_hash(node, state) & (f->table_size - 1);
    for (; f->table[at] != 0; at = (at + 1) & (f->table_size - 1))
        if (f->items[f->table[at] - 1].state == state && f->items[f->table[at] - 1].node == node)
            return 1;
    return 0;
}

static int add_item(frontier *f, const cfg_node *node, uint32_t state)
{
    if (!work(f, 1))
        return 0;
    if (has_item(f, node, state))
        return 1;
    if (f->n == f->room) {
        cfg_item *items = take(f, 2 * (uint64_t)f->room * sizeof *items);
        if (items == NULL)
            return 0;
        memcpy(items, f->items, f->n * sizeof *items);
        f->items = items;
        f->room *= 2;
    }
    f->items[f->n++] = (cfg_item){node, state};
    if (f->table_size > 0)
        table_put(f, f->n - 1);
    return f->n < FEW || 2 * f->n < f->table_size || table_grow(f);
}

/* ---- Nodes ---------------------------------------------------------------------------------------- */

static fresh_node **fresh_slot(const frontier *f, uint32_t start)
{
    uint32_t at = start * 2654435761u & (f->by_start_size - 1);
    while (f->by_start[at] != NULL && f->by_start[at]->start != start)
        at = (at + 1) & (f->by_start_size - 1);
    return &f->by_start[at];
}

static int by_start_grow(frontier *f)
{
    uint32_t size = f->by_start_size == 0 ? 128 : f->by_start_size * 2;
    f->by_start = take(f, size * sizeof *f->by_start);
    if (f->by_start == NULL)
        return 0;
    memset(f->by_start, 0, size * sizeof *f->by_start);
    f->by_start_size = size;
    for (fresh_node *x = f->fresh; x != NULL; x = x->next)
        *fresh_slot(f, x->start) = x;
    return 1;
}

/* The node of calls of the rule in this step; made, and its first item with it, at the first of them. */
static fresh_node *node_for(frontier *f, uint32_t start)
{
    if (f->by_start_size > 0) {
        fresh_node *known = *fresh_slot(f, start);
        if (known != NULL)
            return known;
    } else {
        for (fresh_node *x = f->fresh; x != NULL; x = x->next)
            if (x->start == start)
                return x;
    }
    fresh_node *x = take(f, sizeof *x);
    if (x == NULL)
        return NULL;
    *x = (fresh_node){.start = start, .node = {.arena = f->arena, .at = f->at, .distance = FAR}};
    x->end = (cfg_link **)&x->node.links;
    *f->fresh_end = x;
    f->fresh_end = &x->next;
    if (f->by_start_size > 0)
        *fresh_slot(f, start) = x;
    if (++f->n_fresh >= FEW && 2 * f->n_fresh >= f->by_start_size && !by_start_grow(f))
        return NULL;
    return add_item(f, &x->node, start) ? x : NULL;
}

/* Links are told apart as far as that is cheap: one that is there twice does no harm. */
static int add_link(frontier *f, fresh_node *x, uint32_t state, const cfg_node *node)
{
    uint32_t looked = 0;
    for (const cfg_link *l = x->node.links; l != NULL && looked < 2 * COPY_LINKS; l = l->next, looked++)
        if (l->state == state && l->node == node)
            return 1;
    cfg_link *l = take(f, sizeof *l);
    if (l == NULL)
        return 0;
    *l = (cfg_link){NULL, node, state};
    *x->end = l;
    x->end = (cfg_link **)&l->next;
    x->n_links++;
    return work(f, 2);
}

/* The fresh node of which this is the node, if it is of this step. */
static fresh_node *fresh_of(const frontier *f, const cfg_node *node)
{
    return node->at == f->at ? (fresh_node *)(uintptr_t)node : NULL;
}

/* The call that x stands for ends the one that `node` stands for, in `state`: x goes on wherever `node`
 * does. Where that is many places, it goes on in `state` like any other call. */
static int add_tail(frontier *f, fresh_node *x, uint32_t state, const cfg_node *node)
{
    fresh_node *through = fresh_of(f, node);
    uint32_t n = 0;
    if (through == x)
        return 1;
    if (through == NULL) {
        for (const cfg_link *l = node->links; l != NULL && n <= COPY_LINKS; l = l->next)
            n++;
        if (n > COPY_LINKS)
            return add_link(f, x, state, node);
        for (const cfg_link *l = node->links; l != NULL; l = l->next)
            if (!add_link(f, x, l->state, l->node))
                return 0;
        return 1;
    }
    dependent *d = take(f, sizeof *d);
    if (d == NULL)
        return 0;
    *d = (dependent){through->dependents, x, state};
    through->dependents = d;
    return work(f, 1);
}

/* ---- One step -------------------------------------------------------------------------------------- */

/* What an item leads to without reading. */
static int close_item(frontier *f, cfg_item it)
{
    const cfg_state *s = &f->g->states[it.state];
    if (s->end) {
        f->accepting |= s->document;
        if (it.node->at != f->at)
            for (const cfg_link *l = it.node->links; l != NULL; l = l->next)
                if (!add_item(f, l->node, l->state))
                    return 0;
    }
    for (uint32_t k = 0; k < s->n_calls; k++) {
        const cfg_return *call = &f->g->calls[s->calls + k];
        fresh_node *x = node_for(f, call->start);
        if (x == NULL)
            return 0;
        if (!(f->g->states[call->to].tail ? add_tail(f, x, call->to, it.node) : add_link(f, x, call->to, it.node)))
            return 0;
    }
    return 1;
}

static void enqueue(fresh_node *x, fresh_node ***end)
{
    if (x->queued || x->dependents == NULL)
        return;
    x->queued = 1;
    x->queue = NULL;
    **end = x;
    *end = &x->queue;
}

/* Hand the links of x that were not handed on to one node that goes on alike. */
static int hand_on(frontier *f, fresh_node *x, const cfg_link *from, const dependent *d)
{
    if (x->n_links > COPY_LINKS)
        return add_link(f, d->node, d->state, &x->node);
    for (const cfg_link *l = from; l != NULL; l = l->next)
        if (!add_link(f, d->node, l->state, l->node))
            return 0;
    return 1;
}

/* Until all nodes that go on alike have the links that they share. */
static int spread_links(frontier *f)
{
    fresh_node *queue = NULL, **end = &queue;
    for (fresh_node *x = f->fresh; x != NULL; x = x->next)
        enqueue(x, &end);
    while (queue != NULL) {
        fresh_node *x = queue;
        const cfg_link *from = x->sent != NULL ? x->sent->next : x->node.links, *last = x->sent;
        for (const cfg_link *l = from; l != NULL; l = l->next)
            last = l;
        queue = x->queue;
        if (queue == NULL)
            end = &queue;
        x->queued = 0;
        x->sent = (cfg_link *)(uintptr_t)last;
        for (dependent *d = x->dependents; from != NULL && d != NULL; d = d->next) {
            uint32_t before = d->node->n_links;
            if (!hand_on(f, x, from, d))
                return 0;
            if (d->node->n_links > before)
                enqueue(d->node, &end);
        }
    }
    return 1;
}

static uint32_t sum(uint32_t a, uint32_t b)
{
    return a + b < FAR ? a + b : FAR; /* both are at most FAR, which is half of what fits */
}

/* Distances of the nodes of this step: least fixed point; callers come before what they call. */
static int find_distances(frontier *f)
{
    for (int changed = 1; changed;) {
        changed = 0;
        for (fresh_node *x = f->fresh; x != NULL; x = x->next) {
            for (const cfg_link *l = x->node.links; l != NULL; l = l->next) {
                uint32_t d = sum(f->g->states[l->state].distance, l->node->distance);
                if (d < x->node.distance) {
                    x->node.distance = d;
                    changed = 1;
                }
            }
            if (!work(f, x->n_links + 1))
                return 0;
        }
    }
    return 1;
}

/* ---- Nodes that go on alike -------------------------------------------------------------------------- */

typedef struct pairing {
    fresh_node *x[MERGE_DEPTH];
    const cfg_node *y[MERGE_DEPTH];
    uint32_t n;
    uint32_t budget;         /* comparisons left */
} pairing;

static int alike(frontier *f, pairing *p, fresh_node *x, const cfg_node *y);

/* Whether a link of x is one of y's, taking for equal what the pairing takes for equal. */
static int link_among(frontier *f, pairing *p, const cfg_link *l, const cfg_node *y)
{
    fresh_node *fresh = fresh_of(f, l->node);
    for (const cfg_link *m = y->links; m != NULL && p->budget > 0; m = m->next) {
        p->budget--;
        if (m->state != l->state)
            continue;
        if (m->node == l->node || (fresh != NULL && alike(f, p, fresh, m->node)))
            return 1;
    }
    return 0;
}

/* Whether x goes on exactly as the older y does (bisimulation, assuming what is being shown). */
static int alike(frontier *f, pairing *p, fresh_node *x, const cfg_node *y)
{
    if (x->same != NULL)
        return x->same == y;
    for (uint32_t i = 0; i < p->n; i++)
        if (p->x[i] == x)
            return p->y[i] == y;
    if (p->n == MERGE_DEPTH || x->node.distance != y->distance)
        return 0;
    uint32_t mark = p->n;
    p->x[p->n] = x;
    p->y[p->n++] = y;
    int good = 1;
    for (const cfg_link *l = x->node.links; good && l != NULL; l = l->next)
        good = link_among(f, p, l, y);
    for (const cfg_link *m = y->links; good && m != NULL; m = m->next) {
        good = 0;
        for (const cfg_link *l = x->node.links; !good && l != NULL && p->budget > 0; l = l->next) {
            p->budget--;
            fresh_node *fresh = fresh_of(f, l->node);
            good = l->state == m->state && (l->node == m->node || (fresh != NULL && alike(f, p, fresh, m->node)));
        }
    }
    if (!good)
        p->n = mark;
    return good;
}

/* Replace x, and what that takes, if it goes on as y does. */
static int merge_into(frontier *f, fresh_node *x, const cfg_node *y)
{
    uint32_t budget = f->merge_effort < MERGE_EFFORT ? f->merge_effort : MERGE_EFFORT;
    pairing p = {.n = 0, .budget = budget};
    if (budget == 0 || y->at == f->at || y->at == 0)
        return 0;
    int same = alike(f, &p, x, y);
    f->merge_effort -= p.budget > 0 ? budget - p.budget : budget;
    f->merge_effort -= f->merge_effort > 0; /* what compares nothing takes time, too */
    if (!same)
        return 0;
    for (uint32_t i = 0; i < p.n; i++)
        p.x[i]->same = p.y[i];
    return 1;
}

/* Nodes are replaced by older ones that go on alike, looked for among those that they lead to (operators
 * without precedence) and those that items of this step work for (lists without separators). */
static int merge_nodes(frontier *f)
{
    int merged = 0;
    for (fresh_node *x = f->fresh; x != NULL; x = x->next) {
        uint32_t tries = 0;
        for (const cfg_link *l = x->node.links; x->same == NULL && l != NULL && tries < MERGE_DEPTH; l = l->next, tries++)
            merged |= merge_into(f, x, l->node);
        for (uint32_t i = 0; x->same == NULL && i < f->n && i < MERGE_DEPTH; i++)
            merged |= merge_into(f, x, f->items[i].node);
    }
    return merged;
}

static const cfg_node *merged(const frontier *f, const cfg_node *node)
{
    fresh_node *x = fresh_of(f, node);
    return x != NULL && x->same != NULL ? x->same : node;
}

/* Links of nodes that stay lead past those that were replaced. */
static void relink(frontier *f)
{
    for (fresh_node *x = f->fresh; x != NULL; x = x->next)
        for (cfg_link *l = (cfg_link *)(uintptr_t)x->node.links; l != NULL; l = (cfg_link *)(uintptr_t)l->next)
            l->node = merged(f, l->node);
}

/* ---- Positions -------------------------------------------------------------------------------------- */

/* Close the set, then keep the items that read on. NULL: none, or the arena failed. */
static const doc *settle(frontier *f)
{
    for (uint32_t i = 0; i < f->n; i++)
        if (!close_item(f, f->items[i]))
            return NULL;
    if (!spread_links(f) || !find_distances(f))
        return NULL;
    int replaced = f->fresh != NULL && merge_nodes(f);
    if (replaced)
        relink(f);
    doc *at = take(f, sizeof *at + (f->n + KERNEL) * sizeof *at->items);
    if (at == NULL || f->failed)
        return NULL;
    *at = (doc){.at = f->at, .distance = f->accepting ? 0 : FAR, .n_kernel = f->n_kernel};
    for (uint32_t i = 0; i < f->n; i++) {
        const cfg_state *s = &f->g->states[f->items[i].state];
        const cfg_node *node = replaced ? merged(f, f->items[i].node) : f->items[i].node;
        uint32_t d = sum(s->distance, node->distance);
        if (s->n_edges == 0 || d >= FAR || (node != f->items[i].node && has_item(f, node, f->items[i].state)))
            continue;
        at->distance = d < at->distance ? d : at->distance;
        at->items[at->n++] = (cfg_item){node, f->items[i].state};
    }
    memcpy(at->items + at->n, f->items, f->n_kernel * sizeof *at->items);
    return at->distance == FAR ? NULL : at;
}

/* Whether the items moved so far are the kernel of the position that they came from. */
static int same_kernel(const frontier *f, const doc *at)
{
    if (f->n != at->n_kernel)
        return 0;
    for (uint32_t i = 0; i < f->n; i++)
        if (!has_item(f, at->items[at->n + i].node, at->items[at->n + i].state))
            return 0;
    return 1;
}

static void begin(frontier *f, const cfg *g, doc_arena *arena, uint32_t at)
{
    f->g = g;
    f->arena = arena;
    f->at = at;
    f->n = f->table_size = f->n_fresh = f->by_start_size = f->effort = f->n_kernel = 0;
    f->limit = EFFORT;
    f->merge_effort = MERGES_EFFORT;
    f->room = ROOM;
    f->items = f->own;
    f->table = NULL;
    f->fresh = NULL;
    f->fresh_end = &f->fresh;
    f->accepting = f->failed = 0;
}

/* A step took more effort than one may: the arena fails, unless it has for lack of memory. */
static void too_much(doc_arena *arena)
{
    doc_arena_allow(arena, 0);
    (void)doc_arena_spend(arena, 1);
}

static const doc *cfg_begin(void *program, doc_arena *arena)
{
    const cfg *g = program;
    frontier f;
    begin(&f, g, arena, 1);
    const doc *at = add_item(&f, &g->bottom, g->start) ? settle(&f) : NULL;
    if (f.failed)
        too_much(arena);
    return f.failed ? NULL : at;
}

/* All items stay within their rules, and need no closing: the common case. */
static const doc *move_within(const cfg *g, doc_arena *arena, const doc *at, uint8_t byte)
{
    const cfg_state *s = &g->states[at->items[0].state];
    const cfg_edge *e = g->edges + s->edges;
    while (e->hi < byte)
        e++;
    const cfg_state *to = &g->states[e->to];
    if (at->n_kernel == 1 && at->items[1].state == e->to && at->items[1].node == at->items[0].node)
        return at;
    if (to->end || to->n_calls > 0 || to->n_edges == 0)
        return NULL;
    doc *next = doc_arena_alloc(arena, sizeof *next + 2 * sizeof *next->items);
    if (next == NULL)
        return NULL;
    *next = (doc){.at = at->at + 1, .distance = sum(to->distance, at->items[0].node->distance), .n = 1, .n_kernel = 1};
    next->items[0] = next->items[1] = (cfg_item){at->items[0].node, e->to};
    return next;
}

static int has_byte(const cfg_state *s, uint8_t byte)
{
    return (int)(s->set[byte / 64] >> (byte % 64) & 1);
}

/* ---- Without effort ----------------------------------------------------------------------------- */

/* An edge of the item's state over `byte` (any where it is negative) on a way to the nearest ending. */
static const cfg_edge *nearest_edge(const cfg *g, const cfg_item *it, int byte)
{
    const cfg_state *s = &g->states[it->state];
    for (uint32_t k = 0; k < s->n_edges; k++) {
        const cfg_edge *e = &g->edges[s->edges + k];
        if ((byte < 0 || (e->lo <= byte && byte <= e->hi)) && g->states[e->to].distance + 1 == s->distance)
            return e;
    }
    return NULL;
}

/* What an item leads to without reading, on a way to its nearest ending. */
static int close_nearest(frontier *f, cfg_item it)
{
    const cfg_state *s = &f->g->states[it.state];
    if (s->distance == 0) {
        f->accepting |= s->document;
        for (const cfg_link *l = it.node->links; l != NULL && !s->document; l = l->next)
            if (sum(f->g->states[l->state].distance, l->node->distance) == it.node->distance &&
                !add_item(f, l->node, l->state))
                return 0;
        return 1;
    }
    for (uint32_t k = 0; k < s->n_calls; k++) {
        const cfg_return *call = &f->g->calls[s->calls + k];
        if (f->g->states[call->start].distance + f->g->states[call->to].distance != s->distance)
            continue;
        fresh_node *x = node_for(f, call->start);
        if (x == NULL || !add_link(f, x, call->to, it.node))
            return 0;
        x->node.distance = sum(f->g->states[call->to].distance, it.node->distance);
        return 1;
    }
    return 1;
}

/* The step over the closing byte that goes on with one shortest ending alone: its cost does not depend
 * on how ambiguous the grammar is. */
static const doc *step_nearest(const cfg *g, doc_arena *arena, const doc *at, uint8_t byte)
{
    frontier f;
    begin(&f, g, arena, at->at + 1);
    f.limit = UINT32_MAX / 2;
    for (uint32_t i = 0; i < at->n && f.n == 0; i++) {
        const cfg_edge *e = nearest_edge(g, &at->items[i], byte);
        if (e != NULL && sum(g->states[at->items[i].state].distance, at->items[i].node->distance) == at->distance)
            (void)add_item(&f, at->items[i].node, e->to);
    }
    doc *next = take(&f, sizeof *next + sizeof *next->items);
    if (next == NULL)
        return NULL;
    *next = (doc){.at = f.at, .distance = at->distance - 1, .narrow = 1};
    for (uint32_t i = 0; i < f.n && next->n == 0 && !f.accepting; i++) {
        if (nearest_edge(g, &f.items[i], -1) != NULL)
            next->items[next->n++] = f.items[i];
        else if (!close_nearest(&f, f.items[i]))
            return NULL;
    }
    return next;
}

static int cfg_closing(void *program, const doc *at, uint8_t *byte);

/* A step that took too much effort: endings go on, anything else fails the arena, which is an error and
 * neither a refusal of the byte nor an ending. */
static const doc *step_without_effort(const cfg *g, doc_arena *arena, const doc *at, uint8_t byte)
{
    uint8_t closing;
    if (!doc_arena_failed(arena) && cfg_closing((void *)(uintptr_t)g, at, &closing) && closing == byte)
        return step_nearest(g, arena, at, byte);
    too_much(arena);
    return NULL;
}

static const doc *cfg_step(void *program, doc_arena *arena, const doc *at, uint8_t byte)
{
    const cfg *g = program;
    frontier f;
    uint32_t n = 0;
    if (at->narrow)
        return step_without_effort(g, arena, at, byte);
    for (uint32_t i = 0; i < at->n; i++)
        n += (uint32_t)has_byte(&g->states[at->items[i].state], byte);
    if (n == 0 || at->at == UINT32_MAX)
        return NULL;
    if (at->n == 1 && g->states[at->items[0].state].single) {
        const doc *next = move_within(g, arena, at, byte);
        if (next != NULL || doc_arena_failed(arena))
            return next;
    }
    begin(&f, g, arena, at->at + 1);
    for (uint32_t i = 0; i < at->n && !f.failed; i++) {
        const cfg_state *s = &g->states[at->items[i].state];
        if (!has_byte(s, byte))
            continue;
        for (const cfg_edge *e = g->edges + s->edges, *end = e + s->n_edges; e < end && e->lo <= byte; e++)
            if (e->hi >= byte && !add_item(&f, at->items[i].node, e->to))
                break;
    }
    if (!f.failed && same_kernel(&f, at))
        return at;
    f.n_kernel = f.n <= KERNEL ? f.n : 0;
    const doc *next = f.failed ? NULL : settle(&f);
    if (!doc_arena_spend(arena, f.effort + MERGES_EFFORT - f.merge_effort))
        return NULL;
    return f.failed ? step_without_effort(g, arena, at, byte) : next;
}

static void cfg_allowed(void *program, const doc *at, uint64_t set[4])
{
    const cfg *g = program;
    memset(set, at->narrow ? 0xFF : 0, 4 * sizeof *set);
    for (uint32_t i = 0; i < at->n; i++)
        for (uint32_t k = 0; k < 4; k++)
            set[k] |= g->states[at->items[i].state].set[k];
}

static int cfg_accepting(void *program, const doc *at)
{
    (void)program;
    return at->distance == 0;
}

static uint32_t cfg_distance(void *program, const doc *at)
{
    (void)program;
    return at->distance;
}

static int cfg_closing(void *program, const doc *at, uint8_t *byte)
{
    const cfg *g = program;
    int least = 256;
    for (uint32_t i = 0; at->distance > 0 && i < at->n; i++) {
        const cfg_state *s = &g->states[at->items[i].state];
        if (sum(s->distance, at->items[i].node->distance) != at->distance)
            continue;
        for (uint32_t k = 0; k < s->n_edges; k++) {
            const cfg_edge *e = &g->edges[s->edges + k];
            if (e->lo < least && g->states[e->to].distance + 1 == s->distance)
                least = e->lo;
        }
    }
    if (least == 256)
        return 0;
    *byte = (uint8_t)least;
    return 1;
}

/* Within the rule of one of the items: whether it ends or calls on the way does not matter. */
static int cfg_reads(void *program, const doc *at, uint64_t classes, uint32_t len)
{
    const cfg *g = program;
    for (uint32_t i = 0; i < at->n && !at->narrow; i++) {
        const cfg_state *s = &g->states[at->items[i].state], *from = NULL;
        uint32_t left = len;
        for (; left > 0 && s != from && s->single && (classes & ~s->runs) == 0; left--) {
            from = s;
            s = &g->states[s->next];
            if (sum(s->distance, at->items[i].node->distance) >= FAR)
                break;
        }
        if (left == 0 || s == from)
            return 1;
    }
    return 0;
}

static uint32_t cfg_pointer(void *program, const doc *at, char *out, uint32_t cap)
{
    (void)program;
    (void)at;
    if (cap > 0)
        out[0] = '\0';
    return 0;
}

static void cfg_lexical(void *program, const doc *at, doc_lexical *out)
{
    (void)program;
    (void)at;
    *out = (doc_lexical){.kind = DOC_IN_OTHER};
}

static uint32_t cfg_exceptions(void *program, const doc *at, const char **texts, uint32_t *lens, uint32_t cap)
{
    (void)program;
    (void)at;
    (void)texts;
    (void)lens;
    (void)cap;
    return 0;
}

static void cfg_free(void *program)
{
    (void)program; /* the pool's */
}

const doc_ops cfg_ops = {
    .start = cfg_begin,
    .step = cfg_step,
    .allowed = cfg_allowed,
    .accepting = cfg_accepting,
    .keep = cfg_keep,
    .distance = cfg_distance,
    .closing = cfg_closing,
    .pointer = cfg_pointer,
    .lexical = cfg_lexical,
    .exceptions = cfg_exceptions,
    .free = cfg_free,
    .reads = cfg_reads,
};
