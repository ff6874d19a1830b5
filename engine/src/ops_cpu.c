/* ops_cpu.c: the operations of ops.h on this machine's processors.
 *
 * Every operation is a loop over outputs that the worker pool splits; the arithmetic is in
 * the kernels. A buffer holds f32 rows and, once a quantised matrix has asked for it, their
 * quantised form: so q, k and v share one quantisation. Angles of rope are computed once per
 * position. Pages and attention are in attention_cpu.c. Owns what it allocates. */
#define _POSIX_C_SOURCE 200112L
#include "device_cpu.h"
#include "fpenv.h"
#include "gguf.h"
#include "mathfn.h"
#include "status.h"

#include <stdlib.h>

enum {
    ALIGNMENT = 64,
    SMALL_WORK = 1 << 15, /* element operations that are not worth waking a worker for */
    MATRIX_TILE = 32,     /* weight rows in a unit of work where there are no panels */
    OWN_ROWS = 32,        /* so many rows of a batch for each worker are worth all weights being read by it */
    LOOKED_UP = 256,      /* rows whose pages of the file may stay, each with those that a fault brings along */
    GATED_UNITS = 8,      /* panels or tiles of gate and up whose products stay in the cache */
};

void *cpu_allocate(uint64_t bytes)
{
    void *p = NULL;
    if (bytes > SIZE_MAX / 2 || posix_memalign(&p, ALIGNMENT, (size_t)bytes + ALIGNMENT) != 0)
        return NULL;
    return p;
}

void *cpu_allocate_zeros(uint64_t bytes)
{
    void *p = cpu_allocate(bytes);
    if (p != NULL)
        memset(p, 0, (size_t)bytes);
    return p;
}

void cpu_split(gb_device *d, threads_fn fn, void *arg, int64_t items, int64_t cost)
{
    int64_t grain = SMALL_WORK / (cost > 0 ? cost : 1) + 1;
    threads_run(d->pool, fn, arg, items, grain);
}

void cpu_check(gb_device *d, int finite)
{
    if (!finite)
        atomic_store(&d->nonfinite, 1);
}

void cpu_rewrite(gb_buffer *b, int64_t rows)
{
    b->rows = rows;
    b->quantised = 0;
}

/* ---- Device and buffers ------------------------------------------------------------------- */

static void device_free(gb_device *d)
{
    if (d == NULL)
        return;
    threads_free(d->pool);
    free(d->cs[0]);
    free(d->cs[1]);
    free(d->cs_known);
    free(d->positions);
    attention_free(d);
    free(d);
}

static int allocate_tables(gb_device *d)
{
    const arch_config *c = &d->model->config;
    uint64_t positions = (uint64_t)d->options.context_tokens;
    for (int i = 0; i < (c->window > 0 ? 2 : 1); i++) {
        d->cs[i] = cpu_allocate(positions * (uint64_t)c->rope_dims * sizeof(float));
        if (d->cs[i] == NULL)
            return 0;
    }
    d->cs_known = calloc(positions, 1);
    d->positions = cpu_allocate((uint64_t)d->options.batch * sizeof(int32_t));
    return d->cs_known != NULL && d->positions != NULL;
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
    engine_status status = gb_kernels_require(&d->kernels, err, errlen);
    if (status == ENGINE_OK)
        status = threads_new(&d->pool, options->threads, err, errlen);
    if (status == ENGINE_OK && d->kernels->panels_int != NULL && !options->no_repack) {
        status = gb_repack_build(model, d->pool, err, errlen);
        d->repack = model->repack;
    }
    if (status == ENGINE_OK && (!allocate_tables(d) || !attention_init(d)))
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
    b->f32 = cpu_allocate(values * sizeof(float));
    if (quantises && d->repack == NULL)
        b->act = cpu_allocate(values / GB_BLOCK * sizeof(gb_act32));
    if (quantises && d->repack != NULL) {
        int wide = d->options.activations == ENGINE_ACTIVATIONS_WIDE;
        b->acts = (gb_acts){.k = width, .wide = wide, .group = d->kernels->group[wide]};
        b->acts.data = cpu_allocate(gb_acts_bytes(rows, width, wide));
    }
    if (b->f32 == NULL || (quantises && b->act == NULL && b->acts.data == NULL)) {
        buffer_free(d, b);
        return NULL;
    }
    return b;
}

