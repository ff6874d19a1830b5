/* mask_cache.c: what tokens do in a string body, kept by body and place in the trie (mask.h).
 *
 * A lookup takes no lock: buckets are lists that only grow at their head, by atomic stores. Making an
 * entry takes the cache's lock, for the automaton of the bodies. A cache that holds its share of bytes
 * keeps no further entries: callers then own what they get. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "mask.h"

#define BUCKETS 1024u
#define MAX_BYTES (64ull << 20)
#define WAYS_BYTES 2016u /* of ways of 1 to 63 bytes */

struct mask_cache {
    const struct engine_tokens *tokens;
    pthread_mutex_t lock;
    body *body;
    uint64_t bytes;
    _Atomic(mask_entry *) buckets[BUCKETS];
};

int mask_cache_new(mask_cache **out, const struct engine_tokens *tokens)
{
    mask_cache *cache = calloc(1, sizeof *cache);
    *out = cache;
    if (cache == NULL)
        return 0;
    cache->tokens = tokens;
    cache->body = body_new(tokens->all.depth);
    if (cache->body != NULL && pthread_mutex_init(&cache->lock, NULL) == 0)
        return 1;
    body_free(cache->body);
    free(cache);
    *out = NULL;
    return 0;
}

void mask_entry_free(mask_entry *e)
{
    if (e == NULL)
        return;
    free(e->dense);
    free(e->sparse);
    trie_free(&e->fast);
    trie_free(&e->slow);
    free(e->ways);
    free(e);
}

void mask_cache_free(mask_cache *cache)
{
    if (cache == NULL)
        return;
    for (uint32_t i = 0; i < BUCKETS; i++)
        for (mask_entry *e = atomic_load(&cache->buckets[i]); e != NULL;) {
            mask_entry *next = e->next;
            mask_entry_free(e);
            e = next;
        }
    body_free(cache->body);
    (void)pthread_mutex_destroy(&cache->lock);
    free(cache);
}

void mask_cache_places(const mask_cache *cache, const lang *const *langs, const uint32_t *states, uint32_t n, int raw,
                       body_places *out)
{
    body_places_of(cache->body, langs, states, n, raw, out); /* reads what never changes */
}

/* ---- Making an entry ------------------------------------------------------------------------- */

typedef struct making {
    mask_cache *cache;
    const trie *t;
    mask_entry *entry;
    uint32_t base;          /* depth in bytes of the node in the token's text as the trie has it */
    uint8_t *path;          /* bytes below the node */
    uint32_t *states;       /* by depth below the node */
    uint32_t *ends;         /* nodes after the subtrees, by depth */
    int32_t *inside;
    uint32_t n_inside;
    trie_word *fast, *slow;
    uint32_t n_fast, n_slow;
    uint32_t escapes;       /* depth of the first backslash on the path, or UINT32_MAX */
} making;

/* Quotes in bytes, those behind a backslash too. */
static uint32_t count_quotes(const uint8_t *bytes, uint32_t n)
{
    uint32_t quotes = 0;
    for (uint32_t i = 0; i < n; i++)
        quotes += bytes[i] == '"';
    return quotes;
}

/* A token's last n bytes. */
static const uint8_t *tail(const struct engine_tokens *tokens, int32_t token, uint32_t n)
{
    return tokens->bytes + tokens->offsets[token + 1] - n;
}

static uint32_t token_len(const making *k, int32_t token)
{
    return (uint32_t)(k->cache->tokens->offsets[token + 1] - k->cache->tokens->offsets[token]);
}

/* Bytes of a token below the node: those of the trie's text for it, less the base. */
static uint32_t below(const making *k, int32_t token)
{
    uint32_t len = token_len(k, token), skipped = 0;
    if (k->entry->key.trie == MASK_TRIE_SPACED) {
        const uint8_t *bytes = tail(k->cache->tokens, token, len);
        while (skipped < len &&
               (bytes[skipped] == ' ' || bytes[skipped] == '\t' || bytes[skipped] == '\n' || bytes[skipped] == '\r'))
            skipped++;
    }
    return len - skipped - k->base;
}

