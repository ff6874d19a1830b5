/* gbbench.c: a program of its own that times the matrix kernels alone, against this machine's limits.
 *
 * gbbench [-s SET,…] [-y TYPE,…] [-t THREADS,…] [-m MIB] [-n TOKENS] [-r REPETITIONS]
 *
 * decode: one token times matrices of 4096 x 4096, so many that MIB of panels (default 1024) are
 * read once, beside a plain read loop over the same bytes. prompt: TOKENS (512) times one such
 * matrix, beside the loop of integer products in registers. Each repetition times the kernel and its
 * limit back to back; the table shows medians, of the ratios too. Owns everything until it ends. */
#define _DEFAULT_SOURCE
#include "kernels.h"
#include "machine_peak.h"
#include "panels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { SIDE = 4096, MAX_ITEMS = 16, MAX_REPETITIONS = 99, HUGE_BYTES = 2 << 20 };

typedef struct options {
    const char *sets, *types, *threads;
    uint64_t bytes;
    int64_t tokens;
    int repetitions;
} options;

typedef struct bench {
    const options *options;
    const gb_kernels *kernels;
    threads *pool;
    gb_panels *matrices; /* [count], one after the other in memory */
    int64_t count;
    uint8_t *memory;
    uint64_t bytes; /* of all matrices */
    gb_acts acts;
    float *x, *y; /* [tokens][SIDE] */
} bench;

static void fail(const char *text)
{
    fprintf(stderr, "gbbench: %s\n", text);
    exit(2);
}

static void *take(uint64_t bytes)
{
    void *p = NULL;
    bytes = (bytes + HUGE_BYTES - 1) / HUGE_BYTES * HUGE_BYTES;
    if (posix_memalign(&p, HUGE_BYTES, bytes) != 0)
        fail("out of memory");
#if defined(MADV_HUGEPAGE)
    madvise(p, bytes, MADV_HUGEPAGE);
#endif
    memset(p, 0, bytes);
    return p;
}

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* Is word one of the comma-separated words of list? An empty list holds every word. */
static int listed(const char *list, const char *word)
{
    size_t n = strlen(word);
    if (list == NULL)
        return 1;
    for (const char *at = list; (at = strstr(at, word)) != NULL; at += n)
        if ((at == list || at[-1] == ',') && (at[n] == ',' || at[n] == '\0'))
            return 1;
    return 0;
}

/* Random rows of a type. Scales are f16 numbers near 2^-6 wherever a block has them. */
static void fill_matrix(const dtype *type, uint8_t *data, uint64_t bytes, uint32_t seed)
{
    static const struct {
        int32_t type;
        uint32_t at[2];
        int n;
    } scales[] = {
        {DTYPE_Q4_0, {0, 0}, 1}, {DTYPE_Q4_1, {0, 2}, 2}, {DTYPE_Q5_0, {0, 0}, 1},     {DTYPE_Q5_1, {0, 2}, 2},
        {DTYPE_Q8_0, {0, 0}, 1}, {DTYPE_Q4_K, {0, 2}, 2}, {DTYPE_Q5_K, {0, 2}, 2},     {DTYPE_Q6_K, {208, 0}, 1},
        {DTYPE_Q2_K, {80, 82}, 2}, {DTYPE_Q3_K, {108, 0}, 1},
    };
    for (uint64_t i = 0; i < bytes; i++)
        data[i] = (uint8_t)next_random(&seed);
    for (size_t s = 0; s < sizeof scales / sizeof *scales; s++) {
        for (uint64_t block = 0; scales[s].type == type->type && block < bytes; block += type->bytes) {
            for (int i = 0; i < scales[s].n; i++) {
                uint16_t f16 = (uint16_t)(0x2400 | (next_random(&seed) & 0x3ff));
                memcpy(data + block + scales[s].at[i], &f16, sizeof f16);
            }
        }
    }
}

typedef struct pack_job {
    const gb_matrix *w;
    gb_panels *panels;
} pack_job;

static void pack(void *arg, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    pack_job *j = arg;
    for (int64_t p = begin; p < end; p++)
        gb_panel_pack(j->w, p, j->panels->data + (uint64_t)p * j->panels->panel_bytes);
}

