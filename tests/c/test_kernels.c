/* test_kernels.c: every kernel set equals the portable one bit for bit on random inputs, and
 * the portable one stays near exact arithmetic in double. Weights are random bytes, so codes
 * take every value, -128 included. */
#include "check.h"
#include "fpenv.h"
#include "kernels.h"
#include "mathfn.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

enum { K = 2816, ROWS = 45, TOKENS = 5, DIM = 96, CHUNKS = 3 };

static uint64_t state = 88172645463325252u;

static uint32_t random_bits(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 16);
}

static float random_float(void)
{
    float x = (float)((int32_t)(random_bits() % 20001) - 10000) / 777.0f;
    return random_bits() % 97 == 0 ? x * 30.0f : x;
}

static void randomise(float *x, int n)
{
    for (int i = 0; i < n; i++)
        x[i] = random_float();
}

/* Random weights of a type, decodable to finite numbers: bytes are redrawn until they are. */
static void random_weights(const dtype *type, uint8_t *rows, int64_t n)
{
    float out[256];
    for (int64_t b = 0; b < n / type->items; b++) {
        int finite;
        do {
            for (uint32_t i = 0; i < type->bytes; i++)
                rows[i] = (uint8_t)random_bits();
            type->dequantise(rows, type->items, out);
            finite = 1;
            for (uint32_t i = 0; i < type->items; i++)
                finite &= fabsf(out[i]) < 1e6f;
        } while (!finite);
        rows += type->bytes;
    }
}

static float x[TOKENS * K], y[2][TOKENS * ROWS], weights[K];
static gb_act32 act[2][TOKENS * K / GB_BLOCK];
static uint8_t *bytes;

/* y of wide activations is within what quantising and summing can do to it. */
static void check_near(const gb_matrix *w, const float *found, double tolerance)
{
    for (int64_t r = 0; r < w->rows; r++) {
        w->type->dequantise(w->data + (uint64_t)r * w->row_bytes, K, weights);
        for (int t = 0; t < TOKENS; t++) {
            double exact = 0.0, size = 0.0;
            for (int i = 0; i < K; i++) {
                exact += (double)weights[i] * x[t * K + i];
                size += fabs((double)weights[i]) * 400.0;
            }
            CHECK(fabs(found[t * w->rows + r] - exact) <= tolerance * size);
        }
    }
}

static void products_of(const gb_kernels *set, const dtype *type)
{
    gb_matrix w = {.type = type, .data = bytes, .row_bytes = (uint64_t)K / type->items * type->bytes, .k = K, .rows = ROWS};
    random_weights(type, bytes, (int64_t)K * ROWS);
    gb_kernels_ref.matmul_f32(&w, 0, ROWS, x, TOKENS, y[0], ROWS);
    set->matmul_f32(&w, 0, 33, x, TOKENS, y[1], ROWS);
    set->matmul_f32(&w, 33, ROWS, x, TOKENS, y[1], ROWS);
    CHECK(memcmp(y[0], y[1], sizeof y[0]) == 0);
    check_near(&w, y[0], 1e-6);
    for (int32_t limit = 127; type->quantised && limit <= 16319; limit += 16192) {
        gb_kernels_ref.quantise(x, TOKENS * K, limit, act[0]);
        set->quantise(x, TOKENS * K, limit, act[1]);
        CHECK(memcmp(act[0], act[1], sizeof act[0]) == 0);
        gb_kernels_ref.matmul_int(&w, 0, ROWS, act[0], TOKENS, y[0], ROWS);
        set->matmul_int(&w, 0, 3, act[1], TOKENS, y[1], ROWS);
        set->matmul_int(&w, 3, ROWS, act[1], TOKENS, y[1], ROWS);
        CHECK(memcmp(y[0], y[1], sizeof y[0]) == 0);
        check_near(&w, y[0], limit == 127 ? 5e-3 : 4e-5);
    }
}

/* Run fn for every set that this machine has. */
static void each_set(void (*fn)(const gb_kernels *))
{
    const gb_kernels *set;
    int runs_here;
    gb_fpenv saved = gb_fpenv_enter();
    for (int i = 0; (set = gb_kernels_at(i, &runs_here)) != NULL; i++)
        if (runs_here)
            fn(set);
    gb_fpenv_leave(saved);
}

static void products(const gb_kernels *set)
{
    bytes = malloc((size_t)K * ROWS * 4);
    randomise(x, TOKENS * K);
    for (int32_t number = 0; number <= DTYPE_BF16; number++)
        if (dtype_find(number) != NULL)
            products_of(set, dtype_find(number));
    free(bytes);
}

static void rows(const gb_kernels *set)
{
    static float a[2][K], b[K];
    for (int n = 1; n <= K; n += n < 40 ? 1 : 331) {
        randomise(a[0], K);
        randomise(b, K);
        memcpy(a[1], a[0], sizeof a[0]);
        for (int i = 0; i < 2; i++) {
            const gb_kernels *k = i == 0 ? &gb_kernels_ref : set;
            CHECK(k->rms_norm(a[i], b, n, 1e-5f, a[i]));
            k->scale(a[i], 1.7f, n);
            k->add(a[i], b, n);
            k->gate(a[i], b, n, n % 2);
            CHECK(k->softcap(a[i], 50.0f, n) && k->all_finite(a[i], n));
            k->rope(a[i], b, n / 2, n % 2);
        }
        CHECK(memcmp(a[0], a[1], sizeof a[0]) == 0);
    }
}

