/* matmul_tile.h: products of panels with rows of activations, written once for all instruction
 * sets. A file that includes it provides, for the instruction set that it compiles for:
 *   LANES rows in a vector; mi and mf, vectors of LANES int32 and f32; the mi_* and mf_* operations
 *   SIGNED_CODES: 1 where products are of signed codes of 8 bits, 0 where of unsigned ones
 *   mi_broadcast(q), four int8 in every lane, and mi_dp(acc, w, x): acc plus the dot products of each lane's four
 *   codes with them, exact; or mi_pairs.h, where products are added in 16 bits first
 *   INT_GROUP, WIDE_GROUP: largest tiles, in rows of activations: 12, 8, 4 or 2
 *   UNPACKS, for sets with registers for it: whole groups of many rows are multiplied by two panels at once as
 *   matmul_unpack.h says
 *   TABLE: the function that fills a gb_kernels
 * Everything that depends on a type is a constant after inlining. */
#include "mathfn.h"
#include "panels.h"

#define INLINE static inline __attribute__((always_inline))
#define ROLLED _Pragma("GCC unroll 1")

enum {
    PARTS = GB_PANEL_ROWS / LANES, /* vectors that hold a value of each row */
    PART_BYTES = 4 * LANES,
    SEGMENT_BLOCKS = GB_SEGMENT / GB_BLOCK,
    FEW = 4,                       /* rows that are multiplied faster than memory gives weights */
    AHEAD = 8192,                  /* bytes to prefetch ahead */
    MANY = 12,                     /* rows that make up for unpacking */
    CACHED_ACTS = 256 << 10,       /* bytes of activations that stay in a core's cache beside what comes of them */
};

/* ---- Codes and factors ------------------------------------------------------------------------ */

/* Vector v = 0…7 of a block's codes: lane r holds codes 4v … 4v+3 of row r, still with the offset. */
INLINE mi codes(const uint8_t *planes, int v, gb_panel_type f)
{
    mi c;
    if (f.low == 8)
        return mi_load(planes + 64 * v);
    if (f.low == 4) {
        c = mi_load(planes + 64 * (v % 4));
        c = mi_and(v < 4 ? c : mi_right(c, 4), mi_set8(15));
    } else {
        c = mi_and(mi_right(mi_load(planes + 64 * (v / 4)), 2 * (v % 4)), mi_set8(3));
    }
    if (f.high == 0)
        return c;
    mi b = mi_load(planes + 64 * f.low + (f.high == 2 ? 64 * (v / 4) : 0));
    int at = f.high == 2 ? 2 * (v % 4) : v; /* where the bits are; they belong at bit low */
    b = at > f.low ? mi_right(b, at - f.low) : mi_left(b, f.low - at);
    return mi_merge(c, b, mi_set8(f.high == 2 ? 0x30 : 1 << f.low));
}

/* The same as products want them. */
INLINE mi signed_codes(const uint8_t *planes, int v, gb_panel_type f)
{
    mi c = codes(planes, v, f);
    return f.low == 8 && SIGNED_CODES ? mi_xor(c, mi_set8(0x80)) : c;
}

/* The parts of a segment of count blocks, at the lanes of one vector of rows. */
typedef struct segment {
    const uint8_t *d, *m, *scales, *planes;
} segment;

INLINE segment segment_at(const uint8_t *panel, int count, int part, gb_panel_type f)
{
    const uint8_t *halves = panel + 2 * LANES * part;
    return (segment){halves, halves + gb_panel_m(f, count), panel + gb_panel_scales(f, count) + LANES * part,
                     panel + gb_panel_planes(f, count) + PART_BYTES * part};
}

/* D and M of half h of block i: d and m times the scales, all exact. M is D where there is none. */
INLINE void factors(mf *D, mf *M, segment s, int i, int h, gb_panel_type f)
{
    const uint8_t *scales = s.scales + gb_panel_scale_bytes(f) * i + GB_PANEL_ROWS * h;
    int own = f.share == 1 ? 2 * GB_PANEL_ROWS * i : 0;
    mf d = mf_load_f16(s.d + own), m = f.min ? mf_load_f16(s.m + own) : d;
    if (f.share != 1) {
        m = !f.min ? m : f.low == 2 ? mf_mul(m, mf_load_nibbles(scales, 4))
                                    : mf_mul(m, mf_load_s8(scales + GB_PANEL_ROWS * f.halves));
        d = mf_mul(d, f.min && f.low == 2 ? mf_load_nibbles(scales, 0) : mf_load_s8(scales));
    }
    *D = d;
    *M = f.min ? m : d;
}