static void make_matrices(bench *b, const dtype *type)
{
    uint64_t row_bytes = (uint64_t)SIDE / type->items * type->bytes, panel = gb_panel_bytes(type, SIDE);
    uint64_t each = panel * (uint64_t)gb_panel_count(SIDE);
    gb_matrix w = {.type = type, .data = take(row_bytes * SIDE), .row_bytes = row_bytes, .k = SIDE, .rows = SIDE};
    b->count = (int64_t)((b->options->bytes + each - 1) / each);
    b->count = b->count > 0 ? b->count : 1; /* prompt needs one */
    b->bytes = each * (uint64_t)b->count / 4096 * 4096;
    b->memory = take(each * (uint64_t)b->count + 4096);
    b->matrices = calloc((size_t)b->count, sizeof *b->matrices);
    if (b->matrices == NULL)
        fail("out of memory");
    for (int64_t i = 0; i < b->count; i++) {
        uint8_t *data = b->memory + (uint64_t)i * each;
        b->matrices[i] = (gb_panels){.type = type, .data = data, .panel_bytes = panel, .k = SIDE, .rows = SIDE};
        fill_matrix(type, (uint8_t *)(uintptr_t)w.data, row_bytes * SIDE, (uint32_t)i + 1);
        pack_job job = {&w, &b->matrices[i]};
        threads_run(b->pool, pack, &job, gb_panel_count(SIDE), 8);
    }
    free((void *)(uintptr_t)w.data);
}

static void free_matrices(bench *b)
{
    free(b->memory);
    free(b->matrices);
}

/* Quantise tokens rows for the kernels of the bench. */
static void make_activations(bench *b, int64_t tokens, int wide)
{
    b->acts.k = SIDE;
    b->acts.n = tokens;
    b->acts.wide = wide;
    b->acts.group = b->kernels->group[wide];
    if (!b->kernels->quantise_rows(b->x, &b->acts, 0, tokens, 0, SIDE / GB_BLOCK))
        fail("an activation is not finite");
}

typedef struct multiply_job {
    const bench *b;
    const gb_panels *w;
} multiply_job;

static void multiply(void *arg, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    multiply_job *j = arg;
    j->b->kernels->panels_int(j->w, begin, end, &j->b->acts, j->b->y, SIDE);
}

/* Seconds for all matrices, split over workers as the engine splits them. */
static double multiply_all(const bench *b, int64_t count)
{
    int64_t panels = gb_panel_count(SIDE), grain = panels / (4 * threads_count(b->pool));
    double begin = gb_seconds();
    for (int64_t i = 0; i < count; i++) {
        multiply_job job = {b, &b->matrices[i]};
        threads_run(b->pool, multiply, &job, panels, grain > 0 ? grain : 1);
    }
    return gb_seconds() - begin;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, compare);
    return values[n / 2];
}

/* Rates of the kernel and of its limit, in pairs. */
static void report(const bench *b, const char *what, int wide, double work, const char *unit, double (*limit)(const bench *),
                   int64_t matrices)
{
    double ours[MAX_REPETITIONS], most[MAX_REPETITIONS], ratio[MAX_REPETITIONS];
    int n = b->options->repetitions;
    multiply_all(b, matrices);
    for (int r = 0; r < n; r++) {
        ours[r] = work / multiply_all(b, matrices) / 1e9;
        most[r] = limit(b) / 1e9;
        ratio[r] = ours[r] / most[r];
    }
    printf("%-7s %-12s %-5s %-5s %d  %8.1f %8.1f %s  %5.1f %%\n", what, b->kernels->name, b->matrices->type->name,
           wide ? "wide" : "int8", threads_count(b->pool), median(ours, n), median(most, n), unit,
           100 * median(ratio, n));
    fflush(stdout);
}

static double read_limit(const bench *b)
{
    return gb_read_rate(b->pool, b->memory, b->bytes, 1);
}

static double dot_limit(const bench *b)
{
    return gb_dot_rate(b->pool, gb_dot_loop_for(b->kernels->name), 2);
}

