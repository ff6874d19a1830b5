/* dtype.c: the tensor types: sizes, decoding to f32, canonical blocks of 32.
 *
 * Every quantised type has one decoder, its block32 function; dequantise multiplies that out,
 * so the two cannot drift apart. All scales are exact in f32: an f16 has 11 significant bits,
 * a scale or minimum at most 8, and every finite value is a multiple of 2^-24.
 * Refuses (in engine_dequantize) unknown types and lengths that do not fit. Owns nothing. */
#include "dtype.h"

#include <string.h>

#include "fpenv.h"
#include "status.h"

/* ---- Half precision, in integers: no control word can change a bit ------------------------ */

float gb_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16;
    uint32_t exponent = (h >> 10) & 31;
    uint32_t mantissa = h & 0x3ff;
    uint32_t bits;
    if (exponent == 31) {
        bits = sign | 0x7f800000u | mantissa << 13;
    } else if (exponent != 0) {
        bits = sign | (exponent + 112) << 23 | mantissa << 13;
    } else if (mantissa == 0) {
        bits = sign;
    } else { /* subnormal: mantissa * 2^-24, normal as an f32 */
        exponent = 113;
        while ((mantissa & 0x400) == 0) {
            mantissa <<= 1;
            exponent--;
        }
        bits = sign | exponent << 23 | (mantissa & 0x3ff) << 13;
    }
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

uint16_t gb_f32_to_f16(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    uint32_t a = bits & 0x7fffffffu;
    if (a > 0x7f800000u) /* NaN: keep the upper payload, and keep it a NaN */
        return (uint16_t)(sign | 0x7e00 | (a >> 13 & 0x3ff));
    if (a >= 0x477ff000u) /* 65520 and above round to infinity */
        return sign | 0x7c00;
    if (a >= 0x38800000u) { /* normal: 13 bits are cut; a carry runs into the exponent as it should */
        a -= 112u << 23;
        return (uint16_t)(sign | (a + 0xfff + (a >> 13 & 1)) >> 13);
    }
    if (a <= 0x33000000u) /* 2^-25 and below: a tie goes to the even zero */
        return sign;
    uint32_t shift = 126 - (a >> 23); /* 14 … 24: the value is m * 2^-24 >> shift */
    uint32_t m = (a & 0x7fffff) | 0x800000;
    uint32_t half = 1u << (shift - 1);
    return (uint16_t)(sign | (m + half - 1 + (m >> shift & 1)) >> shift);
}

static uint16_t u16_at(const uint8_t *p)
{
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return h;
}

static float f16_at(const uint8_t *p)
{
    return gb_f16_to_f32(u16_at(p));
}

/* ---- Float types ---------------------------------------------------------------------------- */

static void f32_dequantise(const void *src, uint64_t n, float *out)
{
    memcpy(out, src, n * sizeof *out);
}

static void f16_dequantise(const void *src, uint64_t n, float *out)
{
    const uint8_t *p = src;
    for (uint64_t i = 0; i < n; i++)
        out[i] = f16_at(p + 2 * i);
}

/* bfloat16 is the upper half of an f32. */
static void bf16_dequantise(const void *src, uint64_t n, float *out)
{
    const uint8_t *p = src;
    for (uint64_t i = 0; i < n; i++) {
        uint32_t bits = (uint32_t)p[2 * i] << 16 | (uint32_t)p[2 * i + 1] << 24;
        memcpy(&out[i], &bits, sizeof bits);
    }
}

/* ---- Blocks of 32 ------------------------------------------------------------------------------- */

/* One scale for all 32; both entries are set, so that a reader may index by half regardless. */
static void one_scale(dtype_block32 *out, float D, float M)
{
    out->D[0] = out->D[1] = D;
    out->M[0] = out->M[1] = M;
}

/* 16 bytes, two codes each: low nibbles are values 0…15, high nibbles 16…31. */
static void nibbles(const uint8_t *q, int offset, int16_t *c)
{
    for (int i = 0; i < 16; i++) {
        c[i] = (int16_t)((q[i] & 15) - offset);
        c[i + 16] = (int16_t)((q[i] >> 4) - offset);
    }
}

