/* machine_peak.c: what this machine can do at most: bytes read and integer products per second.
 *
 * The read loops go once over memory that the caller has filled, with and without prefetching
 * 4 KiB ahead, and the better one counts. The product loops are assembly: twelve independent
 * accumulators in registers and no memory operand; from intrinsics a compiler spills, and reports a
 * third. Nothing but rates depends on the clock. Owns the buffer of engine_measure_read() for its
 * duration. */
#define _DEFAULT_SOURCE /* madvise */
#include "machine_peak.h"

#include "kernels.h"
#include "status.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif
#if defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

enum {
    STEP = 4096,          /* bytes that a read loop is unrolled to, and how far ahead it prefetches */
    PIECE = 1 << 18,      /* bytes that a worker reads at a time */
    ROUNDS = 1 << 14,     /* of a product loop that a worker makes at a time */
    PIECES = 64,          /* such units for each worker in one measurement */
    MAX_WORKERS = 256,
    CACHE_LINE = 64,
    HUGE_PAGE = 2 << 20,
};

double gb_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- Reading --------------------------------------------------------------------------------- */

typedef uint64_t (*read_fn)(const uint8_t *p, const uint8_t *end);

static inline void prefetch_step(const uint8_t *p)
{
    for (int i = 0; i < STEP / 8; i += CACHE_LINE)
        __builtin_prefetch(p + i);
}

#if defined(__x86_64__)
#define XOR512(x, i) x = _mm512_xor_si512(x, _mm512_loadu_si512(p + (i) * 64))
#define XOR256(x, i) x = _mm256_xor_si256(x, _mm256_loadu_si256((const __m256i *)(const void *)(p + (i) * 32)))

__attribute__((target("avx512f"))) static uint64_t read_avx512(const uint8_t *p, const uint8_t *end)
{
    __m512i a = _mm512_setzero_si512(), b = a, c = a, d = a, e = a, f = a, g = a, h = a;
    for (; p < end; p += 512) {
        XOR512(a, 0), XOR512(b, 1), XOR512(c, 2), XOR512(d, 3);
        XOR512(e, 4), XOR512(f, 5), XOR512(g, 6), XOR512(h, 7);
    }
    a = _mm512_xor_si512(_mm512_xor_si512(_mm512_xor_si512(a, b), _mm512_xor_si512(c, d)),
                         _mm512_xor_si512(_mm512_xor_si512(e, f), _mm512_xor_si512(g, h)));
    return (uint64_t)_mm512_reduce_add_epi64(a);
}

__attribute__((target("avx512f"))) static uint64_t read_avx512_ahead(const uint8_t *p, const uint8_t *end)
{
    __m512i a = _mm512_setzero_si512(), b = a, c = a, d = a, e = a, f = a, g = a, h = a;
    for (; p < end; p += 512) {
        prefetch_step(p + STEP);
        XOR512(a, 0), XOR512(b, 1), XOR512(c, 2), XOR512(d, 3);
        XOR512(e, 4), XOR512(f, 5), XOR512(g, 6), XOR512(h, 7);
    }
    a = _mm512_xor_si512(_mm512_xor_si512(_mm512_xor_si512(a, b), _mm512_xor_si512(c, d)),
                         _mm512_xor_si512(_mm512_xor_si512(e, f), _mm512_xor_si512(g, h)));
    return (uint64_t)_mm512_reduce_add_epi64(a);
}

__attribute__((target("avx2"))) static uint64_t read_avx2(const uint8_t *p, const uint8_t *end)
{
    __m256i a = _mm256_setzero_si256(), b = a, c = a, d = a;
    for (; p < end; p += 512) {
        prefetch_step(p + STEP);
        XOR256(a, 0), XOR256(b, 1), XOR256(c, 2), XOR256(d, 3);
        XOR256(a, 4), XOR256(b, 5), XOR256(c, 6), XOR256(d, 7);
        XOR256(a, 8), XOR256(b, 9), XOR256(c, 10), XOR256(d, 11);
        XOR256(a, 12), XOR256(b, 13), XOR256(c, 14), XOR256(d, 15);
    }
    a = _mm256_xor_si256(_mm256_xor_si256(a, b), _mm256_xor_si256(c, d));
    return (uint64_t)_mm256_extract_epi64(a, 0) + (uint64_t)_mm256_extract_epi64(a, 1) +
           (uint64_t)_mm256_extract_epi64(a, 2) + (uint64_t)_mm256_extract_epi64(a, 3);
}
#endif

static uint64_t read_portable(const uint8_t *p, const uint8_t *end)
{
    uint64_t sums[STEP / 8 / sizeof(uint64_t)] = {0}, sum = 0;
    for (; p < end; p += sizeof sums) {
        prefetch_step(p + STEP);
        for (size_t i = 0; i < sizeof sums / sizeof *sums; i++) {
            uint64_t word;
            memcpy(&word, p + i * sizeof word, sizeof word);
            sums[i] ^= word;
        }
    }
    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++)
        sum += sums[i];
    return sum;
}

