/* simd_avx512.h: the vocabulary of vector operations that rows_simd.h and attention_simd.h are
 * written in, for AVX-512. Every operation is one IEEE operation per lane, rounded to nearest. Include
 * it inside a region compiled for the instruction set. */
#ifndef GB_SIMD_AVX512_H
#define GB_SIMD_AVX512_H

enum { VF = 16, VEC_REGISTERS = 32 }; /* lanes of a vector; registers that a tile may fill */
typedef __m512 vf;
typedef __m512i vi;
typedef __mmask16 vm;

#define INLINE static inline __attribute__((always_inline))

INLINE vf vf_load(const float *p) { return _mm512_loadu_ps(p); }
INLINE void vf_store(float *p, vf x) { _mm512_storeu_ps(p, x); }
INLINE vf vf_set(float x) { return _mm512_set1_ps(x); }
INLINE vf vf_add(vf a, vf b) { return _mm512_add_ps(a, b); }
INLINE vf vf_sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
INLINE vf vf_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
INLINE vf vf_div(vf a, vf b) { return _mm512_div_ps(a, b); }
INLINE vf vf_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
INLINE vf vf_fms(vf a, vf b, vf c) { return _mm512_fmsub_ps(a, b, c); } /* a b - c */
INLINE vf vf_max(vf a, vf b) { return _mm512_max_ps(a, b); }
INLINE vm vf_less(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
INLINE vm vf_at_least(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_GE_OQ); }
INLINE int vf_any(vm m) { return m != 0; }
INLINE vf vf_select(vm m, vf yes, vf no) { return _mm512_mask_blend_ps(m, no, yes); }

INLINE vi vf_bits(vf x) { return _mm512_castps_si512(x); }
INLINE vf vi_float(vi x) { return _mm512_castsi512_ps(x); } /* the same bits */
INLINE vi vi_set(int32_t x) { return _mm512_set1_epi32(x); }
INLINE vi vi_and(vi a, vi b) { return _mm512_and_si512(a, b); }
INLINE vi vi_or(vi a, vi b) { return _mm512_or_si512(a, b); }
INLINE vi vi_add(vi a, vi b) { return _mm512_add_epi32(a, b); }
INLINE vi vi_max(vi a, vi b) { return _mm512_max_epi32(a, b); } /* signed */
INLINE vi vi_shift23(vi a) { return _mm512_slli_epi32(a, 23); }
INLINE vf vi_convert(vi a) { return _mm512_cvtepi32_ps(a); }
INLINE void vi_store(int32_t *p, vi x) { _mm512_storeu_si512(p, x); }

/* The sum of 16 partials by halves: 8, 4, 2, 1. */
INLINE float vf_tree(const vf *part)
{
    __m256 p8 = _mm256_add_ps(_mm512_castps512_ps256(part[0]), _mm512_extractf32x8_ps(part[0], 1));
    __m128 p4 = _mm_add_ps(_mm256_castps256_ps128(p8), _mm256_extractf128_ps(p8, 1));
    __m128 p2 = _mm_add_ps(p4, _mm_movehl_ps(p4, p4));
    return _mm_cvtss_f32(_mm_add_ss(p2, _mm_movehdup_ps(p2)));
}

/* The largest lane, of values that are no NaN and of integers. */
INLINE float vf_largest(vf x) { return _mm512_reduce_max_ps(x); }
INLINE int32_t vi_largest(vi x) { return _mm512_reduce_max_epi32(x); }

INLINE vf vf_load_f16(const uint16_t *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)p)); }
INLINE void vf_store_f16(uint16_t *p, vf x)
{
    _mm256_storeu_si256((void *)p, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

INLINE vf vf_load_s8(const int8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)p)));
}

/* Pairs (cosine, sine) of VF angles apart. */
INLINE void vf_load_pairs(const float *p, vf *even, vf *odd)
{
    const __m512i e = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    __m512 a = _mm512_loadu_ps(p), b = _mm512_loadu_ps(p + 16);
    *even = _mm512_permutex2var_ps(a, e, b);
    *odd = _mm512_permutex2var_ps(a, _mm512_add_epi32(e, _mm512_set1_epi32(1)), b);
}

INLINE void vf_store_pairs(float *p, vf even, vf odd)
{
    const __m512i low = _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    _mm512_storeu_ps(p, _mm512_permutex2var_ps(even, low, odd));
    _mm512_storeu_ps(p + 16, _mm512_permutex2var_ps(even, _mm512_add_epi32(low, _mm512_set1_epi32(8)), odd));
}

/* Four int8 products per lane: lane i of acc gains k[4i..4i+3] . q[0..3]; codes are -127 … 127. */
#if defined(GB_SIMD_VNNI)
/* Unsigned times signed: the keys are taken 128 too large, which dot_start() has subtracted. */
INLINE vi dot_start(int32_t sum_of_q) { return _mm512_set1_epi32(-128 * sum_of_q); }
INLINE vi dot_keys(const int8_t *k) { return _mm512_xor_si512(_mm512_loadu_si512(k), _mm512_set1_epi8(-128)); }
INLINE vi dot4(vi acc, vi k, int32_t q) { return _mm512_dpbusd_epi32(acc, k, _mm512_set1_epi32(q)); }
#else
/* maddubs of |k| and q with k's sign: two products of at most 127 * 127 fit int16. */
INLINE vi dot_start(int32_t sum_of_q) { return (void)sum_of_q, _mm512_setzero_si512(); }
INLINE vi dot_keys(const int8_t *k) { return _mm512_loadu_si512(k); }
INLINE vi dot4(vi acc, vi k, int32_t q)
{
    __m512i q4 = _mm512_set1_epi32(q);
    q4 = _mm512_mask_sub_epi8(q4, _mm512_movepi8_mask(k), _mm512_setzero_si512(), q4);
    __m512i pairs = _mm512_maddubs_epi16(_mm512_abs_epi8(k), q4);
    return _mm512_add_epi32(acc, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)));
}
#endif

#endif
