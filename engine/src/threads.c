/* threads.c: the worker pool; see threads.h. Owns its workers and ends them in threads_free().
 *
 * One word holds the number of the job, whether it is open, and how many workers are in it. A
 * worker enters only an open job; the caller closes it when no item is left and waits for those that
 * are inside. So a worker that sleeps, or whose processor is busy with something else, is never waited
 * for. Each worker claims from a share of the items of its own first, then from the others': so jobs over
 * the same rows find them in the cache of the processor that wrote them. Workers run with the control word of fpenv.h and with
 * all signals blocked, which leaves those to the caller's threads. In a child of fork() there is
 * nobody to wake, to wait for, or to join. */
#define _POSIX_C_SOURCE 200809L
#include "threads.h"

#include "fpenv.h"
#include "status.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum {
    SPINS = 300,   /* looks at the word, some microseconds, before the processor is offered to others */
    YIELDS = 40,   /* so often, with some looks between, before the thread sleeps */
    LOOKS = 40,
    WORKER_STACK_BYTES = 2 << 20,
};

/* The word: workers inside, open, number of the job. */
#define INSIDE 0xffffu
#define OPEN 0x10000u
#define JOB_SHIFT 17

typedef struct worker {
    threads *pool;
    pthread_t thread;
    int index;
} worker;

/* Items next … end-1 are nobody's yet. A cache line of its own. */
typedef struct share {
    atomic_llong next;
    int64_t end;
    char apart[64 - sizeof(atomic_llong) - sizeof(int64_t)];
} share;

struct threads {
    int count;           /* workers including the caller */
    int started;         /* threads that exist */
    int generation;      /* fork_count when they were started */
    worker *workers;     /* [count - 1] */
    pthread_mutex_t lock;
    pthread_cond_t wake; /* a new job */
    pthread_cond_t done; /* the last worker left */
    atomic_int sleeping;
    atomic_int caller_sleeps;
    atomic_int quit;
    share *shares;       /* [count] */
    char apart[64];      /* a worker that sees the word change has the job with the same cache line */
    _Alignas(64) atomic_ullong word;
    threads_fn fn;
    void *arg;
    int64_t grain;
    int shared;          /* shares of this job */
};

/* How many times fork() made this process out of another that had a pool. */
static atomic_int fork_count;
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

static void count_fork(void)
{
    atomic_fetch_add(&fork_count, 1);
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, count_fork);
}

/* Whether the workers live in this process. */
static int has_workers(const threads *pool)
{
    return pool->generation == atomic_load_explicit(&fork_count, memory_order_relaxed);
}

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
    threads_fn fn = pool->fn; /* others write to that cache line as they come and go */
    void *arg = pool->arg;
    int64_t grain = pool->grain;
    int shared = pool->shared;
    for (int i = 0; i < shared; i++) {
        share *s = &pool->shares[(index + i) % shared];
        while (atomic_load(&s->next) < s->end) {
            int64_t begin = atomic_fetch_add(&s->next, grain);
            if (begin < s->end)
                fn(arg, begin, begin + grain < s->end ? begin + grain : s->end, index);
        }
    }
}

/* As many shares as there are runs of grain to fill them, of equal length; runs do not part pairs of items. */
static void cut_shares(threads *pool, int64_t items, int64_t grain)
{
    int64_t runs = (items + grain - 1) / grain, begin = 0, unit = grain > 1 ? 2 : 1;
    pool->grain = grain;
    pool->shared = runs < pool->count ? (int)runs : pool->count;
    for (int i = 0; i < pool->shared; i++) {
        int64_t end = i + 1 < pool->shared ? items * (i + 1) / pool->shared / unit * unit : items;
        atomic_store(&pool->shares[i].next, begin);
        pool->shares[i].end = end;
        begin = end;
    }
}

static uint64_t job_of(uint64_t word)
{
    return word >> JOB_SHIFT;
}

static int is_new(threads *pool, uint64_t seen)
{
    return job_of(atomic_load(&pool->word)) != seen;
}

static int is_empty(threads *pool, uint64_t unused)
{
    (void)unused;
    return (atomic_load(&pool->word) & INSIDE) == 0;
}

/* Look for a while; 0 where it is time to sleep. Whoever waits longer than a gap between two jobs
 * yields between looks: the thread that it waits for may need this very processor. */
static inline int spin_until(int (*come)(threads *, uint64_t), threads *pool, uint64_t seen)
{
    for (int i = 0; i < SPINS + YIELDS * LOOKS; i++) {
        if (come(pool, seen))
            return 1;
        if (i >= SPINS && (i - SPINS) % LOOKS == 0)
            sched_yield();
        else
            relax();
    }
    return 0;
}