/* Fetch what stands ahead of a segment's header, and of a block's planes: all of it, bit by bit. */
INLINE void fetch_ahead(const uint8_t *p, int bytes)
{
    for (int i = 0; i < bytes; i += 64)
        __builtin_prefetch(p + AHEAD + i, 0, 3);
}

/* ---- Quantised activations --------------------------------------------------------------------- */

/* The arrays of one block of a group of nt rows. */
typedef struct act_block {
    const int32_t *hi, *lo; /* four int8 each: [8][nt] */
    const float *d, *s[3];  /* S, S0, S1 */
    const int32_t *minus[3]; /* -(b0+b1), -b0, -b1 */
} act_block;

INLINE act_block act_at(const uint8_t *acts, int nt, int wide)
{
    const int32_t *p = (const int32_t *)(const void *)acts;
    const int32_t *tail = p + (wide ? 16 : 8) * nt;
    const float *s = (const float *)(const void *)tail;
    return (act_block){p, p + 8 * nt, s, {s + nt, s + 2 * nt, s + 3 * nt},
                       {tail + 4 * nt, tail + 5 * nt, tail + 6 * nt}};
}

#if !defined(PAIRS_JOIN)
#define PAIRS_JOIN 0

/* Codes w[p] of vectors p times four int8 of row t. */
INLINE void multiply_codes(mi sum[][16], const mi w[], const int32_t *q, int t, int vectors)
{
#if defined(MI_DP_AT)
    if (vectors == 1) {
        sum[0][t] = mi_dp_at(sum[0][t], w[0], q);
        return;
    }
#endif
    mi x = mi_broadcast(q);
    GB_UNROLL for (int p = 0; p < vectors; p++)
        sum[p][t] = mi_dp(sum[p][t], w[p], x);
}

/* Codes w[p] of vectors p times the int8 of nt rows, to the integer sums: wide ones to high and low, which are
 * joined after. */
INLINE void add_products(mi sum[][16], mi high[][16], mi low[][16], const mi w[], const int32_t *hi, const int32_t *lo,
                         int nt, int vectors, int bits, int step, int last)
{
    (void)bits, (void)step, (void)last;
    mi (*to)[16] = lo != NULL ? high : sum;
    GB_UNROLL for (int t = 0; t < nt; t++)
        multiply_codes(to, w, hi + t, t, vectors);
    GB_UNROLL for (int t = 0; lo != NULL && t < nt; t++)
        multiply_codes(low, w, lo + t, t, vectors);
}
#endif

/* The integer sums of half h (-1: of the whole block) to acc. */
INLINE void finish_half(mf acc[], const mi sum[], act_block a, mf D, mf M, int h, int nt, gb_panel_type f)
{
    GB_UNROLL for (int t = 0; t < nt; t++)
        acc[t] = mf_fma(mf_mul(D, mf_set(a.d + t)), mi_float(sum[t]), acc[t]);
    if (f.min) {
        GB_UNROLL for (int t = 0; t < nt; t++)
            acc[t] = f.share == 1 ? mf_fma(M, mf_set(a.s[h + 1] + t), acc[t])
                                : mf_nfma(M, mf_set(a.s[h + 1] + t), acc[t]);
    }
}

