/* tokens.c: tries over a vocabulary (tokens.h). Refuses ids and offsets out of range by position.
 * engine_tokens_free() frees all of it. */
#include "tokens.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "mask.h"
#include "status.h"

#define TOKENS_MAX (1 << 22)
#define TOKEN_BYTES_MAX 65536u /* of one token */

static int compare_words(const void *left, const void *right)
{
    const trie_word *a = left, *b = right;
    uint32_t shorter = a->len < b->len ? a->len : b->len;
    int order = shorter ? memcmp(a->bytes, b->bytes, shorter) : 0;
    if (order != 0)
        return order;
    if (a->len != b->len)
        return a->len < b->len ? -1 : 1;
    return a->token < b->token ? -1 : a->token > b->token;
}

static uint32_t common(const trie_word *a, const trie_word *b)
{
    uint32_t n = 0, shorter = a->len < b->len ? a->len : b->len;
    while (n < shorter && a->bytes[n] == b->bytes[n])
        n++;
    return n;
}

/* How many nodes the sorted words need, root included; *depth of the deepest. */
static uint64_t count_nodes(const trie_word *words, uint32_t n, uint32_t *depth)
{
    uint64_t nodes = 1;
    *depth = 0;
    for (uint32_t i = 0; i < n; i++) {
        nodes += words[i].len - (i > 0 ? common(&words[i - 1], &words[i]) : 0);
        if (words[i].len > *depth)
            *depth = words[i].len;
    }
    return nodes;
}

/* Ends of the nodes on the path from depth `from` to depth `to` are now known: `end`. */
static void close_path(trie *t, const uint32_t *path, uint32_t from, uint32_t to, uint32_t end)
{
    for (uint32_t d = from; d <= to; d++)
        t->nodes[path[d]].end_byte = end << 8 | (t->nodes[path[d]].end_byte & 255u);
}

static void fill(trie *t, const trie_word *words, uint32_t n, uint32_t *path)
{
    uint32_t used = 1, depth = 0;
    t->nodes[0] = (trie_node){0, 0};
    path[0] = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t shared = i > 0 ? common(&words[i - 1], &words[i]) : 0;
        if (shared < depth)
            close_path(t, path, shared + 1, depth, used);
        for (depth = shared; depth < words[i].len;) {
            t->nodes[used] = (trie_node){words[i].bytes[depth], i};
            path[++depth] = used++;
        }
        t->list[i] = words[i].token;
    }
    close_path(t, path, 0, depth, used);
    t->nodes[used] = (trie_node){(used + 1) << 8, n};
    t->n = used;
}

int trie_build(trie *t, trie_word *words, uint32_t n)
{
    memset(t, 0, sizeof *t);
    qsort(words, n, sizeof *words, compare_words);
    uint64_t nodes = count_nodes(words, n, &t->depth);
    if (nodes >= TRIE_MAX_NODES - 1)
        return 0;
    t->nodes = malloc((nodes + 1) * sizeof *t->nodes);
    t->list = malloc((n + 1) * sizeof *t->list);
    uint32_t *path = malloc((t->depth + 1) * sizeof *path);
    if (t->nodes == NULL || t->list == NULL || path == NULL) {
        free(path);
        trie_free(t);
        return 0;
    }
    fill(t, words, n, path);
    free(path);
    return 1;
}

int trie_classes(trie *t)
{
    t->below = calloc(t->n, sizeof *t->below);
    t->height = calloc(t->n, sizeof *t->height);
    if (t->below == NULL || t->height == NULL)
        return 0;
    for (uint32_t node = t->n; node-- > 0;) /* children first */
        for (uint32_t child = node + 1; child < trie_end(t, node); child = trie_end(t, child)) {
            t->below[node] |= (uint64_t)1 << byte_class(trie_byte(t, child)) | t->below[child];
            if (t->height[node] <= t->height[child])
                t->height[node] = t->height[child] + 1;
        }
    return 1;
}

void trie_free(trie *t)
{
    free(t->below);
    free(t->height);
    free(t->nodes);
    free(t->list);
    memset(t, 0, sizeof *t);
}

uint32_t trie_find(const trie *t, uint32_t node, const uint8_t *bytes, uint32_t len)
{
    for (uint32_t i = 0; i < len; i++) {
        uint32_t end = trie_end(t, node), child = node + 1;
        while (child < end && trie_byte(t, child) != bytes[i])
            child = trie_end(t, child);
        if (child >= end)
            return 0;
        node = child;
    }
    return node;
}

static int is_space(uint8_t byte)
{
    return byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r';
}

