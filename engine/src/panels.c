/* panels.c: repacking of rows into panels; see panels.h. One writer for all types, driven by
 * the table there: codes and factors come from dtype.c in canonical form. Owns nothing; cannot fail. */
#include "panels.h"

#include <string.h>

#define NUMBER(name, ...) DTYPE_##name,
#define ROW(name, low, high, offset, run, halves, min) {low, high, offset, run, halves, min},

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
    uint64_t run = (uint64_t)(gb_panel_header_bytes(*f) + f->run * gb_panel_block_bytes(*f));
    return (uint64_t)(k / GB_BLOCK / f->run) * run;
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

/* One row of a panel of a quantised type. */
static void pack_row(gb_panel_type f, const gb_matrix *w, const uint8_t *source, int row, uint8_t *out)
{
    dtype_block32 block;
    dtype_factors factors;
    int header = gb_panel_header_bytes(f), bytes = gb_panel_block_bytes(f), scales = gb_panel_scale_bytes(f);
    for (int64_t b = 0; b < w->k / GB_BLOCK; b++) {
        w->type->block32(source, (uint64_t)b, &block);
        w->type->factors(source, (uint64_t)b, &factors);
        if (b % f.run == 0) {
            memcpy(out + 2 * row, &factors.d, 2);
            if (f.min)
                memcpy(out + 32 + 2 * row, &factors.m, 2);
            out += header;
        }
        uint8_t code[GB_BLOCK];
        for (int i = 0; i < GB_BLOCK; i++)
            code[i] = (uint8_t)(block.c[i] + f.offset);
        if (scales != 0)
            put_scales(f, out, row, &factors);
        put_codes(f, out + scales, row, code);
        out += bytes;
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
