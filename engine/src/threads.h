/* threads.h: a persistent pool that splits outputs over workers, never a sum.
 *
 * threads_run() gives every worker an equal share of items 0 … n-1, in the order of their numbers, and
 * runs of grain out of it as it becomes free; who is done helps the others. Since every item is an
 * output of its own, who computes it cannot matter. Workers spin briefly, then sleep. A pool belongs to
 * one caller at a time. Its workers do not exist in a child that fork() made: there the caller does
 * all the work, which changes no bit. */
#ifndef GB_THREADS_H
#define GB_THREADS_H
#include "engine.h"

typedef struct threads threads;

/* Compute items begin <= i < end; worker is 0 (the caller) … count-1. */
typedef void (*threads_fn)(void *arg, int64_t begin, int64_t end, int worker);

/* count workers including the caller; release with threads_free(). */
engine_status threads_new(threads **out, int32_t count, char *err, size_t errlen);
void threads_free(threads *pool);
int threads_count(const threads *pool);
/* Returns when every item is done. */
void threads_run(threads *pool, threads_fn fn, void *arg, int64_t items, int64_t grain);

#endif
