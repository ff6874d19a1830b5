/* kernels_ref.c: the definition of every kernel in portable C; see docs/numerics.md.
 *
 * Each output is one fixed sequence of IEEE operations. Loops are written so that a compiler may
 * vectorise over outputs (rows, positions, channels, the 16 partials), never over a sum.
 * kernels_ref_fma.c includes this file to compile it again for processors with FMA: without the
 * instruction every gb_fmaf is a call. Nothing here allocates; callers own all buffers. */
#include "kernels.h"
#include "mathfn.h"

#ifndef GB_KERNELS_TABLE
#define GB_KERNELS_TABLE gb_kernels_ref
#define GB_KERNELS_NAME "ref"
#endif

enum { SEGMENT_BLOCKS = GB_SEGMENT / GB_BLOCK, INT_ROWS = 8, F32_ROWS = 32, PARTIALS = 16, QUERIES = 8 };

/* ---- Quantising activations ---------------------------------------------------------- */

/* d = amax / limit, q = rint(x * (limit / amax)), halves to even. */
static void quantise_block(const float *x, float amax, float limit, gb_act32 *out)
{
    float d = amax / limit, inverse = limit / amax;
    int32_t sum[2];
    for (int h = 0; h < 2; h++) {
        int32_t total = 0;
        for (int i = 16 * h; i < 16 * h + 16; i++) {
            int32_t q = (int32_t)((x[i] * inverse + GB_ROUND_F32) - GB_ROUND_F32);
            out->q[i] = (int16_t)q;
            total += q;
        }
        sum[h] = total;
        out->sh[h] = d * (float)total;
    }
    out->d = d;
    out->s = d * (float)(sum[0] + sum[1]);
}

static int quantise(const float *x, int64_t n, int32_t limit, gb_act32 *out)
{
    for (int64_t b = 0; b < n / GB_BLOCK; b++) {
        const float *block = x + b * GB_BLOCK;
        uint32_t most = 0;
        for (int i = 0; i < GB_BLOCK; i++) {
            uint32_t a = gb_abs_bits(block[i]);
            most = a > most ? a : most;
        }
        if (most >= GB_NONFINITE_BITS)
            return 0;
        if (gb_from_bits(most) < 0x1p-90f)
            memset(&out[b], 0, sizeof out[b]);
        else
            quantise_block(block, gb_from_bits(most), (float)limit, &out[b]);
    }
    return 1;
}

/* ---- Matrix products ----------------------------------------------------------------- */

static inline int32_t dot_codes(const int16_t *c, const int16_t *q, int n)
{
    int32_t sum = 0;
    for (int i = 0; i < n; i++)
        sum += (int32_t)c[i] * q[i];
    return sum;
}

/* One segment: blocks ascending, each an exact integer sum and one or two fma per scale. */
static inline float segment_int(const dtype_block32 *w, const gb_act32 *x, int blocks, int halves, int has_min)
{
    float acc = 0.0f;
    for (int b = 0; b < blocks; b++) {
        for (int h = 0; h < halves; h++) {
            int32_t sum = dot_codes(w[b].c + 16 * h, x[b].q + 16 * h, GB_BLOCK / halves);
            acc = gb_fmaf(w[b].D[h] * x[b].d, (float)sum, acc);
            if (has_min)
                acc = gb_fmaf(w[b].M[h], halves == 1 ? x[b].s : x[b].sh[h], acc);
        }
    }
    return acc;
}

/* Decoded rows against all tokens; y starts at the first row. */
static inline void tile_int(dtype_block32 w[][SEGMENT_BLOCKS], int64_t rows, int blocks, const gb_act32 *x,
                            int64_t ldx, int64_t n, int first, float *y, int64_t ldy, int halves, int has_min)
{
    for (int64_t t = 0; t < n; t++) {
        for (int64_t r = 0; r < rows; r++) {
            float sum = segment_int(w[r], x + t * ldx, blocks, halves, has_min);
            y[t * ldy + r] = first ? sum : y[t * ldy + r] + sum;
        }
    }
}

