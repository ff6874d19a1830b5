/* ops_cpu.c: the operations of ops.h on this machine's processors.
 *
 * Every operation is a loop over outputs that the worker pool splits; the arithmetic is in
 * the kernels. A buffer holds f32 rows and, once a quantised matrix has asked for it, their
 * quantised form: so q, k and v share one quantisation. A page holds, for each layer and KV
 * head, keys as [key_dim][128] and then values as [128][value_dim] in the KV type; q8 planes
 * are codes followed by scales, one per 32 elements of a head. Owns what it allocates. */
#define _POSIX_C_SOURCE 200112L
#include "ops.h"

#include "fpenv.h"
#include "mathfn.h"
#include "repack.h"
#include "status.h"
#include "threads.h"

#include <stdatomic.h>
#include <stdlib.h>

enum {
    ALIGNMENT = 64,
    SMALL_WORK = 1 << 15,          /* element operations that are not worth waking a worker for */
    SCRATCH_FLOATS = 1 << 22,      /* of partial attention results, unless one row needs more */
    MATRIX_TILE = 32,              /* weight rows in a unit of work */
    MAX_HEAD_BLOCKS = 1024 / GB_BLOCK,
};

struct gb_buffer {
    int64_t rows, width; /* rows in use */
    float *f32;          /* [rows][width] */
    gb_act32 *act;       /* [rows][width / 32]; NULL where never needed */
    gb_acts acts;        /* the same for panels; data is NULL where never needed */
    int64_t first;       /* act and acts begin at this row */
    int64_t quantised;   /* rows from it on that they hold now */
};

struct gb_device {
    const engine_model *model;
    const gb_kernels *kernels;
    const gb_repack *repack; /* NULL where products read the file's bytes */
    threads *pool;
    gb_device_options options;
    int32_t limit; /* largest code of a quantised activation */
    atomic_int nonfinite;

    const gb_row *rows;
    int32_t n;
    float *cs[2]; /* [n][rope_dims / 2][2] cosine and sine, GB_ROPE_* */

    uint64_t key_bytes, value_bytes; /* of one layer and head in a page */
    float *partials;                 /* [rows][heads][chunks] of {m, l, o[value_dim]} */
    int64_t partial_floats;
    float *worker_scratch;           /* [threads][worker_floats]: keys, values, scores of one chunk */
    int64_t worker_floats;
};

static void *allocate(uint64_t bytes)
{
    void *p = NULL;
    if (bytes > SIZE_MAX / 2 || posix_memalign(&p, ALIGNMENT, (size_t)bytes + ALIGNMENT) != 0)
        return NULL;
    memset(p, 0, (size_t)bytes);
    return p;
}

/* Split items of the given cost each; small work stays in the caller. */
static void split(gb_device *d, threads_fn fn, void *arg, int64_t items, int64_t cost)
{
    int64_t grain = SMALL_WORK / (cost > 0 ? cost : 1) + 1;
    threads_run(d->pool, fn, arg, items, grain);
}

static void check(gb_device *d, int finite)
{
    if (!finite)
        atomic_store(&d->nonfinite, 1);
}

/* ---- Device and buffers ------------------------------------------------------------------- */

static void device_free(gb_device *d)
{
    if (d == NULL)
        return;
    threads_free(d->pool);
    free(d->cs[0]);
    free(d->cs[1]);
    free(d->partials);
    free(d->worker_scratch);
    free(d);
}

static void set_page_layout(gb_device *d)
{
    const arch_config *c = &d->model->config;
    uint64_t keys = (uint64_t)c->key_dim * GB_CHUNK, values = (uint64_t)c->value_dim * GB_CHUNK;
    uint64_t scale = sizeof(float);
    switch (d->options.kv) {
    case ENGINE_KV_F32:
        d->key_bytes = keys * sizeof(float);
        d->value_bytes = values * sizeof(float);
        break;
    case ENGINE_KV_Q8:
        d->key_bytes = keys + keys / GB_BLOCK * scale;
        d->value_bytes = values + values / GB_BLOCK * scale;
        break;
    default:
        d->key_bytes = keys * sizeof(uint16_t);
        d->value_bytes = values * sizeof(uint16_t);
    }
}