/* As nibbles(), with value i's fifth bit in bit i of the 4 bytes at high. */
static void nibbles5(const uint8_t *q, const uint8_t *high, int offset, int16_t *c)
{
    for (int i = 0; i < 16; i++) {
        int lo = (high[i / 8] >> i % 8 & 1) << 4;
        int hi = (high[2 + i / 8] >> i % 8 & 1) << 4;
        c[i] = (int16_t)(((q[i] & 15) | lo) - offset);
        c[i + 16] = (int16_t)(((q[i] >> 4) | hi) - offset);
    }
}

/* Q4_0, 18 bytes:  | d f16 | 16 bytes of nibbles |      x = d * (q - 8) */
static void q4_0_block32(const void *row, uint64_t b, dtype_block32 *out)
{
    const uint8_t *p = (const uint8_t *)row + 18 * b;
    one_scale(out, f16_at(p), 0.0f);
    nibbles(p + 2, 8, out->c);
}

/* Q4_1, 20 bytes:  | d f16 | m f16 | 16 bytes of nibbles |      x = d * q + m */
static void q4_1_block32(const void *row, uint64_t b, dtype_block32 *out)
{
    const uint8_t *p = (const uint8_t *)row + 20 * b;
    one_scale(out, f16_at(p), f16_at(p + 2));
    nibbles(p + 4, 0, out->c);
}

/* Q5_0, 22 bytes:  | d f16 | 32 fifth bits | 16 bytes of nibbles |      x = d * (q - 16) */
static void q5_0_block32(const void *row, uint64_t b, dtype_block32 *out)
{
    const uint8_t *p = (const uint8_t *)row + 22 * b;
    one_scale(out, f16_at(p), 0.0f);
    nibbles5(p + 6, p + 2, 16, out->c);
}

/* Q5_1, 24 bytes:  | d f16 | m f16 | 32 fifth bits | 16 bytes of nibbles |      x = d * q + m */
static void q5_1_block32(const void *row, uint64_t b, dtype_block32 *out)
{
    const uint8_t *p = (const uint8_t *)row + 24 * b;
    one_scale(out, f16_at(p), f16_at(p + 2));
    nibbles5(p + 8, p + 4, 0, out->c);
}

/* Q8_0, 34 bytes:  | d f16 | 32 int8 |      x = d * q;  q may be -128 */
static void q8_0_block32(const void *row, uint64_t b, dtype_block32 *out)
{
    const uint8_t *p = (const uint8_t *)row + 34 * b;
    one_scale(out, f16_at(p), 0.0f);
    for (int i = 0; i < 32; i++)
        out->c[i] = (int8_t)p[2 + i];
}

/* ---- K types: superblocks of 256 values; j = 0…7 is the block of 32 within one --------------- */

/* Two-bit codes of Q2_K and Q3_K, 64 bytes: byte i of the first 32 holds value i of blocks
 * 0, 1, 2, 3 in its bit pairs from the lowest up; the second 32 bytes hold blocks 4…7. */
static int two_bits(const uint8_t *q, int j, int i)
{
    return q[32 * (j / 4) + i] >> 2 * (j % 4) & 3;
}

/* Q2_K, 84 bytes:
 *   0   16 bytes, one per 16 values: low nibble sc, high nibble mn
 *   16  64 bytes of two-bit codes
 *   80  d f16      82  dmin f16
 * x = (d * sc) * q - dmin * mn */
static void q2_k_block32(const void *row, uint64_t b, dtype_block32 *out)
{
    const uint8_t *p = (const uint8_t *)row + 84 * (b / 8);
    int j = (int)(b % 8);
    float d = f16_at(p + 80), dmin = f16_at(p + 82);
    for (int h = 0; h < 2; h++) {
        out->D[h] = d * (float)(p[2 * j + h] & 15);
        out->M[h] = -(dmin * (float)(p[2 * j + h] >> 4));
    }
    for (int i = 0; i < 32; i++)
        out->c[i] = (int16_t)two_bits(p + 16, j, i);
}