/* Keep the path as a way to the quote, one of each length. */
static int keep_way(making *k, uint32_t depth)
{
    mask_entry *e = k->entry;
    if (depth > 63 || e->way_lengths >> depth & 1)
        return 1;
    if (e->ways == NULL) {
        e->ways = malloc(WAYS_BYTES);
        if (e->ways == NULL)
            return 0;
        e->bytes += WAYS_BYTES;
    }
    e->way_lengths |= (uint64_t)1 << depth;
    e->way_at[depth] = (uint16_t)e->ways_bytes;
    memcpy(e->ways + e->ways_bytes, k->path, depth);
    e->ways_bytes += depth;
    return 1;
}

/* The string is closed by the last byte of the path: sort the tokens of the node's subtree. */
static int add_closing(making *k, uint32_t node, uint32_t depth)
{
    const struct engine_tokens *tokens = k->cache->tokens;
    int escaped = k->escapes < depth;
    uint32_t last = k->t->nodes[trie_end(k->t, node)].first;
    for (uint32_t i = k->t->nodes[node].first; i < last; i++) {
        int32_t token = k->t->list[i];
        uint32_t len = below(k, token);
        const uint8_t *bytes = tail(tokens, token, len);
        if (k->entry->key.uniform && !escaped && count_quotes(bytes + depth, len - depth) < 2)
            k->fast[k->n_fast++] = (trie_word){bytes + depth, len - depth, token};
        else
            k->slow[k->n_slow++] = (trie_word){bytes, len, token};
    }
    return escaped || keep_way(k, depth);
}

/* Walk the subtree of the node with the automaton of the body. */
static int walk_body(making *k, uint32_t node, uint32_t start)
{
    const trie *t = k->t;
    uint32_t depth = 0;
    k->states[0] = start;
    k->ends[0] = trie_end(t, node);
    k->escapes = UINT32_MAX;
    for (node++; node < k->ends[0];) {
        while (node >= k->ends[depth])
            depth--;
        if (k->escapes != UINT32_MAX && k->escapes >= depth)
            k->escapes = UINT32_MAX;
        const uint32_t *row = body_row(k->cache->body, k->states[depth]);
        if (row == NULL)
            return 0;
        uint8_t byte = trie_byte(t, node);
        uint32_t to = row[byte];
        if (to == BODY_DEAD) {
            node = trie_end(t, node);
            continue;
        }
        k->path[depth] = byte;
        if (to == BODY_EXIT) {
            if (!add_closing(k, node, depth + 1))
                return 0;
            node = trie_end(t, node);
            continue;
        }
        if (byte == '\\' && !k->entry->key.places.raw && k->escapes == UINT32_MAX)
            k->escapes = depth;
        for (uint32_t i = t->nodes[node].first; i < trie_own_end(t, node); i++)
            k->inside[k->n_inside++] = t->list[i];
        k->states[++depth] = to;
        k->ends[depth] = trie_end(t, node);
        node++;
    }
    return 1;
}

/* Put the tokens that stay inside into the smaller form. */
static int store_inside(making *k)
{
    mask_entry *e = k->entry;
    uint32_t words = ((uint32_t)k->cache->tokens->n + 31) / 32;
    if (k->n_inside <= words / 2) {
        e->sparse = malloc((k->n_inside + 1) * sizeof *e->sparse);
        if (e->sparse == NULL)
            return 0;
        memcpy(e->sparse, k->inside, k->n_inside * sizeof *e->sparse);
        e->n_sparse = k->n_inside;
        e->bytes += k->n_inside * sizeof *e->sparse;
        return 1;
    }
    e->dense = calloc(words, sizeof *e->dense);
    if (e->dense == NULL)
        return 0;
    for (uint32_t i = 0; i < k->n_inside; i++)
        e->dense[k->inside[i] >> 5] |= 1u << (k->inside[i] & 31);
    e->bytes += words * sizeof *e->dense;
    return 1;
}

static uint64_t trie_bytes(const trie *t)
{
    return t->n * sizeof *t->nodes + t->nodes[t->n].first * sizeof *t->list;
}

static uint32_t depth_of(const trie *t, uint32_t node)
{
    uint32_t depth = 0;
    for (uint32_t at = 0; at != node; depth++) {
        uint32_t child = at + 1;
        while (trie_end(t, child) <= node)
            child = trie_end(t, child);
        at = child;
    }
    return depth;
}

