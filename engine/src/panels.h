/* panels.h: weight matrices rearranged for vector kernels, and activations to match.
 *
 * A panel is 16 rows of a matrix, side by side: wherever a row has four codes, a panel has 64
 * bytes, four of row 0, four of row 1, and so on; so a lane of a vector is a row, and no
 * sum crosses lanes. Codes keep the file's width. Rows that fill up the last panel are zero.
 * The format serves every kernel set; it is private to this machine and never stored. */
#ifndef GB_PANELS_H
#define GB_PANELS_H
#include "kernels.h"

enum { GB_PANEL_ROWS = 16 };

/* Loops over what lies in registers are unrolled whole, except under a sanitizer, whose checks of
 * every step would take minutes to compile. */
#if defined(__SANITIZE_ADDRESS__)
#define GB_UNROLL
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define GB_UNROLL
#endif
#endif
#if !defined(GB_UNROLL)
#define GB_UNROLL _Pragma("GCC unroll 16")
#endif

/* Per quantised type: type, bits of a code in the low and in the high plane, offset (the stored code
 * less it is the integer that multiplies), blocks of 32 that share d and m, scales per block, minimum.
 *
 * A panel is one segment after the other, each of 8 blocks, the last of as many as remain:
 *   | d f16[16], of each block where blocks share none | m alike, where there is a minimum |
 *   | per block: scales int8[halves][16], minimums int8[halves][16] | up to a multiple of 64 |
 *   | per block: low plane, high plane |
 * Scales are there where blocks share d, minimums also where the type has them; Q2_K holds both in
 * one byte, the minimum in its high nibble. With byte i = 0…3 of the 16 x 4 bytes of a vector:
 *   low 4: 4 vectors; vector v holds codes 4v+i in its low nibbles and 16+4v+i in the high
 *   low 8: 8 vectors of codes 4v+i
 *   low 2: 2 vectors; vector h holds codes 16h+4v+i at bit 2v
 *   high 1: 1 vector, the next bit of code 4v+i at bit v
 *   high 2: 2 vectors, the next two bits, as low 2 */
#define GB_PANEL_TYPES(X) \
    X(Q4_0, 4, 0, 8, 1, 1, 0) \
    X(Q4_1, 4, 0, 0, 1, 1, 1) \
    X(Q5_0, 4, 1, 16, 1, 1, 0) \
    X(Q5_1, 4, 1, 0, 1, 1, 1) \
    X(Q8_0, 8, 0, 128, 1, 1, 0) \
    X(Q2_K, 2, 0, 0, 8, 2, 1) \
    X(Q3_K, 2, 1, 4, 8, 2, 0) \
    X(Q4_K, 4, 0, 0, 8, 1, 1) \
    X(Q5_K, 4, 1, 0, 8, 1, 1) \
    X(Q6_K, 4, 2, 32, 8, 2, 0)

typedef struct gb_panel_type {
    int low, high, offset, share, halves, min;
} gb_panel_type;

/* Where m, the scales and the planes of a segment of count blocks begin, and its length, in bytes. */
static inline int gb_panel_m(gb_panel_type t, int count)
{
    return 2 * GB_PANEL_ROWS * (t.share == 1 ? count : 1);
}

static inline int gb_panel_scales(gb_panel_type t, int count)
{
    return gb_panel_m(t, count) * (1 + t.min);
}

/* Scales and minimums of one block. */
static inline int gb_panel_scale_bytes(gb_panel_type t)
{
    return t.share == 1 ? 0 : GB_PANEL_ROWS * t.halves * (t.min && t.low != 2 ? 2 : 1);
}

static inline int gb_panel_planes(gb_panel_type t, int count)
{
    return (gb_panel_scales(t, count) + gb_panel_scale_bytes(t) * count + 63) / 64 * 64;
}

/* Both planes of one block. */
static inline int gb_panel_plane_bytes(gb_panel_type t)
{
    return 64 * (t.low + t.high);
}

static inline int gb_panel_segment(gb_panel_type t, int count)
{
    return gb_panel_planes(t, count) + gb_panel_plane_bytes(t) * count;
}

/* A matrix as panels: [ceil(rows / 16)][panel_bytes]. Float types are [k][16] in the file's width. */
struct gb_panels {
    const dtype *type;
    uint8_t *data;
    uint64_t panel_bytes;
    int64_t k, rows;
};

uint64_t gb_panel_bytes(const dtype *type, int64_t k);
/* Write panel number p of w to out. */
void gb_panel_pack(const gb_matrix *w, int64_t p, uint8_t *out);
/* Row number `row` as f32 [k]: the bits that dequantising the file's row gives. */
void gb_panel_row(const gb_panels *w, int64_t row, float *out);

static inline int64_t gb_panel_count(int64_t rows)
{
    return (rows + GB_PANEL_ROWS - 1) / GB_PANEL_ROWS;
}

/* n quantised rows for panel kernels. Rows stand in groups of 12, 8, 6, 4, 3, 2 or 1: as many
 * whole groups of the set's largest size as there are, then the largest that fits, and so on.
 * Within a group of g a block is, rows innermost:
 *   | int8 q[8][g][4] | wide only: int8 lo[8][g][4] | f32 d[g] | S[g] | S0[g] | S1[g] |
 *   | int32 -(b0+b1)[g] | -b0[g] | -b1[g] | unused[g] |
 * where wide codes are split as 128 q + lo. */
struct gb_acts {
    uint8_t *data;
    int64_t k, n;
    int32_t wide;
    int32_t group; /* largest group of the set that fills and reads it */
};

static inline int64_t gb_acts_block_bytes(int wide)
{
    return wide ? 96 : 64;
}

/* Bytes of n rows: the same however they are grouped. */
static inline uint64_t gb_acts_bytes(int64_t n, int64_t k, int wide)
{
    return (uint64_t)n * (uint64_t)(k / GB_BLOCK) * (uint64_t)gb_acts_block_bytes(wide);
}

/* The size of the group that begins where left rows remain. */
static inline int32_t gb_acts_group(int64_t left, int32_t most)
{
    static const int8_t largest[13] = {0, 1, 2, 3, 4, 4, 6, 6, 8, 8, 8, 8, 12};
    return largest[left < most ? left : most];
}

/* Rows t0 … t1-1, which begin with a group and end with one or with the last row: they stand there in
 * the groups that so many rows alone would. */
static inline gb_acts gb_acts_part(const gb_acts *a, int64_t t0, int64_t t1)
{
    gb_acts part = *a;
    part.data += gb_acts_bytes(t0, a->k, a->wide);
    part.n = t1 - t0;
    return part;
}

#endif
