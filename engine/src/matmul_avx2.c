/* matmul_avx2.c: matmul_tile.h in AVX2. vpmaddubsw multiplies unsigned codes by signed activations
 * and adds pairs to int16, which saturate: codes of 4 or 5 bits leave room for four such sums, of
 * 6 bits for two, of 8 (as magnitude and sign) for one. */
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

/* Pairs of products of unsigned codes, added to int16. */
MI mi pairs(mi w, const int32_t *q)
{
    return _mm256_maddubs_epi16(w, _mm256_set1_epi32(*q));
}

/* The same of signed codes: |q| <= 127, so its sign may change, and 128 * 127 * 2 fits. */
MI mi signed_pairs(mi w, const int32_t *q)
{
    return _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(_mm256_set1_epi32(*q), w));
}

MI void mi_dot(mi acc[], const mi w[4], const int32_t *q, int nt, int bits)
{
    const mi one = _mm256_set1_epi16(1);
    GB_UNROLL for (int t = 0; t < nt; t++, q++) {
        mi a, b;
        if (bits == 8) {
            a = _mm256_madd_epi16(signed_pairs(w[0], q), one);
            b = _mm256_madd_epi16(signed_pairs(w[1], q + nt), one);
            a = _mm256_add_epi32(a, _mm256_madd_epi16(signed_pairs(w[2], q + 2 * nt), one));
            b = _mm256_add_epi32(b, _mm256_madd_epi16(signed_pairs(w[3], q + 3 * nt), one));
            a = _mm256_add_epi32(a, b);
        } else {
            a = _mm256_add_epi16(pairs(w[0], q), pairs(w[1], q + nt));
            b = _mm256_add_epi16(pairs(w[2], q + 2 * nt), pairs(w[3], q + 3 * nt));
            a = bits == 6 ? _mm256_add_epi32(_mm256_madd_epi16(a, one), _mm256_madd_epi16(b, one))
                          : _mm256_madd_epi16(_mm256_add_epi16(a, b), one);
        }
        acc[t] = _mm256_add_epi32(acc[t], a);
    }
}

#include "matmul_tile.h"

#if defined(__clang__)
#pragma clang attribute pop
#endif
#else
typedef int gb_matmul_avx2_is_for_x86_64; /* ISO C wants a declaration */
#endif
