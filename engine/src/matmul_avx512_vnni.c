/* matmul_avx512_vnni.c: matmul_tile.h in AVX-512 with VNNI, whose vpdpbusd multiplies unsigned codes
 * by signed activations and adds four products to an int32, exactly. */
#include "panels.h"
#if defined(__x86_64__)
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni"))), \
                             apply_to = function)
#else
#pragma GCC target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")
#endif

#include "mi_avx512.h"

#define SIGNED_CODES 0
#define INT_GROUP 6
#define WIDE_GROUP 4
#define UNPACKS 1
#define TABLE gb_matmul_avx512_vnni

MI mi mi_dp(mi acc, mi w, mi x)
{
    __asm__("vpdpbusd %2, %1, %0" : "+v"(acc) : "v"(w), "v"(x));
    return acc;
}
/* The instruction broadcasts by itself, which gcc does not make use of. */
MI mi mi_dp_at(mi acc, mi w, const int32_t *q)
{
    __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(acc) : "v"(w), "m"(*q));
    return acc;
}
#define MI_DP_AT 1

#include "quantise_avx512.h"

#include "matmul_tile.h"

#if defined(__clang__)
#pragma clang attribute pop
#endif
#else
typedef int gb_matmul_avx512_vnni_is_for_x86_64; /* ISO C wants a declaration */
#endif
