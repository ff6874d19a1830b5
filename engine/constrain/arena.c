/* arena.c: bump allocation of positions (document.h). Memory comes in chunks that a reset keeps for
 * reuse, so a walk over a vocabulary allocates nothing once it has been run. A mark is the number of
 * a chunk and how far it was filled. Refuses by failing for good (until the next reset) what would
 * exceed the bytes granted; the owner frees all with doc_arena_free(). Not thread-safe. */
#include "document.h"

#include <stdlib.h>

#define FIRST_CHUNK (4u << 10)
#define LARGEST_CHUNK (256u << 10)
#define MAX_CHUNKS 4096

typedef struct chunk {
    uint64_t size;
    _Alignas(16) unsigned char data[];
} chunk;

struct doc_arena {
    unsigned char *next, *end; /* free part of the chunk in use */
    uint64_t bytes, max_bytes; /* of all chunks */
    chunk **chunks;
    uint32_t n_chunks, room, at; /* at: the chunk in use; n_chunks where there is none */
    int failed;
    uint64_t effort; /* left */
};

doc_arena *doc_arena_new(uint64_t max_bytes)
{
    doc_arena *a = calloc(1, sizeof *a);
    if (a == NULL)
        return NULL;
    a->max_bytes = max_bytes;
    a->effort = UINT64_MAX;
    return a;
}

void doc_arena_free(doc_arena *a)
{
    if (a == NULL)
        return;
    for (uint32_t i = 0; i < a->n_chunks; i++)
        free(a->chunks[i]);
    free(a->chunks);
    free(a);
}

/* A chunk for at least `bytes`, put at index `at` of the list. */
static chunk *add_chunk(doc_arena *a, uint32_t at, uint64_t bytes)
{
    uint64_t size = a->n_chunks == 0 ? FIRST_CHUNK : a->bytes < LARGEST_CHUNK ? a->bytes : LARGEST_CHUNK;
    if (size < bytes)
        size = bytes;
    if (a->n_chunks == MAX_CHUNKS || size > a->max_bytes - a->bytes)
        return NULL;
    if (a->n_chunks == a->room) {
        uint32_t room = a->room ? a->room * 2 : 8;
        chunk **grown = realloc(a->chunks, room * sizeof(chunk *));
        if (grown == NULL)
            return NULL;
        a->chunks = grown;
        a->room = room;
    }
    chunk *fresh = malloc(sizeof *fresh + size);
    if (fresh == NULL)
        return NULL;
    fresh->size = size;
    a->bytes += size;
    for (uint32_t i = a->n_chunks; i > at; i--)
        a->chunks[i] = a->chunks[i - 1];
    a->chunks[at] = fresh;
    a->n_chunks++;
    return fresh;
}

static void use_chunk(doc_arena *a, uint32_t at, uint64_t used)
{
    a->at = at;
    a->next = a->chunks[at]->data + used;
    a->end = a->chunks[at]->data + a->chunks[at]->size;
}

static void *alloc_in_next(doc_arena *a, uint64_t bytes)
{
    uint32_t at = a->next == NULL ? 0 : a->at + 1;
    if (at >= a->n_chunks || a->chunks[at]->size < bytes)
        if (add_chunk(a, at, bytes) == NULL) {
            a->failed = 1;
            return NULL;
        }
    use_chunk(a, at, bytes);
    return a->chunks[at]->data;
}

void *doc_arena_alloc(doc_arena *a, uint64_t bytes)
{
    if (a->failed || bytes > a->max_bytes) {
        a->failed = a->failed ? a->failed : 1;
        return NULL;
    }
    bytes = (bytes + 15) & ~(uint64_t)15;
    if ((uint64_t)(a->end - a->next) < bytes)
        return alloc_in_next(a, bytes);
    void *at = a->next;
    a->next += bytes;
    return at;
}

uint64_t doc_arena_mark(const doc_arena *a)
{
    if (a->next == NULL)
        return 0;
    return (uint64_t)a->at << 32 | (uint64_t)(a->next - a->chunks[a->at]->data);
}

void doc_arena_reset(doc_arena *a, uint64_t mark)
{
    a->failed = 0;
    if (a->n_chunks > 0)
        use_chunk(a, (uint32_t)(mark >> 32), mark & UINT32_MAX);
}

int doc_arena_failed(const doc_arena *a)
{
    return a->failed;
}

void doc_arena_allow(doc_arena *a, uint64_t effort)
{
    a->effort = effort;
}

int doc_arena_spend(doc_arena *a, uint64_t effort)
{
    if (effort > a->effort && !a->failed)
        a->failed = 2;
    a->effort -= effort < a->effort ? effort : a->effort;
    return !a->failed;
}

uint64_t doc_arena_used(const doc_arena *a)
{
    if (a->next == NULL)
        return 0;
    uint64_t used = (uint64_t)(a->next - a->chunks[a->at]->data);
    for (uint32_t i = 0; i < a->at; i++)
        used += a->chunks[i]->size;
    return used;
}