/* Scale k of Q3_K's 12 bytes, see there. */
static int q3_k_scale(const uint8_t *s, int k)
{
    int low = s[k % 8] >> (k < 8 ? 0 : 4) & 15;
    int high = s[8 + k % 4] >> 2 * (k / 4) & 3;
    return (low | high << 4) - 32;
}

/* Q3_K, 110 bytes:
 *   0    32 bytes: bit j of byte i is the third bit of value i of block j (0 means minus 4)
 *   32   64 bytes of two-bit codes
 *   96   12 bytes: 16 six-bit scales. Scale k = 0…15 has its low nibble in byte k % 8 (low half
 *        for k < 8, high half above) and its two high bits in byte 8 + k % 4 at bit 2 * (k / 4)
 *   108  d f16
 * x = (d * (sc - 32)) * (q - 4) */
static void q3_k_block32(const void *row, uint64_t b, dtype_block32 *out)
{
    const uint8_t *p = (const uint8_t *)row + 110 * (b / 8), *s = p + 96;
    int j = (int)(b % 8);
    float d = f16_at(p + 108);
    for (int h = 0; h < 2; h++) {
        out->D[h] = d * (float)q3_k_scale(s, 2 * j + h);
        out->M[h] = 0.0f;
    }
    for (int i = 0; i < 32; i++)
        out->c[i] = (int16_t)((two_bits(p + 32, j, i) | (p[i] >> j & 1) << 2) - 4);
}

/* The 12 bytes of six-bit scales and minimums of Q4_K and Q5_K (letters are blocks 0…7):
 *   bytes 0-3   EEAAAAAA FFBBBBBB GGCCCCCC HHDDDDDD    scales of 0-3; top bits of those of 4-7
 *   bytes 4-7   eeaaaaaa ffbbbbbb ggcccccc hhdddddd    the same for the minimums
 *   bytes 8-11  eeeeEEEE ffffFFFF ggggGGGG hhhhHHHH    low nibbles of both, for 4-7 */
static void scale_min(const uint8_t *s, int j, int *sc, int *mn)
{
    if (j < 4) {
        *sc = s[j] & 63;
        *mn = s[j + 4] & 63;
    } else {
        *sc = (s[j + 4] & 15) | s[j - 4] >> 6 << 4;
        *mn = s[j + 4] >> 4 | s[j] >> 6 << 4;
    }
}

/* Four-bit codes of Q4_K and Q5_K, 128 bytes: 32 bytes for each pair of blocks, the even one in
 * the low nibbles, the odd one in the high. */
static int four_bits(const uint8_t *q, int j, int i)
{
    return q[32 * (j / 2) + i] >> 4 * (j % 2) & 15;
}

/* Q4_K, 144 bytes:  | d f16 | dmin f16 | 12 bytes, see scale_min | 128 bytes of four-bit codes |
 * x = (d * sc) * q - dmin * mn */
static void q4_k_block32(const void *row, uint64_t b, dtype_block32 *out)
{
    const uint8_t *p = (const uint8_t *)row + 144 * (b / 8);
    int j = (int)(b % 8), sc, mn;
    scale_min(p + 4, j, &sc, &mn);
    one_scale(out, f16_at(p) * (float)sc, -(f16_at(p + 2) * (float)mn));
    for (int i = 0; i < 32; i++)
        out->c[i] = (int16_t)four_bits(p + 16, j, i);
}

/* Q5_K, 176 bytes:
 *   | d f16 | dmin f16 | 12 bytes, see scale_min | 32 bytes: bit j of byte i is the fifth bit of
 *   value i of block j | 128 bytes of four-bit codes |
 * x = (d * sc) * q - dmin * mn */
static void q5_k_block32(const void *row, uint64_t b, dtype_block32 *out)
{
    const uint8_t *p = (const uint8_t *)row + 176 * (b / 8);
    int j = (int)(b % 8), sc, mn;
    scale_min(p + 4, j, &sc, &mn);
    one_scale(out, f16_at(p) * (float)sc, -(f16_at(p + 2) * (float)mn));
    for (int i = 0; i < 32; i++)
        out->c[i] = (int16_t)(four_bits(p + 48, j, i) | (p[16 + i] >> j & 1) << 4);
}

