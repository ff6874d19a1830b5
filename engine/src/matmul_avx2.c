/* matmul_avx2.c: matmul_tile.h in AVX2, by pairs of products. */
#include "panels.h"
#if defined(__x86_64__)
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC target("avx2,fma,f16c")
#endif

#include "mi_avx2.h"

#define SIGNED_CODES 1
#define INT_GROUP 4
#define WIDE_GROUP 2
#define TABLE gb_matmul_avx2

#include "mi_pairs.h"

#include "matmul_tile.h"

#if defined(__clang__)
#pragma clang attribute pop
#endif
#else
typedef int gb_matmul_avx2_is_for_x86_64; /* ISO C wants a declaration */
#endif
