/* quantise_avx512.h: four or six rows of activations quantised together, straight into a group of gb_acts
 * (panels.h); included by a file that uses matmul_tile.h with groups of such a size. What depends on a block
 * alone, its scale and sums, is computed for all rows at once, a lane each. Owns nothing; reports what is not
 * finite. Expects mi_avx512.h. */
#define MI_QUANTISES_GROUPS 1

/* Lane i of the 128-bit quarters of m[i]: the largest of all quarters' four. */
MI __m128i largest_of_four(mi m0, mi m1, mi m2, mi m3)
{
    mi a = _mm512_max_epu32(_mm512_unpacklo_epi32(m0, m1), _mm512_unpackhi_epi32(m0, m1));
    mi b = _mm512_max_epu32(_mm512_unpacklo_epi32(m2, m3), _mm512_unpackhi_epi32(m2, m3));
    mi c = _mm512_max_epu32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
    __m256i y = _mm256_max_epu32(_mm512_castsi512_si256(c), _mm512_extracti64x4_epi64(c, 1));
    return _mm_max_epu32(_mm256_castsi256_si128(y), _mm256_extracti128_si256(y, 1));
}

/* Lane i: the sum of lanes 0, 2, 4, … of a, b (i = 0, 1: of their 64-bit halves) and of c, d. */
MI __m128i sums_of_four(mi ab, mi cd)
{
    __m512 x = _mm512_castsi512_ps(ab), y = _mm512_castsi512_ps(cd);
    mi s = _mm512_add_epi32(_mm512_castps_si512(_mm512_shuffle_ps(x, y, 0x88)),
                            _mm512_castps_si512(_mm512_shuffle_ps(x, y, 0xdd)));
    __m256i h = _mm256_add_epi32(_mm512_castsi512_si256(s), _mm512_extracti64x4_epi64(s, 1));
    return _mm_add_epi32(_mm256_castsi256_si128(h), _mm256_extracti128_si256(h, 1));
}

/* Where int32 number g = 16 o + j of a group's codes, [8][nt], stands among those of pairs of rows: two rows
 * packed to bytes are, in quarter L, codes L and 4 + L of the first and of the second. */
MI int place_of(int g, int nt)
{
    int v = g / nt, t = g % nt;
    return 16 * (t / 2) + 4 * (v % 4) + 2 * (t % 2) + v / 4;
}

/* Rows' codes of 16 bits, as bytes, to their places: out is [8][nt] int32. */
MI void put_group(const mi q[6], int32_t *out, const int32_t place[48], int nt)
{
    mi pair[3];
    GB_UNROLL for (int i = 0; i < nt / 2; i++)
        pair[i] = _mm512_packs_epi16(q[2 * i], q[2 * i + 1]);
    GB_UNROLL for (int o = 0; o < nt / 2; o++) {
        mi at = _mm512_loadu_si512(place + 16 * o), v = _mm512_permutex2var_epi32(pair[0], at, pair[1]);
        if (nt == 6)
            v = _mm512_mask_permutexvar_epi32(v, _mm512_cmpge_epi32_mask(at, _mm512_set1_epi32(32)), at, pair[2]);
        _mm512_storeu_si512(out + 16 * o, v);
    }
}

/* 16 bits for each code of a row's block: of half 0 and half 1 four at a time. */
MI mi codes_of(const float *x, __m512 inverse)
{
    const __m512 round = _mm512_set1_ps(GB_ROUND_F32);
    mi q[2];
    GB_UNROLL for (int h = 0; h < 2; h++) {
        __m512 v = _mm512_add_ps(_mm512_mul_ps(_mm512_loadu_ps(x + 16 * h), inverse), round);
        q[h] = _mm512_sub_epi32(_mm512_castps_si512(v), _mm512_castps_si512(round)); /* the low bits of v */
    }
    return _mm512_packs_epi32(q[0], q[1]);
}

/* d, S, S0, S1, and the sums of codes less than nothing, each [nt]. */
MI void put_factors(int32_t *out, __m256 d, __m256i b0, __m256i b1, int nt)
{
    const __mmask8 lanes = (__mmask8)((1 << nt) - 1);
    const __m256i sums[3] = {_mm256_add_epi32(b0, b1), b0, b1};
    _mm256_mask_storeu_ps(out, lanes, d);
    GB_UNROLL for (int i = 0; i < 3; i++) {
        _mm256_mask_storeu_ps(out + (1 + i) * nt, lanes, _mm256_mul_ps(d, _mm256_cvtepi32_ps(sums[i])));
        _mm256_mask_storeu_epi32(out + (4 + i) * nt, lanes, _mm256_sub_epi32(_mm256_setzero_si256(), sums[i]));
    }
    _mm256_mask_storeu_epi32(out + 7 * nt, lanes, _mm256_setzero_si256());
}

