/* test_panels.c: products of panels equal those of the file's rows, computed by the portable set,
 * bit for bit: every set that runs here, every type, rows that do not fill a panel, lengths that do not
 * fill a segment, 1 … 40 rows of activations, and values at the limits: codes and activations all at
 * their extremes (where narrow sums would saturate), blocks of zeros, subnormal and huge factors. */
#include "check.h"
#include "fpenv.h"
#include "mathfn.h"
#include "panels.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_K = 2816, MAX_ROWS = 50, MAX_TOKENS = 40 };

static uint64_t state = 88172645463325252u;

static uint32_t random_bits(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 16);
}

static float x[MAX_TOKENS * MAX_K], y[2][MAX_TOKENS * MAX_ROWS];
static gb_act32 act[MAX_TOKENS * MAX_K / GB_BLOCK];
static uint8_t weights[MAX_K * 4 * MAX_ROWS];

static int block_is_finite(const dtype *type, const uint8_t *block)
{
    float out[256];
    type->dequantise(block, type->items, out);
    for (uint32_t i = 0; i < type->items; i++)
        if (gb_abs_bits(out[i]) >= GB_NONFINITE_BITS)
            return 0;
    return 1;
}

/* A block of random bytes, or of one byte but for a few, redrawn until it decodes to finite values. */
static void fill_block(const dtype *type, uint8_t *block)
{
    static const uint8_t limits[] = {0x00, 0xff, 0x80, 0x7f, 0x88, 0x77, 0x55, 0xaa};
    uint32_t kind = random_bits() % 3;
    do {
        memset(block, limits[random_bits() % sizeof limits], type->bytes);
        for (uint32_t i = 0; i < (kind == 0 ? 6 : 4 * type->bytes); i++)
            block[random_bits() % type->bytes] = (uint8_t)random_bits();
    } while (!block_is_finite(type, block));
}

static void fill_weights(const gb_matrix *w)
{
    uint64_t blocks = (uint64_t)w->rows * w->row_bytes / w->type->bytes;
    for (uint64_t b = 0; b < blocks; b++)
        fill_block(w->type, weights + b * w->type->bytes);
}

/* One block of activations: ordinary, all at one magnitude, zeros, tiny, huge, or below 2^-90. */
static void fill_activations(float *to)
{
    uint32_t kind = random_bits() % 8, sign = random_bits() % 3;
    for (int i = 0; i < GB_BLOCK; i++) {
        float v = (float)((int32_t)(random_bits() % 20001) - 10000) / 777.0f;
        float one = sign == 0 ? 3.7f : sign == 1 ? -3.7f : random_bits() % 2 ? 3.7f : -3.7f;
        const float kinds[8] = {v, v, v, one, 0.0f, v * 0x1p-88f, v * 0x1p90f, v * 0x1p-100f};
        to[i] = kinds[kind];
    }
}

/* Equal bits, or NaN both: payloads are no results. */
static int same(const float *a, const float *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (gb_bits(a[i]) != gb_bits(b[i]) && !(a[i] != a[i] && b[i] != b[i]))
            return 0;
    return 1;
}

static void compare(const gb_kernels *set, const gb_panels *panels, const gb_matrix *w, int64_t n)
{
    int64_t count = gb_panel_count(w->rows), middle = n % 2 == 0 ? 0 : count / 2, blocks = w->k / GB_BLOCK;
    for (int wide = 0; w->type->quantised && wide < 2; wide++) {
        gb_acts acts = {.k = w->k, .n = n, .wide = wide, .group = set->group[wide]};
        acts.data = malloc(gb_acts_bytes(n, w->k, wide));
        CHECK(gb_kernels_ref.quantise(x, n * w->k, wide ? 16319 : 127, act));
        CHECK(set->quantise_rows(x, &acts, 0, n / 3, 0, blocks));
        CHECK(set->quantise_rows(x + n / 3 * w->k, &acts, n / 3, n - n / 3, blocks / 2, blocks));
        CHECK(set->quantise_rows(x + n / 3 * w->k, &acts, n / 3, n - n / 3, 0, blocks / 2));
        gb_kernels_ref.matmul_int(w, 0, w->rows, act, n, y[0], MAX_ROWS);
        set->panels_int(panels, middle, count, &acts, y[1], MAX_ROWS);
        set->panels_int(panels, 0, middle, &acts, y[1], MAX_ROWS);
        for (int64_t t = 0; t < n; t++)
            CHECK(same(y[0] + t * MAX_ROWS, y[1] + t * MAX_ROWS, w->rows));
        free(acts.data);
    }
    gb_kernels_ref.matmul_f32(w, 0, w->rows, x, n, y[0], MAX_ROWS);
    set->panels_f32(panels, 0, count, x, n, y[1], MAX_ROWS);
    for (int64_t t = 0; t < n; t++)
        CHECK(same(y[0] + t * MAX_ROWS, y[1] + t * MAX_ROWS, w->rows));
}