static int64_t partial_stride(const gb_device *d)
{
    return d->model->config.value_dim + 2;
}

static int allocate_scratch(gb_device *d)
{
    const arch_config *c = &d->model->config;
    uint64_t pairs = (uint64_t)c->rope_dims / 2;
    uint64_t chunks = (uint64_t)d->options.context_tokens / GB_CHUNK + 1;
    uint64_t row = chunks * (uint64_t)c->heads * (uint64_t)partial_stride(d);
    uint64_t all = row * (uint64_t)d->options.batch;
    d->partial_floats = (int64_t)(row > SCRATCH_FLOATS ? row : all < SCRATCH_FLOATS ? all : SCRATCH_FLOATS);
    d->worker_floats = (int64_t)GB_CHUNK * (c->key_dim + c->value_dim + 1);
    d->partials = allocate((uint64_t)d->partial_floats * sizeof(float));
    d->worker_scratch = allocate((uint64_t)d->worker_floats * (uint64_t)d->options.threads * sizeof(float));
    for (int i = 0; i < 2; i++)
        d->cs[i] = allocate((uint64_t)d->options.batch * pairs * 2 * sizeof(float));
    return d->partials != NULL && d->worker_scratch != NULL && d->cs[0] != NULL && d->cs[1] != NULL;
}

static engine_status device_new(gb_device **out, const engine_model *model, const gb_device_options *options, char *err,
                                size_t errlen)
{
    *out = NULL;
    gb_device *d = calloc(1, sizeof *d);
    if (d == NULL)
        return gb_fail(err, errlen, ENGINE_ENOMEM, "out of memory for a device");
    d->model = model;
    d->options = *options;
    d->limit = options->activations == ENGINE_ACTIVATIONS_INT8 ? 127 : 16319;
    set_page_layout(d);
    engine_status status = gb_kernels_require(&d->kernels, err, errlen);
    if (status == ENGINE_OK)
        status = threads_new(&d->pool, options->threads, err, errlen);
    if (status == ENGINE_OK && d->kernels->panels_int != NULL && !options->no_repack) {
        status = gb_repack_build(model, d->pool, err, errlen);
        d->repack = model->repack;
    }
    if (status == ENGINE_OK && !allocate_scratch(d))
        status = gb_fail(err, errlen, ENGINE_ENOMEM, "out of memory for the scratch of %d positions and %d rows",
                         options->context_tokens, options->batch);
    if (status != ENGINE_OK) {
        device_free(d);
        return status;
    }
    *out = d;
    return ENGINE_OK;
}

static void buffer_free(gb_device *d, gb_buffer *b)
{
    (void)d;
    if (b == NULL)
        return;
    free(b->f32);
    free(b->act);
    free(b->acts.data);
    free(b);
}

static gb_buffer *buffer_new(gb_device *d, int64_t rows, int64_t width)
{
    int quantises = d->options.activations != ENGINE_ACTIVATIONS_F32 && width % GB_BLOCK == 0;
    uint64_t values = (uint64_t)rows * (uint64_t)width;
    gb_buffer *b = calloc(1, sizeof *b);
    if (b == NULL)
        return NULL;
    b->width = width;
    b->f32 = allocate(values * sizeof(float));
    if (quantises && d->repack == NULL)
        b->act = allocate(values / GB_BLOCK * sizeof(gb_act32));
    if (quantises && d->repack != NULL) {
        int wide = d->options.activations == ENGINE_ACTIVATIONS_WIDE;
        b->acts = (gb_acts){.k = width, .wide = wide, .group = d->kernels->group[wide]};
        b->acts.data = allocate(gb_acts_bytes(rows, width, wide));
    }
    if (b->f32 == NULL || (quantises && b->act == NULL && b->acts.data == NULL)) {
        buffer_free(d, b);
        return NULL;
    }
    return b;
}

/* b is about to be written, with so many rows. */
static void rewrite(gb_buffer *b, int64_t rows)
{
    b->rows = rows;
    b->quantised = 0;
}

/* ---- Pages -------------------------------------------------------------------------------- */

