/* mask.h: which tokens may come next at a position: a walk of the vocabulary's trie against doc_ops.
 *
 * What positions share is kept: for string bodies, the tokens that stay inside and those that close the
 * string (mask_cache.c), with the tokens where it depends on the vocabulary alone (bodies bounded by
 * length), with the constraint where it depends on languages of its own. Entries are immutable once they
 * can be found, so any number of threads read them without a lock. */
#ifndef GAUGEBLOCK_CONSTRAIN_MASK_H
#define GAUGEBLOCK_CONSTRAIN_MASK_H
#include "body.h"
#include "document.h"
#include "tokens.h"

typedef struct mask_cache mask_cache;

enum {
    MASK_TRIE_ALL = 0,    /* tokens.all */
    MASK_TRIE_SPACED = 1, /* tokens.spaced */
};

/* What an entry is found by: where in which trie, in which body, and how it depends on what is read
 * (document.h). With uniform 0, all tokens that close the string are walked from the position itself. */
typedef struct mask_key {
    uint32_t node;
    uint8_t trie, uniform, covered, zero;
    body_places places;
} mask_key;

#define MASK_EXITS 8
#define MASK_WAYS 32

/* Tokens that close the string with the same ones of the places accepting. */
typedef struct mask_exit {
    uint32_t accepting;
    trie after;           /* what stands behind the quote */
    /* Ways to the quote, quote included, no escapes, shortest first: ways + way_at[i], way_len[i] bytes. */
    uint32_t n_ways;
    int32_t more;         /* there are other ways than these */
    uint8_t *ways;
    uint16_t way_at[MASK_WAYS], way_len[MASK_WAYS];
} mask_exit;

/* The tokens below a node, read in a string body. */
typedef struct mask_entry {
    struct mask_entry *next; /* of the same bucket */
    uint64_t hash;
    mask_key key;
    uint64_t bytes;
    uint32_t *dense;      /* tokens that stay inside: all words of a mask, or … */
    int32_t *sparse;      /* … their ids */
    uint32_t n_sparse;
    mask_exit exits[MASK_EXITS];
    uint32_t n_exits;
    trie slow;            /* tokens that are read from the position itself: whole, below the node */
} mask_entry;

/* Languages that keys hold belong to one constraint, which outlives the cache. */
int mask_cache_new(mask_cache **out, const struct engine_tokens *tokens);
void mask_cache_free(mask_cache *cache);
/* The entry for a key, made where there is none; NULL: it would be too large, or there is no memory. *own: not kept by the cache, to be
 * freed by the caller with mask_entry_free(). */
const mask_entry *mask_cache_get(mask_cache *cache, const mask_key *key, mask_entry **own);
void mask_entry_free(mask_entry *entry);
/* The places of languages and states, for a key. */
void mask_cache_places(const mask_cache *cache, const lang *const *langs, const uint32_t *states, uint32_t n, int raw,
                       body_places *out);

/* A walk's own memory; belongs to one matcher. */
typedef struct mask_walk {
    const doc_ops *ops;
    void *program;
    const struct engine_tokens *tokens;
    struct engine_constraint *constraint;
    mask_cache *cache;      /* of the constraint, for these tokens; NULL: not needed so far */
    doc_arena *arena;       /* positions of the walk */
    struct mask_frame *stack;
    uint32_t room;
    uint32_t bodies;        /* string bodies looked up within one another at the moment */
} mask_walk;

/* The cache of a constraint for these tokens, made when it is first asked for; NULL: out of memory.
 * (api.c) */
mask_cache *constraint_mask_cache(struct engine_constraint *constraint, const struct engine_tokens *tokens);

/* Fill mask [(tokens.n + 31) / 32 words] for the position `at`. 0: out of memory. */
int mask_fill(mask_walk *walk, const doc *at, uint32_t *mask);
void mask_walk_free(mask_walk *walk);

#endif
