/* ops_cpu.c: the operations of ops.h on this machine's processors.
 *
 * Every operation is a loop over outputs that the worker pool splits; the arithmetic is in
 * the kernels. A buffer holds f32 rows and, once a quantised matrix has asked for it, their
 * quantised form: so q, k and v share one quantisation. Angles of rope are computed once per
 * position. Pages and attention are in attention_cpu.c. Owns what it allocates. */
#define _POSIX_C_SOURCE 200112L
#include "device_cpu.h"
#include "fpenv.h"
#include "mathfn.h"
#include "status.h"

#include <stdlib.h>

enum {
    ALIGNMENT = 64,
    SMALL_WORK = 1 << 15, /* element operations that are not worth waking a worker for */
    MATRIX_TILE = 32,     /* weight rows in a unit of work */
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
    cpu_rewrite(x, d->n);
    cpu_split(d, embed_rows, &j, d->n, table->k);
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
    cpu_rewrite(g, g->rows);
    cpu_split(d, gate_rows, &j, g->rows, 8 * g->width);
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
        cpu_check(j->d, j->x->act != NULL ? kernels->quantise(x, k, j->d->limit, j->x->act + t * (k / GB_BLOCK))
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
    cpu_split(d, quantise_rows, &q, n, 4 * x->width);
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
        cpu_split(d, matmul_tiles, &j, (w->rows + MATRIX_TILE - 1) / MATRIX_TILE, w->k * (n + 1) * MATRIX_TILE / 4);
    }
}

static void matmul(gb_device *d, gb_buffer *y, const gb_matrix *w, const float *bias, gb_buffer *x)
{
    cpu_rewrite(y, x->rows);
    multiply(d, y->f32, w, bias, x, 0, x->rows);
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
    multiply(d, host, w, NULL, x, first, n);
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
    .rope = rope,
    .kv_store = attention_store,
    .attention = attention_run,
    .gate = gate,
    .add = add,
    .gather = gather,
    .read = read,
    .logits = logits,
};
