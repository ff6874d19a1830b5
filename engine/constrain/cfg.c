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
 * Refused: steps that would take more than EFFORT units of work (grammars ambiguous without measure)
 * fail the arena. The program belongs to the pool, positions to their arenas. */
#include <stdlib.h>
#include <string.h>

#include "cfg.h"

enum { EFFORT = 1 << 17, FEW = 24, ROOM = 48, COPY_LINKS = 16, MERGE_DEPTH = 8, MERGE_EFFORT = 1000 };
#define FAR (1u << 31)       /* texts longer than this are not begun */

typedef struct item {
    const cfg_node *node;
    uint32_t state;
} item;

struct doc {
    uint32_t at;             /* bytes read, from 1 */
    uint32_t distance;
    uint32_t n;
    item items[];            /* whose states have edges */
};

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
    item *items;
    uint32_t *table, table_size; /* item -> index + 1, once there are more than FEW */
    fresh_node *fresh, **fresh_end;
    fresh_node **by_start;       /* open addressing by start state, once there are more than FEW */
    uint32_t n_fresh, by_start_size;
    uint32_t effort;
    int accepting, failed;
    item own[ROOM];
} frontier;

/* ---- Sets of items ------------------------------------------------------------------------------ */

static void *take(frontier *f, uint64_t bytes)
{
    void *at = doc_arena_alloc(f->arena, bytes);
    if (at == NULL)
        f->failed = 1;
    return at;
}

/* Count work; past the limit the arena fails, as it does for lack of room. */
static int work(frontier *f, uint32_t n)
{
    f->effort += n;
    if (f->effort > EFFORT) {
        (void)doc_arena_alloc(f->arena, UINT64_MAX);
        f->failed = 1;
    }
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
        item *items = take(f, 2 * (uint64_t)f->room * sizeof *items);
        if (items == NULL)
            return 0;
        memcpy(items, f->items, f->n * sizeof *items);
        f->items = items;
        f->room *= 2;
    }
    f->items[f->n++] = (item){node, state};
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
static int close_item(frontier *f, item it)
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
    pairing p = {.n = 0, .budget = MERGE_EFFORT};
    if (y->at == f->at || y->at == 0 || !alike(f, &p, x, y))
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
    doc *at = take(f, sizeof *at + f->n * sizeof *at->items);
    if (at == NULL || f->failed)
        return NULL;
    *at = (doc){.at = f->at, .distance = f->accepting ? 0 : FAR};
    for (uint32_t i = 0; i < f->n; i++) {
        const cfg_state *s = &f->g->states[f->items[i].state];
        const cfg_node *node = replaced ? merged(f, f->items[i].node) : f->items[i].node;
        uint32_t d = sum(s->distance, node->distance);
        if (s->n_edges == 0 || d >= FAR || (node != f->items[i].node && has_item(f, node, f->items[i].state)))
            continue;
        at->distance = d < at->distance ? d : at->distance;
        at->items[at->n++] = (item){node, f->items[i].state};
    }
    return at->distance == FAR ? NULL : at;
}

static void begin(frontier *f, const cfg *g, doc_arena *arena, uint32_t at)
{
    f->g = g;
    f->arena = arena;
    f->at = at;
    f->n = f->table_size = f->n_fresh = f->by_start_size = f->effort = 0;
    f->room = ROOM;
    f->items = f->own;
    f->table = NULL;
    f->fresh = NULL;
    f->fresh_end = &f->fresh;
    f->accepting = f->failed = 0;
}

static const doc *cfg_begin(void *program, doc_arena *arena)
{
    const cfg *g = program;
    frontier f;
    begin(&f, g, arena, 1);
    return add_item(&f, &g->bottom, g->start) ? settle(&f) : NULL;
}

/* All items stay within their rules, and need no closing: the common case. */
static const doc *move_within(const cfg *g, doc_arena *arena, const doc *at, uint8_t byte)
{
    const cfg_state *s = &g->states[at->items[0].state];
    const cfg_edge *e = g->edges + s->edges;
    while (e->hi < byte)
        e++;
    const cfg_state *to = &g->states[e->to];
    if (to->end || to->n_calls > 0 || to->n_edges == 0)
        return NULL;
    doc *next = doc_arena_alloc(arena, sizeof *next + sizeof *next->items);
    if (next == NULL)
        return NULL;
    *next = (doc){.at = at->at + 1, .distance = sum(to->distance, at->items[0].node->distance), .n = 1};
    next->items[0] = (item){at->items[0].node, e->to};
    return next;
}