static void matmul_int(const gb_matrix *w, int64_t r0, int64_t r1, const gb_act32 *x, int64_t n, float *y,
                       int64_t ldy)
{
    dtype_block32 tile[INT_ROWS][SEGMENT_BLOCKS];
    const dtype *type = w->type;
    int64_t blocks = w->k / GB_BLOCK;
    for (int64_t r = r0; r < r1; r += INT_ROWS) {
        int64_t rows = r1 - r < INT_ROWS ? r1 - r : INT_ROWS;
        for (int64_t b = 0; b < blocks; b += SEGMENT_BLOCKS) {
            int count = (int)(blocks - b < SEGMENT_BLOCKS ? blocks - b : SEGMENT_BLOCKS);
            for (int64_t i = 0; i < rows; i++)
                for (int j = 0; j < count; j++)
                    type->block32(w->data + (uint64_t)(r + i) * w->row_bytes, (uint64_t)(b + j), &tile[i][j]);
            /* constants in the arguments, so that each case compiles to its own loop */
            if (type->halves == 1 && type->has_min)
                tile_int(tile, rows, count, x + b, blocks, n, b == 0, y + r, ldy, 1, 1);
            else if (type->halves == 1)
                tile_int(tile, rows, count, x + b, blocks, n, b == 0, y + r, ldy, 1, 0);
            else if (type->has_min)
                tile_int(tile, rows, count, x + b, blocks, n, b == 0, y + r, ldy, 2, 1);
            else
                tile_int(tile, rows, count, x + b, blocks, n, b == 0, y + r, ldy, 2, 0);
        }
    }
}

/* Decode one segment of up to 32 rows to [element][row]. */
static void decode_tile(const gb_matrix *w, int64_t r, int64_t rows, int64_t start, int64_t count, float *tile)
{
    float row[GB_SEGMENT];
    uint64_t offset = (uint64_t)start / w->type->items * w->type->bytes;
    for (int64_t i = 0; i < rows; i++) {
        w->type->dequantise(w->data + (uint64_t)(r + i) * w->row_bytes + offset, (uint64_t)count, row);
        for (int64_t j = 0; j < count; j++)
            tile[j * F32_ROWS + i] = row[j];
    }
}

static void matmul_f32(const gb_matrix *w, int64_t r0, int64_t r1, const float *x, int64_t n, float *y, int64_t ldy)
{
    float tile[GB_SEGMENT * F32_ROWS];
    memset(tile, 0, sizeof tile);
    for (int64_t r = r0; r < r1; r += F32_ROWS) {
        int64_t rows = r1 - r < F32_ROWS ? r1 - r : F32_ROWS;
        for (int64_t start = 0; start < w->k; start += GB_SEGMENT) {
            int64_t count = w->k - start < GB_SEGMENT ? w->k - start : GB_SEGMENT;
            decode_tile(w, r, rows, start, count, tile);
            for (int64_t t = 0; t < n; t++) {
                float acc[F32_ROWS] = {0};
                for (int64_t j = 0; j < count; j++)
                    for (int i = 0; i < F32_ROWS; i++)
                        acc[i] = gb_fmaf(tile[j * F32_ROWS + i], x[t * w->k + start + j], acc[i]);
                float *out = y + t * ldy + r;
                for (int64_t i = 0; i < rows; i++)
                    out[i] = start == 0 ? acc[i] : out[i] + acc[i];
            }
        }
    }
}

/* ---- Rows ---------------------------------------------------------------------------- */

/* Sum of 16 partials by halves: 8, 4, 2, 1. */
static inline float tree(float *part)
{
    for (int width = PARTIALS / 2; width > 0; width /= 2)
        for (int i = 0; i < width; i++)
            part[i] = part[i] + part[i + width];
    return part[0];
}

