/* document.h: reading a document byte by byte under a constraint. What stands behind a compiled
 * constraint, whatever it was compiled from, is a table of these operations; masks (mask.c), endings
 * and the public calls know nothing else of it.
 *
 * A `doc` is a position in one document: which bytes may follow, whether it may end here, and how it
 * ends soonest. Positions are immutable values in an arena, so a walk over the vocabulary keeps one
 * per depth and steps back for nothing; arenas are reset between walks. A position that was reached
 * can always be completed: a byte after which no completion exists is not allowed. */
#ifndef GAUGEBLOCK_CONSTRAIN_DOCUMENT_H
#define GAUGEBLOCK_CONSTRAIN_DOCUMENT_H
#include "pool.h"

enum {
    DOC_ORDER_ANY = 1,      /* members in any order; else declared ones in declared order, others after them */
    DOC_SPACE_FREE = 2,     /* JSON white space between tokens; else none */
};

typedef struct doc doc;     /* opaque to all but the machine that made it */

typedef struct doc_arena doc_arena;  /* bump allocator of positions: reset frees all made since a mark */

/* Why a byte string was written: a part of the document that an ending added. */
typedef struct doc_ops {
    /* The empty document. NULL: out of memory. */
    const doc *(*start)(void *program, doc_arena *arena);
    /* One byte further; NULL where the byte is not allowed (arena->failed tells lack of memory apart). */
    const doc *(*step)(void *program, doc_arena *arena, const doc *at, uint8_t byte);
    /* The bytes that may follow, as a set of 256 bits. */
    void (*allowed)(void *program, const doc *at, uint64_t set[4]);
    int (*accepting)(void *program, const doc *at);
    /* Deep copy into another arena, for positions that outlive a walk. */
    const doc *(*keep)(void *program, doc_arena *to, const doc *at);
    /* Fewest bytes that complete the document: 0 iff accepting. UINT32_MAX-saturated. */
    uint32_t (*distance)(void *program, const doc *at);
    /* Write the next byte of one shortest completion (the least byte, where several serve). */
    int (*closing)(void *program, const doc *at, uint8_t *byte);
    /* JSON pointer of the value that is being read, UTF-8 NUL-terminated, cut to cap; its length. A
     * constraint that is not JSON gives "". */
    uint32_t (*pointer)(void *program, const doc *at, char *out, uint32_t cap);
    /* Positions from which exactly the same continuations are allowed while inside one lexical
     * element have equal keys, and *depth tells how far the element's frame is open; 0: not known.
     * Masks of the tokens that stay inside the element are cached by key. */
    uint64_t (*lexical_key)(void *program, const doc *at);
    void (*free)(void *program);
} doc_ops;

doc_arena *doc_arena_new(uint64_t max_bytes);
void doc_arena_free(doc_arena *arena);
void *doc_arena_alloc(doc_arena *arena, uint64_t bytes);   /* not zeroed; NULL once failed */
uint64_t doc_arena_mark(const doc_arena *arena);
void doc_arena_reset(doc_arena *arena, uint64_t mark);
int doc_arena_failed(const doc_arena *arena);

#endif