/* ---- A batch ------------------------------------------------------------------------------- */

/* Item: one of the positions whose angles are not known yet. */
static void rope_angles(void *arg, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    gb_device *d = arg;
    int64_t pairs = d->model->config.rope_dims / 2;
    for (int64_t j = begin; j < end; j++) {
        int64_t pos = d->positions[j];
        for (int which = 0; which < 2 && d->cs[which] != NULL; which++) {
            float *cs = d->cs[which] + pos * pairs * 2;
            for (int64_t i = 0; i < pairs; i++) {
                double sine, cosine;
                gb_sincos((double)pos * d->model->rope_inverse[which][i], &sine, &cosine);
                cs[2 * i] = (float)cosine;
                cs[2 * i + 1] = (float)sine;
            }
        }
    }
}

static void begin(gb_device *d, const gb_row *rows, int32_t n)
{
    int64_t unknown = 0;
    d->rows = rows;
    d->n = n;
    atomic_store(&d->nonfinite, 0);
    for (int32_t t = 0; t < n; t++) {
        int32_t pos = rows[t].pos;
        if (!d->cs_known[pos])
            d->positions[unknown++] = pos;
        d->cs_known[pos] = 1;
    }
    cpu_split(d, rope_angles, d, unknown, 64 * d->model->config.rope_dims);
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

/* A tied table is read from its panels: the file's pages stay out of memory. */
static void embed_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    row_job *j = arg;
    const gb_matrix *w = j->table;
    const gb_panels *panels = j->d->repack != NULL ? gb_repack_find(j->d->repack, w) : NULL;
    for (int64_t t = begin; t < end; t++) {
        const gb_row *row = &j->d->rows[t];
        float *x = j->x->f32 + t * w->k;
        if (row->embedding != NULL)
            memcpy(x, row->embedding, (size_t)w->k * sizeof *x);
        else if (panels != NULL && panels->data != NULL)
            gb_panel_row(panels, row->token, x);
        else
            w->type->dequantise(w->data + (uint64_t)row->token * w->row_bytes, (uint64_t)w->k, x);
        if (j->f != 1.0f)
            j->d->kernels->scale(x, j->f, w->k);
    }
}

/* A table that is not tied is only looked up, so it stays in the file; beside panels, its pages are given
 * back every so many rows. */
static void embed(gb_device *d, gb_buffer *x, const gb_matrix *table, float scale)
{
    row_job j = {.d = d, .x = x, .table = table, .f = scale};
    cpu_rewrite(x, d->n);
    cpu_split(d, embed_rows, &j, d->n, table->k);
    if (d->repack == NULL || gb_repack_find(d->repack, table)->data != NULL)
        return;
    d->looked_up += d->n;
    if (d->looked_up >= LOOKED_UP) {
        gguf_release(d->model->file, table->data, (uint64_t)table->rows * table->row_bytes);
        d->looked_up = 0;
    }
}

static void norm_groups(void *arg, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    row_job *j = arg;
    for (int64_t i = begin; i < end; i++)
        cpu_check(j->d, j->d->kernels->rms_norm(j->x->f32 + i * j->n, j->w, j->n, j->f, j->y->f32 + i * j->n));
}

static void norm(gb_device *d, gb_buffer *y, gb_buffer *x, const float *w, int64_t n, float eps)
{
    row_job j = {.d = d, .x = x, .y = y, .w = w, .n = n, .f = eps};
    cpu_rewrite(y, x->rows);
    cpu_split(d, norm_groups, &j, x->rows * x->width / n, 2 * n);
}

static void rope_heads(void *arg, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    row_job *j = arg;
    const arch_config *c = &j->d->model->config;
    int64_t heads = j->x->width / j->n, pairs = c->rope_dims / 2;
    for (int64_t i = begin; i < end; i++)
        j->d->kernels->rope(j->x->f32 + i * j->n, j->d->cs[j->kind] + j->d->rows[i / heads].pos * pairs * 2, pairs, c->neox);
}