static uint64_t page_bytes(const gb_device *d)
{
    const arch_config *c = &d->model->config;
    return (d->key_bytes + d->value_bytes) * (uint64_t)c->layers * (uint64_t)c->kv_heads;
}

static gb_page *page_new(gb_device *d)
{
    return allocate(page_bytes(d));
}

static void page_free(gb_device *d, gb_page *p)
{
    (void)d;
    free(p);
}

static void page_copy(gb_device *d, gb_page *to, const gb_page *from)
{
    memcpy(to, from, page_bytes(d));
}

static uint8_t *keys_at(const gb_device *d, gb_page *p, int64_t layer, int64_t head)
{
    return (uint8_t *)p + (d->key_bytes + d->value_bytes) * (uint64_t)(layer * d->model->config.kv_heads + head);
}

static uint8_t *values_at(const gb_device *d, gb_page *p, int64_t layer, int64_t head)
{
    return keys_at(d, p, layer, head) + d->key_bytes;
}

/* Zero the positions from first on of one plane of keys: [n][GB_CHUNK] items. */
static void clear_lanes(uint8_t *plane, int64_t n, int32_t first, size_t item)
{
    for (int64_t i = 0; i < n; i++)
        memset(plane + ((size_t)i * GB_CHUNK + (size_t)first) * item, 0, (size_t)(GB_CHUNK - first) * item);
}

/* The same of values: [GB_CHUNK][n] items. */
static void clear_rows(uint8_t *plane, int64_t n, int32_t first, size_t item)
{
    memset(plane + (size_t)first * (size_t)n * item, 0, (size_t)(GB_CHUNK - first) * (size_t)n * item);
}

static void page_save(const gb_device *d, const gb_page *p, int32_t positions, void *out)
{
    const arch_config *c = &d->model->config;
    memcpy(out, p, page_bytes(d));
    if (positions == GB_CHUNK)
        return;
    size_t item = d->options.kv == ENGINE_KV_F32 ? 4 : d->options.kv == ENGINE_KV_F16 ? 2 : 1;
    for (int64_t il = 0; il < c->layers; il++) {
        for (int64_t h = 0; h < c->kv_heads; h++) {
            uint8_t *k = keys_at(d, out, il, h), *v = values_at(d, out, il, h);
            clear_lanes(k, c->key_dim, positions, item);
            clear_rows(v, c->value_dim, positions, item);
            if (d->options.kv == ENGINE_KV_Q8) {
                clear_lanes(k + (size_t)c->key_dim * GB_CHUNK, c->key_dim / GB_BLOCK, positions, sizeof(float));
                clear_rows(v + (size_t)c->value_dim * GB_CHUNK, c->value_dim / GB_BLOCK, positions, sizeof(float));
            }
        }
    }
}

static void page_load(gb_device *d, gb_page *p, const void *in)
{
    memcpy(p, in, page_bytes(d));
}

/* ---- A batch ------------------------------------------------------------------------------- */

static void rope_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    gb_device *d = arg;
    int64_t pairs = d->model->config.rope_dims / 2;
    for (int64_t t = begin; t < end; t++) {
        for (int which = 0; which < 2; which++) {
            for (int64_t i = 0; i < pairs; i++) {
                double sine, cosine;
                gb_sincos((double)d->rows[t].pos * d->model->rope_inverse[which][i], &sine, &cosine);
                d->cs[which][(t * pairs + i) * 2] = (float)cosine;
                d->cs[which][(t * pairs + i) * 2 + 1] = (float)sine;
            }
        }
    }
}

static void begin(gb_device *d, const gb_row *rows, int32_t n)
{
    d->rows = rows;
    d->n = n;
    atomic_store(&d->nonfinite, 0);
    split(d, rope_rows, d, n, 64 * d->model->config.rope_dims);
}

static engine_status end(gb_device *d, char *err, size_t errlen)
{
    if (atomic_load(&d->nonfinite))
        return gb_fail(err, errlen, ENGINE_ENONFINITE,
                       "a value that is not finite arose in the step, from position %d on; the step was undone",
                       d->rows[0].pos);
    return ENGINE_OK;
}

