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

MI mi mi_dp(mi acc, mi w, mi x) { return _mm256_dpbusd_avx_epi32(acc, w, x); }

#include "matmul_tile.h"

#if defined(__clang__)
#pragma clang attribute pop
#endif
#else
typedef int gb_matmul_avx2_vnni_is_for_x86_64; /* ISO C wants a declaration */
#endif