static void rope(gb_device *d, gb_buffer *x, int64_t head_dim, int which)
{
    row_job j = {.d = d, .x = x, .n = head_dim, .kind = which};
    cpu_rewrite(x, x->rows);
    cpu_split(d, rope_heads, &j, x->rows * x->width / head_dim, 2 * head_dim);
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
    cpu_rewrite(x, x->rows);
    cpu_split(d, add_rows, &j, x->rows, x->width);
}

static void gather(gb_device *d, gb_buffer *y, gb_buffer *x, const int32_t *rows, int32_t n)
{
    (void)d;
    cpu_rewrite(y, n);
    for (int32_t i = 0; i < n; i++)
        memcpy(y->f32 + i * x->width, x->f32 + rows[i] * x->width, (size_t)x->width * sizeof(float));
}

/* ---- Matrix products ------------------------------------------------------------------------ */

/* One matrix of a job. */
typedef struct factor {
    const gb_matrix *w;
    const gb_panels *panels; /* NULL where w is read */
    const float *bias;
    float *y; /* [n][w->rows] */
} factor;

/* Up to three matrices times the same rows. */
typedef struct matmul_job {
    gb_device *d;
    gb_buffer *x;
    int64_t first, n; /* rows of x */
    int64_t unit;     /* weight rows of a panel or tile */
    int64_t rows;     /* items are so many rows of x times all of w; 0: they are panels or tiles times all of x */
    factor factors[3];
    int count;
    int gated; /* the first two are gate and up: y0 = gate(y0) * y1, of this kind; -1: not so */
    gb_buffer *product; /* what is gated, quantised as it comes; NULL where it has no quantised form */
} matmul_job;

static int is_quantised(const gb_device *d, const gb_matrix *w)
{
    return w->type->quantised && d->options.activations != ENGINE_ACTIVATIONS_F32;
}

static int64_t units_of(const matmul_job *j, int i)
{
    return (j->factors[i].w->rows + j->unit - 1) / j->unit;
}

/* Units begin … end-1 of one matrix times rows t0 … t1-1, counted from first. t0 begins a group. */
static void multiply_units(const matmul_job *j, const factor *f, int64_t begin, int64_t end, int64_t t0, int64_t t1)
{
    const gb_kernels *kernels = j->d->kernels;
    const gb_matrix *w = f->w;
    const float *x = j->x->f32 + (j->first + t0) * j->x->width;
    float *y = f->y + t0 * w->rows;
    int64_t r0 = begin * j->unit, r1 = end * j->unit < w->rows ? end * j->unit : w->rows;
    if (f->panels != NULL && is_quantised(j->d, w)) {
        gb_acts part = gb_acts_part(&j->x->acts, t0, t1);
        kernels->panels_int(f->panels, begin, end, &part, y, w->rows);
    } else if (f->panels != NULL) {
        kernels->panels_f32(f->panels, begin, end, x, t1 - t0, y, w->rows);
    } else if (is_quantised(j->d, w)) {
        kernels->matmul_int(w, r0, r1, j->x->act + t0 * (w->k / GB_BLOCK), t1 - t0, y, w->rows);
    } else {
        kernels->matmul_f32(w, r0, r1, x, t1 - t0, y, w->rows);
    }
    for (int64_t t = t0; f->bias != NULL && t < t1; t++)
        kernels->add(f->y + t * w->rows + r0, f->bias + r0, r1 - r0);
}

/* Rows t0 … t1-1 of gate and up, and what comes of them while they are in the cache. begin and end are even, but at
 * the end: two units are a block. */