/* Half h of block i of a segment, or all of it (h = -1), at several vectors of rows. */
INLINE void add_half(mf acc[][16], const segment s[], int i, act_block a, int h, int nt, int vectors, int wide,
                     gb_panel_type f)
{
    mi sum[PARTS][16], high[PARTS][16], low[PARTS][16];
    const int offset = f.low == 8 && SIGNED_CODES ? 0 : f.offset, apart = wide && !PAIRS_JOIN;
    const int n = h < 0 ? 8 : 4, planes = gb_panel_plane_bytes(f) * i;
    GB_UNROLL for (int t = 0; t < nt; t++) {
        mi start = offset ? mi_start(a.minus[h + 1] + t, offset) : mi_zero();
        GB_UNROLL for (int p = 0; p < vectors; p++) {
            sum[p][t] = start;
            high[p][t] = mi_zero();
            low[p][t] = start;
        }
    }
    GB_UNROLL for (int step = 0; step < n; step++) {
        const int both = f.low == 4 ? step / 2 + 4 * (step % 2) : step; /* nibbles of a byte together */
        const int v = h >= 0 ? 4 * h + step : both;
        mi w[PARTS];
        GB_UNROLL for (int p = 0; p < vectors; p++)
            w[p] = signed_codes(s[p].planes + planes, v, f);
        add_products(sum, high, low, w, a.hi + v * nt, wide ? a.lo + v * nt : NULL, nt, vectors, f.low + f.high, step,
                     step + 1 == n);
    }
    GB_UNROLL for (int p = 0; p < vectors; p++) {
        mf D, M;
        factors(&D, &M, s[p], i, h < 0 ? 0 : h, f);
        GB_UNROLL for (int t = 0; apart && t < nt; t++)
            sum[p][t] = mi_add(mi_left32(high[p][t], 7), low[p][t]);
        finish_half(acc[p], sum[p], a, D, M, h, nt, f);
    }
}

/* A segment is complete: out is [nt][16]. */
INLINE void finish_segment(const mf acc[], float *out, int part, int nt, int first)
{
    GB_UNROLL for (int t = 0; t < nt; t++) {
        float *o = out + GB_PANEL_ROWS * t + LANES * part;
        mf_store(o, first ? acc[t] : mf_add(mf_load(o), acc[t]));
    }
}

/* nt rows against some of a panel's vectors, from number part on; out is [nt][16]. */
INLINE void tile(const uint8_t *panel, const uint8_t *acts, int64_t blocks, float *out, int part, int vectors, int nt,
                 int wide, gb_panel_type f)
{
    const int step = (int)gb_acts_block_bytes(wide) * nt;
    for (int64_t first = 0; first < blocks; first += SEGMENT_BLOCKS) {
        int count = (int)(blocks - first < SEGMENT_BLOCKS ? blocks - first : SEGMENT_BLOCKS);
        segment s[PARTS];
        mf acc[PARTS][16];
        GB_UNROLL for (int p = 0; p < vectors; p++) {
            s[p] = segment_at(panel, count, part + p, f);
            GB_UNROLL for (int t = 0; t < nt; t++)
                acc[p][t] = mf_zero();
        }
        if (nt <= FEW && part == 0)
            fetch_ahead(panel, gb_panel_planes(f, count));
        ROLLED for (int i = 0; i < count; i++, acts += step) {
            act_block a = act_at(acts, nt, wide);
            if (nt <= FEW && part == 0)
                fetch_ahead(s[0].planes + gb_panel_plane_bytes(f) * i, gb_panel_plane_bytes(f));
            GB_UNROLL for (int h = 0; h < f.halves; h++)
                add_half(acc, s, i, a, f.halves == 1 ? -1 : h, nt, vectors, wide, f);
        }
        GB_UNROLL for (int p = 0; p < vectors; p++)
            finish_segment(acc[p], out, part + p, nt, first == 0);
        panel += gb_panel_segment(f, count);
    }
}

#if defined(UNPACKS)
#include "matmul_unpack.h"
#endif

/* ---- All rows ------------------------------------------------------------------------------------ */

typedef void (*tile_fn)(const uint8_t *panel, const uint8_t *acts, int64_t blocks, float *out);

/* A single row takes all vectors of the panel in one pass; more rows take one vector at a time. */
#define TILE(name, nt, wide, ...) \
    static void name##_##wide##_##nt(const uint8_t *panel, const uint8_t *acts, int64_t blocks, float *out) \
    { \
        const gb_panel_type f = {__VA_ARGS__}; \
        const int vectors = nt == 1 ? PARTS : 1; \
        GB_UNROLL for (int part = 0; part < PARTS; part += vectors) \
            tile(panel, acts, blocks, out, part, vectors, nt, wide, f); \
    }
#define TILES2(name, wide, ...) TILE(name, 1, wide, __VA_ARGS__) TILE(name, 2, wide, __VA_ARGS__)
#define TILES4(name, wide, ...) TILES2(name, wide, __VA_ARGS__) TILE(name, 3, wide, __VA_ARGS__) \
    TILE(name, 4, wide, __VA_ARGS__)
