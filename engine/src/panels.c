/* panels.c: repacking of rows into panels, and one row back; see panels.h. One writer for all types, driven by
 * the table there: codes and factors come from dtype.c in canonical form. Owns nothing; cannot fail. */
#include "panels.h"

#include <string.h>

enum { SEGMENT_BLOCKS = GB_SEGMENT / GB_BLOCK };

#define NUMBER(name, ...) DTYPE_##name,
#define ROW(name, low, high, offset, share, halves, min) {low, high, offset, share, halves, min},

static const int32_t numbers[] = {GB_PANEL_TYPES(NUMBER)};
static const gb_panel_type formats[] = {GB_PANEL_TYPES(ROW)};

static const gb_panel_type *format_of(const dtype *type)
{
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (numbers[i] == type->type)
            return &formats[i];
    return NULL;
}

uint64_t gb_panel_bytes(const dtype *type, int64_t k)
{
    const gb_panel_type *f = format_of(type);
    if (f == NULL)
        return (uint64_t)k * type->bytes * GB_PANEL_ROWS;
    int rest = (int)(k % GB_SEGMENT / GB_BLOCK);
    uint64_t whole = (uint64_t)gb_panel_segment(*f, SEGMENT_BLOCKS);
    return (uint64_t)(k / GB_SEGMENT) * whole + (uint64_t)(rest == 0 ? 0 : gb_panel_segment(*f, rest));
}

/* Four bytes of vector v of a plane, at a row's place. */
static void put(uint8_t *plane, int v, int row, const uint8_t *four)
{
    memcpy(plane + 64 * v + 4 * row, four, 4);
}

/* Two bits of each code, from bit shift of it on: 2 vectors. */
static void put_pairs(uint8_t *plane, int row, const uint8_t *code, int shift)
{
    for (int h = 0; h < 2; h++) {
        uint8_t four[4];
        for (int i = 0; i < 4; i++) {
            const uint8_t *c = code + 16 * h + i;
            four[i] = (uint8_t)((c[0] >> shift & 3) | (c[4] >> shift & 3) << 2 | (c[8] >> shift & 3) << 4 |
                                (c[12] >> shift & 3) << 6);
        }
        put(plane, h, row, four);
    }
}

static void put_codes(gb_panel_type f, uint8_t *planes, int row, const uint8_t *code)
{
    uint8_t packed[16], bits[4] = {0};
    if (f.low == 8) {
        for (int v = 0; v < 8; v++)
            put(planes, v, row, code + 4 * v);
    } else if (f.low == 4) {
        for (int i = 0; i < 16; i++)
            packed[i] = (uint8_t)((code[i] & 15) | code[i + 16] << 4);
        for (int v = 0; v < 4; v++)
            put(planes, v, row, packed + 4 * v);
    } else {
        put_pairs(planes, row, code, 0);
    }
    planes += 64 * f.low;
    if (f.high == 2)
        put_pairs(planes, row, code, f.low);
    for (int v = 0; f.high == 1 && v < 8; v++)
        for (int i = 0; i < 4; i++)
            bits[i] |= (uint8_t)((code[4 * v + i] >> f.low & 1) << v);
    if (f.high == 1)
        put(planes, 0, row, bits);
}

static void put_scales(gb_panel_type f, uint8_t *out, int row, const dtype_factors *x)
{
    for (int h = 0; h < f.halves; h++) {
        if (f.min && f.low == 2) {
            out[GB_PANEL_ROWS * h + row] = (uint8_t)(x->sc[h] | x->mn[h] << 4);
            continue;
        }
        out[GB_PANEL_ROWS * h + row] = (uint8_t)x->sc[h];
        if (f.min)
            out[GB_PANEL_ROWS * (f.halves + h) + row] = x->mn[h];
    }
}

/* One block of a row, number i of its segment of count. */
static void pack_block(gb_panel_type f, uint8_t *segment, int i, int count, int row, const dtype_block32 *block,
                       const dtype_factors *factors)
{
    uint8_t code[GB_BLOCK];
    if (f.share == 1 || i == 0) {
        memcpy(segment + 2 * GB_PANEL_ROWS * i + 2 * row, &factors->d, 2);
        if (f.min)
            memcpy(segment + gb_panel_m(f, count) + 2 * GB_PANEL_ROWS * i + 2 * row, &factors->m, 2);
    }
    if (f.share != 1)
        put_scales(f, segment + gb_panel_scales(f, count) + gb_panel_scale_bytes(f) * i, row, factors);
    for (int j = 0; j < GB_BLOCK; j++)
        code[j] = (uint8_t)(block->c[j] + f.offset);
    put_codes(f, segment + gb_panel_planes(f, count) + gb_panel_plane_bytes(f) * i, row, code);
}

/* One row of a panel of a quantised type. */
static void pack_row(gb_panel_type f, const gb_matrix *w, const uint8_t *source, int row, uint8_t *out)
{
    dtype_block32 block;
    dtype_factors factors;
    int64_t blocks = w->k / GB_BLOCK;
    for (int64_t first = 0; first < blocks; first += SEGMENT_BLOCKS) {
        int count = (int)(blocks - first < SEGMENT_BLOCKS ? blocks - first : SEGMENT_BLOCKS);
        for (int i = 0; i < count; i++) {
            w->type->block32(source, (uint64_t)(first + i), &block);
            w->type->factors(source, (uint64_t)(first + i), &factors);
            pack_block(f, out, i, count, row, &block, &factors);
        }
        out += gb_panel_segment(f, count);
    }
}