static int rms_norm(const float *x, const float *w, int64_t n, float eps, float *y)
{
    float part[PARTIALS] = {0};
    int64_t i = 0;
    for (; i + PARTIALS <= n; i += PARTIALS)
        for (int j = 0; j < PARTIALS; j++)
            part[j] = gb_fmaf(x[i + j], x[i + j], part[j]);
    for (int j = 0; i + j < n; j++)
        part[j] = gb_fmaf(x[i + j], x[i + j], part[j]);
    float sum = tree(part);
    if (gb_abs_bits(sum) >= GB_NONFINITE_BITS)
        return 0;
    float r = 1.0f / __builtin_sqrtf(sum / (float)n + eps);
    for (i = 0; i < n; i++)
        y[i] = (x[i] * r) * w[i];
    return 1;
}

static void rope(float *x, const float *cs, int64_t pairs, int neox)
{
    int64_t step = neox ? 1 : 2, far = neox ? pairs : 1;
    for (int64_t i = 0; i < pairs; i++) {
        float c = cs[2 * i], s = cs[2 * i + 1];
        float a = x[i * step], b = x[i * step + far];
        float bs = b * s, bc = b * c;
        x[i * step] = gb_fmaf(a, c, -bs);
        x[i * step + far] = gb_fmaf(a, s, bc);
    }
}

static void gate(float *g, const float *u, int64_t n, int kind)
{
    if (kind == GB_GATE_SILU)
        for (int64_t i = 0; i < n; i++)
            g[i] = gb_siluf(g[i]) * u[i];
    else
        for (int64_t i = 0; i < n; i++)
            g[i] = gb_gelu_tanhf(g[i]) * u[i];
}

static void add(float *x, const float *y, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = x[i] + y[i];
}

static void scale(float *x, float by, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = x[i] * by;
}

static int all_finite(const float *x, int64_t n)
{
    uint32_t most = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t a = gb_abs_bits(x[i]);
        most = a > most ? a : most;
    }
    return most < GB_NONFINITE_BITS;
}

static int64_t argmax(const float *x, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (x[i] > x[best])
            best = i;
    return best;
}

static void exps(const float *x, int64_t n, float most, float by, float *e)
{
    for (int64_t i = 0; i < n; i++)
        e[i] = gb_expf((x[i] - most) / by);
}

static int softcap(float *x, float cap, int64_t n)
{
    if (!all_finite(x, n))
        return 0;
    for (int64_t i = 0; i < n; i++)
        x[i] = cap * gb_tanhf(x[i] / cap);
    return 1;
}

/* ---- Attention ----------------------------------------------------------------------- */

/* Keys, values and queries of KV type q8. */
static int quantise_q8(const float *x, int64_t n, int8_t *codes, float *scales)
{
    for (int64_t b = 0; b < n / GB_BLOCK; b++) {
        gb_act32 block;
        if (!quantise(x + b * GB_BLOCK, GB_BLOCK, 127, &block))
            return 0;
        for (int i = 0; i < GB_BLOCK; i++)
            codes[b * GB_BLOCK + i] = (int8_t)block.q[i];
        scales[b] = block.d;
    }
    return 1;
}

static int narrow_f16(const float *x, int64_t n, uint16_t *out)
{
    int finite = 1;
    for (int64_t i = 0; i < n; i++) {
        out[i] = gb_f32_to_f16(x[i]);
        finite &= (out[i] & 0x7c00) != 0x7c00;
    }
    return finite;
}

static void widen_f16(const uint16_t *src, int64_t n, float *out)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t h = src[i], magnitude = h & 0x7fff;
        float normal = gb_from_bits((magnitude << 13) + (112u << 23));
        /* a subnormal's fraction on top of 2^-14, less 2^-14: exact */
        float small = gb_from_bits((magnitude << 13) | (113u << 23)) - 0x1p-14f;
        uint32_t bits = magnitude >= 0x400 ? gb_bits(normal) : gb_bits(small);
        out[i] = gb_from_bits(bits | (h & 0x8000) << 16);
    }
}

/* n items from number first on of a plane of keys or values, in f32. */
static const float *widen(const void *plane, int64_t first, int64_t n, int kv, float *scratch)
{
    if (kv == ENGINE_KV_F32)
        return (const float *)plane + first;
    widen_f16((const uint16_t *)plane + first, n, scratch);
    return scratch;
}