#define TILES6(name, wide, ...) TILES4(name, wide, __VA_ARGS__) TILE(name, 6, wide, __VA_ARGS__)
#define TILES8(name, wide, ...) TILES4(name, wide, __VA_ARGS__) TILE(name, 6, wide, __VA_ARGS__) \
    TILE(name, 8, wide, __VA_ARGS__)
#define TILES12(name, wide, ...) TILES8(name, wide, __VA_ARGS__) TILE(name, 12, wide, __VA_ARGS__)
#define ROW2(name, wide) [1] = name##_##wide##_1, [2] = name##_##wide##_2
#define ROW4(name, wide) ROW2(name, wide), [3] = name##_##wide##_3, [4] = name##_##wide##_4
#define ROW6(name, wide) ROW4(name, wide), [6] = name##_##wide##_6
#define ROW8(name, wide) ROW4(name, wide), [6] = name##_##wide##_6, [8] = name##_##wide##_8
#define ROW12(name, wide) ROW8(name, wide), [12] = name##_##wide##_12
#define GLUE2(a, b) a##b
#define GLUE(a, b) GLUE2(a, b)

#define DEFINE_TILES(name, ...) \
    GLUE(TILES, INT_GROUP)(name, 0, __VA_ARGS__) \
    GLUE(TILES, WIDE_GROUP)(name, 1, __VA_ARGS__)
#define TILE_ROW(name, ...) {DTYPE_##name, {{GLUE(ROW, INT_GROUP)(name, 0)}, {GLUE(ROW, WIDE_GROUP)(name, 1)}}},

GB_PANEL_TYPES(DEFINE_TILES)

typedef struct tile_row {
    int32_t type;
    tile_fn fn[2][13]; /* by wide and rows */
} tile_row;

static const tile_row tile_rows[] = {GB_PANEL_TYPES(TILE_ROW)};

/* [n][16] sums to their place in y; the last panel may have fewer rows. */
static void deliver(const float *sums, int64_t n, const gb_panels *w, int64_t p, float *y, int64_t ldy)
{
    int64_t r0 = p * GB_PANEL_ROWS, rows = w->rows - r0 < GB_PANEL_ROWS ? w->rows - r0 : GB_PANEL_ROWS;
    for (int64_t t = 0; t < n; t++) {
        float *to = y + t * ldy + r0;
        const float *from = sums + GB_PANEL_ROWS * t;
        if (rows == GB_PANEL_ROWS)
            memcpy(to, from, GB_PANEL_ROWS * sizeof *to);
        else
            memcpy(to, from, (size_t)rows * sizeof *to);
    }
}

/* Panels p0 … p1-1 and rows t0 … t1-1, which end with a group, by tiles of one panel. */
static void multiply_tiles(const gb_panels *w, int64_t p0, int64_t p1, const gb_acts *x, int64_t t0, int64_t t1,
                           float *y, int64_t ldy, const tile_fn *fn)
{
    int64_t blocks = w->k / GB_BLOCK, token_bytes = blocks * gb_acts_block_bytes(x->wide);
    for (int64_t p = p0; p < p1; p++)
        for (int64_t t = t0, nt; t < t1; t += nt) {
            float sums[12 * GB_PANEL_ROWS] __attribute__((aligned(64)));
            nt = gb_acts_group(x->n - t, x->group);
            fn[nt](w->data + (uint64_t)p * w->panel_bytes, x->data + t * token_bytes, blocks, sums);
            deliver(sums, nt, w, p, y + t * ldy, ldy);
        }
}

#if defined(UNPACKS)
/* Blocks of a row that are unpacked at once: all, or two segments. */
static int64_t unpacked_step(int64_t blocks)
{
    return blocks <= UNPACKED_BLOCKS ? blocks : 2 * SEGMENT_BLOCKS;
}

/* Whole groups of rows t0 … t1-1 times pairs of whole panels; the first panel that is left. A part of all the
 * panels' columns is taken at a time, so that what it meets of the activations stays in cache. */
