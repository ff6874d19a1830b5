/* simd_avx2.h: the vector operations of simd_avx512.h for AVX2 with FMA and F16C. */
#ifndef GB_SIMD_AVX2_H
#define GB_SIMD_AVX2_H

enum { VF = 8, VEC_REGISTERS = 16 };
typedef __m256 vf;
typedef __m256i vi;
typedef __m256 vm;

#define INLINE static inline __attribute__((always_inline))

INLINE vf vf_load(const float *p) { return _mm256_loadu_ps(p); }
INLINE void vf_store(float *p, vf x) { _mm256_storeu_ps(p, x); }
INLINE vf vf_set(float x) { return _mm256_set1_ps(x); }
INLINE vf vf_add(vf a, vf b) { return _mm256_add_ps(a, b); }
INLINE vf vf_sub(vf a, vf b) { return _mm256_sub_ps(a, b); }
INLINE vf vf_mul(vf a, vf b) { return _mm256_mul_ps(a, b); }
INLINE vf vf_div(vf a, vf b) { return _mm256_div_ps(a, b); }
INLINE vf vf_fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
INLINE vf vf_fms(vf a, vf b, vf c) { return _mm256_fmsub_ps(a, b, c); } /* a b - c */
INLINE vf vf_max(vf a, vf b) { return _mm256_max_ps(a, b); }
INLINE vm vf_less(vf a, vf b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
INLINE vm vf_at_least(vf a, vf b) { return _mm256_cmp_ps(a, b, _CMP_GE_OQ); }
INLINE int vf_any(vm m) { return _mm256_movemask_ps(m) != 0; }
INLINE vf vf_select(vm m, vf yes, vf no) { return _mm256_blendv_ps(no, yes, m); }

INLINE vi vf_bits(vf x) { return _mm256_castps_si256(x); }
INLINE vf vi_float(vi x) { return _mm256_castsi256_ps(x); } /* the same bits */
INLINE vi vi_set(int32_t x) { return _mm256_set1_epi32(x); }
INLINE vi vi_and(vi a, vi b) { return _mm256_and_si256(a, b); }
INLINE vi vi_or(vi a, vi b) { return _mm256_or_si256(a, b); }
INLINE vi vi_add(vi a, vi b) { return _mm256_add_epi32(a, b); }
INLINE vi vi_max(vi a, vi b) { return _mm256_max_epi32(a, b); } /* signed */
INLINE vi vi_shift23(vi a) { return _mm256_slli_epi32(a, 23); }
INLINE vf vi_convert(vi a) { return _mm256_cvtepi32_ps(a); }
INLINE void vi_store(int32_t *p, vi x) { _mm256_storeu_si256((void *)p, x); }

/* The sum of 16 partials by halves: 8, 4, 2, 1. */
INLINE float vf_tree(const vf *part)
{
    __m256 p8 = _mm256_add_ps(part[0], part[1]);
    __m128 p4 = _mm_add_ps(_mm256_castps256_ps128(p8), _mm256_extractf128_ps(p8, 1));
    __m128 p2 = _mm_add_ps(p4, _mm_movehl_ps(p4, p4));
    return _mm_cvtss_f32(_mm_add_ss(p2, _mm_movehdup_ps(p2)));
}

/* The largest lane, of values that are no NaN and of integers. */
INLINE float vf_largest(vf x)
{
    __m128 m4 = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    __m128 m2 = _mm_max_ps(m4, _mm_movehl_ps(m4, m4));
    return _mm_cvtss_f32(_mm_max_ss(m2, _mm_movehdup_ps(m2)));
}

INLINE int32_t vi_largest(vi x)
{
    __m128i m4 = _mm_max_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    __m128i m2 = _mm_max_epi32(m4, _mm_shuffle_epi32(m4, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(m2, _mm_shuffle_epi32(m2, 0xb1)));
}

INLINE vf vf_load_f16(const uint16_t *p) { return _mm256_cvtph_ps(_mm_loadu_si128((const void *)p)); }
INLINE void vf_store_f16(uint16_t *p, vf x)
{
    _mm_storeu_si128((void *)p, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

INLINE vf vf_load_s8(const int8_t *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)p)));
}

/* Pairs (cosine, sine) of VF angles apart, and together again. */
INLINE void vf_load_pairs(const float *p, vf *even, vf *odd)
{
    __m256 a = _mm256_loadu_ps(p), b = _mm256_loadu_ps(p + 8);
    __m256 low = _mm256_permute2f128_ps(a, b, 0x20), high = _mm256_permute2f128_ps(a, b, 0x31);
    *even = _mm256_shuffle_ps(low, high, 0x88);
    *odd = _mm256_shuffle_ps(low, high, 0xdd);
}

INLINE void vf_store_pairs(float *p, vf even, vf odd)
{
    __m256 low = _mm256_unpacklo_ps(even, odd), high = _mm256_unpackhi_ps(even, odd);
    _mm256_storeu_ps(p, _mm256_permute2f128_ps(low, high, 0x20));
    _mm256_storeu_ps(p + 8, _mm256_permute2f128_ps(low, high, 0x31));
}

/* Four int8 products per lane: lane i of acc gains k[4i..4i+3] . q[0..3]; codes are -127 … 127,
 * so that two products, at most 127 * 127 each, fit the int16 sums of maddubs. */
INLINE vi dot_start(int32_t sum_of_q) { return (void)sum_of_q, _mm256_setzero_si256(); }
INLINE vi dot_keys(const int8_t *k) { return _mm256_loadu_si256((const void *)k); }
INLINE vi dot4(vi acc, vi k, int32_t q)
{
    __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(k), _mm256_sign_epi8(_mm256_set1_epi32(q), k));
    return _mm256_add_epi32(acc, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

#endif
