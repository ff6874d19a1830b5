/* selftest.c: known answers of the arithmetic, checked before a model loads.
 *
 * Each case feeds generated numbers to one operation and hashes the bits that come out. A
 * compiler that contracts or reorders, a library whose fma rounds twice, or a processor that
 * differs gives another hash, and the machine is refused by the operation's name. Inputs are
 * generated on the stack; nothing is allocated. */
#include "selftest.h"

#include "fpenv.h"
#include "mathfn.h"
#include "panels.h"
#include "status.h"

enum { MAX_K = 1024, ROWS = 5, TOKENS = 3, MAX_ROW_BYTES = 4 * MAX_K, DIM = 64, POSITIONS = 77 };

/* ---- Numbers in, hash out --------------------------------------------------------------- */

/* xorshift64 (Marsaglia): shifts 13, 7, 17. */
static uint64_t next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* n values in about [-8, 8], one in 32 of them 64 times larger; all exact. */
static void fill(float *x, int n, uint64_t seed)
{
    uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
    for (int i = 0; i < n; i++) {
        int32_t v = (int32_t)(next(&state) >> 40) - (1 << 23);
        x[i] = (float)v * (next(&state) >> 59 == 0 ? 0x1p-14f : 0x1p-20f);
    }
}

/* Bytes without bit 6, so that no f16 or f32 among them is as large as 2. */
static void fill_bytes(uint8_t *p, int n, uint64_t seed)
{
    uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
    for (int i = 0; i < n; i++)
        p[i] = (uint8_t)(next(&state) >> 32) & 0xbf;
}

static uint64_t hash_bytes(uint64_t hash, const void *data, size_t n)
{
    const uint8_t *p = data;
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ p[i]) * 0x100000001b3u;
    return hash;
}

static uint64_t hash_floats(const float *x, int n)
{
    return hash_bytes(0xcbf29ce484222325u, x, (size_t)n * sizeof *x);
}

/* ---- Cases ------------------------------------------------------------------------------ */

static uint64_t run_quantise(const gb_kernels *k)
{
    float x[MAX_K];
    gb_act32 out[2][MAX_K / GB_BLOCK];
    fill(x, MAX_K, 1);
    for (int i = 64; i < 96; i++) /* exact half-way cases */
        x[i] = (float)(i - 80) * 0.5f + (i == 95 ? 119.5f : 0.0f);
    for (int i = 160; i < 192; i++) /* half-way only after the product is rounded: not so where it is fused */
        x[i] = i == 191 ? 100.0f : ((float)(i - 176) + 0.5f) / 1.27f;
    for (int i = 96; i < 128; i++) /* one block below the threshold, one just above it */
        x[i] = 0x1p-91f;
    x[128] = 0x1p-90f;
    k->quantise(x, MAX_K, 127, out[0]);
    k->quantise(x, MAX_K, 16319, out[1]);
    return hash_bytes(0xcbf29ce484222325u, out, sizeof out);
}

/* All tensor types in the order of their numbers, int8 and wide and f32 activations. */
static uint64_t run_dot(const gb_kernels *k)
{
    static const int32_t limits[] = {127, 16319};
    uint8_t rows[ROWS * MAX_ROW_BYTES];
    float x[TOKENS * MAX_K], y[TOKENS * ROWS];
    gb_act32 act[TOKENS * MAX_K / GB_BLOCK];
    uint64_t hash = 0xcbf29ce484222325u;
    fill(x, TOKENS * MAX_K, 2);
    fill_bytes(rows, (int)sizeof rows, 3);
    for (int32_t number = 0; number <= DTYPE_BF16; number++) {
        const dtype *type = dtype_find(number);
        if (type == NULL)
            continue;
        /* a whole segment and a part of one, where the block allows */
        int64_t n = type->items == 1 ? 541 : type->items == 32 ? 544 : 768;
        gb_matrix w = {.type = type, .data = rows, .row_bytes = (uint64_t)n / type->items * type->bytes, .k = n,
                       .rows = ROWS};
        k->matmul_f32(&w, 0, ROWS, x, TOKENS, y, ROWS);
        hash = hash_bytes(hash, y, sizeof y);
        for (int i = 0; type->quantised && i < 2; i++) {
            for (int t = 0; t < TOKENS; t++)
                k->quantise(x + t * n, n, limits[i], act + t * (n / GB_BLOCK));
            k->matmul_int(&w, 0, ROWS, act, TOKENS, y, ROWS);
            hash = hash_bytes(hash, y, sizeof y);
        }
    }
    return hash;
}