static void run_set(bench *b)
{
    double macs = (double)SIDE * SIDE * (double)b->options->tokens;
    for (int wide = 0; wide < 2; wide++) {
        if (b->options->bytes > 0) {
            make_activations(b, 1, wide);
            report(b, "decode", wide, (double)b->bytes, "GB/s  ", read_limit, b->count);
        }
        if (b->options->tokens > 0) {
            make_activations(b, b->options->tokens, wide);
            report(b, "prompt", wide, macs, "GMAC/s", dot_limit, 1);
        }
    }
}

static void run_type(bench *b, const dtype *type)
{
    char err[256];
    const gb_kernels *set;
    int runs_here;
    if (threads_new(&b->pool, 2, err, sizeof err) != ENGINE_OK)
        fail(err);
    make_matrices(b, type);
    threads_free(b->pool);
    for (int32_t count = 1; count <= MAX_ITEMS; count++) {
        char text[8];
        snprintf(text, sizeof text, "%d", (int)count);
        if (!listed(b->options->threads, text))
            continue;
        if (threads_new(&b->pool, count, err, sizeof err) != ENGINE_OK)
            fail(err);
        for (int i = 0; (set = gb_kernels_at(i, &runs_here)) != NULL; i++) {
            b->kernels = set;
            if (runs_here && set->panels_int != NULL && listed(b->options->sets, set->name))
                run_set(b);
        }
        threads_free(b->pool);
    }
    free_matrices(b);
}

static void read_options(options *o, int argc, char **argv)
{
    for (int i = 1; i < argc; i += 2) {
        if (argv[i][0] != '-' || argv[i][1] == '\0' || argv[i][2] != '\0' || i + 1 >= argc)
            fail("usage: gbbench [-s SET,…] [-y TYPE,…] [-t THREADS,…] [-m MIB] [-n TOKENS] [-r REPETITIONS]");
        const char *value = argv[i + 1];
        switch (argv[i][1]) {
        case 's': o->sets = value; break;
        case 'y': o->types = value; break;
        case 't': o->threads = value; break;
        case 'm': o->bytes = strtoull(value, NULL, 10) << 20; break;
        case 'n': o->tokens = strtoll(value, NULL, 10); break;
        case 'r': o->repetitions = atoi(value); break;
        default: fail("an unknown option; see the head of gbbench.c");
        }
    }
    if (o->repetitions < 1 || o->repetitions > MAX_REPETITIONS || o->tokens < 0 || o->tokens > 1 << 16)
        fail("-r takes 1 to 99, -n 0 to 65536");
}

int main(int argc, char **argv)
{
    static const int32_t order[] = {DTYPE_Q4_0, DTYPE_Q4_1, DTYPE_Q5_0, DTYPE_Q5_1, DTYPE_Q8_0,
                                    DTYPE_Q4_K, DTYPE_Q5_K, DTYPE_Q6_K, DTYPE_Q2_K, DTYPE_Q3_K};
    options o = {.types = "Q4_0,Q4_1,Q5_0,Q8_0,Q4_K,Q6_K", .threads = "1,2", .bytes = 1ull << 30, .tokens = 512,
                 .repetitions = 5};
    read_options(&o, argc, argv);
    bench b = {.options = &o};
    uint64_t tokens = o.tokens > 1 ? (uint64_t)o.tokens : 1;
    uint32_t seed = 7;
    b.x = take(tokens * SIDE * sizeof(float));
    b.y = take(tokens * SIDE * sizeof(float));
    b.acts.data = take(gb_acts_bytes((int64_t)tokens, SIDE, 1));
    for (uint64_t i = 0; i < tokens * SIDE; i++)
        b.x[i] = (float)next_random(&seed) / (float)(1 << 23) - 1.0f;
    printf("kernel  set          type  acts  T      ours    limit          median ratio\n");
    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        const dtype *type = dtype_find(order[i]);
        if (type != NULL && listed(o.types, type->name))
            run_type(&b, type);
    }
    free(b.x);
    free(b.y);
    free(b.acts.data);
    return 0;
}