static int64_t multiply_pairs(const gb_panels *w, int64_t p0, int64_t p1, const gb_acts *x, int64_t t0, int64_t t1,
                              float *y, int64_t ldy, const tile_row *row)
{
    int64_t blocks = w->k / GB_BLOCK, n = (t1 - t0) / x->group * x->group, whole = w->rows / GB_PANEL_ROWS;
    int64_t last = p0 + ((p1 < whole ? p1 : whole) - p0) / 2 * 2, step = unpacked_step(blocks);
    const uint8_t *acts = x->data + t0 * blocks * gb_acts_block_bytes(x->wide);
    if (n < MANY || last <= p0)
        return p0;
    for (int64_t first = 0; first < blocks; first += step) {
        int count = (int)(blocks - first < step ? blocks - first : step);
        for (int64_t p = p0; p < last; p += 2)
            pair_rows[row - tile_rows][x->wide != 0](w, p, acts, first, count, n, y + t0 * ldy, ldy);
    }
    multiply_tiles(w, p0, last, x, t0 + n, t1, y, ldy, row->fn[x->wide != 0]);
    return last;
}
#endif

/* Rows are taken in runs whose activations stay in cache, while the panels stream past. */
static void panels_int(const gb_panels *w, int64_t p0, int64_t p1, const gb_acts *x, float *y, int64_t ldy)
{
    const tile_row *row = tile_rows;
    while (row->type != w->type->type)
        row++;
    int64_t blocks = w->k / GB_BLOCK;
#if defined(UNPACKS)
    blocks = unpacked_step(blocks);
#endif
    int64_t run = CACHED_ACTS / (blocks * gb_acts_block_bytes(x->wide)) / x->group * x->group;
    run = run > x->group ? run : x->group;
    for (int64_t t0 = 0; t0 < x->n; t0 += run) {
        int64_t t1 = t0 + run < x->n ? t0 + run : x->n, p = p0;
#if defined(UNPACKS)
        p = multiply_pairs(w, p0, p1, x, t0, t1, y, ldy, row);
#endif
        multiply_tiles(w, p, p1, x, t0, t1, y, ldy, row->fn[x->wide != 0]);
    }
}

/* ---- Quantising --------------------------------------------------------------------------------- */

/* The largest |x| of a block as bits. */
static inline uint32_t largest(const float *x)
{
#if defined(MI_QUANTISES)
    uint32_t a = mi_largest(x), b = mi_largest(x + 16);
    return a > b ? a : b;
#else
    uint32_t most = 0;
    for (int i = 0; i < GB_BLOCK; i++) {
        uint32_t bits = gb_abs_bits(x[i]);
        most = bits > most ? bits : most;
    }
    return most;
#endif
}

/* Codes of half a block, 16 values, to out[0], out[nt], …: hi, and lo 8 nt further on; their sum. */
static inline int32_t put_codes(const float *x, float inverse, int wide, int32_t *out, int64_t nt)
{
    int32_t sum = 0;
#if defined(MI_QUANTISES)
    mi q = mi_codes(x, inverse, &sum), hi = q;
    if (wide) {
        hi = _mm512_srai_epi32(_mm512_add_epi32(q, _mm512_set1_epi32(64)), 7);
        mi_store_bytes(out + 8 * nt, nt, _mm512_sub_epi32(q, _mm512_slli_epi32(hi, 7)));
    }
    mi_store_bytes(out, nt, hi);
#else
    int32_t q[16];
    int8_t hi[16], lo[16];
    for (int i = 0; i < 16; i++)
        q[i] = (int32_t)((x[i] * inverse + GB_ROUND_F32) - GB_ROUND_F32);
    for (int i = 0; i < 16; i++)
        sum += q[i];
    for (int i = 0; i < 16; i++) {
        hi[i] = (int8_t)(wide ? (q[i] + 64) >> 7 : q[i]);
        lo[i] = (int8_t)(q[i] - 128 * hi[i]);
    }
    for (int v = 0; v < 4; v++) {
        memcpy(out + v * nt, hi + 4 * v, 4);
        if (wide)
            memcpy(out + (8 + v) * nt, lo + 4 * v, 4);
    }
#endif
    return sum;
}

/* One block to its lane of a group of nt rows. */
static inline void quantise_block(const float *x, float amax, int wide, int32_t *out, int64_t nt)
{
    float limit = wide ? 16319.0f : 127.0f, d = amax / limit, inverse = limit / amax;
    if (amax < 0x1p-90f) { /* 0 times a finite value is 0: all codes are */
        d = 0.0f;
        inverse = 0.0f;
    }
    int32_t b0 = put_codes(x, inverse, wide, out, nt), b1 = put_codes(x + 16, inverse, wide, out + 4 * nt, nt);
    float s[4] = {d, d * (float)(b0 + b1), d * (float)b0, d * (float)b1};
    int32_t minus[4] = {-(b0 + b1), -b0, -b1, 0};
    out += (wide ? 16 : 8) * nt;
    for (int i = 0; i < 4; i++) {
        memcpy(out + i * nt, &s[i], 4);
        out[(4 + i) * nt] = minus[i];
    }
}