enum { TALL = 2 * GB_PANEL_ROWS, MANY = 13, PANEL_BYTES = 36 << 10, ACTS_BYTES = MANY * MAX_K * 3 };

static void pack(gb_panels *p, const gb_matrix *w, uint8_t *data)
{
    *p = (gb_panels){.type = w->type, .data = data, .panel_bytes = gb_panel_bytes(w->type, w->k), .k = w->k,
                     .rows = w->rows};
    for (int64_t i = 0; i < gb_panel_count(w->rows); i++)
        gb_panel_pack(w, i, data + (uint64_t)i * p->panel_bytes);
}

/* y is [n][w->rows]; row t of x is x + t % TOKENS * k. */
static void multiply_panels(const gb_kernels *k, const gb_panels *w, const float *x, int wide, int64_t n, float *y)
{
    uint8_t data[ACTS_BYTES] __attribute__((aligned(64)));
    gb_acts acts = {.data = data, .k = w->k, .n = n, .wide = wide, .group = k->group[wide]};
    float rows[MANY * MAX_K];
    for (int64_t t = 0; t < n; t++)
        memcpy(rows + t * w->k, x + t % TOKENS * w->k, (size_t)w->k * sizeof *rows);
    k->quantise_rows(rows, &acts, 0, n, 0, acts.k / GB_BLOCK);
    k->panels_int(w, 0, gb_panel_count(w->rows), &acts, y, w->rows);
}

/* The same products by panels give the same hash. Many rows of activations and two panels of one row
 * of weights over and over must repeat them: so tiles of all sizes are run. */
static uint64_t run_panels(const gb_kernels *k)
{
    uint8_t rows[ROWS * MAX_ROW_BYTES], data[PANEL_BYTES] __attribute__((aligned(64)));
    float x[TOKENS * MAX_K], y[TOKENS * ROWS], many[MANY * TALL];
    uint64_t hash = 0xcbf29ce484222325u;
    gb_panels p;
    if (k->panels_int == NULL)
        return run_dot(k);
    fill(x, TOKENS * MAX_K, 2);
    fill_bytes(rows, (int)sizeof rows, 3);
    for (int32_t number = 0; number <= DTYPE_BF16; number++) {
        const dtype *type = dtype_find(number);
        if (type == NULL)
            continue;
        int64_t n = type->items == 1 ? 541 : type->items == 32 ? 544 : 768;
        gb_matrix w = {.type = type, .data = rows, .row_bytes = (uint64_t)n / type->items * type->bytes, .k = n,
                       .rows = ROWS};
        gb_matrix tall = {.type = type, .data = rows, .row_bytes = 0, .k = n, .rows = TALL};
        pack(&p, &w, data);
        k->panels_f32(&p, 0, 1, x, TOKENS, y, ROWS);
        hash = hash_bytes(hash, y, sizeof y);
        for (int wide = 0; type->quantised && wide < 2; wide++) {
            pack(&p, &w, data);
            multiply_panels(k, &p, x, wide, TOKENS, y);
            hash = hash_bytes(hash, y, sizeof y);
            pack(&p, &tall, data);
            multiply_panels(k, &p, x, wide, MANY, many);
            for (int i = 0; i < MANY * TALL; i++)
                hash += gb_bits(many[i]) != gb_bits(y[i / TALL % TOKENS * ROWS]);
        }
    }
    return hash;
}

static uint64_t run_norm(const gb_kernels *k)
{
    float x[MAX_K], w[MAX_K];
    fill(x, MAX_K, 4);
    fill(w, MAX_K, 5);
    k->rms_norm(x, w, 576, 1e-5f, x);
    k->rms_norm(x + 576, w, 100, 1e-6f, x + 576); /* not a multiple of 16 */
    return hash_floats(x, MAX_K);
}

static uint64_t run_exp(const gb_kernels *k)
{
    (void)k;
    float x[MAX_K];
    for (int i = 0; i < MAX_K; i++)
        x[i] = gb_expf((float)i * -0x1.5c28f6p-4f); /* to just below -87 */
    return hash_floats(x, MAX_K);
}

