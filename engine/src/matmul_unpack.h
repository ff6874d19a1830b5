/* matmul_unpack.h: two panels times many rows, for sets with enough registers; included by matmul_tile.h.
 *
 * The codes and factors of both panels are unpacked once, all of a row's blocks or two segments, into what fits
 * the nearest cache beside the activations; then every group of nt rows is multiplied by them. What is broadcast
 * serves both panels. Owns nothing; cannot fail. Per block of an unpacked pair:
 *   | codes u8[8 vectors][2 panels][64] | D f32[halves][2][16] | M f32[halves][2][16] | */

enum {
    UNPACKED_BLOCKS = 20,                     /* at most: 30 KiB */
    PAIR_CODES = 2 * 512,                     /* bytes of a block's codes */
    PAIR_BYTES = PAIR_CODES + 4 * 2 * 2 * 64, /* of a block, at most */
};

/* Block i of a segment of panel p = 0, 1 to its place. */
INLINE void unpack_block(uint8_t *out, int p, segment s, int i, gb_panel_type f)
{
    const uint8_t *planes = s.planes + gb_panel_plane_bytes(f) * i;
    GB_UNROLL for (int v = 0; v < 8; v++)
        mi_store(out + 64 * (2 * v + p), codes(planes, v, f));
    float *factor = (float *)(void *)(out + PAIR_CODES) + GB_PANEL_ROWS * p;
    GB_UNROLL for (int h = 0; h < f.halves; h++) {
        mf D, M;
        factors(&D, &M, s, i, h, f);
        mf_store(factor + 2 * GB_PANEL_ROWS * h, D);
        if (f.min)
            mf_store(factor + 2 * GB_PANEL_ROWS * (f.halves + h), M);
    }
}

/* Blocks first … first+count-1 of two panels that follow each other; first begins a segment. */
INLINE void unpack(uint8_t *out, const uint8_t *panel, uint64_t panel_bytes, int64_t first, int count, gb_panel_type f)
{
    panel += first / SEGMENT_BLOCKS * gb_panel_segment(f, SEGMENT_BLOCKS);
    for (int start = 0; start < count; start += SEGMENT_BLOCKS) {
        int blocks = count - start < SEGMENT_BLOCKS ? count - start : SEGMENT_BLOCKS;
        for (int p = 0; p < 2; p++) {
            segment s = segment_at(panel + panel_bytes * (uint64_t)p, blocks, 0, f);
            ROLLED for (int i = 0; i < blocks; i++)
                unpack_block(out + PAIR_BYTES * (start + i), p, s, i, f);
        }
        panel += gb_panel_segment(f, blocks);
    }
}

/* Half h of a block, or all of it where its halves share factors, to the sums of nt rows. */
INLINE void add_pair_half(mf acc[2][8], const uint8_t *pair, act_block a, int h, int nt, int wide, gb_panel_type f)
{
    const int part = f.halves == 1 ? 0 : h + 1, v0 = f.halves == 1 ? 0 : 4 * h, v1 = f.halves == 1 ? 8 : 4 * h + 4;
    const float *factor = (const float *)(const void *)(pair + PAIR_CODES) + 2 * GB_PANEL_ROWS * h;
    mi sum[2][8], low[2][8];
    GB_UNROLL for (int t = 0; t < nt; t++) {
        mi start = f.offset ? mi_start(a.minus[part] + t, f.offset) : mi_zero();
        sum[0][t] = sum[1][t] = wide ? mi_zero() : start;
        low[0][t] = low[1][t] = start;
    }
    GB_UNROLL for (int v = v0; v < v1; v++) {
        mi w0 = mi_load(pair + 128 * v), w1 = mi_load(pair + 128 * v + 64);
        GB_UNROLL for (int t = 0; t < nt; t++) {
            mi x = mi_broadcast(a.hi + v * nt + t);
            sum[0][t] = mi_dp(sum[0][t], w0, x);
            sum[1][t] = mi_dp(sum[1][t], w1, x);
        }
        GB_UNROLL for (int t = 0; wide && t < nt; t++) {
            mi x = mi_broadcast(a.lo + v * nt + t);
            low[0][t] = mi_dp(low[0][t], w0, x);
            low[1][t] = mi_dp(low[1][t], w1, x);
        }
    }
    GB_UNROLL for (int p = 0; p < 2; p++) {
        mf D = mf_load(factor + GB_PANEL_ROWS * p), M = D;
        if (f.min)
            M = mf_load(factor + GB_PANEL_ROWS * (2 * f.halves + p));
        GB_UNROLL for (int t = 0; wide && t < nt; t++)
            sum[p][t] = mi_add(mi_left32(sum[p][t], 7), low[p][t]);
        finish_half(acc[p], sum[p], a, D, M, part - 1, nt, f);
    }
}