/* The group that holds a row: its first row and its size. */
static int32_t group_of(const gb_acts *a, int64_t row, int64_t *first)
{
    int32_t size = a->group;
    *first = row / size * size;
    if (*first + size <= a->n)
        return size;
    while (row >= *first + (size = gb_acts_group(a->n - *first, a->group)))
        *first += size;
    return size;
}

static int quantise_row(const float *x, gb_acts *a, int64_t row, int64_t b0, int64_t b1)
{
    int64_t blocks = a->k / GB_BLOCK, bytes = gb_acts_block_bytes(a->wide), first;
    int32_t nt = group_of(a, row, &first);
    int32_t *out = (int32_t *)(void *)(a->data + (first * blocks + b0 * nt) * bytes) + (row - first);
    x += b0 * GB_BLOCK;
    for (int64_t b = b0; b < b1; b++, x += GB_BLOCK, out += bytes / 4 * nt) {
        uint32_t most = largest(x);
        if (most >= GB_NONFINITE_BITS)
            return 0;
        quantise_block(x, gb_from_bits(most), a->wide, out, nt);
    }
    return 1;
}

/* Whole groups of the largest size, which stand first, are quantised at once by sets that can. */
static int quantise_rows(const float *x, gb_acts *a, int64_t row, int64_t n, int64_t b0, int64_t b1)
{
    for (int64_t t = row, rows; t < row + n; t += rows, x += rows * a->k) {
        rows = 1;
#if defined(MI_QUANTISES_GROUPS)
        if (t % a->group == 0 && t + a->group <= row + n) {
            uint8_t *out = a->data + gb_acts_bytes(t, a->k, a->wide) + b0 * a->group * gb_acts_block_bytes(a->wide);
            rows = a->group;
            if (!quantise_group(x + b0 * GB_BLOCK, a->k, b1 - b0, (int32_t *)(void *)out, a->wide))
                return 0;
            continue;
        }
#endif
        if (!quantise_row(x, a, t, b0, b1))
            return 0;
    }
    return 1;
}

/* ---- f32 activations ------------------------------------------------------------------------------ */

/* acc[t] = fma(w, x[t], acc[t]) for one element of nt rows. */
INLINE void add_element(mf acc[], mf w, const float *x, int64_t ldx, int nt)
{
    GB_UNROLL for (int t = 0; t < nt; t++)
        acc[t] = mf_fma(w, mf_set(x + t * ldx), acc[t]);
}

/* Block i of a segment, multiplied out. */
INLINE void add_block_f32(mf acc[], segment s, int i, const float *x, int64_t ldx, int nt, gb_panel_type f)
{
    const uint8_t *planes = s.planes + gb_panel_plane_bytes(f) * i;
    for (int v = 0; v < 8; v++) {
        mf D, M;
        factors(&D, &M, s, i, f.halves == 2 ? v / 4 : 0, f);
        mi c = codes(planes, v, f);
        GB_UNROLL for (int j = 0; j < 4; j++) {
            mf w = mf_mul(D, mi_float(mi_byte(c, j, f.offset)));
            if (f.min)
                w = f.share == 1 ? mf_add(w, M) : mf_sub(w, M);
            add_element(acc, w, x + 4 * v + j, ldx, nt);
        }
    }
}

INLINE void tile_f32(const uint8_t *panel, const float *x, int64_t k, float *out, int part, int nt, gb_panel_type f)
{
    for (int64_t start = 0; start < k; start += GB_SEGMENT) {
        int count = (int)(k - start < GB_SEGMENT ? k - start : GB_SEGMENT) / GB_BLOCK;
        segment s = segment_at(panel, count, part, f);
        mf acc[8];
        GB_UNROLL for (int t = 0; t < nt; t++)
            acc[t] = mf_zero();
        for (int i = 0; i < count; i++)
            add_block_f32(acc, s, i, x + start + GB_BLOCK * i, k, nt, f);
        finish_segment(acc, out, part, nt, start == 0);
        panel += gb_panel_segment(f, count);
    }
}