/* Positions are computed in whole groups of 16; those past last are not used. */
static inline int64_t whole_groups(int64_t last)
{
    return (last + PARTIALS - 1) / PARTIALS * PARTIALS;
}

/* Dot products of n queries with all keys of a chunk: s is [n][GB_CHUNK]. */
static inline void scores(const gb_kv_chunk *kv, const gb_query *q, int64_t n, int type, float (*s)[GB_CHUNK])
{
    float scratch[GB_CHUNK];
    memset(s, 0, (size_t)n * sizeof *s);
    for (int64_t i = 0; i < kv->key_dim; i++) {
        const float *row = widen(kv->k, i * GB_CHUNK, GB_CHUNK, type, scratch);
        for (int64_t a = 0; a < n; a++)
            for (int p = 0; p < GB_CHUNK; p++)
                s[a][p] = gb_fmaf(q[a].q[i], row[p], s[a][p]);
    }
}

static void scores_q8(const gb_kv_chunk *kv, const gb_query *q, float *s)
{
    const int8_t *codes = kv->k;
    memset(s, 0, GB_CHUNK * sizeof *s);
    for (int64_t b = 0; b < kv->key_dim / GB_BLOCK; b++) {
        int32_t sum[GB_CHUNK] = {0};
        for (int64_t i = b * GB_BLOCK; i < (b + 1) * GB_BLOCK; i += 4)
            for (int p = 0; p < GB_CHUNK; p++)
                for (int j = 0; j < 4; j++)
                    sum[p] += q->codes[i + j] * codes[i * GB_CHUNK + p * 4 + j];
        for (int p = 0; p < GB_CHUNK; p++)
            s[p] = gb_fmaf(q->q[b] * kv->k_scales[b * GB_CHUNK + p], (float)sum[p], s[p]);
    }
}

/* Scale, cap and check the scores; 0 where one is not finite. */
static int finish_scores(float *s, int64_t first, int64_t last, float scale_by, float cap)
{
    for (int64_t p = first; p < last; p++)
        s[p] = s[p] * scale_by;
    if (cap != 0.0f)
        return softcap(s + first, cap, last - first);
    return all_finite(s + first, last - first);
}

static int softmax(float *s, int64_t first, int64_t last, float scale_by, float cap, float *m, float *l)
{
    if (!finish_scores(s, first, last, scale_by, cap))
        return 0;
    /* Fill up to whole groups with -inf: its exp is 0, and adding 0 changes no partial. */
    int64_t begin = first / PARTIALS * PARTIALS, end = whole_groups(last);
    for (int64_t p = begin; p < first; p++)
        s[p] = -__builtin_inff();
    for (int64_t p = last; p < end; p++)
        s[p] = -__builtin_inff();
    float part[PARTIALS];
    for (int j = 0; j < PARTIALS; j++)
        part[j] = -__builtin_inff();
    for (int64_t p = begin; p < end; p += PARTIALS)
        for (int j = 0; j < PARTIALS; j++)
            part[j] = s[p + j] > part[j] ? s[p + j] : part[j];
    float most = part[0];
    for (int j = 1; j < PARTIALS; j++)
        most = part[j] > most ? part[j] : most;
    for (int j = 0; j < PARTIALS; j++)
        part[j] = 0.0f;
    for (int64_t p = begin; p < end; p += PARTIALS)
        for (int j = 0; j < PARTIALS; j++) {
            s[p + j] = gb_expf(s[p + j] - most);
            part[j] = part[j] + s[p + j];
        }
    *m = most + 0.0f; /* of two zeros, +0 */
    *l = tree(part);
    return 1;
}

static inline void weigh(const gb_kv_chunk *kv, const float *e, int64_t first, int64_t last, int type, float *o)
{
    float scratch[GB_BLOCK];
    int64_t dim = kv->value_dim;
    for (int64_t i = 0; i < dim; i++)
        o[i] = 0.0f;
    for (int64_t p = first; p < last; p++) {
        float factor = e[p];
        for (int64_t start = 0; start < dim; start += GB_BLOCK) {
            int64_t n = dim - start < GB_BLOCK ? dim - start : GB_BLOCK;
            const float *row = widen(kv->v, p * dim + start, n, type, scratch);
            for (int64_t i = 0; i < n; i++)
                o[start + i] = gb_fmaf(factor, row[i], o[start + i]);
        }
    }
}

