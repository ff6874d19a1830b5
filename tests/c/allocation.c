/* allocation.c: every allocation and thread creation of loading, evaluating, forking and
 * restoring fails once, in turn. Each failure must be ENGINE_ENOMEM, leave nothing behind (the
 * leak checker looks at the end) and leave sequences as they were. Built by
 * tests/engine/test_allocation.py with -Wl,--wrap for the four functions below. */
#include "check.h"
#include "model_file.h"

#include <pthread.h>

static volatile int64_t countdown = -1; /* calls until one fails; negative: none does */

static int fails_now(void)
{
    return countdown >= 0 && countdown-- == 0;
}

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
int __real_posix_memalign(void **out, size_t alignment, size_t n);
int __real_pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*fn)(void *), void *arg);

void *__wrap_malloc(size_t n)
{
    return fails_now() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return fails_now() ? NULL : __real_calloc(n, size);
}

int __wrap_posix_memalign(void **out, size_t alignment, size_t n)
{
    return fails_now() ? 12 : __real_posix_memalign(out, alignment, n);
}

int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*fn)(void *), void *arg)
{
    return fails_now() ? 11 : __real_pthread_create(t, attr, fn, arg);
}

enum { LENGTH = 140 };

static char err[512];

static engine_status step(engine_context *c, int32_t seq, int32_t from, int32_t n)
{
    engine_entry entries[LENGTH];
    for (int32_t i = 0; i < n; i++)
        entries[i] = (engine_entry){.seq = seq, .pos = from + i, .token = i};
    return engine_step(c, entries, n, NULL, 0, err, sizeof err);
}

/* Steps over a page boundary, a fork that is written to, a restored snapshot. */
static engine_status use(engine_context *c)
{
    engine_status status = step(c, 0, 0, LENGTH);
    if (status != ENGINE_OK) {
        CHECK(engine_sequence_length(c, 0) == 0 && engine_context_kv_bytes(c) == 0);
        return status;
    }
    engine_sequence_fork(c, 0, 1, err, sizeof err);
    if ((status = step(c, 1, LENGTH, 1)) != ENGINE_OK) {
        CHECK(engine_sequence_length(c, 1) == LENGTH);
        return status;
    }
    uint64_t bytes = engine_sequence_snapshot_bytes(c, 0);
    void *state = __real_malloc(bytes); /* the test's own memory does not fail */
    engine_sequence_snapshot(c, 0, state, bytes, err, sizeof err);
    status = engine_sequence_restore(c, 1, state, bytes, err, sizeof err);
    CHECK(engine_sequence_length(c, 1) == (status == ENGINE_OK ? LENGTH : LENGTH + 1));
    free(state);
    return status;
}

static engine_status load_and_use(const engine_file *file)
{
    engine_context_options options = {.kv = ENGINE_KV_F16, .context_tokens = 256, .sequences = 2, .threads = 3, .batch = 64};
    engine_model *model = NULL;
    engine_context *context = NULL;
    engine_status status = engine_model_load(&model, file, err, sizeof err);
    if (status == ENGINE_OK)
        status = engine_context_new(&context, model, &options, err, sizeof err);
    if (status == ENGINE_OK)
        status = use(context);
    engine_context_free(context);
    engine_model_free(model);
    return status;
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    for (int i = 1; i < argc; i++) {
        opened o = open_model(".", argv[i]);
        engine_status status = ENGINE_ENOMEM;
        int64_t n = 0;
        for (; status != ENGINE_OK && n < 100000; n++) {
            countdown = n;
            status = load_and_use(o.file);
            CHECK(status == ENGINE_OK || (status == ENGINE_ENOMEM && err[0] != '\0'));
        }
        countdown = -1;
        printf("%s: %lld allocations failed in turn\n", argv[i], (long long)n - 1);
        CHECK(n > 30);
        close_model(&o);
    }
    return failures != 0;
}
