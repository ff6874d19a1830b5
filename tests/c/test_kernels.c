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

enum { K = 2816, ROWS = 45, TOKENS = 5 };

static uint64_t state = 88172645463325252u;

static uint32_t random_bits(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 16);
}

/* Any finite float. */
static float any_float(void)
{
    float f;
    do
        f = gb_from_bits(random_bits() << 16 | (random_bits() & 0xffff));
    while (gb_abs_bits(f) >= GB_NONFINITE_BITS);
    return random_bits() % 16 == 0 ? 0.0f : random_bits() % 15 == 0 ? -0.0f : f;
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

/* Equal bits, or both a NaN: its payload is not defined. */
static int same_bits(const float *a, const float *b, int n)
{
    int same = 1;
    for (int i = 0; i < n; i++)
        same &= gb_bits(a[i]) == gb_bits(b[i]) || (a[i] != a[i] && b[i] != b[i]);
    return same;
}

/* The best of many, in the first place where it stands; exponentials down to nothing. */
static void vocabularies(const gb_kernels *set)
{
    static float z[5000], e[2][5000];
    for (int n = 1; n <= 5000; n += n < 300 ? 1 : 461) {
        for (int i = 0; i < n; i++)
            z[i] = n % 3 == 0 ? (float)(random_bits() % 7) - 3.0f : n % 3 == 1 ? any_float() : random_float();
        if (n % 5 == 0)
            for (int i = 0; i < n; i++)
                z[i] = random_bits() % 2 ? 0.0f : -0.0f;
        int64_t best = gb_kernels_ref.argmax(z, n);
        CHECK(set->argmax(z, n) == best);
        gb_kernels_ref.exps(z, n, z[best], n % 2 ? 1.0f : 0.7f, e[0]);
        set->exps(z, n, z[best], n % 2 ? 1.0f : 0.7f, e[1]);
        CHECK(same_bits(e[0], e[1], n));
    }
}

/* Subnormal, huge and zero values, and what becomes of them. */
static void rows_at_the_limits(const gb_kernels *set)
{
    enum { N = 277 };
    static float a[2][N], b[N];
    for (int round = 0; round < 200; round++) {
        for (int i = 0; i < N; i++) {
            a[0][i] = any_float();
            b[i] = any_float();
        }
        memcpy(a[1], a[0], sizeof a[0]);
        int kind = round % 7, ok[2] = {0, 0};
        for (int i = 0; i < 2; i++) {
            const gb_kernels *k = i == 0 ? &gb_kernels_ref : set;
            switch (kind) {
            case 0: k->gate(a[i], b, N, GB_GATE_SILU); break;
            case 1: k->gate(a[i], b, N, GB_GATE_GELU_TANH); break;
            case 2: ok[i] = k->softcap(a[i], 0x1p-20f, N); break;
            case 3: k->add(a[i], b, N); break;
            case 4: k->scale(a[i], b[0], N); break;
            case 5: k->rope(a[i], b, N / 2, round % 2); break;
            default:
                k->scale(a[i], 0x1p-70f, N);
                ok[i] = k->rms_norm(a[i], b, N, 1e-38f, a[i]);
            }
        }
        CHECK(ok[0] == ok[1] && same_bits(a[0], a[1], N));
    }
}

static void not_finite(const gb_kernels *set)
{
    static float a[64], b[64];
    const float bad[] = {NAN, -NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 4; i++) {
        randomise(a, 64);
        a[37] = bad[i];
        CHECK(!set->quantise(a, 64, 127, act[0]) && !set->all_finite(a, 64) && !set->rms_norm(a, b, 64, 1e-5f, b));
        CHECK(!set->softcap(a, 30.0f, 64));
    }
}

enum { MAX_DIM = 256, QUERIES = 13, ITEMS = MAX_DIM * GB_CHUNK };

/* A chunk of any KV type, and queries for it; keys and values hold the widest type. */
typedef struct heads {
    float k[ITEMS], v[ITEMS], k_scales[ITEMS / GB_BLOCK], v_scales[ITEMS / GB_BLOCK];
    float q[QUERIES][MAX_DIM], d[QUERIES][MAX_DIM / GB_BLOCK];
    int8_t codes[QUERIES][MAX_DIM];
    gb_query queries[QUERIES];
    float out[2][QUERIES][MAX_DIM + 2];
} heads;

static uint16_t random_half(void)
{
    uint16_t h;
    do
        h = (uint16_t)random_bits();
    while ((h & 0x7c00) == 0x7c00);
    return random_bits() % 8 == 0 ? h : (h & 0xbfff); /* mostly below 2 */
}

static void random_plane(void *plane, int kv, int n)
{
    for (int i = 0; i < n; i++) {
        if (kv == ENGINE_KV_F32)
            ((float *)plane)[i] = random_float();
        else if (kv == ENGINE_KV_F16)
            ((uint16_t *)plane)[i] = random_half();
        else
            ((int8_t *)plane)[i] = (int8_t)(random_bits() % 3 == 0 ? 127 : (int)(random_bits() % 255) - 127);
    }
}

/* Ranges as a prompt has them (each query sees one position more), as one step has them, or any. */
static void random_ranges(heads *h, int n, int kind)
{
    for (int i = 0; i < n; i++) {
        int32_t a = (int32_t)(random_bits() % GB_CHUNK), b = (int32_t)(random_bits() % GB_CHUNK);
        if (kind == 0)
            a = i / 3, b = 90 + i / 3;
        if (kind == 1)
            a = 0, b = n;
        h->queries[i].first = a < b ? a : b;
        h->queries[i].last = (a < b ? b : a) + 1;
    }
}

static void attend_one(const gb_kernels *set, heads *h, int kv, int dim, int n, float cap)
{
    gb_kv_chunk chunk = {.k = h->k, .v = h->v, .k_scales = h->k_scales, .v_scales = h->v_scales, .key_dim = dim,
                         .value_dim = dim, .scale = kv == ENGINE_KV_Q8 ? 1e-5f : 0.02f, .cap = cap};
    int finite[2];
    for (int side = 0; side < 2; side++) {
        const gb_kernels *k = side == 0 ? &gb_kernels_ref : set;
        memset(h->out[side], 0x55, sizeof h->out[side]);
        for (int i = 0; i < n; i++) {
            CHECK(k->quantise_q8(h->q[i], dim / GB_BLOCK * GB_BLOCK, h->codes[i], h->d[i]));
            h->queries[i].q = kv == ENGINE_KV_Q8 ? h->d[i] : h->q[i];
            h->queries[i].codes = h->codes[i];
            h->queries[i].out = h->out[side][i];
        }
        finite[side] = k->attend[kv](&chunk, h->queries, n);
    }
    CHECK(finite[0] == 1 && finite[1] == 1);
    CHECK(memcmp(h->out[0], h->out[1], sizeof h->out[0]) == 0);
}

/* f16 of ordinary, subnormal, huge and any other values, in rows of any length. */
static void narrowing(const gb_kernels *set)
{
    float in[70];
    uint16_t out[2][70];
    for (int round = 0; round < 2000; round++) {
        int n = round % 70 + 1;
        for (int i = 0; i < n; i++) {
            float ties = gb_f16_to_f32(random_half()) * (1.0f + 0x1p-11f); /* half-way between two */
            in[i] = round % 3 == 0 ? any_float() : round % 3 == 1 ? ties : random_float() * 0x1p-17f;
        }
        int finite = gb_kernels_ref.narrow_f16(in, n, out[0]);
        CHECK(set->narrow_f16(in, n, out[1]) == finite && memcmp(out[0], out[1], (size_t)n * 2) == 0);
    }
}

/* All KV types, head lengths that fill vectors and that do not, any number of queries. */
static void attention(const gb_kernels *set)
{
    static const int dims[] = {16, 20, 32, 64, 72, 80, 96, 112, 128, 192, 256};
    static heads h;
    for (int kv = ENGINE_KV_F16; kv <= ENGINE_KV_Q8; kv++) {
        for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
            if (kv == ENGINE_KV_Q8 && dims[i] % GB_BLOCK != 0)
                continue;
            random_plane(h.k, kv, dims[i] * GB_CHUNK);
            random_plane(h.v, kv, dims[i] * GB_CHUNK);
            randomise(h.k_scales, ITEMS / GB_BLOCK);
            randomise(h.v_scales, ITEMS / GB_BLOCK);
            randomise(h.q[0], QUERIES * MAX_DIM);
            for (int n = 1; n <= QUERIES; n++) {
                random_ranges(&h, n, n % 3);
                attend_one(set, &h, kv, dims[i], n, n % 4 == 0 ? 20.0f : 0.0f);
            }
        }
    }
}