static void weigh_q8(const gb_kv_chunk *kv, const float *e, int64_t first, int64_t last, float *o)
{
    const int8_t *codes = kv->v;
    int64_t dim = kv->value_dim;
    for (int64_t i = 0; i < dim; i++)
        o[i] = 0.0f;
    for (int64_t p = first; p < last; p++) {
        for (int64_t b = 0; b < dim / GB_BLOCK; b++) {
            float factor = e[p] * kv->v_scales[b * GB_CHUNK + p];
            const int8_t *row = codes + p * dim + b * GB_BLOCK;
            for (int i = 0; i < GB_BLOCK; i++)
                o[b * GB_BLOCK + i] = gb_fmaf(factor, (float)row[i], o[b * GB_BLOCK + i]);
        }
    }
}

/* Queries in small groups, so that a row of f16 keys is widened once for several. */
static inline int attend(const gb_kv_chunk *kv, const gb_query *q, int64_t n, int type)
{
    float s[QUERIES][GB_CHUNK];
    int finite = 1;
    for (int64_t a = 0; a < n; a += QUERIES) {
        int64_t count = n - a < QUERIES ? n - a : QUERIES;
        scores(kv, q + a, count, type, s);
        for (int64_t i = 0; i < count; i++) {
            const gb_query *one = &q[a + i];
            finite &= softmax(s[i], one->first, one->last, kv->scale, kv->cap, &one->out[0], &one->out[1]);
            weigh(kv, s[i], one->first, one->last, type, one->out + 2);
        }
    }
    return finite;
}

static int attend_f16(const gb_kv_chunk *kv, const gb_query *q, int64_t n)
{
    return attend(kv, q, n, ENGINE_KV_F16);
}

static int attend_f32(const gb_kv_chunk *kv, const gb_query *q, int64_t n)
{
    return attend(kv, q, n, ENGINE_KV_F32);
}

static int attend_q8(const gb_kv_chunk *kv, const gb_query *q, int64_t n)
{
    float s[GB_CHUNK];
    int finite = 1;
    for (int64_t a = 0; a < n; a++) {
        scores_q8(kv, &q[a], s);
        finite &= softmax(s, q[a].first, q[a].last, kv->scale, kv->cap, &q[a].out[0], &q[a].out[1]);
        weigh_q8(kv, s, q[a].first, q[a].last, q[a].out + 2);
    }
    return finite;
}

static void merge(const float *m, const float *l, const float *o, int64_t stride, int64_t n, int64_t dim, float *out)
{
    float most = m[0], total = 0.0f;
    for (int64_t c = 1; c < n; c++)
        most = m[c * stride] > most ? m[c * stride] : most;
    for (int64_t i = 0; i < dim; i++)
        out[i] = 0.0f;
    for (int64_t c = 0; c < n; c++) {
        float w = gb_expf(m[c * stride] - most);
        total = gb_fmaf(w, l[c * stride], total);
        const float *row = o + c * stride;
        for (int64_t i = 0; i < dim; i++)
            out[i] = gb_fmaf(w, row[i], out[i]);
    }
    float r = 1.0f / total;
    for (int64_t i = 0; i < dim; i++)
        out[i] = out[i] * r;
}

const gb_kernels GB_KERNELS_TABLE = {
    .name = GB_KERNELS_NAME,
    .quantise = quantise,
    .matmul_int = matmul_int,
    .matmul_f32 = matmul_f32,
    .rms_norm = rms_norm,
    .rope = rope,
    .gate = gate,
    .add = add,
    .scale = scale,
    .softcap = softcap,
    .all_finite = all_finite,
    .argmax = argmax,
    .exps = exps,
    .quantise_q8 = quantise_q8,
    .narrow_f16 = narrow_f16,
    .attend = {attend_f16, attend_f32, attend_q8},
    .merge = merge,
};