/* The bits of the largest |x| of a block of each row, a lane each. */
MI __m256i largest_of_rows(const float *x, int64_t k, int nt)
{
    const mi magnitude = _mm512_set1_epi32(0x7fffffff);
    mi m[6];
    GB_UNROLL for (int t = 0; t < nt; t++)
        m[t] = _mm512_max_epu32(_mm512_and_si512(_mm512_loadu_si512(x + k * t), magnitude),
                                _mm512_and_si512(_mm512_loadu_si512(x + k * t + 16), magnitude));
    __m256i most = _mm256_zextsi128_si256(largest_of_four(m[0], m[1], m[2], m[3]));
    return nt == 4 ? most : _mm256_inserti128_si256(most, largest_of_four(m[4], m[5], m[4], m[5]), 1);
}

/* One block of nt rows; the bits of the largest |x| of each. */
MI __m256i quantise_blocks(const float *x, int64_t k, int32_t *out, const int32_t place[48], int wide, int nt)
{
    __m256i most = largest_of_rows(x, k, nt);
    __m256 amax = _mm256_castsi256_ps(most), limit = _mm256_set1_ps(wide ? 16319.0f : 127.0f);
    __mmask8 counts = _mm256_cmp_ps_mask(amax, _mm256_set1_ps(0x1p-90f), _CMP_GE_OQ); /* of others all codes are 0 */
    __m256 d = _mm256_maskz_div_ps(counts, amax, limit), inverse = _mm256_maskz_div_ps(counts, limit, amax);
    mi q[6], high[6], low[6], sum[6];
    GB_UNROLL for (int t = 0; t < nt; t++) {
        q[t] = codes_of(x + k * t, _mm512_permutexvar_ps(_mm512_set1_epi32(t), _mm512_zextps256_ps512(inverse)));
        sum[t] = _mm512_madd_epi16(q[t], _mm512_set1_epi16(1));
        high[t] = _mm512_srai_epi16(_mm512_add_epi16(q[t], _mm512_set1_epi16(64)), 7);
        low[t] = _mm512_sub_epi16(q[t], _mm512_slli_epi16(high[t], 7));
    }
    put_group(wide ? high : q, out, place, nt);
    if (wide)
        put_group(low, out + 8 * nt, place, nt);
    __m256i b[2];
    GB_UNROLL for (int h = 0; h < 2; h++) {
        mi two[3];
        GB_UNROLL for (int i = 0; i < nt / 2; i++)
            two[i] = h == 0 ? _mm512_unpacklo_epi64(sum[2 * i], sum[2 * i + 1])
                            : _mm512_unpackhi_epi64(sum[2 * i], sum[2 * i + 1]);
        b[h] = _mm256_zextsi128_si256(sums_of_four(two[0], two[1]));
        if (nt == 6)
            b[h] = _mm256_inserti128_si256(b[h], sums_of_four(two[2], two[2]), 1);
    }
    put_factors(out + (wide ? 16 : 8) * nt, d, b[0], b[1], nt);
    return most;
}

/* Blocks of nt rows, k apart, to out, a group of so many. 0 where a value is not finite. */
MI int quantise_rows_of(const float *x, int64_t k, int64_t blocks, int32_t *out, int wide, int nt)
{
    int32_t place[48];
    __m256i most = _mm256_setzero_si256();
    for (int g = 0; g < 8 * nt; g++)
        place[g] = place_of(g, nt);
    for (int64_t b = 0; b < blocks; b++, x += GB_BLOCK, out += (wide ? 24 : 16) * nt)
        most = _mm256_max_epu32(most, quantise_blocks(x, k, out, place, wide, nt));
    return _mm256_cmpge_epu32_mask(most, _mm256_set1_epi32((int)GB_NONFINITE_BITS)) == 0;
}

static int quantise_group(const float *x, int64_t k, int64_t blocks, int32_t *out, int wide)
{
    return wide ? quantise_rows_of(x, k, blocks, out, 1, WIDE_GROUP) : quantise_rows_of(x, k, blocks, out, 0, INT_GROUP);
}