/* Weights below 2^-126 and scores far apart; zeros of both signs. */
static void attention_at_the_limits(const gb_kernels *set)
{
    static heads h;
    memset(&h, 0, sizeof h);
    for (int i = 0; i < 64 * GB_CHUNK; i++) {
        h.k[i] = random_bits() % 2 ? 0x1p60f * random_float() : -0.0f;
        h.v[i] = random_bits() % 2 ? 0x1p-140f : random_bits() % 2 ? -0x1p-140f : 0x1p120f;
    }
    for (int i = 0; i < QUERIES; i++)
        for (int j = 0; j < 64; j++)
            h.q[i][j] = random_bits() % 3 ? 0.0f : random_float() * 0x1p-60f;
    for (int n = 1; n <= QUERIES; n++) {
        random_ranges(&h, n, 2);
        attend_one(set, &h, ENGINE_KV_F32, 64, n, 0.0f);
    }
}

/* A chunk in which one visible position's score overflows is reported, an invisible one's is not. */
static void overflowing_scores(const gb_kernels *set)
{
    static heads h;
    static float out[MAX_DIM + 2];
    gb_kv_chunk chunk = {.k = h.k, .v = h.v, .key_dim = 32, .value_dim = 32, .scale = 1.0f};
    gb_query q = {.q = h.q[0], .first = 30, .last = 40, .out = out};
    for (int i = 0; i < 32; i++)
        h.q[0][i] = h.k[i * GB_CHUNK + 37] = 0x1p100f;
    CHECK(!set->attend[ENGINE_KV_F32](&chunk, &q, 1));
    q.last = 37;
    CHECK(set->attend[ENGINE_KV_F32](&chunk, &q, 1));
    q.first = 38, q.last = 41;
    CHECK(set->attend[ENGINE_KV_F32](&chunk, &q, 1));
    for (int i = 0; i < 32; i++)
        h.k[i * GB_CHUNK + 37] = i == 7 ? NAN : 0.0f;
    q.first = 30;
    CHECK(!set->attend[ENGINE_KV_F32](&chunk, &q, 1));
}