static uint64_t run_gates(const gb_kernels *k)
{
    float x[MAX_K], u[MAX_K];
    fill(x, MAX_K, 6);
    fill(u, MAX_K, 7);
    k->gate(x, u, 512, GB_GATE_SILU);
    k->gate(x + 512, u, 256, GB_GATE_GELU_TANH);
    k->softcap(x + 768, 30.0f, 256);
    return hash_floats(x, MAX_K);
}

static uint64_t run_rope(const gb_kernels *k)
{
    float x[2 * DIM], cs[DIM];
    fill(x, 2 * DIM, 8);
    for (int i = 0; i < DIM / 2; i++) {
        double s, c;
        gb_sincos(4321.0 * gb_pow(500000.0, -(double)(2 * i) / DIM), &s, &c);
        cs[2 * i] = (float)c;
        cs[2 * i + 1] = (float)s;
    }
    k->rope(x, cs, DIM / 2, 0);
    k->rope(x + DIM, cs, DIM / 2, 1);
    return hash_floats(x, 2 * DIM);
}

static uint64_t run_attention(const gb_kernels *k)
{
    float keys[DIM * GB_CHUNK], values[GB_CHUNK * DIM], q[DIM], part[2][DIM + 2], out[DIM];
    fill(keys, DIM * GB_CHUNK, 9);
    fill(values, GB_CHUNK * DIM, 10);
    fill(q, DIM, 11);
    for (int i = 0; i < GB_CHUNK * DIM; i++) /* numbers that f16 holds, subnormals too */
        values[i] = gb_f16_to_f32(gb_f32_to_f16(values[i] * (i % 7 == 0 ? 0x1p-16f : 1.0f)));
    for (int c = 0; c < 2; c++) { /* a whole chunk with a soft cap, then part of one */
        gb_kv_chunk kv = {.k = keys, .v = values, .key_dim = DIM, .value_dim = DIM, .scale = 0.0078125f,
                          .cap = c == 0 ? 50.0f : 0.0f};
        gb_query one = {.q = q, .first = c == 0 ? 0 : 5, .last = c == 0 ? GB_CHUNK : POSITIONS, .out = part[c]};
        k->attend[ENGINE_KV_F32](&kv, &one, 1);
    }
    k->merge(&part[0][0], &part[0][1], &part[0][2], DIM + 2, 2, DIM, out);
    return hash_floats(out, DIM);
}

/* Seven queries at once, each seeing a little more; every bit pattern of f16 but infinities and NaN. */
static uint64_t run_attention_f16(const gb_kernels *k)
{
    uint16_t keys[DIM * GB_CHUNK], values[GB_CHUNK * DIM];
    float q[7][DIM], out[7][DIM + 2];
    gb_query queries[7];
    gb_kv_chunk kv = {.k = keys, .v = values, .key_dim = DIM, .value_dim = DIM, .scale = 0x1p-18f};
    uint64_t state = 16;
    fill(q[0], 7 * DIM, 17);
    for (int i = 0; i < DIM * GB_CHUNK; i++) {
        keys[i] = (uint16_t)((next(&state) >> 32) & 0xfbff);
        values[i] = (uint16_t)((next(&state) >> 32) & 0xfbff);
    }
    for (int i = 0; i < 7; i++)
        queries[i] = (gb_query){.q = q[i], .first = i, .last = POSITIONS + i, .out = out[i]};
    k->attend[ENGINE_KV_F16](&kv, queries, 7);
    return hash_floats(out[0], 7 * (DIM + 2));
}