/* ---- Row operations ------------------------------------------------------------------------ */

typedef struct row_job {
    gb_device *d;
    gb_buffer *x, *y;
    const gb_matrix *table;
    const float *w;
    int64_t n; /* group or head length */
    float f;   /* scale, epsilon or cap */
    int kind;
    float *host;
} row_job;

static void embed_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    row_job *j = arg;
    const gb_matrix *w = j->table;
    for (int64_t t = begin; t < end; t++) {
        const gb_row *row = &j->d->rows[t];
        float *x = j->x->f32 + t * w->k;
        if (row->embedding != NULL)
            memcpy(x, row->embedding, (size_t)w->k * sizeof *x);
        else
            w->type->dequantise(w->data + (uint64_t)row->token * w->row_bytes, (uint64_t)w->k, x);
        if (j->f != 1.0f)
            j->d->kernels->scale(x, j->f, w->k);
    }
}

static void embed(gb_device *d, gb_buffer *x, const gb_matrix *table, float scale)
{
    row_job j = {.d = d, .x = x, .table = table, .f = scale};
    rewrite(x, d->n);
    split(d, embed_rows, &j, d->n, table->k);
}

static void norm_groups(void *arg, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    row_job *j = arg;
    for (int64_t i = begin; i < end; i++)
        check(j->d, j->d->kernels->rms_norm(j->x->f32 + i * j->n, j->w, j->n, j->f, j->y->f32 + i * j->n));
}

static void norm(gb_device *d, gb_buffer *y, gb_buffer *x, const float *w, int64_t n, float eps)
{
    row_job j = {.d = d, .x = x, .y = y, .w = w, .n = n, .f = eps};
    rewrite(y, x->rows);
    split(d, norm_groups, &j, x->rows * x->width / n, 2 * n);
}

static void rope_heads(void *arg, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    row_job *j = arg;
    const arch_config *c = &j->d->model->config;
    int64_t heads = j->x->width / j->n, pairs = c->rope_dims / 2;
    for (int64_t i = begin; i < end; i++)
        j->d->kernels->rope(j->x->f32 + i * j->n, j->d->cs[j->kind] + i / heads * pairs * 2, pairs, c->neox);
}

static void rope(gb_device *d, gb_buffer *x, int64_t head_dim, int which)
{
    row_job j = {.d = d, .x = x, .n = head_dim, .kind = which};
    rewrite(x, x->rows);
    split(d, rope_heads, &j, x->rows * x->width / head_dim, 2 * head_dim);
}

static void gate_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    row_job *j = arg;
    int64_t n = j->x->width;
    for (int64_t t = begin; t < end; t++)
        j->d->kernels->gate(j->x->f32 + t * n, j->y->f32 + t * n, n, j->kind);
}

static void gate(gb_device *d, gb_buffer *g, gb_buffer *u, int kind)
{
    row_job j = {.d = d, .x = g, .y = u, .kind = kind};
    rewrite(g, g->rows);
    split(d, gate_rows, &j, g->rows, 8 * g->width);
}

static void add_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    row_job *j = arg;
    int64_t n = j->x->width;
    j->d->kernels->add(j->x->f32 + begin * n, j->y->f32 + begin * n, (end - begin) * n);
}

static void add(gb_device *d, gb_buffer *x, gb_buffer *y)
{
    row_job j = {.d = d, .x = x, .y = y};
    rewrite(x, x->rows);
    split(d, add_rows, &j, x->rows, x->width);
}

static void gather(gb_device *d, gb_buffer *y, gb_buffer *x, const int32_t *rows, int32_t n)
{
    (void)d;
    rewrite(y, n);
    for (int32_t i = 0; i < n; i++)
        memcpy(y->f32 + i * x->width, x->f32 + rows[i] * x->width, (size_t)x->width * sizeof(float));
}

/* ---- Matrix products ------------------------------------------------------------------------ */

typedef struct matmul_job {
    gb_device *d;
    const gb_matrix *w;
    const gb_panels *panels; /* NULL where w is read */
    const float *bias;
    const float *x;      /* [n][k], or NULL where act or acts is used */
    const gb_act32 *act; /* [n][k / 32] */
    const gb_acts *acts;
    int64_t n;
    float *y; /* [n][w->rows] */
} matmul_job;