static void merging(const gb_kernels *set)
{
    static float parts[80][MAX_DIM + 2], out[2][MAX_DIM];
    for (int dim = 16; dim <= MAX_DIM; dim += 20) {
        randomise(parts[0], 80 * (MAX_DIM + 2));
        for (int n = 1; n <= 80; n += 13) {
            for (int c = 0; c < n; c++)
                parts[c][1] = fabsf(parts[c][1]) + 1.0f;
            gb_kernels_ref.merge(parts[0], parts[0] + 1, parts[0] + 2, MAX_DIM + 2, n, dim, out[0]);
            set->merge(parts[0], parts[0] + 1, parts[0] + 2, MAX_DIM + 2, n, dim, out[1]);
            CHECK(memcmp(out[0], out[1], sizeof out[0]) == 0);
        }
    }
}

enum { DIM = 96, CHUNKS = 3 };

typedef struct passage {
    float q[DIM], k[CHUNKS][DIM * GB_CHUNK], v[CHUNKS][GB_CHUNK * DIM];
} passage;

/* Attention over first … last in double. */
static void exact_attention(const passage *h, int64_t first, int64_t last, double *out)
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

/* Three chunks and their merging stay near exact arithmetic. */
static void attention_near_exact(const gb_kernels *set)
{
    static passage h;
    float part[CHUNKS][DIM + 2], out[DIM];
    double exact[DIM];
    for (int64_t last = 1; last <= GB_CHUNK; last += 9) {
        randomise(h.q, DIM);
        randomise(h.k[0], CHUNKS * DIM * GB_CHUNK);
        randomise(h.v[0], CHUNKS * DIM * GB_CHUNK);
        for (int c = 0; c < CHUNKS; c++) {
            gb_kv_chunk chunk = {.k = h.k[c], .v = h.v[c], .key_dim = DIM, .value_dim = DIM, .scale = 0.01f};
            gb_query q = {.q = h.q, .first = c == 0 ? (int32_t)last - 1 : 0, .last = c == CHUNKS - 1 ? (int32_t)last : GB_CHUNK,
                          .out = part[c]};
            CHECK(set->attend[ENGINE_KV_F32](&chunk, &q, 1));
        }
        set->merge(&part[0][0], &part[0][1], &part[0][2], DIM + 2, CHUNKS, DIM, out);
        exact_attention(&h, last - 1, last, exact);
        for (int i = 0; i < DIM; i++)
            CHECK(fabs(out[i] - exact[i]) < 2e-3);
    }
}

static void all_products(void) { each_set(products); }
static void all_rows(void) { each_set(rows); }
static void all_rows_at_the_limits(void) { each_set(rows_at_the_limits); }
static void all_vocabularies(void) { each_set(vocabularies); }
static void all_not_finite(void) { each_set(not_finite); }
static void all_narrowing(void) { each_set(narrowing); }
static void all_attention(void) { each_set(attention); }
static void all_attention_at_the_limits(void) { each_set(attention_at_the_limits); }
static void all_overflowing_scores(void) { each_set(overflowing_scores); }
static void all_merging(void) { each_set(merging); }
static void all_attention_near_exact(void) { each_set(attention_near_exact); }

int main(void)
{
    static const test tests[] = {
        {"products of every type", all_products},
        {"row operations", all_rows},
        {"row operations at the limits", all_rows_at_the_limits},
        {"argmax and exponentials of a vocabulary", all_vocabularies},
        {"values that are not finite are reported", all_not_finite},
        {"narrowing to f16", all_narrowing},
        {"attention", all_attention},
        {"attention at the limits", all_attention_at_the_limits},
        {"scores that overflow are reported where they are seen", all_overflowing_scores},
        {"merging", all_merging},
        {"attention near exact arithmetic", all_attention_near_exact},
    };
    return run_tests(tests, sizeof tests / sizeof *tests);
}
