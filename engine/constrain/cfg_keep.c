/* cfg_keep.c: copies of positions under a grammar, for other arenas: what a position reaches of the stack,
 * and no more, so that copying is also how what lies behind a document is dropped. Nodes that live in the
 * arena already are shared. No recursion; the scratch that it takes is freed before it returns. */
#include <stdlib.h>

#include "cfg.h"

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
    uint32_t mask = c->room * 2 - 1, at = (uint32_t)(((uint64_t)(uintptr_t)node >> 4) * 0x9E3779B97F4A7C15u >> 32) & mask;
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

const doc *cfg_keep(void *program, doc_arena *to, const doc *at)
{
    (void)program;
    copying c = {.to = to};
    doc *kept = doc_arena_alloc(to, sizeof *kept + (at->n + at->n_kernel) * sizeof *kept->items);
    if (kept == NULL)
        return NULL;
    *kept = *at;
    for (uint32_t i = 0; i < at->n + at->n_kernel; i++)
        kept->items[i] = (cfg_item){copy_of(&c, at->items[i].node), at->items[i].state};
    for (uint32_t i = 0; i < c.n && !c.failed; i++)
        copy_links(&c, i);
    free(c.from);
    free(c.copies);
    free(c.table);
    return c.failed ? NULL : kept;
}
