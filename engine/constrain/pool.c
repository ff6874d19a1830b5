/* pool.c: memory and effort of one compilation (pool.h). Blocks are calloc'ed and freed together. */
#include "pool.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_BYTES (64u << 10)

struct pool_block {
    struct pool_block *next;
    uint64_t used, size;
    _Alignas(16) unsigned char data[];
};

void pool_init(pool *p, uint64_t max_bytes, uint64_t max_steps) {
    memset(p, 0, sizeof *p);
    p->max_bytes = max_bytes;
    p->max_steps = max_steps;
}

void pool_free(pool *p) {
    while (p->blocks) {
        struct pool_block *next = p->blocks->next;
        free(p->blocks);
        p->blocks = next;
    }
    p->bytes = 0;
}

engine_status pool_fail(pool *p, engine_status status, const char *format, ...) {
    if (p->status == ENGINE_OK) {
        va_list args;
        va_start(args, format);
        (void)vsnprintf(p->error, sizeof p->error, format, args);
        va_end(args);
        p->status = status;
    }
    return p->status;
}

static struct pool_block *add_block(pool *p, uint64_t bytes) {
    uint64_t size = bytes > BLOCK_BYTES / 4 ? bytes : BLOCK_BYTES;
    if (size > p->max_bytes - p->bytes) {
        (void)pool_fail(p, ENGINE_EUNSUPPORTED, "the constraint needs more than %llu bytes to compile: simplify it",
                        (unsigned long long)p->max_bytes);
        return NULL;
    }
    struct pool_block *block = calloc(1, sizeof *block + size);
    if (!block) {
        (void)pool_fail(p, ENGINE_ENOMEM, "out of memory while compiling a constraint");
        return NULL;
    }
    block->size = size;
    p->bytes += size;
    if (size == bytes && p->blocks) { /* a block of its own goes behind the one that is being filled */
        block->next = p->blocks->next;
        p->blocks->next = block;
    } else {
        block->next = p->blocks;
        p->blocks = block;
    }
    return block;
}

void *pool_alloc(pool *p, uint64_t bytes) {
    if (p->status != ENGINE_OK)
        return NULL;
    if (bytes > p->max_bytes) {
        (void)pool_fail(p, ENGINE_EUNSUPPORTED, "the constraint needs more than %llu bytes to compile: simplify it",
                        (unsigned long long)p->max_bytes);
        return NULL;
    }
    bytes = (bytes + 15) & ~(uint64_t)15;
    if (bytes == 0)
        bytes = 16;
    struct pool_block *block = p->blocks;
    if (!block || block->size - block->used < bytes) {
        block = add_block(p, bytes);
        if (!block)
            return NULL;
    }
    void *at = block->data + block->used;
    block->used += bytes;
    return at;
}

void *pool_grow(pool *p, const void *old, uint64_t old_bytes, uint64_t new_bytes) {
    void *at = pool_alloc(p, new_bytes);
    if (at && old_bytes)
        memcpy(at, old, old_bytes);
    return at;
}

int pool_step(pool *p, uint64_t n) {
    if (p->status != ENGINE_OK)
        return 0;
    if (n > p->max_steps - p->steps) {
        (void)pool_fail(p, ENGINE_EUNSUPPORTED, "the constraint needs more than %llu steps to compile: simplify it",
                        (unsigned long long)p->max_steps);
        return 0;
    }
    p->steps += n;
    return 1;
}