static uint64_t run_attention_q8(const gb_kernels *k)
{
    float k_scales[DIM / GB_BLOCK * GB_CHUNK], v_scales[DIM / GB_BLOCK * GB_CHUNK], q[DIM], d[DIM / GB_BLOCK], part[DIM + 2];
    int8_t keys[DIM * GB_CHUNK], values[GB_CHUNK * DIM], codes[DIM];
    gb_kv_chunk kv = {.k = keys, .v = values, .k_scales = k_scales, .v_scales = v_scales, .key_dim = DIM,
                      .value_dim = DIM, .scale = 0x1p-16f};
    gb_query one = {.q = d, .codes = codes, .first = 3, .last = POSITIONS, .out = part};
    uint64_t state = 12;
    for (int i = 0; i < DIM * GB_CHUNK; i++)
        values[i] = (int8_t)((int32_t)(next(&state) >> 32) % 128);
    for (int i = 0; i < DIM; i++)
        for (int p = 0; p < GB_CHUNK; p++)
            keys[i / 4 * 4 * GB_CHUNK + p * 4 + i % 4] = values[i * GB_CHUNK + p];
    fill(k_scales, DIM / GB_BLOCK * GB_CHUNK, 13);
    for (int p = 0; p < GB_CHUNK; p++)
        for (int b = 0; b < DIM / GB_BLOCK; b++)
            v_scales[b * GB_CHUNK + p] = k_scales[p * (DIM / GB_BLOCK) + b];
    fill(q, DIM, 14);
    k->quantise_q8(q, DIM, codes, d);
    k->attend[ENGINE_KV_Q8](&kv, &one, 1);
    return hash_floats(part + 2, DIM) ^ hash_floats(&part[0], 1) ^ hash_floats(&part[1], 1);
}

static uint64_t run_double(const gb_kernels *k)
{
    (void)k;
    double out[4 * 256];
    for (int i = 0; i < 256; i++) {
        out[4 * i] = gb_exp((i - 128) * 0x1.3p2);
        out[4 * i + 1] = gb_log(0x1.234p-3 * (i + 1));
        gb_sincos(i * i * 0x1.9p3, &out[4 * i + 2], &out[4 * i + 3]);
    }
    return hash_bytes(0xcbf29ce484222325u, out, sizeof out);
}

static uint64_t run_sampler(const gb_kernels *k)
{
    (void)k;
    float logits[MAX_K], out[MAX_K];
    int32_t picks[32];
    char err[64];
    engine_sampler_options o = {.temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .min_p = 0.02f,
                                .repeat_penalty = 1.1f, .seed = 42};
    fill(logits, MAX_K, 15);
    engine_log_softmax(logits, MAX_K, out, err, sizeof err);
    for (int i = 0; i < 32; i++)
        if (engine_sample(logits, MAX_K, &o, picks, i, (uint64_t)i, &picks[i], err, sizeof err) != ENGINE_OK)
            picks[i] = -1;
    return hash_floats(out, MAX_K) ^ hash_bytes(0xcbf29ce484222325u, picks, sizeof picks);
}

static const selftest_case cases[] = {
    {"quantise", run_quantise, 0x83a96766d7763bb8},
    {"dot", run_dot, 0x0de5d38cbe0240fd},
    {"dot-panels", run_panels, 0x0de5d38cbe0240fd},
    {"norm", run_norm, 0xc13a441f16025ced},
    {"exp", run_exp, 0x310fedfed1aa47b7},
    {"gates", run_gates, 0x4c9d9cb45c74b549},
    {"rope", run_rope, 0x26d265e59b04211a},
    {"attention", run_attention, 0x1ac616e66b34d2b5},
    {"attention-f16", run_attention_f16, 0xd54cf195872b442a},
    {"attention-q8", run_attention_q8, 0x76d06235f81d0224},
    {"double", run_double, 0x481d446b356ba70d},
    {"sampler", run_sampler, 0xae09d9e61b5cde79},
};

const selftest_case *selftest_at(int i)
{
    return i >= 0 && (size_t)i < sizeof cases / sizeof *cases ? &cases[i] : NULL;
}

engine_status engine_selftest(char *err, size_t errlen)
{
    const gb_kernels *k;
    engine_status status = gb_kernels_require(&k, err, errlen);
    if (status != ENGINE_OK)
        return status;
    gb_fpenv saved = gb_fpenv_enter();
    for (int i = 0; status == ENGINE_OK && selftest_at(i) != NULL; i++) {
        uint64_t found = cases[i].run(k);
        if (found != cases[i].expected)
            status = gb_fail(err, errlen, ENGINE_ESELFTEST,
                             "self-test %s with kernels %s gives %016llx, not %016llx: this build on this machine does "
                             "not reproduce the arithmetic; check the compiler's flags (engine_build_flags)",
                             cases[i].name, k->name, (unsigned long long)found, (unsigned long long)cases[i].expected);
    }
    gb_fpenv_leave(saved);
    return status;
}
