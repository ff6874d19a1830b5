/* panels.c: repacking of rows into panels; see panels.h. One writer for all types, driven by
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
