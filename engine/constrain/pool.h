/* pool.h: memory and effort of one compilation, both bounded.
 *
 * Everything that compiling a constraint makes lives in one pool and is freed with it. A pool
 * refuses, by status and text, what would take more bytes or more steps than it was given, so that
 * a hostile schema costs a known amount on every machine; steps are counted, not timed. Once a call
 * has failed, every later one fails at once (`status` is sticky), so callers may check at the end of
 * a phase. Not thread-safe. */
#ifndef GAUGEBLOCK_CONSTRAIN_POOL_H
#define GAUGEBLOCK_CONSTRAIN_POOL_H
#include <stddef.h>
#include <stdint.h>

#include "engine.h"

typedef struct pool {
    struct pool_block *blocks;
    uint64_t bytes, max_bytes;
    uint64_t steps, max_steps;
    engine_status status;     /* sticky */
    char error[512];          /* text of the first failure */
} pool;

void pool_init(pool *p, uint64_t max_bytes, uint64_t max_steps);
void pool_free(pool *p);
/* Zeroed memory, aligned to 16 bytes; NULL once the pool has failed. */
void *pool_alloc(pool *p, uint64_t bytes);
/* A copy of old with room for more; the old bytes stay in the pool. */
void *pool_grow(pool *p, const void *old, uint64_t old_bytes, uint64_t new_bytes);
/* Count n units of work (a state, an edge, a node); 0 once the pool has failed. */
int pool_step(pool *p, uint64_t n);
/* Fail with a text, unless the pool has failed before. Always returns the sticky status. */
engine_status pool_fail(pool *p, engine_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