static int has_byte(const cfg_state *s, uint8_t byte)
{
    return (int)(s->set[byte / 64] >> (byte % 64) & 1);
}

static const doc *cfg_step(void *program, doc_arena *arena, const doc *at, uint8_t byte)
{
    const cfg *g = program;
    frontier f;
    uint32_t n = 0;
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
    for (uint32_t i = 0; i < at->n; i++) {
        const cfg_state *s = &g->states[at->items[i].state];
        if (!has_byte(s, byte))
            continue;
        for (const cfg_edge *e = g->edges + s->edges, *end = e + s->n_edges; e < end && e->lo <= byte; e++)
            if (e->hi >= byte && !add_item(&f, at->items[i].node, e->to))
                return NULL;
    }
    return settle(&f);
}

static void cfg_allowed(void *program, const doc *at, uint64_t set[4])
{
    const cfg *g = program;
    memset(set, 0, 4 * sizeof *set);
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

/* ---- Keeping ---------------------------------------------------------------------------------------- */

/* Nodes that are being copied; those that live in the arena already, or in the program, are shared. */
typedef struct copying {
    doc_arena *to;
    const cfg_node **from;
    cfg_node **copies;
    uint32_t *table;         /* node -> index + 1; room * 2 */
    uint32_t n, room;
    int failed;
} copying;

static uint32_t copy_slot(const copying *c, const cfg_node *node)
{
    uint32_t mask = c->room * 2 - 1, at = item_hash(node, 0) & mask;
    while (c->table[at] != 0 && c->from[c->table[at] - 1] != node)
        at = (at + 1) & mask;
    return at;
}

static int copy_room(copying *c)
{
    if (c->n < c->room)
        return 1;
    uint32_t room = c->room == 0 ? 32 : c->room * 2;
    const cfg_node **from = realloc(c->from, room * sizeof *from);
    if (from != NULL)
        c->from = from;
    cfg_node **copies = realloc(c->copies, room * sizeof *copies);
    if (copies != NULL)
        c->copies = copies;
    uint32_t *table = calloc(room, 2 * sizeof *table);
    if (from == NULL || copies == NULL || table == NULL) {
        free(table);
        return 0;
    }
    free(c->table);
    c->table = table;
    c->room = room;
    for (uint32_t i = 0; i < c->n; i++)
        table[copy_slot(c, from[i])] = i + 1;
    return 1;
}

static const cfg_node *copy_of(copying *c, const cfg_node *node)
{
    if (node->arena == NULL || node->arena == c->to)
        return node;
    if (c->failed || !copy_room(c)) {
        c->failed = 1;
        return node;
    }
    uint32_t at = copy_slot(c, node);
    if (c->table[at] != 0)
        return c->copies[c->table[at] - 1];
    cfg_node *copy = doc_arena_alloc(c->to, sizeof *copy);
    if (copy == NULL) {
        c->failed = 1;
        return node;
    }
    *copy = (cfg_node){.arena = c->to, .at = node->at, .distance = node->distance};
    c->from[c->n] = node;
    c->copies[c->n] = copy;
    c->table[at] = ++c->n;
    return copy;
}

static void copy_links(copying *c, uint32_t index)
{
    const cfg_link **end = &c->copies[index]->links;
    for (const cfg_link *l = c->from[index]->links; l != NULL && !c->failed; l = l->next) {
        cfg_link *copy = doc_arena_alloc(c->to, sizeof *copy);
        if (copy == NULL) {
            c->failed = 1;
            return;
        }
        *copy = (cfg_link){NULL, copy_of(c, l->node), l->state};
        *end = copy;
        end = &copy->next;
    }
}

static const doc *cfg_keep(void *program, doc_arena *to, const doc *at)
{
    (void)program;
    copying c = {.to = to};
    doc *kept = doc_arena_alloc(to, sizeof *kept + at->n * sizeof *kept->items);
    if (kept == NULL)
        return NULL;
    *kept = *at;
    for (uint32_t i = 0; i < at->n; i++)
        kept->items[i] = (item){copy_of(&c, at->items[i].node), at->items[i].state};
    for (uint32_t i = 0; i < c.n && !c.failed; i++)
        copy_links(&c, i);
    free(c.from);
    free(c.copies);
    free(c.table);
    return c.failed ? NULL : kept;
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
};
