/* dtype.h: one row per tensor type. A second switch over types elsewhere is a defect. */
#ifndef GB_DTYPE_H
#define GB_DTYPE_H
#include "engine.h"

/* ggml type numbers that we run. */
enum {
    DTYPE_F32 = 0, DTYPE_F16 = 1, DTYPE_Q4_0 = 2, DTYPE_Q4_1 = 3, DTYPE_Q5_0 = 6, DTYPE_Q5_1 = 7,
    DTYPE_Q8_0 = 8, DTYPE_Q2_K = 10, DTYPE_Q3_K = 11, DTYPE_Q4_K = 12, DTYPE_Q5_K = 13,
    DTYPE_Q6_K = 14, DTYPE_BF16 = 30,
};

/* A quantised row in canonical form, per block of 32 elements (see docs/numerics.md §dot):
 * codes c[0..31], already as the integers that the formulas use before the offset, and the
 * scales in f32 (exact). halves = 1: one D for the block; 2: one per half of 16.
 *   acc = fma(fl(D[h] * d_act), sum_h (c - offset) * q, acc)   for each half
 *   acc = fma(-M[h] or +m, S[h], acc)                           where has_min */
typedef struct dtype_block32 {
    int16_t c[32];  /* code minus offset: the integer that multiplies q; fits int8 */
    float D[2];     /* where halves is 1, both entries are equal; so with M */
    float M[2];     /* the addend's factor with its sign: +m for Q4_1/Q5_1, -dmin*mn for K types */
} dtype_block32;

/* The factors of the same block as the file holds them, for repacking. d and m are f16 bits. */
typedef struct dtype_factors {
    uint16_t d, m;  /* m: the addend of Q4_1 and Q5_1, dmin of K types; 0 where there is none */
    int8_t sc[2];   /* D = d * sc; Q3_K's less 32; 1 where a block has a d of its own */
    uint8_t mn[2];  /* M = -m * mn */
} dtype_factors;

typedef struct dtype {
    int32_t type;
    const char *name;
    uint32_t items;      /* values per block */
    uint32_t bytes;      /* bytes per block */
    int quantised;       /* 0 for F32, F16, BF16 */
    int halves;          /* 1 or 2 scales per 32 values; 0 for float types */
    int has_min;
    void (*dequantise)(const void *src, uint64_t n, float *out);           /* n values, whole blocks */
    /* Block of 32 number b (0-based within the row) of the row at src. NULL for float types. */
    void (*block32)(const void *row, uint64_t b, dtype_block32 *out);
    void (*factors)(const void *row, uint64_t b, dtype_factors *out);
} dtype;

const dtype *dtype_find(int32_t type);  /* NULL where it is not one that we run */
/* Also types that only have a name and a size (dequantise is NULL); NULL where unknown. */
const dtype *dtype_known(int32_t type);

float gb_f16_to_f32(uint16_t h);       /* exact; NaN and infinities kept as such */
uint16_t gb_f32_to_f16(float f);       /* round to nearest even, independent of the control word */

#endif