static void add_bias(const matmul_job *j, int64_t r0, int64_t r1)
{
    for (int64_t t = 0; j->bias != NULL && t < j->n; t++)
        j->d->kernels->add(j->y + t * j->w->rows + r0, j->bias + r0, r1 - r0);
}

/* Items are tiles of weight rows. */
static void matmul_tiles(void *arg, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    matmul_job *j = arg;
    int64_t r0 = begin * MATRIX_TILE, r1 = end * MATRIX_TILE < j->w->rows ? end * MATRIX_TILE : j->w->rows;
    if (j->act != NULL)
        j->d->kernels->matmul_int(j->w, r0, r1, j->act, j->n, j->y, j->w->rows);
    else
        j->d->kernels->matmul_f32(j->w, r0, r1, j->x, j->n, j->y, j->w->rows);
    add_bias(j, r0, r1);
}

/* Items are panels. */
static void matmul_panels(void *arg, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    matmul_job *j = arg;
    int64_t r0 = begin * GB_PANEL_ROWS, r1 = end * GB_PANEL_ROWS < j->w->rows ? end * GB_PANEL_ROWS : j->w->rows;
    if (j->acts != NULL)
        j->d->kernels->panels_int(j->panels, begin, end, j->acts, j->y, j->w->rows);
    else
        j->d->kernels->panels_f32(j->panels, begin, end, j->x, j->n, j->y, j->w->rows);
    add_bias(j, r0, r1);
}

/* Items are rows, counted from x->first. */
static void quantise_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    row_job *j = arg;
    const gb_kernels *kernels = j->d->kernels;
    int64_t k = j->x->width;
    for (int64_t t = begin; t < end; t++) {
        const float *x = j->x->f32 + (j->x->first + t) * k;
        check(j->d, j->x->act != NULL ? kernels->quantise(x, k, j->d->limit, j->x->act + t * (k / GB_BLOCK))
                                      : kernels->quantise_row(x, &j->x->acts, t));
    }
}

/* Quantise n rows from first on, unless they are already. */
static void quantise(gb_device *d, gb_buffer *x, int64_t first, int64_t n)
{
    if (x->quantised == n && x->first == first)
        return;
    row_job q = {.d = d, .x = x};
    x->first = first;
    x->quantised = n;
    x->acts.n = n;
    split(d, quantise_rows, &q, n, 4 * x->width);
}

/* Panels are handed out in runs: a worker takes four or so, each as one stretch of memory. */
static void split_panels(gb_device *d, matmul_job *j)
{
    int64_t panels = gb_panel_count(j->w->rows), cost = j->w->k * (j->n + 1) * GB_PANEL_ROWS / 4;
    int64_t runs = 4 * threads_count(d->pool), grain = (panels + runs - 1) / runs, least = SMALL_WORK / cost + 1;
    threads_run(d->pool, matmul_panels, j, panels, grain > least ? grain : least);
}

/* y = w x for rows first … first+n-1 of x. */
static void multiply(gb_device *d, float *y, const gb_matrix *w, const float *bias, gb_buffer *x, int64_t first,
                     int64_t n)
{
    matmul_job j = {.d = d, .w = w, .bias = bias, .n = n, .y = y};
    if (w->type->quantised && d->options.activations != ENGINE_ACTIVATIONS_F32) {
        quantise(d, x, first, n);
        j.act = x->act;
        j.acts = &x->acts;
    } else {
        j.x = x->f32 + first * x->width;
    }
    if (d->repack != NULL) {
        j.panels = gb_repack_find(d->repack, w);
        split_panels(d, &j);
    } else {
        split(d, matmul_tiles, &j, (w->rows + MATRIX_TILE - 1) / MATRIX_TILE, w->k * (n + 1) * MATRIX_TILE / 4);
    }
}

static void matmul(gb_device *d, gb_buffer *y, const gb_matrix *w, const float *bias, gb_buffer *x)
{
    rewrite(y, x->rows);
    multiply(d, y->f32, w, bias, x, 0, x->rows);
}