/* A float type's row of a panel as f32. */
INLINE mf float_row(const uint8_t *row, int part, int type)
{
    if (type == DTYPE_F16)
        return mf_load_f16(row + 2 * LANES * part);
    if (type == DTYPE_BF16)
        return mf_load_bf16(row + 2 * LANES * part);
    return mf_load((const float *)(const void *)row + LANES * part);
}

INLINE void tile_float(const uint8_t *panel, const float *x, int64_t k, float *out, int part, int nt, int type)
{
    const int bytes = GB_PANEL_ROWS * (type == DTYPE_F32 ? 4 : 2);
    mf acc[8];
    for (int64_t start = 0; start < k; start += GB_SEGMENT) {
        int64_t end = k - start < GB_SEGMENT ? k : start + GB_SEGMENT;
        GB_UNROLL for (int t = 0; t < nt; t++)
            acc[t] = mf_zero();
        for (int64_t i = start; i < end; i++, panel += bytes) {
            if (nt <= 4 && part == 0)
                __builtin_prefetch(panel + AHEAD, 0, 3);
            add_element(acc, float_row(panel, part, type), x + i, k, nt);
        }
        finish_segment(acc, out, part, nt, start == 0);
    }
}

typedef void (*tile_f32_fn)(const uint8_t *panel, const float *x, int64_t k, float *out);

#define PARTS_OF(call) \
    for (int part = 0; part < PARTS; part++) \
        call;
#define TILE_F32(name, nt, ...) \
    static void name##_f32_##nt(const uint8_t *panel, const float *x, int64_t k, float *out) \
    { \
        PARTS_OF(tile_f32(panel, x, k, out, part, nt, (gb_panel_type){__VA_ARGS__})) \
    }
#define TILE_FLOAT(name, nt) \
    static void name##_f32_##nt(const uint8_t *panel, const float *x, int64_t k, float *out) \
    { \
        PARTS_OF(tile_float(panel, x, k, out, part, nt, DTYPE_##name)) \
    }
#define DEFINE_F32(name, ...) TILE_F32(name, 1, __VA_ARGS__) TILE_F32(name, 4, __VA_ARGS__)
#define DEFINE_FLOAT(name) TILE_FLOAT(name, 1) TILE_FLOAT(name, 4) TILE_FLOAT(name, 8)
#define F32_ROW(name, ...) {DTYPE_##name, {[1] = name##_f32_1, [4] = name##_f32_4}},
#define FLOAT_ROW(name) {DTYPE_##name, {[1] = name##_f32_1, [4] = name##_f32_4, [8] = name##_f32_8}},

GB_PANEL_TYPES(DEFINE_F32)
DEFINE_FLOAT(F32) DEFINE_FLOAT(F16) DEFINE_FLOAT(BF16)

typedef struct f32_row {
    int32_t type;
    tile_f32_fn fn[9]; /* by rows: 1, 4, 8 or NULL */
} f32_row;

static const f32_row f32_rows[] = {GB_PANEL_TYPES(F32_ROW) FLOAT_ROW(F32) FLOAT_ROW(F16) FLOAT_ROW(BF16)};

static void panels_f32(const gb_panels *w, int64_t p0, int64_t p1, const float *x, int64_t n, float *y, int64_t ldy)
{
    const f32_row *row = f32_rows;
    while (row->type != w->type->type)
        row++;
    for (int64_t p = p0; p < p1; p++) {
        for (int64_t t = 0, nt; t < n; t += nt) {
            float sums[8 * GB_PANEL_ROWS] __attribute__((aligned(64)));
            nt = n - t >= 8 && row->fn[8] != NULL ? 8 : n - t >= 4 ? 4 : 1;
            row->fn[nt](w->data + (uint64_t)p * w->panel_bytes, x + t * w->k, w->k, sums);
            deliver(sums, nt, w, p, y + t * ldy, ldy);
        }
    }
}

void TABLE(gb_kernels *set)
{
    set->panels_int = panels_int;
    set->panels_f32 = panels_f32;
    set->quantise_rows = quantise_rows;
    set->group[0] = INT_GROUP;
    set->group[1] = WIDE_GROUP;
}