typedef struct read_job {
    read_fn read;
    const uint8_t *data;
    uint64_t bytes;
    struct {
        uint64_t sum; /* so that no compiler leaves the loop out */
        char pad[CACHE_LINE - sizeof(uint64_t)];
    } sums[MAX_WORKERS];
} read_job;

static void read_pieces(void *arg, int64_t begin, int64_t end, int worker)
{
    read_job *j = arg;
    uint64_t from = (uint64_t)begin * PIECE, to = (uint64_t)end * PIECE;
    j->sums[worker].sum += j->read(j->data + from, j->data + (to < j->bytes ? to : j->bytes));
}

double gb_read_rate(threads *pool, const uint8_t *data, uint64_t bytes, int32_t repetitions)
{
    read_fn loops[4];
    int n = 0;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) {
        loops[n++] = read_avx512;
        loops[n++] = read_avx512_ahead;
    }
    if (__builtin_cpu_supports("avx2"))
        loops[n++] = read_avx2;
#endif
    if (n == 0)
        loops[n++] = read_portable;
    double best = 0;
    read_job job = {.data = data, .bytes = bytes};
    for (int32_t r = 0; r < repetitions; r++) {
        for (int i = 0; i < n; i++) {
            job.read = loops[i];
            double begin = gb_seconds();
            threads_run(pool, read_pieces, &job, (int64_t)((bytes + PIECE - 1) / PIECE), 1);
            double rate = (double)bytes / (gb_seconds() - begin);
            best = rate > best ? rate : best;
        }
    }
    return best;
}

/* ---- Integer products -------------------------------------------------------------------------- */

#define TWELVE(M) M(0) M(1) M(2) M(3) M(4) M(5) M(6) M(7) M(8) M(9) M(10) M(11)

#if defined(__x86_64__)
#define VECTORS                                                                                                      \
    "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12",       \
        "xmm13", "xmm14", "xmm15"
#define DPBUSD(a) "vpdpbusd %%zmm14, %%zmm15, %%zmm" #a "\n\t"
#define MADD512(a) "vpmaddubsw %%zmm14, %%zmm15, %%zmm12\n\tvpaddw %%zmm12, %%zmm" #a ", %%zmm" #a "\n\t"
#define MADD256(a) "vpmaddubsw %%ymm14, %%ymm15, %%ymm12\n\tvpaddw %%ymm12, %%ymm" #a ", %%ymm" #a "\n\t"

static void rounds_dpbusd(int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        __asm__ volatile(TWELVE(DPBUSD) TWELVE(DPBUSD)::: VECTORS);
    __asm__ volatile("vzeroupper" ::: VECTORS);
}

#define DPBUSD256(a) "%{vex%} vpdpbusd %%ymm14, %%ymm15, %%ymm" #a "\n\t"

static void rounds_dpbusd256(int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        __asm__ volatile(TWELVE(DPBUSD256) TWELVE(DPBUSD256)::: VECTORS);
    __asm__ volatile("vzeroupper" ::: VECTORS);
}

static void rounds_maddubs512(int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        __asm__ volatile(TWELVE(MADD512) TWELVE(MADD512)::: VECTORS);
    __asm__ volatile("vzeroupper" ::: VECTORS);
}

static void rounds_maddubs256(int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        __asm__ volatile(TWELVE(MADD256) TWELVE(MADD256)::: VECTORS);
    __asm__ volatile("vzeroupper" ::: VECTORS);
}
#elif defined(__aarch64__)
#define VECTORS                                                                                                   \
    "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14", "v15"
#define SDOT(a) "sdot v" #a ".4s, v14.16b, v15.16b\n\t"
#define SMULL(a) "smull v12.8h, v14.8b, v15.8b\n\tsadalp v" #a ".4s, v12.8h\n\t"

#if defined(__clang__)
__attribute__((target("dotprod")))
#else
__attribute__((target("arch=armv8.2-a+dotprod")))
#endif
static void rounds_sdot(int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        __asm__ volatile(TWELVE(SDOT) TWELVE(SDOT)::: VECTORS);
}

static void rounds_smull(int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        __asm__ volatile(TWELVE(SMULL) TWELVE(SMULL)::: VECTORS);
}
#endif

#define SCALAR(a) acc[a] += x * y;

static void rounds_scalar(int64_t n)
{
    int32_t acc[12] = {0}, x = 3, y = 5;
    for (int64_t i = 0; i < n; i++) {
        __asm__ volatile("" : "+r"(x), "+r"(y));
        TWELVE(SCALAR)
    }
    for (int i = 0; i < 12; i++)
        __asm__ volatile("" ::"r"(acc[i]));
}

/* Fastest first; a set that is none of these is compared with the first that runs. */
static const gb_dot_loop LOOPS[] = {
#if defined(__x86_64__)
    {"avx512-vnni", "vpdpbusd zmm", 24 * 64, rounds_dpbusd},
    {"avx512", "vpmaddubsw zmm", 24 * 64, rounds_maddubs512},
    {"avx2-vnni", "vpdpbusd ymm", 24 * 32, rounds_dpbusd256},
    {"avx2", "vpmaddubsw ymm", 24 * 32, rounds_maddubs256},
#elif defined(__aarch64__)
    {"neon-dotprod", "sdot", 24 * 16, rounds_sdot},
    {"neon", "smull", 24 * 8, rounds_smull},
#endif
    {"portable", "scalar multiply", 12, rounds_scalar},
};