static void finish_logits(void *arg, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    row_job *j = arg;
    for (int64_t t = begin; t < end; t++) {
        float *row = j->host + t * j->n;
        check(j->d, j->f != 0.0f ? j->d->kernels->softcap(row, j->f, j->n) : j->d->kernels->all_finite(row, j->n));
    }
}

static void logits(gb_device *d, gb_buffer *x, int32_t first, int32_t n, const gb_matrix *w, float cap, float *host)
{
    row_job j = {.d = d, .host = host, .n = w->rows, .f = cap};
    multiply(d, host, w, NULL, x, first, n);
    split(d, finish_logits, &j, n, w->rows);
}

static void read(gb_device *d, gb_buffer *x, int32_t first, int32_t n, float *host)
{
    memcpy(host, x->f32 + first * x->width, (size_t)n * (size_t)x->width * sizeof *host);
    check(d, d->kernels->all_finite(host, n * x->width));
}

/* ---- Keys and values ------------------------------------------------------------------------ */

typedef struct kv_job {
    gb_device *d;
    int64_t layer;
    const float *k, *v; /* [n][kv_heads][key_dim], [n][kv_heads][value_dim] */
} kv_job;

/* One head's n elements to plane + i * step, as f16. */
static void store_f16(gb_device *d, const float *x, int64_t n, uint16_t *plane, int64_t step)
{
    int finite = 1;
    for (int64_t i = 0; i < n; i++) {
        uint16_t h = gb_f32_to_f16(x[i]);
        finite &= (h & 0x7c00) != 0x7c00;
        plane[i * step] = h;
    }
    check(d, finite);
}

static void store_f32(gb_device *d, const float *x, int64_t n, float *plane, int64_t step)
{
    check(d, d->kernels->all_finite(x, n));
    for (int64_t i = 0; i < n; i++)
        plane[i * step] = x[i];
}