/* Wait for a job other than number seen, and return its number. */
static uint64_t await_job(threads *pool, uint64_t seen)
{
    if (spin_until(is_new, pool, seen))
        return job_of(atomic_load(&pool->word));
    pthread_mutex_lock(&pool->lock);
    atomic_fetch_add(&pool->sleeping, 1);
    while (job_of(atomic_load(&pool->word)) == seen)
        pthread_cond_wait(&pool->wake, &pool->lock);
    atomic_fetch_sub(&pool->sleeping, 1);
    pthread_mutex_unlock(&pool->lock);
    return job_of(atomic_load(&pool->word));
}

/* Be counted among those inside, unless the job is closed or another by now. */
static int enter(threads *pool, uint64_t job)
{
    unsigned long long word = atomic_load(&pool->word);
    while (job_of(word) == job && (word & OPEN) != 0)
        if (atomic_compare_exchange_weak(&pool->word, &word, word + 1))
            return 1;
    return 0;
}

static void leave(threads *pool)
{
    unsigned long long before = atomic_fetch_sub(&pool->word, 1);
    if ((before & INSIDE) == 1 && atomic_load(&pool->caller_sleeps)) {
        pthread_mutex_lock(&pool->lock);
        pthread_cond_signal(&pool->done);
        pthread_mutex_unlock(&pool->lock);
    }
}

static void *worker_main(void *arg)
{
    worker *self = arg;
    threads *pool = self->pool;
    uint64_t seen = 0;
    gb_fpenv saved = gb_fpenv_enter();
    for (;;) {
        seen = await_job(pool, seen);
        if (atomic_load(&pool->quit))
            break;
        if (enter(pool, seen)) {
            work(pool, self->index);
            leave(pool);
        }
    }
    gb_fpenv_leave(saved);
    return NULL;
}

/* Open the next job. The last one is closed and empty. */
static void publish(threads *pool)
{
    uint64_t job = job_of(atomic_load(&pool->word)) + 1;
    atomic_store(&pool->word, job << JOB_SHIFT | OPEN);
    if (atomic_load(&pool->sleeping) > 0) {
        pthread_mutex_lock(&pool->lock);
        pthread_cond_broadcast(&pool->wake);
        pthread_mutex_unlock(&pool->lock);
    }
}

/* Let nobody else in, and wait for those inside. */
static void await_workers(threads *pool)
{
    atomic_fetch_and(&pool->word, ~(unsigned long long)OPEN);
    if (spin_until(is_empty, pool, 0))
        return;
    pthread_mutex_lock(&pool->lock);
    atomic_store(&pool->caller_sleeps, 1);
    while (!is_empty(pool, 0))
        pthread_cond_wait(&pool->done, &pool->lock);
    atomic_store(&pool->caller_sleeps, 0);
    pthread_mutex_unlock(&pool->lock);
}

void threads_run(threads *pool, threads_fn fn, void *arg, int64_t items, int64_t grain)
{
    if (pool->count == 1 || items <= grain || !has_workers(pool)) {
        if (items > 0)
            fn(arg, 0, items, 0);
        return;
    }
    pool->fn = fn;
    pool->arg = arg;
    cut_shares(pool, items, grain);
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
    void *memory = NULL;
    threads *pool = posix_memalign(&memory, _Alignof(threads), sizeof *pool) == 0 ? memory : NULL;
    worker *workers = calloc((size_t)count, sizeof *workers);
    share *shares = calloc((size_t)count, sizeof *shares);
    if (pool == NULL || workers == NULL || shares == NULL) {
        free(pool);
        free(workers);
        free(shares);
        return gb_fail(err, errlen, ENGINE_ENOMEM, "out of memory for a pool of %d threads", count);
    }
    memset(pool, 0, sizeof *pool);
    pthread_once(&fork_once, watch_forks);
    pool->generation = atomic_load(&fork_count);
    pool->count = count;
    pool->workers = workers;
    pool->shares = shares;
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
    if (has_workers(pool)) {
        atomic_store(&pool->quit, 1);
        publish(pool);
        for (int i = 0; i < pool->started; i++)
            pthread_join(pool->workers[i].thread, NULL);
        pthread_cond_destroy(&pool->done);
        pthread_cond_destroy(&pool->wake);
        pthread_mutex_destroy(&pool->lock);
    }
    free(pool->workers);
    free(pool->shares);
    free(pool);
}