static int fill_entry(making *k)
{
    const trie *t = k->t;
    uint32_t node = k->entry->key.node, n = t->nodes[trie_end(t, node)].first - t->nodes[node].first;
    uint32_t start = body_state(k->cache->body, &k->entry->key.places);
    k->base = depth_of(t, node);
    k->path = malloc(t->depth + 1);
    k->states = malloc((t->depth + 1) * sizeof *k->states);
    k->ends = malloc((t->depth + 1) * sizeof *k->ends);
    k->inside = malloc((n + 1) * sizeof *k->inside);
    k->fast = malloc((n + 1) * sizeof *k->fast);
    k->slow = malloc((n + 1) * sizeof *k->slow);
    int good = start != BODY_DEAD && k->path && k->states && k->ends && k->inside && k->fast && k->slow;
    good = good && walk_body(k, node, start) && store_inside(k);
    good = good && trie_build(&k->entry->fast, k->fast, k->n_fast) && trie_build(&k->entry->slow, k->slow, k->n_slow);
    if (good)
        k->entry->bytes += trie_bytes(&k->entry->fast) + trie_bytes(&k->entry->slow) + sizeof *k->entry;
    free(k->path);
    free(k->states);
    free(k->ends);
    free(k->inside);
    free(k->fast);
    free(k->slow);
    return good;
}

static mask_entry *make_entry(mask_cache *cache, const mask_key *key, uint64_t hash)
{
    mask_entry *entry = calloc(1, sizeof *entry);
    if (entry == NULL)
        return NULL;
    entry->key = *key;
    entry->hash = hash;
    making k = {.cache = cache, .entry = entry,
                .t = key->trie == MASK_TRIE_SPACED ? &cache->tokens->spaced : &cache->tokens->all};
    if (fill_entry(&k))
        return entry;
    mask_entry_free(entry);
    return NULL;
}

/* ---- Finding ----------------------------------------------------------------------------------- */

static uint64_t hash_key(const mask_key *key)
{
    const unsigned char *bytes = (const unsigned char *)key;
    size_t used = offsetof(mask_key, places.at) + key->places.n * sizeof(body_place);
    uint64_t h = 0x9e3779b97f4a7c15u;
    for (size_t i = 0; i < used; i += 8) {
        uint64_t word;
        memcpy(&word, bytes + i, 8);
        h = (h ^ word) * 0xff51afd7ed558ccdu;
        h ^= h >> 32;
    }
    return h;
}

_Static_assert(sizeof(mask_key) % 8 == 0 && offsetof(mask_key, places.at) % 8 == 0, "keys are hashed by words");

static mask_entry *find(mask_cache *cache, const mask_key *key, uint64_t hash)
{
    mask_entry *e = atomic_load_explicit(&cache->buckets[hash % BUCKETS], memory_order_acquire);
    size_t used = offsetof(mask_key, places.at) + key->places.n * sizeof(body_place);
    while (e != NULL && (e->hash != hash || memcmp(&e->key, key, used) != 0))
        e = e->next;
    return e;
}

/* Let others find a fresh entry, or give it to the caller where the cache is full. */
static void keep_entry(mask_cache *cache, mask_entry *e, mask_entry **own)
{
    if (cache->bytes + e->bytes > MAX_BYTES) {
        *own = e;
        return;
    }
    _Atomic(mask_entry *) *bucket = &cache->buckets[e->hash % BUCKETS];
    cache->bytes += e->bytes;
    e->next = atomic_load_explicit(bucket, memory_order_relaxed);
    atomic_store_explicit(bucket, e, memory_order_release);
}

const mask_entry *mask_cache_get(mask_cache *cache, const mask_key *key, mask_entry **own)
{
    uint64_t hash = hash_key(key);
    mask_entry *e = find(cache, key, hash);
    *own = NULL;
    if (e != NULL)
        return e;
    (void)pthread_mutex_lock(&cache->lock);
    e = find(cache, key, hash); /* another thread may have been faster */
    if (e == NULL) {
        e = make_entry(cache, key, hash);
        if (e != NULL)
            keep_entry(cache, e, own);
    }
    (void)pthread_mutex_unlock(&cache->lock);
    return e;
}