/* Q6_K, 210 bytes:
 *   0    128 bytes of low nibbles: for blocks 0…3 bytes 0-63, for 4…7 bytes 64-127; of each 64,
 *        the first 32 bytes hold blocks 0 (low half) and 2 (high half), the rest 1 and 3
 *   128  64 bytes of the two high bits, arranged as two_bits()
 *   192  16 int8 scales, one per 16 values
 *   208  d f16
 * x = (d * sc) * (q - 32) */
static void q6_k_block32(const void *row, uint64_t b, dtype_block32 *out)
{
    const uint8_t *p = (const uint8_t *)row + 210 * (b / 8);
    int j = (int)(b % 8);
    const uint8_t *low = p + 64 * (j / 4) + 32 * (j % 2);
    float d = f16_at(p + 208);
    for (int h = 0; h < 2; h++) {
        out->D[h] = d * (float)(int8_t)p[192 + 2 * j + h];
        out->M[h] = 0.0f;
    }
    for (int i = 0; i < 32; i++) {
        int nibble = low[i] >> 4 * (j % 4 / 2) & 15;
        out->c[i] = (int16_t)((nibble | two_bits(p + 128, j, i) << 4) - 32);
    }
}

/* ---- Factors as they are stored ---------------------------------------------------------------- */

static inline void own_factors(const void *row, uint64_t b, uint64_t bytes, int has_min, dtype_factors *out)
{
    const uint8_t *p = (const uint8_t *)row + bytes * b;
    *out = (dtype_factors){.d = u16_at(p), .m = has_min ? u16_at(p + 2) : 0, .sc = {1, 1}};
}

static void q4_0_factors(const void *row, uint64_t b, dtype_factors *out) { own_factors(row, b, 18, 0, out); }
static void q4_1_factors(const void *row, uint64_t b, dtype_factors *out) { own_factors(row, b, 20, 1, out); }
static void q5_0_factors(const void *row, uint64_t b, dtype_factors *out) { own_factors(row, b, 22, 0, out); }
static void q5_1_factors(const void *row, uint64_t b, dtype_factors *out) { own_factors(row, b, 24, 1, out); }
static void q8_0_factors(const void *row, uint64_t b, dtype_factors *out) { own_factors(row, b, 34, 0, out); }

static void q2_k_factors(const void *row, uint64_t b, dtype_factors *out)
{
    const uint8_t *p = (const uint8_t *)row + 84 * (b / 8), *s = p + 2 * (b % 8);
    *out = (dtype_factors){.d = u16_at(p + 80), .m = u16_at(p + 82)};
    for (int h = 0; h < 2; h++) {
        out->sc[h] = (int8_t)(s[h] & 15);
        out->mn[h] = s[h] >> 4;
    }
}

static void q3_k_factors(const void *row, uint64_t b, dtype_factors *out)
{
    const uint8_t *p = (const uint8_t *)row + 110 * (b / 8);
    *out = (dtype_factors){.d = u16_at(p + 108)};
    for (int h = 0; h < 2; h++)
        out->sc[h] = (int8_t)q3_k_scale(p + 96, (int)(2 * (b % 8)) + h);
}

/* Q4_K and Q5_K begin alike. */
static inline void pair_factors(const uint8_t *p, int j, dtype_factors *out)
{
    int sc, mn;
    scale_min(p + 4, j, &sc, &mn);
    *out = (dtype_factors){.d = u16_at(p), .m = u16_at(p + 2), .sc = {(int8_t)sc, (int8_t)sc},
                           .mn = {(uint8_t)mn, (uint8_t)mn}};
}

static void q4_k_factors(const void *row, uint64_t b, dtype_factors *out)
{
    pair_factors((const uint8_t *)row + 144 * (b / 8), (int)(b % 8), out);
}