void gb_panel_pack(const gb_matrix *w, int64_t p, uint8_t *out)
{
    const gb_panel_type *f = format_of(w->type);
    int64_t first = p * GB_PANEL_ROWS, rows = w->rows - first < GB_PANEL_ROWS ? w->rows - first : GB_PANEL_ROWS;
    if (rows < GB_PANEL_ROWS)
        memset(out, 0, gb_panel_bytes(w->type, w->k));
    for (int64_t r = 0; r < rows; r++) {
        const uint8_t *source = w->data + (uint64_t)(first + r) * w->row_bytes;
        if (f != NULL) {
            pack_row(*f, w, source, (int)r, out);
            continue;
        }
        size_t item = w->type->bytes;
        for (int64_t i = 0; i < w->k; i++)
            memcpy(out + ((size_t)i * GB_PANEL_ROWS + (size_t)r) * item, source + (size_t)i * item, item);
    }
}

/* ---- One row back -------------------------------------------------------------------------------- */

static void take(const uint8_t *plane, int v, int row, uint8_t *four)
{
    memcpy(four, plane + 64 * v + 4 * row, 4);
}

static void take_pairs(const uint8_t *plane, int row, int shift, uint8_t *code)
{
    for (int v = 0; v < 8; v++) {
        uint8_t four[4];
        take(plane, v / 4, row, four);
        for (int i = 0; i < 4; i++)
            code[4 * v + i] |= (uint8_t)((four[i] >> 2 * (v % 4) & 3) << shift);
    }
}

static void take_codes(gb_panel_type f, const uint8_t *planes, int row, uint8_t *code)
{
    uint8_t bits[4];
    memset(code, 0, GB_BLOCK);
    for (int v = 0; f.low == 8 && v < 8; v++)
        take(planes, v, row, code + 4 * v);
    for (int v = 0; f.low == 4 && v < 4; v++) {
        take(planes, v, row, bits);
        for (int i = 0; i < 4; i++) {
            code[4 * v + i] = bits[i] & 15;
            code[16 + 4 * v + i] = bits[i] >> 4;
        }
    }
    if (f.low == 2)
        take_pairs(planes, row, 0, code);
    planes += 64 * f.low;
    if (f.high == 2)
        take_pairs(planes, row, f.low, code);
    if (f.high == 1)
        take(planes, 0, row, bits);
    for (int i = 0; f.high == 1 && i < GB_BLOCK; i++)
        code[i] |= (uint8_t)((bits[i % 4] >> i / 4 & 1) << f.low);
}

/* D and M of half h of block i of a segment, as dtype.c has them. */
static void take_factors(gb_panel_type f, const uint8_t *segment, int i, int count, int h, int row, float *D, float *M)
{
    uint16_t d, m = 0;
    int own = f.share == 1 ? 2 * GB_PANEL_ROWS * i : 0, sc = 1, mn = 1;
    memcpy(&d, segment + own + 2 * row, 2);
    if (f.min)
        memcpy(&m, segment + gb_panel_m(f, count) + own + 2 * row, 2);
    *D = gb_f16_to_f32(d);
    *M = gb_f16_to_f32(m);
    if (f.share == 1)
        return;
    const uint8_t *scales = segment + gb_panel_scales(f, count) + gb_panel_scale_bytes(f) * i + GB_PANEL_ROWS * h + row;
    sc = (int8_t)scales[0];
    if (f.min && f.low == 2) {
        sc = scales[0] & 15;
        mn = scales[0] >> 4;
    } else if (f.min) {
        mn = scales[GB_PANEL_ROWS * f.halves];
    }
    *D *= (float)sc;
    *M = -(*M * (float)mn);
}

static void take_block(gb_panel_type f, const uint8_t *segment, int i, int count, int row, float *out)
{
    uint8_t code[GB_BLOCK];
    float D[2], M[2];
    for (int h = 0; h < 2; h++)
        take_factors(f, segment, i, count, f.halves == 2 ? h : 0, row, &D[h], &M[h]);
    take_codes(f, segment + gb_panel_planes(f, count) + gb_panel_plane_bytes(f) * i, row, code);
    for (int j = 0; j < GB_BLOCK; j++) {
        float product = D[j / 16] * (float)(code[j] - f.offset);
        out[j] = f.min ? product + M[j / 16] : product;
    }
}

void gb_panel_row(const gb_panels *w, int64_t row, float *out)
{
    const gb_panel_type *f = format_of(w->type);
    const uint8_t *panel = w->data + (uint64_t)(row / GB_PANEL_ROWS) * w->panel_bytes;
    int r = (int)(row % GB_PANEL_ROWS);
    size_t item = w->type->bytes;
    for (int64_t i = 0; f == NULL && i < w->k; i++)
        w->type->dequantise(panel + ((size_t)i * GB_PANEL_ROWS + (size_t)r) * item, 1, out + i);
    int64_t blocks = f == NULL ? 0 : w->k / GB_BLOCK;
    for (int64_t first = 0; first < blocks; first += SEGMENT_BLOCKS) {
        int count = (int)(blocks - first < SEGMENT_BLOCKS ? blocks - first : SEGMENT_BLOCKS);
        for (int i = 0; i < count; i++, out += GB_BLOCK)
            take_block(*f, panel, i, count, r, out);
        panel += gb_panel_segment(*f, count);
    }
}
