/* matmul_avx2_vnni.c: matmul_tile.h in AVX2 with AVX-VNNI: vpdpbusd as in matmul_avx512_vnni.c, on
 * vectors of 8 rows, for processors that have it without AVX-512. */
#include "panels.h"
#if defined(__x86_64__)
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c,avxvnni"))), apply_to = function)
#else
#pragma GCC target("avx2,fma,f16c,avxvnni")
#endif

#include "mi_avx2.h"

#define SIGNED_CODES 0
#define INT_GROUP 4
#define WIDE_GROUP 4
#define TABLE gb_matmul_avx2_vnni

MI void mi_dot(mi acc[], const mi w[4], const int32_t *q, int nt, int bits)
{
    (void)bits;
    GB_UNROLL for (int v = 0; v < 4; v++)
        GB_UNROLL for (int t = 0; t < nt; t++)
            acc[t] = _mm256_dpbusd_avx_epi32(acc[t], w[v], _mm256_set1_epi32(q[v * nt + t]));
}

#include "matmul_tile.h"

#if defined(__clang__)
#pragma clang attribute pop
#endif
#else
typedef int gb_matmul_avx2_vnni_is_for_x86_64; /* ISO C wants a declaration */
#endif