static void not_finite(const gb_kernels *set)
{
    static float a[64], b[64];
    const float bad[] = {NAN, -NAN, INFINITY, -INFINITY};
    float m, l;
    for (int i = 0; i < 4; i++) {
        randomise(a, 64);
        a[37] = bad[i];
        CHECK(!set->quantise(a, 64, 127, act[0]) && !set->all_finite(a, 64) && !set->rms_norm(a, b, 64, 1e-5f, b));
        CHECK(!set->softcap(a, 30.0f, 64));
        randomise(a, 64);
        a[37] = bad[i];
        CHECK(!set->softmax(a, 30, 40, 1.0f, 0.0f, &m, &l));
        randomise(a, 64);
        a[37] = bad[i]; /* absent positions do not matter */
        CHECK(set->softmax(a, 0, 37, 1.0f, 0.0f, &m, &l) && set->softmax(a, 38, 64, 1.0f, 0.0f, &m, &l));
    }
}

static void halves(const gb_kernels *set)
{
    uint16_t h[GB_CHUNK];
    float out[GB_CHUNK];
    for (uint32_t base = 0; base < 0x10000; base += GB_CHUNK) {
        for (uint32_t i = 0; i < GB_CHUNK; i++)
            h[i] = (uint16_t)(base + i);
        set->widen_f16(h, GB_CHUNK, out);
        for (uint32_t i = 0; i < GB_CHUNK; i++)
            if ((h[i] & 0x7c00) != 0x7c00)
                CHECK(gb_bits(out[i]) == gb_bits(gb_f16_to_f32(h[i])));
    }
}

typedef struct heads {
    float q[DIM], k[CHUNKS][DIM * GB_CHUNK], v[CHUNKS][GB_CHUNK * DIM];
    int8_t k8[DIM * GB_CHUNK], v8[GB_CHUNK * DIM];
    float scales[DIM / GB_BLOCK * GB_CHUNK];
} heads;

static void attend(const gb_kernels *k, const heads *h, int64_t first, int64_t last, float *out, float *out8)
{
    float s[GB_CHUNK], part[CHUNKS][DIM + 2];
    gb_act32 q8[DIM / GB_BLOCK];
    for (int c = 0; c < CHUNKS; c++) {
        int64_t from = c == 0 ? first : 0, to = c == CHUNKS - 1 ? last : GB_CHUNK;
        k->scores(h->k[c], h->q, DIM, to, s);
        CHECK(k->softmax(s, from, to, 0.01f, 0.0f, &part[c][0], &part[c][1]));
        k->weigh(h->v[c], s, from, to, DIM, part[c] + 2);
    }
    k->merge(&part[0][0], &part[0][1], &part[0][2], DIM + 2, CHUNKS, DIM, out);
    k->quantise(h->q, DIM, 127, q8);
    k->scores_q8(h->k8, h->scales, q8, DIM, last, s);
    CHECK(k->softmax(s, 0, last, 1e-5f, 20.0f, &out8[DIM], &out8[DIM + 1]));
    k->weigh_q8(h->v8, h->scales, s, 0, last, DIM, out8);
}

/* Attention over first … last in double. */
static void exact_attention(const heads *h, int64_t first, int64_t last, double *out)
{
    double total = 0.0, s[CHUNKS * GB_CHUNK], most = -INFINITY;
    int64_t end = (CHUNKS - 1) * GB_CHUNK + last;
    for (int64_t p = first; p < end; p++) {
        s[p] = 0.0;
        for (int i = 0; i < DIM; i++)
            s[p] += 0.01 * h->q[i] * h->k[p / GB_CHUNK][i * GB_CHUNK + p % GB_CHUNK];
        most = s[p] > most ? s[p] : most;
    }
    memset(out, 0, DIM * sizeof *out);
    for (int64_t p = first; p < end; p++) {
        double e = exp(s[p] - most);
        total += e;
        for (int i = 0; i < DIM; i++)
            out[i] += e * h->v[p / GB_CHUNK][p % GB_CHUNK * DIM + i];
    }
    for (int i = 0; i < DIM; i++)
        out[i] /= total;
}

static void attention(const gb_kernels *set)
{
    static heads h;
    float out[2][DIM], out8[2][DIM + 2];
    double exact[DIM];
    for (int64_t last = 1; last <= GB_CHUNK; last += 9) {
        randomise(h.q, DIM);
        randomise(h.k[0], CHUNKS * DIM * GB_CHUNK);
        randomise(h.v[0], CHUNKS * DIM * GB_CHUNK);
        randomise(h.scales, DIM / GB_BLOCK * GB_CHUNK);
        for (int i = 0; i < DIM * GB_CHUNK; i++) {
            h.k8[i] = (int8_t)(random_bits() % 255 - 127);
            h.v8[i] = (int8_t)(random_bits() % 255 - 127);
        }
        attend(&gb_kernels_ref, &h, last - 1, last, out[0], out8[0]);
        attend(set, &h, last - 1, last, out[1], out8[1]);
        CHECK(memcmp(out[0], out[1], sizeof out[0]) == 0 && memcmp(out8[0], out8[1], sizeof out8[0]) == 0);
        exact_attention(&h, last - 1, last, exact);
        for (int i = 0; i < DIM; i++)
            CHECK(fabs(out[0][i] - exact[i]) < 2e-3);
    }
}

static void all_products(void) { each_set(products); }
static void all_rows(void) { each_set(rows); }
static void all_not_finite(void) { each_set(not_finite); }
static void all_halves(void) { each_set(halves); }
static void all_attention(void) { each_set(attention); }

int main(void)
{
    static const test tests[] = {
        {"products of every type", all_products},
        {"row operations", all_rows},
        {"values that are not finite are reported", all_not_finite},
        {"f16 widens exactly", all_halves},
        {"attention", all_attention},
    };
    return run_tests(tests, sizeof tests / sizeof *tests);
}
