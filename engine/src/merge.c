/* merge.c: the merging of neighbours that both kinds of BPE share.
 *
 * Symbols stand in a linked list; of all pairs of neighbours that can join, the one with the
 * lowest key joins first, the leftmost of equals, until none is left. A heap of candidates makes
 * it O(n log n); a candidate whose sides have changed since is skipped when it comes up.
 * The scratch is reused between calls; tok_chain_free() releases it. */
#include <stdlib.h>

#include "tokenizer.h"

static int before(const tok_candidate *a, const tok_candidate *b)
{
    return a->key != b->key ? a->key < b->key : a->left < b->left;
}

static void heap_push(tok_chain *chain, tok_candidate c)
{
    uint64_t i = chain->n_heap++;
    while (i > 0 && before(&c, &chain->heap[(i - 1) / 2])) {
        chain->heap[i] = chain->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    chain->heap[i] = c;
}

static tok_candidate heap_pop(tok_chain *chain)
{
    tok_candidate top = chain->heap[0], last = chain->heap[--chain->n_heap];
    uint64_t i = 0, child;
    while ((child = 2 * i + 1) < chain->n_heap) {
        if (child + 1 < chain->n_heap && before(&chain->heap[child + 1], &chain->heap[child]))
            child++;
        if (!before(&chain->heap[child], &last))
            break;
        chain->heap[i] = chain->heap[child];
        i = child;
    }
    chain->heap[i] = last;
    return top;
}

int tok_chain_reserve(tok_chain *chain, uint64_t n)
{
    if (n <= chain->cap)
        return 1;
    if (n > TOK_MAX_SYMBOLS)
        return 0;
    uint64_t cap = chain->cap ? chain->cap : 64;
    while (cap < n)
        cap *= 2;
    tok_symbol *symbols = realloc(chain->symbols, cap * sizeof *symbols);
    if (symbols != NULL)
        chain->symbols = symbols;
    tok_candidate *heap = realloc(chain->heap, 2 * cap * sizeof *heap);
    if (heap != NULL)
        chain->heap = heap;
    if (symbols == NULL || heap == NULL)
        return 0;
    chain->cap = cap;
    return 1;
}

void tok_chain_free(tok_chain *chain)
{
    free(chain->symbols);
    free(chain->heap);
}

/* The heap never holds more than 2n for n symbols: n - 1 at first, then two for each of at most
 * n - 1 merges, each of which has taken one away. */
static void consider(tok_chain *chain, int32_t left, int32_t right)
{
    if (left < 0 || right < 0)
        return;
    const tok_symbol *a = &chain->symbols[left], *b = &chain->symbols[right];
    tok_candidate c = {.left = left, .right = right, .len = a->len + b->len};
    uint64_t end = b->next < 0 ? chain->source_end : chain->symbols[b->next].source;
    if (chain->join(chain->self, a, b, end, &c.key, &c.result))
        heap_push(chain, c);
}

void tok_chain_merge(tok_chain *chain, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        chain->symbols[i].prev = (int32_t)i - 1;
        chain->symbols[i].next = i + 1 < n ? (int32_t)i + 1 : -1;
    }
    chain->n_heap = 0;
    for (uint64_t i = 1; i < n; i++)
        consider(chain, (int32_t)i - 1, (int32_t)i);
    while (chain->n_heap > 0) {
        tok_candidate c = heap_pop(chain);
        tok_symbol *a = &chain->symbols[c.left], *b = &chain->symbols[c.right];
        if (a->len == 0 || b->len == 0 || a->len + b->len != c.len)
            continue;
        a->piece = c.result;
        a->len = c.len;
        b->len = 0;
        a->next = b->next;
        if (b->next >= 0)
            chain->symbols[b->next].prev = c.left;
        consider(chain, a->prev, c.left);
        consider(chain, c.left, a->next);
    }
}
