/* test_threads.c: the pool computes every item once, whatever the numbers, and ends cleanly.
 * Also built with -fsanitize=thread by hand. */
#include "check.h"
#include "fpenv.h"
#include "threads.h"

#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ITEMS = 1000 };

typedef struct count {
    atomic_int seen[ITEMS];
    atomic_int wrong_word;
    int workers;
} count;

static void visit(void *arg, int64_t begin, int64_t end, int worker)
{
    count *c = arg;
    for (int64_t i = begin; i < end; i++)
        atomic_fetch_add(&c->seen[i], 1);
    gb_fpenv now = gb_fpenv_enter();
#if defined(__x86_64__)
    uint64_t expected = 0x1F80;
    now.word &= ~(uint64_t)0x3F;
#else
    uint64_t expected = 0;
#endif
    if (worker < 0 || worker >= c->workers || now.word != expected)
        atomic_store(&c->wrong_word, 1);
}

static void every_item_once(void)
{
    static count c;
    char err[128];
    for (int32_t workers = 1; workers <= 5; workers++) {
        threads *pool;
        CHECK(threads_new(&pool, workers, err, sizeof err) == ENGINE_OK);
        CHECK(threads_count(pool) == workers);
        c.workers = workers;
        for (int round = 0; round < 300; round++) {
            int64_t items = round * 7 % ITEMS, grain = round % 13 + 1;
            memset(c.seen, 0, sizeof c.seen);
            threads_run(pool, visit, &c, items, grain);
            int wrong = 0;
            for (int i = 0; i < ITEMS; i++)
                wrong += atomic_load(&c.seen[i]) != (i < items);
            CHECK(wrong == 0);
        }
        threads_free(pool);
    }
    CHECK(!atomic_load(&c.wrong_word));
}

static void pools_that_never_work(void)
{
    char err[128];
    for (int i = 0; i < 50; i++) {
        threads *pool;
        CHECK(threads_new(&pool, 4, err, sizeof err) == ENGINE_OK);
        threads_free(pool);
    }
    threads_free(NULL);
}

static void a_child_of_fork_works_alone(void)
{
    static count c;
    char err[128];
    threads *pool;
    CHECK(threads_new(&pool, 4, err, sizeof err) == ENGINE_OK);
    c.workers = 4;
    threads_run(pool, visit, &c, ITEMS, 1);
    pid_t child = fork();
    if (child == 0) {
        alarm(20); /* waiting for workers that do not exist would never end */
        memset(c.seen, 0, sizeof c.seen);
        threads_run(pool, visit, &c, ITEMS, 1);
        int wrong = 0;
        for (int i = 0; i < ITEMS; i++)
            wrong += atomic_load(&c.seen[i]) != 1;
        threads_free(pool);
        _exit(wrong != 0);
    }
    int status = -1;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    threads_run(pool, visit, &c, ITEMS, 1);
    threads_free(pool);
}

int main(void)
{
    static const test tests[] = {
        {"every item once, by a known worker, under our control word", every_item_once},
        {"pools that never work", pools_that_never_work},
        {"a child of fork works alone", a_child_of_fork_works_alone},
    };
    return run_tests(tests, sizeof tests / sizeof *tests);
}