static void q5_k_factors(const void *row, uint64_t b, dtype_factors *out)
{
    pair_factors((const uint8_t *)row + 176 * (b / 8), (int)(b % 8), out);
}

static void q6_k_factors(const void *row, uint64_t b, dtype_factors *out)
{
    const uint8_t *p = (const uint8_t *)row + 210 * (b / 8), *s = p + 192 + 2 * (b % 8);
    *out = (dtype_factors){.d = u16_at(p + 208), .sc = {(int8_t)s[0], (int8_t)s[1]}};
}

/* ---- Dequantising: multiply the canonical block out -------------------------------------- */

/* n values, a multiple of 32, in one product and one sum each: never fused, see
 * -ffp-contract=off. Without a minimum nothing is added, as -0 + 0 would lose the sign. */
static inline void multiply_out(const void *src, uint64_t n, float *out, int has_min,
                                void (*block32)(const void *, uint64_t, dtype_block32 *))
{
    dtype_block32 block;
    for (uint64_t b = 0; b < n / 32; b++, out += 32) {
        block32(src, b, &block);
        for (int i = 0; i < 32; i++) {
            float product = block.D[i / 16] * (float)block.c[i];
            out[i] = has_min ? product + block.M[i / 16] : product;
        }
    }
}

static void q4_0_dequantise(const void *s, uint64_t n, float *out) { multiply_out(s, n, out, 0, q4_0_block32); }
static void q4_1_dequantise(const void *s, uint64_t n, float *out) { multiply_out(s, n, out, 1, q4_1_block32); }
static void q5_0_dequantise(const void *s, uint64_t n, float *out) { multiply_out(s, n, out, 0, q5_0_block32); }
static void q5_1_dequantise(const void *s, uint64_t n, float *out) { multiply_out(s, n, out, 1, q5_1_block32); }
static void q8_0_dequantise(const void *s, uint64_t n, float *out) { multiply_out(s, n, out, 0, q8_0_block32); }
static void q2_k_dequantise(const void *s, uint64_t n, float *out) { multiply_out(s, n, out, 1, q2_k_block32); }
static void q3_k_dequantise(const void *s, uint64_t n, float *out) { multiply_out(s, n, out, 0, q3_k_block32); }
static void q4_k_dequantise(const void *s, uint64_t n, float *out) { multiply_out(s, n, out, 1, q4_k_block32); }
static void q5_k_dequantise(const void *s, uint64_t n, float *out) { multiply_out(s, n, out, 1, q5_k_block32); }
static void q6_k_dequantise(const void *s, uint64_t n, float *out) { multiply_out(s, n, out, 0, q6_k_block32); }

/* ---- The table ---------------------------------------------------------------------------------- */

