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
#define WAY_BYTES 32u

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
    for (uint32_t i = 0; i < e->n_exits; i++) {
        trie_free(&e->exits[i].after);
        free(e->exits[i].ways);
    }
    trie_free(&e->slow);
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

typedef struct closing_token {
    trie_word after;
    uint32_t exit;          /* index of the entry's exits */
} closing_token;

typedef struct making {
    mask_cache *cache;
    const trie *t;
    mask_entry *entry;
    uint32_t base;          /* depth in bytes of the node in the token's text as the trie has it */
    uint8_t *path;          /* bytes below the node */
    uint32_t *states;       /* by depth below the node */
    uint32_t *ends;         /* nodes after the subtrees, by depth */
    int32_t *inside;
    closing_token *closing;
    trie_word *slow;
    uint32_t n_inside, n_closing, n_slow;
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

/* Keep the path as a way to the quote, short ones rather than long ones. */
static int keep_way(making *k, mask_exit *x, uint32_t depth)
{
    uint32_t i = x->n_ways;
    if (x->ways == NULL) {
        x->ways = malloc(MASK_WAYS * WAY_BYTES);
        if (x->ways == NULL)
            return 0;
        k->entry->bytes += MASK_WAYS * WAY_BYTES;
    }
    while (i > 0 && x->way_len[i - 1] > depth)
        i--;
    if (depth > WAY_BYTES || i == MASK_WAYS) {
        x->more = 1;
        return 1;
    }
    int full = x->n_ways == MASK_WAYS;
    uint16_t at = full ? x->way_at[MASK_WAYS - 1] : (uint16_t)(x->n_ways * WAY_BYTES);
    x->more |= full;
    x->n_ways += !full;
    for (uint32_t j = x->n_ways - 1; j > i; j--) {
        x->way_at[j] = x->way_at[j - 1];
        x->way_len[j] = x->way_len[j - 1];
    }
    x->way_at[i] = at;
    x->way_len[i] = (uint16_t)depth;
    memcpy(x->ways + at, k->path, depth);
    return 1;
}

/* The exit where these places accept; MASK_EXITS: there are too many. */
static uint32_t exit_of(mask_entry *e, uint32_t accepting)
{
    uint32_t i = 0;
    while (i < e->n_exits && e->exits[i].accepting != accepting)
        i++;
    if (i == e->n_exits && i < MASK_EXITS)
        e->exits[e->n_exits++].accepting = accepting;
    return i;
}

static void add_slow(making *k, uint32_t node)
{
    uint32_t last = k->t->nodes[trie_end(k->t, node)].first;
    for (uint32_t i = k->t->nodes[node].first; i < last; i++) {
        uint32_t len = below(k, k->t->list[i]);
        k->slow[k->n_slow++] = (trie_word){tail(k->cache->tokens, k->t->list[i], len), len, k->t->list[i]};
    }
}

/* The string is closed by the last byte of the path: sort the tokens of the node's subtree. Where
 * there are exceptions, texts must be seen: neither escapes before the quote nor a string behind it. */
static int add_closing(making *k, uint32_t node, uint32_t depth, uint32_t accepting)
{
    const mask_key *key = &k->entry->key;
    uint32_t exit = key->uniform > 0 ? exit_of(k->entry, accepting) : MASK_EXITS;
    if (exit == MASK_EXITS || (key->uniform == 1 && k->escapes < depth)) {
        add_slow(k, node);
        return 1;
    }
    uint32_t last = k->t->nodes[trie_end(k->t, node)].first;
    for (uint32_t i = k->t->nodes[node].first; i < last; i++) {
        int32_t token = k->t->list[i];
        uint32_t len = below(k, token), rest = len - depth;
        const uint8_t *bytes = tail(k->cache->tokens, token, len);
        if (key->uniform == 2 || count_quotes(bytes + depth, rest) < 2)
            k->closing[k->n_closing++] = (closing_token){{bytes + depth, rest, token}, exit};
        else
            k->slow[k->n_slow++] = (trie_word){bytes, len, token};
    }
    if (k->escapes < depth) { /* what is decoded differs from the path */
        k->entry->exits[exit].more = 1;
        return 1;
    }
    return keep_way(k, &k->entry->exits[exit], depth);
}

/* One more byte inside the body. */
static void add_inside(making *k, uint32_t node, uint32_t depth)
{
    if (k->path[depth] == '\\' && k->entry->key.places.raw != BODY_RAW && k->escapes == UINT32_MAX)
        k->escapes = depth;
    for (uint32_t i = k->t->nodes[node].first; i < trie_own_end(k->t, node); i++)
        k->inside[k->n_inside++] = k->t->list[i];
}

static void add_all(making *k, uint32_t node)
{
    uint32_t first = k->t->nodes[node].first, n = k->t->nodes[trie_end(k->t, node)].first - first;
    memcpy(k->inside + k->n_inside, k->t->list + first, n * sizeof *k->inside);
    k->n_inside += n;
}

/* Whether all that stands below the node stays in the body, which is in `state` there, for its classes of
 * bytes alone. */
static int all_inside(making *k, uint32_t node, uint32_t state)
{
    for (uint32_t left = k->t->height[node]; left > 0; left--) {
        const body_row *row = body_row_of(k->cache->body, state);
        if (row == NULL || (k->t->below[node] & ~row->runs) != 0)
            return 0;
        if (row->next == state)
            return 1;
        state = row->next;
    }
    return 1;
}

/* Walk the subtree of the node with the automaton of the body. Where exceptions may follow besides what it
 * allows, any token with an escape is left to be read from the position. */
static int walk_body(making *k, uint32_t node, uint32_t start)
{
    const trie *t = k->t;
    uint32_t depth = 0;
    int covered = k->entry->key.covered;
    k->states[0] = start;
    k->ends[0] = trie_end(t, node);
    k->escapes = UINT32_MAX;
    for (node++; node < k->ends[0];) {
        while (node >= k->ends[depth])
            depth--;
        if (k->escapes != UINT32_MAX && k->escapes >= depth)
            k->escapes = UINT32_MAX;
        const body_row *row = k->states[depth] >= BODY_FIRST ? body_row_of(k->cache->body, k->states[depth]) : NULL;
        if (row == NULL && k->states[depth] >= BODY_FIRST)
            return 0;
        uint8_t byte = k->path[depth] = trie_byte(t, node);
        uint32_t to = row != NULL ? row->to[byte] : BODY_DEAD;
        if (!covered && byte == '\\') {
            add_slow(k, node);
        } else if (to >= BODY_FIRST || (!covered && to == BODY_DEAD && byte != '"')) {
            if (to >= BODY_FIRST && t->height[node] > 0 && all_inside(k, node, to)) {
                add_all(k, node);
                node = trie_end(t, node);
                continue;
            }
            if (to >= BODY_FIRST)
                add_inside(k, node, depth);
            k->states[++depth] = to;
            k->ends[depth] = trie_end(t, node);
            node++;
            continue;
        } else if (to != BODY_DEAD && !add_closing(k, node, depth + 1, to)) {
            return 0;
        }
        node = trie_end(t, node);
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

/* Build the tries of what follows the quote, exit by exit; slow's room is free by then. */
static int build_exits(making *k)
{
    mask_entry *e = k->entry;
    if (!trie_build(&e->slow, k->slow, k->n_slow))
        return 0;
    e->bytes += trie_bytes(&e->slow) + sizeof *e;
    for (uint32_t x = 0; x < e->n_exits; x++) {
        uint32_t n = 0;
        for (uint32_t i = 0; i < k->n_closing; i++)
            if (k->closing[i].exit == x)
                k->slow[n++] = k->closing[i].after;
        if (!trie_build(&e->exits[x].after, k->slow, n))
            return 0;
        e->bytes += trie_bytes(&e->exits[x].after);
    }
    return 1;
}

static int fill_entry(making *k)
{
    const trie *t = k->t;
    const mask_key *key = &k->entry->key;
    uint32_t n = t->nodes[trie_end(t, key->node)].first - t->nodes[key->node].first;
    uint32_t start = key->places.n > 0 ? body_state(k->cache->body, &key->places) : BODY_DEAD;
    k->base = depth_of(t, key->node);
    k->path = malloc(t->depth + 1);
    k->states = malloc((t->depth + 1) * sizeof *k->states);
    k->ends = malloc((t->depth + 1) * sizeof *k->ends);
    k->inside = malloc((n + 1) * sizeof *k->inside);
    k->closing = malloc((n + 1) * sizeof *k->closing);
    k->slow = malloc((n + 1) * sizeof *k->slow);
    int good = k->path && k->states && k->ends && k->inside && k->closing && k->slow;
    good = good && (start != BODY_DEAD || key->places.n == 0);
    good = good && walk_body(k, key->node, start) && store_inside(k) && build_exits(k);
    free(k->path);
    free(k->states);
    free(k->ends);
    free(k->inside);
    free(k->closing);
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