static void multiply_gated(const matmul_job *j, int64_t begin, int64_t end, int64_t t0, int64_t t1)
{
    const factor *g = &j->factors[0], *u = &j->factors[1];
    int64_t rows = g->w->rows, last = end * j->unit < rows ? end * j->unit : rows;
    int64_t b0 = begin * j->unit / GB_BLOCK, b1 = last / GB_BLOCK;
    for (int64_t next; begin < end; begin = next) {
        next = begin + GATED_UNITS < end ? begin + GATED_UNITS : end;
        int64_t r0 = begin * j->unit, r1 = next * j->unit < rows ? next * j->unit : rows;
        multiply_units(j, g, begin, next, t0, t1);
        multiply_units(j, u, begin, next, t0, t1);
        for (int64_t t = t0; t < t1; t++)
            j->d->kernels->gate(g->y + t * rows + r0, u->y + t * rows + r0, r1 - r0, j->gated);
    }
    if (j->product != NULL)
        cpu_check(j->d, j->d->kernels->quantise_rows(g->y + t0 * rows, &j->product->acts, t0, t1 - t0, b0, b1));
}

/* Items are runs of rows. */
static void multiply_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    const matmul_job *j = arg;
    int64_t t0 = begin * j->rows, t1 = end * j->rows < j->n ? end * j->rows : j->n;
    if (j->gated >= 0)
        multiply_gated(j, 0, units_of(j, 0), t0, t1);
    for (int i = 0; j->gated < 0 && i < j->count; i++)
        multiply_units(j, &j->factors[i], 0, units_of(j, i), t0, t1);
}

/* Items are pairs of panels or tiles of gate and up. */
static void multiply_gated_items(void *arg, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    const matmul_job *j = arg;
    int64_t units = units_of(j, 0);
    multiply_gated(j, 2 * begin, 2 * end < units ? 2 * end : units, 0, j->n);
}

/* Items are panels or tiles of the matrices, one after the other. */
static void multiply_items(void *arg, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    const matmul_job *j = arg;
    int64_t start = 0;
    for (int i = 0; i < j->count; i++) {
        int64_t units = units_of(j, i);
        int64_t from = begin > start ? begin - start : 0, to = end - start < units ? end - start : units;
        if (from < to)
            multiply_units(j, &j->factors[i], from, to, 0, j->n);
        start += units;
    }
}

/* Items are groups of rows, counted from x->first: what one worker writes, no other does. */
static void quantise_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    row_job *j = arg;
    const gb_kernels *kernels = j->d->kernels;
    int64_t k = j->x->width, first = begin * j->n;
    int64_t last = end * j->n < j->x->quantised ? end * j->n : j->x->quantised;
    const float *x = j->x->f32 + (j->x->first + first) * k;
    gb_act32 *act = j->x->act;
    cpu_check(j->d, act != NULL ? kernels->quantise(x, (last - first) * k, j->d->limit, act + first * (k / GB_BLOCK))
                                : kernels->quantise_rows(x, &j->x->acts, first, last - first, 0, k / GB_BLOCK));
}

/* Quantise n rows from first on, unless they are already. */
static void quantise(gb_device *d, gb_buffer *x, int64_t first, int64_t n)
{
    if (x->quantised == n && x->first == first)
        return;
    row_job q = {.d = d, .x = x, .n = x->act != NULL ? 1 : x->acts.group};
    x->first = first;
    x->quantised = n;
    x->acts.n = n;
    cpu_split(d, quantise_rows, &q, (n + q.n - 1) / q.n, 4 * x->width * q.n);
}

/* Runs of items are long enough to pay for handing them out, and short enough that no worker waits
 * long for the last one. */
static void run_products(gb_device *d, threads_fn fn, matmul_job *j, int64_t items, int64_t cost)
{
    int64_t runs = (j->n > FEW_ROWS ? 4 : 16) * threads_count(d->pool);
    int64_t grain = (items + runs - 1) / runs, least = SMALL_WORK / cost + 1;
    threads_run(d->pool, fn, j, items, grain > least ? grain : least);
}

/* A prompt is split by its rows, so that what a worker reads it has written before, and the weights are
 * read by all; fewer rows are split by the weights. */