#define FLOAT_TYPE(number, name, bytes, fn) {number, name, 1, bytes, 0, 0, 0, fn, NULL, NULL}
#define QUANT_TYPE(number, name, items, bytes, halves, has_min, fn) \
    {number, name, items, bytes, 1, halves, has_min, fn##_dequantise, fn##_block32, fn##_factors}
/* Types that we do not run: their size is known, so that a file's extents can be checked. */
#define SIZE_ONLY(number, name, items, bytes) {number, name, items, bytes, 0, 0, 0, NULL, NULL, NULL}

static const dtype types[] = {
    FLOAT_TYPE(DTYPE_F32, "F32", 4, f32_dequantise),
    FLOAT_TYPE(DTYPE_F16, "F16", 2, f16_dequantise),
    FLOAT_TYPE(DTYPE_BF16, "BF16", 2, bf16_dequantise),
    QUANT_TYPE(DTYPE_Q4_0, "Q4_0", 32, 18, 1, 0, q4_0),
    QUANT_TYPE(DTYPE_Q4_1, "Q4_1", 32, 20, 1, 1, q4_1),
    QUANT_TYPE(DTYPE_Q5_0, "Q5_0", 32, 22, 1, 0, q5_0),
    QUANT_TYPE(DTYPE_Q5_1, "Q5_1", 32, 24, 1, 1, q5_1),
    QUANT_TYPE(DTYPE_Q8_0, "Q8_0", 32, 34, 1, 0, q8_0),
    QUANT_TYPE(DTYPE_Q2_K, "Q2_K", 256, 84, 2, 1, q2_k),
    QUANT_TYPE(DTYPE_Q3_K, "Q3_K", 256, 110, 2, 0, q3_k),
    QUANT_TYPE(DTYPE_Q4_K, "Q4_K", 256, 144, 1, 1, q4_k),
    QUANT_TYPE(DTYPE_Q5_K, "Q5_K", 256, 176, 1, 1, q5_k),
    QUANT_TYPE(DTYPE_Q6_K, "Q6_K", 256, 210, 2, 0, q6_k),
    SIZE_ONLY(16, "IQ2_XXS", 256, 66), SIZE_ONLY(17, "IQ2_XS", 256, 74), SIZE_ONLY(18, "IQ3_XXS", 256, 98),
    SIZE_ONLY(19, "IQ1_S", 256, 50),   SIZE_ONLY(20, "IQ4_NL", 32, 18),  SIZE_ONLY(21, "IQ3_S", 256, 110),
    SIZE_ONLY(22, "IQ2_S", 256, 82),   SIZE_ONLY(23, "IQ4_XS", 256, 136), SIZE_ONLY(24, "I8", 1, 1),
    SIZE_ONLY(25, "I16", 1, 2),        SIZE_ONLY(26, "I32", 1, 4),       SIZE_ONLY(27, "I64", 1, 8),
    SIZE_ONLY(28, "F64", 1, 8),        SIZE_ONLY(29, "IQ1_M", 256, 56),  SIZE_ONLY(34, "TQ1_0", 256, 54),
    SIZE_ONLY(35, "TQ2_0", 256, 66),   SIZE_ONLY(39, "MXFP4", 32, 17),   SIZE_ONLY(40, "NVFP4", 64, 36),
};

const dtype *dtype_known(int32_t type)
{
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (types[i].type == type)
            return &types[i];
    return NULL;
}

const dtype *dtype_find(int32_t type)
{
    const dtype *t = dtype_known(type);
    return t != NULL && t->dequantise != NULL ? t : NULL;
}

const char *engine_type_name(int32_t type)
{
    const dtype *t = dtype_find(type);
    return t == NULL ? NULL : t->name;
}

uint64_t engine_type_block_items(int32_t type)
{
    const dtype *t = dtype_find(type);
    return t == NULL ? 0 : t->items;
}

uint64_t engine_type_block_bytes(int32_t type)
{
    const dtype *t = dtype_find(type);
    return t == NULL ? 0 : t->bytes;
}

engine_status engine_dequantize(int32_t type, const void *src, uint64_t src_bytes, uint64_t n, float *out,
                                char *err, size_t errlen)
{
    const dtype *t = dtype_find(type);
    if (t == NULL) {
        const dtype *known = dtype_known(type);
        return gb_fail(err, errlen, ENGINE_EUNSUPPORTED, "tensor type %d (%s) is not one that this engine decodes",
                       (int)type, known == NULL ? "unknown" : known->name);
    }
    if (n % t->items != 0)
        return gb_fail(err, errlen, ENGINE_EINVAL, "%llu values are no multiple of %s's block of %u",
                       (unsigned long long)n, t->name, (unsigned)t->items);
    if (src_bytes % t->bytes != 0 || src_bytes / t->bytes != n / t->items)
        return gb_fail(err, errlen, ENGINE_EINVAL,
                       "%llu values of type %s take %llu blocks of %u bytes, but the source has %llu bytes",
                       (unsigned long long)n, t->name, (unsigned long long)(n / t->items), (unsigned)t->bytes,
                       (unsigned long long)src_bytes);
    if (n == 0)
        return ENGINE_OK;
    if (src == NULL || out == NULL)
        return gb_fail(err, errlen, ENGINE_EINVAL, "source and output must not be NULL");
    gb_fpenv saved = gb_fpenv_enter();
    t->dequantise(src, n, out); /* through a pointer, so never inlined */
    gb_fpenv_leave(saved);
    return ENGINE_OK;
}
