/* mi_avx512.h: the vectors of matmul_tile.h in AVX-512. Include it in a region compiled for that. */
enum { LANES = 16 };
typedef __m512i mi;
typedef __m512 mf;

#define MI static inline __attribute__((always_inline))
#include "mathfn.h"

MI mi mi_load(const uint8_t *p) { return _mm512_loadu_si512(p); }
MI void mi_store(uint8_t *p, mi a) { _mm512_storeu_si512(p, a); }
MI mi mi_zero(void) { return _mm512_setzero_si512(); }
MI mi mi_set8(int x) { return _mm512_set1_epi8((char)x); }
MI mi mi_and(mi a, mi b) { return _mm512_and_si512(a, b); }
MI mi mi_xor(mi a, mi b) { return _mm512_xor_si512(a, b); }
MI mi mi_add(mi a, mi b) { return _mm512_add_epi32(a, b); }
MI mi mi_merge(mi a, mi b, mi mask) { return _mm512_ternarylogic_epi64(a, b, mask, 0xf8); } /* a | (b & mask) */
/* Shifts for bits that are masked after: a byte takes in its neighbour's. */
MI mi mi_left(mi a, int n) { return _mm512_slli_epi16(a, (unsigned)n); }
MI mi mi_right(mi a, int n) { return _mm512_srli_epi16(a, (unsigned)n); }
MI mi mi_left32(mi a, int n) { return _mm512_slli_epi32(a, (unsigned)n); }
/* offset, a power of two, times *minus in every lane */
MI mi mi_start(const int32_t *minus, int offset)
{
    return _mm512_slli_epi32(_mm512_set1_epi32(*minus), (unsigned)__builtin_ctz((unsigned)offset));
}
/* Byte i of every lane less offset, as int32. */
MI mi mi_byte(mi a, int i, int offset)
{
    mi b = _mm512_and_si512(_mm512_srli_epi32(a, (unsigned)(8 * i)), _mm512_set1_epi32(255));
    return _mm512_sub_epi32(b, _mm512_set1_epi32(offset));
}

MI mi mi_broadcast(const int32_t *q) { return _mm512_set1_epi32(*q); }
MI mi mi_abs8(mi a) { return _mm512_abs_epi8(a); }
MI mi mi_sign8(mi a, mi sign)
{
    return _mm512_mask_sub_epi8(a, _mm512_movepi8_mask(sign), _mm512_setzero_si512(), a);
}
/* Pairs of products of unsigned bytes a and signed bytes b, as int16; pairs of those times weight, as int32. */
MI mi mi_pairs(mi a, mi b) { return _mm512_maddubs_epi16(a, b); }
/* A sum that compilers do not regroup: the tree that they make of a chain does not fit the registers. */
MI mi mi_add16(mi a, mi b)
{
    a = _mm512_add_epi16(a, b);
    __asm__("" : "+v"(a));
    return a;
}
MI mi mi_join_pairs(mi a, int weight) { return _mm512_madd_epi16(a, _mm512_set1_epi16((short)weight)); }

/* 16 int32 as int8, four to each of out[0], out[step], out[2 step], out[3 step]. */
MI void mi_store_bytes(int32_t *out, int64_t step, mi q)
{
    __m128i bytes = _mm512_cvtepi32_epi8(q);
    out[0] = _mm_cvtsi128_si32(bytes);
    out[step] = _mm_extract_epi32(bytes, 1);
    out[2 * step] = _mm_extract_epi32(bytes, 2);
    out[3 * step] = _mm_extract_epi32(bytes, 3);
}

/* The largest bit pattern of |x|, and the codes rint(x * inverse) with their sum, of 16 values. */
MI uint32_t mi_largest(const float *x)
{
    return _mm512_reduce_max_epu32(_mm512_and_si512(_mm512_loadu_si512(x), _mm512_set1_epi32(0x7fffffff)));
}
MI mi mi_codes(const float *x, float inverse, int32_t *sum)
{
    const __m512 round = _mm512_set1_ps(GB_ROUND_F32);
    __m512 v = _mm512_add_ps(_mm512_mul_ps(_mm512_loadu_ps(x), _mm512_set1_ps(inverse)), round);
    mi q = _mm512_sub_epi32(_mm512_castps_si512(v), _mm512_castps_si512(round)); /* the low bits of v */
    *sum = _mm512_reduce_add_epi32(q);
    return q;
}
#define MI_QUANTISES 1

MI mf mi_float(mi a) { return _mm512_cvtepi32_ps(a); }
MI mf mf_zero(void) { return _mm512_setzero_ps(); }
MI mf mf_load(const float *p) { return _mm512_loadu_ps(p); }
MI void mf_store(float *p, mf x) { _mm512_storeu_ps(p, x); }
MI mf mf_set(const float *p) { return _mm512_set1_ps(*p); }
MI mf mf_add(mf a, mf b) { return _mm512_add_ps(a, b); }
MI mf mf_sub(mf a, mf b) { return _mm512_sub_ps(a, b); }
MI mf mf_mul(mf a, mf b) { return _mm512_mul_ps(a, b); }
MI mf mf_fma(mf a, mf b, mf c) { return _mm512_fmadd_ps(a, b, c); }
MI mf mf_nfma(mf a, mf b, mf c) { return _mm512_fnmadd_ps(a, b, c); } /* c - a b */
MI mf mf_load_f16(const uint8_t *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)p)); }
MI mf mf_load_bf16(const uint8_t *p)
{
    __m512i x = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(x, 16));
}
MI mf mf_load_s8(const uint8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)p)));
}
/* Four bits of each byte, from bit shift on. */
MI mf mf_load_nibbles(const uint8_t *p, int shift)
{
    __m512i x = _mm512_srli_epi32(_mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)p)), (unsigned)shift);
    return _mm512_cvtepi32_ps(_mm512_and_si512(x, _mm512_set1_epi32(15)));
}
