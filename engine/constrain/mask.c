/* mask.c: masks of tokens (mask.h). */
#include "mask.h"

#include <stdlib.h>
#include <string.h>

struct mask_cache {
    const struct engine_tokens *tokens;
};

int mask_cache_new(mask_cache **out, const struct engine_tokens *tokens)
{
    mask_cache *cache = calloc(1, sizeof *cache);
    if (cache != NULL)
        cache->tokens = tokens;
    *out = cache;
    return cache != NULL;
}

void mask_cache_free(mask_cache *cache)
{
    free(cache);
}

/* A node on the path to the one that is visited, and the position that its bytes lead to. */
typedef struct mask_frame {
    const doc *at;
    uint64_t mark;    /* of the arena: what was made below the node goes when the node's subtree is left */
    uint32_t end;     /* node after the subtree */
    int32_t set_known;
    uint64_t set[4];  /* bytes that may follow */
} mask_frame;

static void set_tokens(uint32_t *mask, const int32_t *list, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        mask[list[i] >> 5] |= 1u << (list[i] & 31);
}

static int make_room(mask_walk *w, uint32_t depth)
{
    if (w->room > depth)
        return 1;
    struct mask_frame *grown = realloc(w->stack, (depth + 1) * sizeof *grown);
    if (grown == NULL)
        return 0;
    w->stack = grown;
    w->room = depth + 1;
    return 1;
}

/* Only children may be left out by `allowed`: with one child it costs as much as it saves. */
static int excluded(const mask_walk *w, mask_frame *f, const trie *t, uint32_t node, uint8_t byte)
{
    if (!f->set_known) {
        if (trie_end(t, node) == f->end)
            return 0;
        w->ops->allowed(w->program, f->at, f->set);
        f->set_known = 1;
    }
    return !(f->set[byte >> 6] >> (byte & 63) & 1);
}

/* Set the tokens below `root` of t that may be read from `at`. */
static int walk_trie(mask_walk *w, const trie *t, uint32_t root, const doc *at, uint32_t *mask)
{
    mask_frame *stack = w->stack;
    stack[0] = (mask_frame){.at = at, .mark = doc_arena_mark(w->arena), .end = trie_end(t, root)};
    uint32_t depth = 0, node = root + 1;
    while (node < stack[0].end) {
        while (node >= stack[depth].end)
            depth--;
        mask_frame *f = &stack[depth];
        doc_arena_reset(w->arena, f->mark);
        uint8_t byte = trie_byte(t, node);
        const doc *next = excluded(w, f, t, node, byte) ? NULL : w->ops->step(w->program, w->arena, f->at, byte);
        if (next == NULL) {
            if (doc_arena_failed(w->arena))
                return 0;
            node = trie_end(t, node);
            continue;
        }
        uint32_t first = t->nodes[node].first;
        set_tokens(mask, t->list + first, trie_own_end(t, node) - first);
        if (trie_end(t, node) > node + 1)
            stack[++depth] =
                (mask_frame){.at = next, .mark = doc_arena_mark(w->arena), .end = trie_end(t, node)};
        node++;
    }
    return 1;
}

int mask_fill(mask_walk *w, const doc *at, uint32_t *mask)
{
    const struct engine_tokens *tokens = w->tokens;
    memset(mask, 0, ((size_t)tokens->n + 31) / 32 * sizeof *mask);
    doc_arena_reset(w->arena, 0);
    if (!make_room(w, tokens->all.depth + 1) || !walk_trie(w, &tokens->all, 0, at, mask))
        return 0;
    if (w->ops->accepting(w->program, at))
        set_tokens(mask, tokens->ends, (uint32_t)tokens->n_ends);
    return 1;
}

void mask_walk_free(mask_walk *w)
{
    free(w->stack);
    doc_arena_free(w->arena);
}
