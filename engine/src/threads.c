/* threads.c: the worker pool; see threads.h. Owns its workers and ends them in threads_free().
 *
 * A job is published by raising generation; workers that spin see it, those that sleep are
 * woken under the lock. Items are claimed from one counter. Workers run with the control word
 * of fpenv.h and with all signals blocked, which leaves those to the caller's threads. In a
 * child of fork() there is nobody to wake, to wait for, or to join. */
#define _POSIX_C_SOURCE 200809L
#include "threads.h"

#include "fpenv.h"
#include "status.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SPINS = 2000, WORKER_STACK_BYTES = 2 << 20 };

typedef struct worker {
    threads *pool;
    pthread_t thread;
    int index;
} worker;

struct threads {
    int count;           /* workers including the caller */
    int started;         /* threads that exist */
    pid_t owner;         /* the process that they exist in */
    worker *workers;     /* [count - 1] */
    pthread_mutex_t lock;
    pthread_cond_t wake; /* a new generation */
    pthread_cond_t done; /* the last worker finished */
    atomic_int sleeping;
    atomic_int caller_sleeps;
    atomic_int running; /* workers that have not finished this generation */
    atomic_uint generation;
    atomic_int quit;
    threads_fn fn;
    void *arg;
    int64_t items;
    int64_t grain;
    atomic_llong next;
};

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void work(threads *pool, int index)
{
    for (;;) {
        int64_t begin = atomic_fetch_add(&pool->next, pool->grain);
        if (begin >= pool->items)
            return;
        int64_t end = begin + pool->grain < pool->items ? begin + pool->grain : pool->items;
        pool->fn(pool->arg, begin, end, index);
    }
}

/* Wait until generation differs from seen, and return it. */
static unsigned await_generation(threads *pool, unsigned seen)
{
    for (int i = 0; i < SPINS; i++) {
        unsigned now = atomic_load(&pool->generation);
        if (now != seen)
            return now;
        relax();
    }
    pthread_mutex_lock(&pool->lock);
    atomic_fetch_add(&pool->sleeping, 1);
    while (atomic_load(&pool->generation) == seen)
        pthread_cond_wait(&pool->wake, &pool->lock);
    atomic_fetch_sub(&pool->sleeping, 1);
    pthread_mutex_unlock(&pool->lock);
    return atomic_load(&pool->generation);
}

static void *worker_main(void *arg)
{
    worker *self = arg;
    threads *pool = self->pool;
    unsigned seen = 0;
    gb_fpenv saved = gb_fpenv_enter();
    for (;;) {
        seen = await_generation(pool, seen);
        if (atomic_load(&pool->quit))
            break;
        work(pool, self->index);
        if (atomic_fetch_sub(&pool->running, 1) == 1 && atomic_load(&pool->caller_sleeps)) {
            pthread_mutex_lock(&pool->lock);
            pthread_cond_signal(&pool->done);
            pthread_mutex_unlock(&pool->lock);
        }
    }
    gb_fpenv_leave(saved);
    return NULL;
}

static void publish(threads *pool)
{
    atomic_fetch_add(&pool->generation, 1);
    if (atomic_load(&pool->sleeping) > 0) {
        pthread_mutex_lock(&pool->lock);
        pthread_cond_broadcast(&pool->wake);
        pthread_mutex_unlock(&pool->lock);
    }
}

static void await_workers(threads *pool)
{
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load(&pool->running) == 0)
            return;
        relax();
    }
    pthread_mutex_lock(&pool->lock);
    atomic_store(&pool->caller_sleeps, 1);
    while (atomic_load(&pool->running) > 0)
        pthread_cond_wait(&pool->done, &pool->lock);
    atomic_store(&pool->caller_sleeps, 0);
    pthread_mutex_unlock(&pool->lock);
}

void threads_run(threads *pool, threads_fn fn, void *arg, int64_t items, int64_t grain)
{
    if (pool->count == 1 || items <= grain || getpid() != pool->owner) {
        if (items > 0)
            fn(arg, 0, items, 0);
        return;
    }
    pool->fn = fn;
    pool->arg = arg;
    pool->items = items;
    pool->grain = grain;
    atomic_store(&pool->next, 0);
    atomic_store(&pool->running, pool->count - 1);
    publish(pool);
    work(pool, 0);
    await_workers(pool);
}

int threads_count(const threads *pool)
{
    return pool->count;
}

/* Start worker threads with every signal blocked; the first failure's errno, or 0. */
static int start_workers(threads *pool)
{
    pthread_attr_t attr;
    sigset_t all, old;
    int code = pthread_attr_init(&attr);
    if (code != 0)
        return code;
    pthread_attr_setstacksize(&attr, WORKER_STACK_BYTES);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    for (int i = 0; code == 0 && i < pool->count - 1; i++) {
        pool->workers[i] = (worker){.pool = pool, .index = i + 1};
        code = pthread_create(&pool->workers[i].thread, &attr, worker_main, &pool->workers[i]);
        if (code == 0)
            pool->started++;
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attr);
    return code;
}

engine_status threads_new(threads **out, int32_t count, char *err, size_t errlen)
{
    *out = NULL;
    threads *pool = calloc(1, sizeof *pool);
    worker *workers = calloc((size_t)count, sizeof *workers);
    if (pool == NULL || workers == NULL) {
        free(pool);
        free(workers);
        return gb_fail(err, errlen, ENGINE_ENOMEM, "out of memory for a pool of %d threads", count);
    }
    pool->count = count;
    pool->owner = getpid();
    pool->workers = workers;
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->wake, NULL);
    pthread_cond_init(&pool->done, NULL);
    int code = start_workers(pool);
    if (code != 0) {
        int failed = pool->started + 2;
        threads_free(pool);
        return gb_fail(err, errlen, ENGINE_ENOMEM, "cannot start thread %d of %d: %s; ask for fewer threads", failed,
                       count, strerror(code));
    }
    *out = pool;
    return ENGINE_OK;
}

void threads_free(threads *pool)
{
    if (pool == NULL)
        return;
    if (getpid() == pool->owner) {
        atomic_store(&pool->quit, 1);
        publish(pool);
        for (int i = 0; i < pool->started; i++)
            pthread_join(pool->workers[i].thread, NULL);
        pthread_cond_destroy(&pool->done);
        pthread_cond_destroy(&pool->wake);
        pthread_mutex_destroy(&pool->lock);
    }
    free(pool->workers);
    free(pool);
}