static int build_tries(engine_tokens *tokens)
{
    trie_word *words = malloc(((size_t)tokens->n + 1) * sizeof *words);
    if (words == NULL)
        return 0;
    uint32_t n = 0;
    for (int32_t i = 0; i < tokens->n; i++) {
        uint32_t len = (uint32_t)(tokens->offsets[i + 1] - tokens->offsets[i]);
        if (len > 0 && !tokens->is_end[i])
            words[n++] = (trie_word){tokens->bytes + tokens->offsets[i], len, i};
    }
    int good = trie_build(&tokens->all, words, n);
    for (uint32_t i = 0; good && i < n; i++)
        while (words[i].len > 0 && is_space(*words[i].bytes)) {
            words[i].bytes++;
            words[i].len--;
        }
    good = good && trie_build(&tokens->spaced, words, n);
    good = good && trie_classes(&tokens->all) && trie_classes(&tokens->spaced);
    free(words);
    return good;
}

static engine_status check_tokens(const char *bytes, const uint64_t *offsets, int32_t n, const int32_t *ends,
                                  int32_t n_ends, char *err, size_t errlen)
{
    if (n < 1 || n > TOKENS_MAX)
        return gb_fail(err, errlen, ENGINE_EINVAL, "%ld tokens; 1 to %ld are possible", (long)n, (long)TOKENS_MAX);
    if (offsets == NULL || (bytes == NULL && offsets[n] > 0) || n_ends < 0 || (n_ends > 0 && ends == NULL))
        return gb_fail(err, errlen, ENGINE_EINVAL, "bytes, offsets and ends must be arrays");
    if (offsets[0] != 0)
        return gb_fail(err, errlen, ENGINE_EINVAL, "offsets[0] must be 0");
    for (int32_t i = 0; i < n; i++)
        if (offsets[i + 1] < offsets[i] || offsets[i + 1] - offsets[i] > TOKEN_BYTES_MAX)
            return gb_fail(err, errlen, ENGINE_EINVAL,
                           "offsets[%ld] is no end of token %ld: it must not descend, and a token has at most %u bytes",
                           (long)i + 1, (long)i, TOKEN_BYTES_MAX);
    for (int32_t i = 0; i < n_ends; i++)
        if (ends[i] < 0 || ends[i] >= n)
            return gb_fail(err, errlen, ENGINE_EINVAL, "ends[%ld] is %ld; ids run from 0 to %ld", (long)i,
                           (long)ends[i], (long)n - 1);
    return ENGINE_OK;
}

static int copy_tokens(engine_tokens *t, const char *bytes, const uint64_t *offsets, int32_t n, const int32_t *ends,
                       int32_t n_ends)
{
    t->n = n;
    t->n_ends = n_ends;
    t->bytes = malloc(offsets[n] + 1);
    t->offsets = malloc(((size_t)n + 1) * sizeof *t->offsets);
    t->is_end = calloc((size_t)n, 1);
    t->ends = malloc(((size_t)n_ends + 1) * sizeof *t->ends);
    if (t->bytes == NULL || t->offsets == NULL || t->is_end == NULL || t->ends == NULL)
        return 0;
    if (offsets[n] > 0)
        memcpy(t->bytes, bytes, offsets[n]);
    memcpy(t->offsets, offsets, ((size_t)n + 1) * sizeof *offsets);
    for (int32_t i = 0; i < n_ends; i++) {
        t->ends[i] = ends[i];
        t->is_end[ends[i]] = 1;
    }
    return build_tries(t) && mask_cache_new(&t->cache, t);
}

engine_status engine_tokens_new(engine_tokens **out, const char *bytes, const uint64_t *offsets, int32_t n,
                                const int32_t *ends, int32_t n_ends, char *err, size_t errlen)
{
    static atomic_ullong ids = 1;
    if (out == NULL)
        return gb_fail(err, errlen, ENGINE_EINVAL, "out is NULL");
    *out = NULL;
    engine_status status = check_tokens(bytes, offsets, n, ends, n_ends, err, errlen);
    if (status != ENGINE_OK)
        return status;
    engine_tokens *tokens = calloc(1, sizeof *tokens);
    if (tokens != NULL) {
        tokens->id = atomic_fetch_add(&ids, 1);
        if (copy_tokens(tokens, bytes, offsets, n, ends, n_ends)) {
            *out = tokens;
            return ENGINE_OK;
        }
        engine_tokens_free(tokens);
    }
    return gb_fail(err, errlen, ENGINE_ENOMEM, "out of memory: preparing %ld tokens for masks", (long)n);
}

void engine_tokens_free(engine_tokens *tokens)
{
    if (tokens == NULL)
        return;
    mask_cache_free(tokens->cache);
    trie_free(&tokens->all);
    trie_free(&tokens->spaced);
    free(tokens->bytes);
    free(tokens->offsets);
    free(tokens->is_end);
    free(tokens->ends);
    free(tokens);
}
