/* tokens.h: a vocabulary prepared for masks: tries over the bytes of tokens, flattened depth first.
 *
 * A node's subtree is the nodes [node, node.end) and its tokens are list[first of node … first of end):
 * skipping a subtree and taking it whole are both one assignment. Immutable once made; whoever makes
 * a trie frees it. */
#ifndef GAUGEBLOCK_CONSTRAIN_TOKENS_H
#define GAUGEBLOCK_CONSTRAIN_TOKENS_H
#include <string.h>

#include "engine.h"

#define TRIE_MAX_NODES (1u << 24)

typedef struct trie_node {
    uint32_t end_byte; /* node after the subtree << 8 | byte that leads here; node 0 is the root */
    uint32_t first;    /* of list: tokens that end at this node, before those of its children */
} trie_node;

typedef struct trie {
    trie_node *nodes; /* [n + 1]: the last one only ends the list */
    uint32_t n;
    int32_t *list;    /* [nodes[n].first] tokens, depth first */
    uint64_t *below;  /* [n] classes of the bytes below each node (byte_class); NULL: not found */
    uint32_t *height; /* [n] bytes of the longest text below each node; found with the classes */
    uint32_t depth;   /* of the deepest node */
} trie;

static inline uint32_t trie_end(const trie *t, uint32_t node) { return t->nodes[node].end_byte >> 8; }
static inline uint8_t trie_byte(const trie *t, uint32_t node) { return (uint8_t)t->nodes[node].end_byte; }
/* Tokens that end at the node itself: list[first … own end). */
static inline uint32_t trie_own_end(const trie *t, uint32_t node)
{
    return t->nodes[node + 1].first;
}

/* A string and the token that it belongs to. */
typedef struct trie_word {
    const uint8_t *bytes;
    uint32_t len;
    int32_t token;
} trie_word;

/* Which of 64 classes a byte belongs to: letters have one each; 0 is for bytes that end or escape strings, and
 * control characters; 1 for those of longer UTF-8 sequences. */
static inline uint8_t byte_class(uint8_t byte)
{
    static const char others[] = " _-./:,'";
    if (byte < 0x20 || byte == '"' || byte == '\\')
        return 0;
    if (byte >= 0x80)
        return 1;
    if (byte >= 'a' && byte <= 'z')
        return (uint8_t)(2 + byte - 'a');
    if (byte >= 'A' && byte <= 'Z')
        return (uint8_t)(28 + byte - 'A');
    if (byte >= '0' && byte <= '9')
        return 54;
    const char *found = strchr(others, byte);
    return found != NULL ? (uint8_t)(55 + (found - others)) : 63;
}

/* Find the classes below each node, and the heights. 0: out of memory. */
int trie_classes(trie *t);

/* Build a trie of words; sorts them. 0: out of memory, or more nodes than TRIE_MAX_NODES. */
int trie_build(trie *t, trie_word *words, uint32_t n);
void trie_free(trie *t);
/* The node that `bytes` lead to from a node, or 0. */
uint32_t trie_find(const trie *t, uint32_t node, const uint8_t *bytes, uint32_t len);

struct mask_cache; /* mask.c */

struct engine_tokens {
    uint8_t *bytes;
    uint64_t *offsets;      /* [n + 1] */
    int32_t n;
    uint8_t *is_end;        /* [n] */
    int32_t *ends;
    int32_t n_ends;
    trie all;               /* every token that has bytes and is no end */
    trie spaced;            /* the same, each without the JSON white space that it begins with */
    uint64_t id;            /* unique in the process */
    struct mask_cache *cache;
};

#endif