#if defined(__x86_64__)
/* AVX-VNNI is bit 4 of EAX in leaf 7.1; what saves ymm registers saves them for it too. */
static int has_avx_vnni(void)
{
    unsigned a = 0, b, c, d;
    return __builtin_cpu_supports("avx2") && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & 16) != 0;
}
#endif

static int runs_here(const gb_dot_loop *loop)
{
#if defined(__x86_64__)
    if (loop->rounds == rounds_dpbusd)
        return __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512f");
    if (loop->rounds == rounds_dpbusd256)
        return has_avx_vnni();
    if (loop->rounds == rounds_maddubs512)
        return __builtin_cpu_supports("avx512bw") != 0;
    if (loop->rounds == rounds_maddubs256)
        return __builtin_cpu_supports("avx2") != 0;
#elif defined(__aarch64__)
    if (loop->rounds == rounds_sdot)
#if defined(__linux__)
        return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
#else
        return 0;
#endif
#endif
    (void)loop;
    return 1;
}

const gb_dot_loop *gb_dot_loop_for(const char *name)
{
    const gb_dot_loop *first = NULL;
    for (size_t i = 0; i < sizeof LOOPS / sizeof *LOOPS; i++) {
        if (!runs_here(&LOOPS[i]))
            continue;
        if (strncmp(name, LOOPS[i].set, strlen(LOOPS[i].set)) == 0)
            return &LOOPS[i];
        first = first != NULL ? first : &LOOPS[i];
    }
    return first;
}

static void dot_pieces(void *arg, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    const gb_dot_loop *loop = arg;
    loop->rounds((end - begin) * ROUNDS);
}

double gb_dot_rate(threads *pool, const gb_dot_loop *loop, int32_t repetitions)
{
    gb_dot_loop copy = *loop;
    int64_t pieces = (int64_t)PIECES * threads_count(pool);
    double best = 0;
    for (int32_t r = 0; r < repetitions; r++) {
        double begin = gb_seconds();
        threads_run(pool, dot_pieces, &copy, pieces, 1);
        double rate = (double)pieces * ROUNDS * loop->macs / (gb_seconds() - begin);
        best = rate > best ? rate : best;
    }
    return best;
}

/* ---- The public calls ------------------------------------------------------------------------------ */

static engine_status check(int32_t workers, int32_t repetitions, char *err, size_t errlen)
{
    if (workers < 1 || workers > MAX_WORKERS)
        return gb_fail(err, errlen, ENGINE_EINVAL, "%d threads; it must be 1 to %d", workers, MAX_WORKERS);
    if (repetitions < 1 || repetitions > 1000)
        return gb_fail(err, errlen, ENGINE_EINVAL, "%d repetitions; it must be 1 to 1000", repetitions);
    return ENGINE_OK;
}

engine_status engine_measure_read(uint64_t bytes, int32_t workers, int32_t repetitions, double *bytes_per_s, char *err,
                                  size_t errlen)
{
    *bytes_per_s = 0;
    engine_status status = check(workers, repetitions, err, errlen);
    if (status != ENGINE_OK)
        return status;
    if (bytes < STEP || bytes % STEP != 0 || bytes > SIZE_MAX / 2)
        return gb_fail(err, errlen, ENGINE_EINVAL, "%llu bytes to read; it must be a multiple of %d",
                       (unsigned long long)bytes, STEP);
    void *data = NULL;
    threads *pool = NULL;
    if (posix_memalign(&data, HUGE_PAGE, (size_t)bytes) != 0)
        return gb_fail(err, errlen, ENGINE_ENOMEM, "out of memory for %llu bytes to read", (unsigned long long)bytes);
#if defined(MADV_HUGEPAGE)
    madvise(data, (size_t)bytes, MADV_HUGEPAGE);
#endif
    status = threads_new(&pool, workers, err, errlen);
    if (status == ENGINE_OK) {
        memset(data, 0x5a, (size_t)bytes); /* pages of its own, not the shared page of zeros */
        *bytes_per_s = gb_read_rate(pool, data, bytes, repetitions);
    }
    threads_free(pool);
    free(data);
    return status;
}

engine_status engine_measure_dot(int32_t workers, int32_t repetitions, double *macs_per_s, const char **instruction,
                                 char *err, size_t errlen)
{
    *macs_per_s = 0;
    *instruction = "none";
    engine_status status = check(workers, repetitions, err, errlen);
    threads *pool = NULL;
    if (status == ENGINE_OK)
        status = threads_new(&pool, workers, err, errlen);
    if (status != ENGINE_OK)
        return status;
    const gb_dot_loop *loop = gb_dot_loop_for(engine_kernel_set());
    *instruction = loop->instruction;
    *macs_per_s = gb_dot_rate(pool, loop, repetitions);
    threads_free(pool);
    return ENGINE_OK;
}