static void store_q8(gb_device *d, const float *x, int64_t n, int8_t *codes, float *scales, int64_t step)
{
    gb_act32 blocks[MAX_HEAD_BLOCKS];
    if (!d->kernels->quantise(x, n, 127, blocks)) {
        check(d, 0);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        codes[i * step] = (int8_t)blocks[i / GB_BLOCK].q[i % GB_BLOCK];
    for (int64_t b = 0; b < n / GB_BLOCK; b++)
        scales[b * step] = blocks[b].d;
}

/* Position p of a page: keys are lane p of each row, values are row p. */
static void store_head(gb_device *d, const float *k, const float *v, uint8_t *keys, uint8_t *values, int64_t p)
{
    int64_t dk = d->model->config.key_dim, dv = d->model->config.value_dim;
    switch (d->options.kv) {
    case ENGINE_KV_F32:
        store_f32(d, k, dk, (float *)(void *)keys + p, GB_CHUNK);
        store_f32(d, v, dv, (float *)(void *)values + p * dv, 1);
        break;
    case ENGINE_KV_Q8:
        store_q8(d, k, dk, (int8_t *)keys + p, (float *)(void *)(keys + dk * GB_CHUNK) + p, GB_CHUNK);
        store_q8(d, v, dv, (int8_t *)values + p * dv, (float *)(void *)(values + dv * GB_CHUNK) + p * (dv / GB_BLOCK),
                 1);
        break;
    default:
        store_f16(d, k, dk, (uint16_t *)(void *)keys + p, GB_CHUNK);
        store_f16(d, v, dv, (uint16_t *)(void *)values + p * dv, 1);
    }
}

static void store_heads(void *arg, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    kv_job *j = arg;
    gb_device *d = j->d;
    const arch_config *c = &d->model->config;
    for (int64_t i = begin; i < end; i++) {
        const gb_row *row = &d->rows[i / c->kv_heads];
        int64_t head = i % c->kv_heads;
        gb_page *page = row->pages[row->pos / GB_CHUNK];
        store_head(d, j->k + i * c->key_dim, j->v + i * c->value_dim, keys_at(d, page, j->layer, head),
                   values_at(d, page, j->layer, head), row->pos % GB_CHUNK);
    }
}

static void kv_store(gb_device *d, int32_t layer, gb_buffer *k, gb_buffer *v)
{
    kv_job j = {.d = d, .layer = layer, .k = k->f32, .v = v->f32};
    split(d, store_heads, &j, (int64_t)d->n * d->model->config.kv_heads, k->width + v->width);
}

/* ---- Attention ------------------------------------------------------------------------------- */

typedef struct attention_job {
    gb_device *d;
    int64_t layer;
    gb_mask mask;
    const float *q;      /* [n][heads][key_dim] */
    float *y;            /* [n][heads][value_dim] */
    int64_t row0, row1;  /* rows of this pass */
    int64_t chunk0, chunks; /* chunks that any of them sees */
} attention_job;

/* The first position that a row sees. */
static int64_t first_seen(const attention_job *j, const gb_row *row)
{
    int64_t first = (int64_t)row->pos + 1 - j->mask.window;
    return j->mask.kind == GB_MASK_WINDOW && first > 0 ? first : 0;
}

/* {m, l, o[value_dim]} of a row, query head and chunk of this pass. */
static float *partial_at(const attention_job *j, int64_t row, int64_t head, int64_t chunk)
{
    int64_t heads = j->d->model->config.heads;
    return j->d->partials + (((row - j->row0) * heads + head) * j->chunks + chunk - j->chunk0) * partial_stride(j->d);
}

/* One head's keys and values of a page, ready for the kernels: f16 is widened into scratch. */
typedef struct plane {
    const float *k, *v;               /* f16 and f32 */
    const int8_t *k_codes, *v_codes;  /* q8 */
    const float *k_scales, *v_scales;
} plane;

static plane open_plane(gb_device *d, gb_page *page, int64_t layer, int64_t head, int64_t last, float *scratch)
{
    const arch_config *c = &d->model->config;
    int64_t dk = c->key_dim, dv = c->value_dim;
    uint8_t *keys = keys_at(d, page, layer, head), *values = values_at(d, page, layer, head);
    if (d->options.kv == ENGINE_KV_F32)
        return (plane){.k = (float *)(void *)keys, .v = (float *)(void *)values};
    if (d->options.kv == ENGINE_KV_Q8)
        return (plane){.k_codes = (int8_t *)keys, .k_scales = (float *)(void *)(keys + dk * GB_CHUNK),
                       .v_codes = (int8_t *)values, .v_scales = (float *)(void *)(values + dv * GB_CHUNK)};
    float *k = scratch, *v = scratch + dk * GB_CHUNK;
    d->kernels->widen_f16((uint16_t *)(void *)keys, dk * GB_CHUNK, k);
    d->kernels->widen_f16((uint16_t *)(void *)values, last * dv, v);
    return (plane){.k = k, .v = v};
}

/* One query head against positions first … last-1 of a chunk. */
static void attend(gb_device *d, const plane *p, const float *q, int64_t first, int64_t last, float *s, float *out)
{
    const arch_config *c = &d->model->config;
    const gb_kernels *k = d->kernels;
    if (p->k_codes != NULL) {
        gb_act32 blocks[MAX_HEAD_BLOCKS];
        if (!k->quantise(q, c->key_dim, 127, blocks)) {
            check(d, 0);
            return;
        }
        k->scores_q8(p->k_codes, p->k_scales, blocks, c->key_dim, last, s);
    } else {
        k->scores(p->k, q, c->key_dim, last, s);
    }
    check(d, k->softmax(s, first, last, c->attention_scale, c->attention_cap, &out[0], &out[1]));
    if (p->v_codes != NULL)
        k->weigh_q8(p->v_codes, p->v_scales, s, first, last, c->value_dim, out + 2);
    else
        k->weigh(p->v, s, first, last, c->value_dim, out + 2);
}

/* Item (chunk, KV head): all rows and query heads of this pass that look at it. */
static void attend_chunks(void *arg, int64_t begin, int64_t end, int worker)
{
    attention_job *j = arg;
    gb_device *d = j->d;
    const arch_config *c = &d->model->config;
    int64_t group = c->heads / c->kv_heads;
    float *scratch = d->worker_scratch + worker * d->worker_floats;
    float *s = scratch + d->worker_floats - GB_CHUNK;
    for (int64_t i = begin; i < end; i++) {
        int64_t chunk = j->chunk0 + i / c->kv_heads, head = i % c->kv_heads;
        int64_t start = chunk * GB_CHUNK;
        const gb_page *opened = NULL;
        plane p = {0};
        for (int64_t t = j->row0; t < j->row1; t++) {
            const gb_row *row = &d->rows[t];
            int64_t first = first_seen(j, row) - start, last = (int64_t)row->pos + 1 - start;
            if (first >= GB_CHUNK || last <= 0)
                continue;
            first = first > 0 ? first : 0;
            last = last < GB_CHUNK ? last : GB_CHUNK;
            if (row->pages[chunk] != opened) {
                opened = row->pages[chunk];
                p = open_plane(d, row->pages[chunk], j->layer, head, j->row1 - j->row0 > 1 ? GB_CHUNK : last, scratch);
            }
            for (int64_t h = head * group; h < (head + 1) * group; h++)
                attend(d, &p, j->q + (t * c->heads + h) * c->key_dim, first, last, s, partial_at(j, t, h, chunk));
        }
    }
}

/* Item (row, query head): its chunks in ascending order. */
static void merge_heads(void *arg, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    attention_job *j = arg;
    gb_device *d = j->d;
    const arch_config *c = &d->model->config;
    for (int64_t i = begin; i < end; i++) {
        int64_t t = j->row0 + i / c->heads, h = i % c->heads;
        const gb_row *row = &d->rows[t];
        int64_t first = first_seen(j, row) / GB_CHUNK, last = row->pos / GB_CHUNK;
        const float *part = partial_at(j, t, h, first);
        d->kernels->merge(part, part + 1, part + 2, partial_stride(d), last - first + 1, c->value_dim,
                          j->y + (t * c->heads + h) * c->value_dim);
    }
}

/* Choose rows row0 … row1-1 whose partial results fit into the scratch: at least one does. */
static void next_pass(attention_job *j)
{
    gb_device *d = j->d;
    int64_t low = INT64_MAX, high = -1;
    for (j->row1 = j->row0; j->row1 < d->n; j->row1++) {
        const gb_row *row = &d->rows[j->row1];
        int64_t first = first_seen(j, row) / GB_CHUNK, last = row->pos / GB_CHUNK;
        int64_t l = first < low ? first : low, h = last > high ? last : high;
        int64_t floats = (j->row1 + 1 - j->row0) * d->model->config.heads * (h - l + 1) * partial_stride(d);
        if (floats > d->partial_floats)
            break;
        low = l;
        high = h;
    }
    j->chunk0 = low;
    j->chunks = high - low + 1;
}

static void attention(gb_device *d, gb_buffer *y, gb_buffer *q, int32_t layer, gb_mask mask)
{
    const arch_config *c = &d->model->config;
    attention_job j = {.d = d, .layer = layer, .mask = mask, .q = q->f32, .y = y->f32};
    rewrite(y, q->rows);
    for (j.row0 = 0; j.row0 < d->n; j.row0 = j.row1) {
        next_pass(&j);
        int64_t rows = j.row1 - j.row0;
        split(d, attend_chunks, &j, j.chunks * c->kv_heads,
              rows * (c->heads / c->kv_heads) * GB_CHUNK * (c->key_dim + c->value_dim) / 8);
        split(d, merge_heads, &j, rows * c->heads, j.chunks * c->value_dim);
    }
}

const gb_ops ops_cpu = {
    .name = "cpu",
    .device_new = device_new,
    .device_free = device_free,
    .buffer_new = buffer_new,
    .buffer_free = buffer_free,
    .page_new = page_new,
    .page_free = page_free,
    .page_copy = page_copy,
    .page_bytes = page_bytes,
    .page_save = page_save,
    .page_load = page_load,
    .begin = begin,
    .end = end,
    .embed = embed,
    .norm = norm,
    .matmul = matmul,
    .rope = rope,
    .kv_store = kv_store,
    .attention = attention,
    .gate = gate,
    .add = add,
    .gather = gather,
    .read = read,
    .logits = logits,
};