/* nt rows times count blocks of an unpacked pair; y gains them, or is set where first. */
INLINE void tile_unpacked(const uint8_t *pair, const uint8_t *acts, int count, float *y, int64_t ldy, int first,
                          int nt, int wide, gb_panel_type f)
{
    const int step = (int)gb_acts_block_bytes(wide) * nt;
    for (int start = 0; start < count; start += SEGMENT_BLOCKS) {
        int end = count - start < SEGMENT_BLOCKS ? count : start + SEGMENT_BLOCKS;
        mf acc[2][8];
        GB_UNROLL for (int t = 0; t < nt; t++)
            acc[0][t] = acc[1][t] = mf_zero();
        GB_UNROLL for (int t = 0; t < nt; t++)
            GB_UNROLL for (int p = 0; p < 2; p++)
                __builtin_prefetch(y + ldy * t + GB_PANEL_ROWS * p, 1, 3);
        ROLLED for (int i = start; i < end; i++, acts += step, pair += PAIR_BYTES)
            GB_UNROLL for (int h = 0; h < f.halves; h++)
                add_pair_half(acc, pair, act_at(acts, nt, wide), h, nt, wide, f);
        GB_UNROLL for (int t = 0; t < nt; t++)
            GB_UNROLL for (int p = 0; p < 2; p++) {
                float *to = y + ldy * t + GB_PANEL_ROWS * p;
                mf_store(to, first && start == 0 ? acc[p][t] : mf_add(mf_load(to), acc[p][t]));
            }
    }
}

/* n rows, a multiple of nt, times blocks first … first+count-1 of two whole panels; first begins a segment. */
INLINE void multiply_pair(const gb_panels *w, int64_t p, const uint8_t *acts, int64_t first, int count, int64_t n,
                          float *y, int64_t ldy, int nt, int wide, gb_panel_type f)
{
    uint8_t pair[UNPACKED_BLOCKS * PAIR_BYTES] __attribute__((aligned(64)));
    int64_t blocks = w->k / GB_BLOCK, block_bytes = gb_acts_block_bytes(wide);
    unpack(pair, w->data + (uint64_t)p * w->panel_bytes, w->panel_bytes, first, count, f);
    for (int64_t t = 0; t < n; t += nt)
        tile_unpacked(pair, acts + (t * blocks + first * nt) * block_bytes, count, y + t * ldy + p * GB_PANEL_ROWS, ldy,
                      first == 0, nt, wide, f);
}

typedef void (*pair_fn)(const gb_panels *w, int64_t p, const uint8_t *acts, int64_t first, int count, int64_t n,
                        float *y, int64_t ldy);

#define PAIR(name, nt, wide, ...) \
    static void name##_pair_##wide(const gb_panels *w, int64_t p, const uint8_t *acts, int64_t first, int count, \
                                   int64_t n, float *y, int64_t ldy) \
    { \
        multiply_pair(w, p, acts, first, count, n, y, ldy, nt, wide, (gb_panel_type){__VA_ARGS__}); \
    }
#define DEFINE_PAIRS(name, ...) PAIR(name, INT_GROUP, 0, __VA_ARGS__) PAIR(name, WIDE_GROUP, 1, __VA_ARGS__)
#define PAIR_ROW(name, ...) {name##_pair_0, name##_pair_1},

GB_PANEL_TYPES(DEFINE_PAIRS)

static const pair_fn pair_rows[][2] = {GB_PANEL_TYPES(PAIR_ROW)}; /* as tile_rows, by wide */
