/* mi_avx2.h: the vectors of matmul_tile.h in AVX2 with FMA and F16C. Include it in a region compiled for those. */
enum { LANES = 8 };
typedef __m256i mi;
typedef __m256 mf;

#define MI static inline __attribute__((always_inline))

MI mi mi_load(const uint8_t *p) { return _mm256_loadu_si256((const void *)p); }
MI mi mi_zero(void) { return _mm256_setzero_si256(); }
MI mi mi_set8(int x) { return _mm256_set1_epi8((char)x); }
MI mi mi_and(mi a, mi b) { return _mm256_and_si256(a, b); }
MI mi mi_xor(mi a, mi b) { return _mm256_xor_si256(a, b); }
MI mi mi_add(mi a, mi b) { return _mm256_add_epi32(a, b); }
MI mi mi_merge(mi a, mi b, mi mask) { return _mm256_or_si256(a, _mm256_and_si256(b, mask)); }
/* Shifts for bits that are masked after: a byte takes in its neighbour's. */
MI mi mi_left(mi a, int n) { return _mm256_slli_epi16(a, n); }
MI mi mi_right(mi a, int n) { return _mm256_srli_epi16(a, n); }
MI mi mi_left32(mi a, int n) { return _mm256_slli_epi32(a, n); }
/* offset, a power of two, times *minus in every lane */
MI mi mi_start(const int32_t *minus, int offset)
{
    return _mm256_slli_epi32(_mm256_set1_epi32(*minus), __builtin_ctz((unsigned)offset));
}
/* Byte i of every lane less offset, as int32. */
MI mi mi_byte(mi a, int i, int offset)
{
    mi b = _mm256_and_si256(_mm256_srli_epi32(a, 8 * i), _mm256_set1_epi32(255));
    return _mm256_sub_epi32(b, _mm256_set1_epi32(offset));
}

MI mi mi_broadcast(const int32_t *q) { return _mm256_set1_epi32(*q); }
MI mi mi_abs8(mi a) { return _mm256_abs_epi8(a); }
MI mi mi_sign8(mi a, mi sign) { return _mm256_sign_epi8(a, sign); }
/* Pairs of products of unsigned bytes a and signed bytes b, as int16; pairs of those times weight, as int32. */
MI mi mi_pairs(mi a, mi b) { return _mm256_maddubs_epi16(a, b); }
/* A sum that compilers do not regroup: the tree that they make of a chain does not fit the registers. */
MI mi mi_add16(mi a, mi b)
{
    a = _mm256_add_epi16(a, b);
    __asm__("" : "+x"(a));
    return a;
}
MI mi mi_join_pairs(mi a, int weight) { return _mm256_madd_epi16(a, _mm256_set1_epi16((short)weight)); }

MI mf mi_float(mi a) { return _mm256_cvtepi32_ps(a); }
MI mf mf_zero(void) { return _mm256_setzero_ps(); }
MI mf mf_load(const float *p) { return _mm256_loadu_ps(p); }
MI void mf_store(float *p, mf x) { _mm256_storeu_ps(p, x); }
MI mf mf_set(const float *p) { return _mm256_broadcast_ss(p); }
MI mf mf_add(mf a, mf b) { return _mm256_add_ps(a, b); }
MI mf mf_sub(mf a, mf b) { return _mm256_sub_ps(a, b); }
MI mf mf_mul(mf a, mf b) { return _mm256_mul_ps(a, b); }
MI mf mf_fma(mf a, mf b, mf c) { return _mm256_fmadd_ps(a, b, c); }
MI mf mf_nfma(mf a, mf b, mf c) { return _mm256_fnmadd_ps(a, b, c); } /* c - a b */
MI mf mf_load_f16(const uint8_t *p) { return _mm256_cvtph_ps(_mm_loadu_si128((const void *)p)); }
MI mf mf_load_bf16(const uint8_t *p)
{
    __m256i x = _mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(x, 16));
}
MI mf mf_load_s8(const uint8_t *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)p)));
}
/* Four bits of each byte, from bit shift on. */
MI mf mf_load_nibbles(const uint8_t *p, int shift)
{
    __m256i x = _mm256_srli_epi32(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)p)), shift);
    return _mm256_cvtepi32_ps(_mm256_and_si256(x, _mm256_set1_epi32(15)));
}
