/* mask.h: which tokens may come next at a position: a walk of the vocabulary's trie against doc_ops.
 *
 * What positions share is kept: with the tokens where it depends on the vocabulary alone (string bodies
 * bounded by length), with the constraint where it depends on a language of its. Entries are immutable
 * once they can be found, so any number of threads read them without a lock. */
#ifndef GAUGEBLOCK_CONSTRAIN_MASK_H
#define GAUGEBLOCK_CONSTRAIN_MASK_H
#include "document.h"
#include "tokens.h"

typedef struct mask_cache mask_cache;

int mask_cache_new(mask_cache **out, const struct engine_tokens *tokens);
void mask_cache_free(mask_cache *cache);

/* A walk's own memory; belongs to one matcher. */
typedef struct mask_walk {
    const doc_ops *ops;
    void *program;
    const struct engine_tokens *tokens;
    doc_arena *arena;       /* positions of the walk */
    struct mask_frame *stack;
    uint32_t room;
} mask_walk;

/* Fill mask [(tokens.n + 31) / 32 words] for the position `at`. 0: out of memory. */
int mask_fill(mask_walk *walk, const doc *at, uint32_t *mask);
void mask_walk_free(mask_walk *walk);

#endif
