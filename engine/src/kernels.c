/* kernels.c: which set of kernels runs. A set starts as the portable table, compiled for the
 * processor at hand, and each part overrides entries. The order is fastest first; a set that
 * the processor does not have, or that the operating system has not enabled, is passed over, and
 * one named by the environment variable ENGINE_KERNELS is used or nothing is. Tables are built
 * once and live as long as the process. */
#define _POSIX_C_SOURCE 200809L
#include "kernels.h"

#include "status.h"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SETS = 8, MAX_PARTS = 4 };

typedef struct recipe {
    const char *name;
    const gb_kernels *base;
    int (*runs_here)(void);
    void (*parts[MAX_PARTS])(gb_kernels *); /* each overrides entries; ends with NULL */
} recipe;

static int always(void)
{
    return 1;
}

#if defined(__x86_64__)
/* __builtin_cpu_supports asks the system too (XGETBV): registers that it does not save count as absent. */
static int has_avx2(void)
{
    unsigned a, b, c, d;
    int has_f16c = __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C) != 0;
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c;
}

static int has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

/* AVX-VNNI uses no registers but those of AVX. */
static int has_avx2_vnni(void)
{
    unsigned a, b, c, d;
    return has_avx2() && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & 1u << 4) != 0;
}

static int has_avx512_vnni(void)
{
    return has_avx512() && __builtin_cpu_supports("avx512vnni");
}
#endif

#if defined(__aarch64__) && defined(GB_HAVE_NEON_DOT)
static int has_neon_dot(void)
{
#if defined(__linux__)
    return (getauxval(AT_HWCAP) & 1ul << 20) != 0; /* HWCAP_ASIMDDP */
#else
    return 1; /* compiled for processors that have it */
#endif
}
#endif

static const recipe recipes[MAX_SETS] = {
#if defined(__x86_64__)
    {"avx512-vnni", &gb_kernels_ref_fma, has_avx512_vnni, {gb_rows_avx512_vnni, gb_matmul_avx512_vnni}},
    {"avx512", &gb_kernels_ref_fma, has_avx512, {gb_rows_avx512, gb_matmul_avx512}},
    {"avx2-vnni", &gb_kernels_ref_fma, has_avx2_vnni, {gb_rows_avx2, gb_matmul_avx2_vnni}},
    {"avx2", &gb_kernels_ref_fma, has_avx2, {gb_rows_avx2, gb_matmul_avx2}},
#elif defined(__aarch64__)
#if defined(GB_HAVE_NEON_DOT)
    {"neon-dotprod", &gb_kernels_ref, has_neon_dot, {gb_rows_neon, gb_matmul_neon_dot}},
#endif
    {"neon", &gb_kernels_ref, always, {gb_rows_neon, gb_matmul_neon}},
#endif
    {"ref", &gb_kernels_ref, always, {NULL}},
};

static gb_kernels tables[MAX_SETS];

static void build_tables(void)
{
    for (int i = 0; i < MAX_SETS && recipes[i].name != NULL; i++) {
        tables[i] = *recipes[i].base;
        tables[i].name = recipes[i].name;
        for (int p = 0; p < MAX_PARTS && recipes[i].parts[p] != NULL; p++)
            recipes[i].parts[p](&tables[i]);
    }
}

const gb_kernels *gb_kernels_at(int i, int *runs_here)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, build_tables);
    if (i < 0 || i >= MAX_SETS || recipes[i].name == NULL)
        return NULL;
    *runs_here = recipes[i].runs_here();
    return &tables[i];
}

const gb_kernels *gb_kernels_get(void)
{
    const char *wanted = getenv("ENGINE_KERNELS");
    const gb_kernels *set;
    int runs_here;
    for (int i = 0; (set = gb_kernels_at(i, &runs_here)) != NULL; i++)
        if (runs_here && (wanted == NULL || strcmp(wanted, set->name) == 0))
            return set;
    return NULL;
}

engine_status gb_kernels_require(const gb_kernels **out, char *err, size_t errlen)
{
    char names[128] = "";
    const gb_kernels *set;
    int runs_here;
    *out = gb_kernels_get();
    if (*out != NULL)
        return ENGINE_OK;
    for (int i = 0; (set = gb_kernels_at(i, &runs_here)) != NULL; i++) {
        size_t used = strlen(names);
        if (runs_here)
            snprintf(names + used, sizeof names - used, "%s%s", used > 0 ? ", " : "", set->name);
    }
    return gb_fail(err, errlen, ENGINE_EINVAL,
                   "ENGINE_KERNELS names a kernel set that is unknown or cannot run here; this machine runs: %s", names);
}