static void multiply(gb_device *d, matmul_job *j)
{
    int64_t units = 0, quantised = 0;
    j->d = d;
    j->unit = d->repack != NULL ? GB_PANEL_ROWS : MATRIX_TILE;
    for (int i = 0; i < j->count; i++) {
        factor *f = &j->factors[i];
        quantised |= is_quantised(d, f->w);
        f->panels = d->repack != NULL ? gb_repack_find(d->repack, f->w) : NULL;
        units += units_of(j, i);
    }
    if (quantised)
        quantise(d, j->x, j->first, j->n);
    int64_t cost = j->x->width * j->unit / 4;
    if (d->repack != NULL && j->n >= OWN_ROWS * threads_count(d->pool)) {
        j->rows = quantised ? j->x->acts.group : FEW_ROWS;
        run_products(d, multiply_rows, j, (j->n + j->rows - 1) / j->rows, cost * units * j->rows);
    } else if (j->gated >= 0) {
        run_products(d, multiply_gated_items, j, (units / 2 + 1) / 2, 4 * cost * (j->n + 1));
    } else {
        run_products(d, multiply_items, j, units, cost * (j->n + 1));
    }
}

static void matmul(gb_device *d, gb_buffer *x, int n, const gb_product *products)
{
    matmul_job j = {.x = x, .n = x->rows, .count = n, .gated = -1};
    for (int i = 0; i < n; i++) {
        cpu_rewrite(products[i].y, x->rows);
        j.factors[i] = (factor){.w = products[i].w, .bias = products[i].bias, .y = products[i].y->f32};
    }
    multiply(d, &j);
}

static void gated_matmul(gb_device *d, gb_buffer *x, const gb_product *gate, const gb_product *up, int kind)
{
    matmul_job j = {.x = x, .n = x->rows, .count = 2, .gated = kind};
    cpu_rewrite(gate->y, x->rows);
    cpu_rewrite(up->y, x->rows);
    j.factors[0] = (factor){.w = gate->w, .bias = gate->bias, .y = gate->y->f32};
    j.factors[1] = (factor){.w = up->w, .bias = up->bias, .y = up->y->f32};
    j.product = gate->y->acts.data != NULL ? gate->y : NULL;
    if (j.product != NULL) {
        j.product->first = 0;
        j.product->acts.n = j.n;
    }
    multiply(d, &j);
    if (j.product != NULL)
        j.product->quantised = j.n;
}

static void finish_logits(void *arg, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    row_job *j = arg;
    for (int64_t t = begin; t < end; t++) {
        float *row = j->host + t * j->n;
        cpu_check(j->d, j->f != 0.0f ? j->d->kernels->softcap(row, j->f, j->n) : j->d->kernels->all_finite(row, j->n));
    }
}

static void logits(gb_device *d, gb_buffer *x, int32_t first, int32_t n, const gb_matrix *w, float cap, float *host)
{
    row_job j = {.d = d, .host = host, .n = w->rows, .f = cap};
    matmul_job m = {.x = x, .first = first, .n = n, .count = 1, .gated = -1, .factors = {{.w = w, .y = host}}};
    multiply(d, &m);
    cpu_split(d, finish_logits, &j, n, w->rows);
}

static void read(gb_device *d, gb_buffer *x, int32_t first, int32_t n, float *host)
{
    memcpy(host, x->f32 + first * x->width, (size_t)n * (size_t)x->width * sizeof *host);
    cpu_check(d, d->kernels->all_finite(host, n * x->width));
}

const gb_ops ops_cpu = {
    .name = "cpu",
    .device_new = device_new,
    .device_free = device_free,
    .buffer_new = buffer_new,
    .buffer_free = buffer_free,
    .page_new = attention_page_new,
    .page_free = attention_page_free,
    .page_copy = attention_page_copy,
    .page_bytes = attention_page_bytes,
    .page_save = attention_page_save,
    .page_load = attention_page_load,
    .begin = begin,
    .end = end,
    .embed = embed,
    .norm = norm,
    .matmul = matmul,
    .gated_matmul = gated_matmul,
    .rope = rope,
    .kv_store = attention_store,
    .attention = attention_run,
    .add = add,
    .gather = gather,
    .read = read,
    .logits = logits,
};
