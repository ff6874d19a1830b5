/* rows_avx512.c: row kernels and attention for x86-64 with AVX-512; kernels.c decides
 * whether they run. The code is in rows_simd.h
 * and attention_simd.h, over the operations of simd_avx512.h. */
#include "kernels.h"

#if defined(__x86_64__)
#include "mathfn.h"

#include <immintrin.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")
#endif

#include "simd_avx512.h"

#include "rows_simd.h"

#include "attention_simd.h"

void gb_rows_avx512(gb_kernels *set)
{
    override_rows(set);
    override_attention(set);
}

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