/* Rows read back from panels are what dequantising the file's rows gives. */
static void rows_back(const gb_panels *panels, const gb_matrix *w)
{
    static float row[2][MAX_K];
    for (int64_t r = 0; r < w->rows; r++) {
        w->type->dequantise(w->data + (uint64_t)r * w->row_bytes, (uint64_t)w->k, row[0]);
        gb_panel_row(panels, r, row[1]);
        CHECK(same(row[0], row[1], w->k));
    }
}

/* A matrix of a type against n rows in every set; y beyond its rows stays as it is. */
static void one_shape(const dtype *type, int64_t k, int64_t rows, int64_t n)
{
    gb_matrix w = {.type = type, .data = weights, .k = k, .rows = rows,
                   .row_bytes = (uint64_t)k / type->items * type->bytes};
    gb_panels panels = {.type = type, .panel_bytes = gb_panel_bytes(type, k), .k = k, .rows = rows};
    fill_weights(&w);
    for (int64_t i = 0; i < n * k; i += GB_BLOCK)
        fill_activations(x + i);
    panels.data = malloc((size_t)gb_panel_count(rows) * panels.panel_bytes);
    for (int64_t p = 0; p < gb_panel_count(rows); p++)
        gb_panel_pack(&w, p, panels.data + (uint64_t)p * panels.panel_bytes);
    rows_back(&panels, &w);
    const gb_kernels *set;
    int runs_here;
    for (int i = 0; (set = gb_kernels_at(i, &runs_here)) != NULL; i++) {
        if (!runs_here || set->panels_int == NULL)
            continue;
        for (int64_t j = 0; j < MAX_TOKENS * MAX_ROWS; j++)
            y[1][j] = 12345.0f;
        compare(set, &panels, &w, n);
        for (int64_t t = 0; t < n; t++)
            for (int64_t r = rows; r < MAX_ROWS; r++)
                CHECK(y[1][t * MAX_ROWS + r] == 12345.0f);
    }
    free(panels.data);
}

static void every_type(void)
{
    static const int64_t lengths[] = {256, 32, 288, 2816, 512, 96, 768};
    static const int64_t heights[] = {16, 1, 45, 17, 32, 50};
    gb_fpenv saved = gb_fpenv_enter();
    for (int32_t number = 0; number <= DTYPE_BF16; number++) {
        const dtype *type = dtype_find(number);
        for (int64_t n = 1; type != NULL && n <= MAX_TOKENS; n++) {
            int64_t k = lengths[n % 7], rows = heights[n % 6];
            one_shape(type, k % type->items == 0 ? k : 512, rows, n);
        }
    }
    gb_fpenv_leave(saved);
}

/* What is not finite is reported wherever it stands, in a row alone and among others. */
static void not_finite(void)
{
    static const uint32_t bad[] = {0x7fc00000, 0xffc00001, 0x7f800000, 0xff800000};
    enum { N = 13, K = 64 };
    const gb_kernels *set;
    int runs_here;
    for (int i = 0; (set = gb_kernels_at(i, &runs_here)) != NULL; i++) {
        for (int at = 0; runs_here && set->quantise_rows != NULL && at < 2 * N * K; at++) {
            uint8_t data[K / GB_BLOCK * 96 * N];
            gb_acts acts = {.data = data, .k = K, .n = N, .wide = at % 2, .group = set->group[at % 2]};
            for (int j = 0; j < N * K; j++)
                x[j] = 1.0f;
            CHECK(set->quantise_rows(x, &acts, 0, N, 0, K / GB_BLOCK));
            x[at / 2] = gb_from_bits(bad[at / 2 % 4]);
            CHECK(!set->quantise_rows(x, &acts, 0, N, 0, K / GB_BLOCK));
            CHECK(!set->quantise_rows(x + at / 2 / K * K, &acts, at / 2 / K, 1, 0, K / GB_BLOCK));
        }
    }
}

int main(void)
{
    static const test tests[] = {
        {"every type, shape and set against the portable rows", every_type},
        {"values that are not finite are reported", not_finite},
    };
    return run_tests(tests, sizeof tests / sizeof *tests);
}
