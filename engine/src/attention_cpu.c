/* attention_cpu.c: pages of keys and values, and attention over them; see device_cpu.h.
 *
 * A page holds, for each layer and KV head, the keys of GB_CHUNK positions and then their values,
 * laid out as kernels.h says for each KV type; q8 codes are followed by their scales. Attention is two
 * passes: every chunk that a row sees gives a partial result, then each head's are merged in
 * ascending order. Work is split over (chunk, KV head, run of rows), so that one row with a long
 * past keeps all workers busy, and a prompt's rows share what was read; a prompt of many runs is split over
 * runs alone. */
#define _DEFAULT_SOURCE
#include "device_cpu.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
    SCRATCH_FLOATS = 1 << 22, /* of partial results, unless one row needs more */
    MAX_QUERIES = 96,         /* handed to a kernel at once */
    MANY_RUNS = 4,            /* so many for each worker are worth being split alone */
    MAX_HEAD = 1024,          /* elements of a head, arch.c */
    STORE_ROWS = 32,          /* rows of a unit of storing: their f16 lanes fill a cache line */
    VECTOR = 16,              /* floats; partial results are aligned to it */
    LARGE_PAGE = 2 << 20,
};

/* ---- Pages ---------------------------------------------------------------------------------- */

static void set_page_layout(gb_device *d)
{
    const arch_config *c = &d->model->config;
    uint64_t keys = (uint64_t)c->key_dim * GB_CHUNK, values = (uint64_t)c->value_dim * GB_CHUNK;
    uint64_t item = d->options.kv == ENGINE_KV_F32 ? 4 : d->options.kv == ENGINE_KV_F16 ? 2 : 1;
    uint64_t scales = d->options.kv == ENGINE_KV_Q8 ? sizeof(float) : 0;
    d->attention.key_bytes = keys * item + keys / GB_BLOCK * scales;
    d->attention.value_bytes = values * item + values / GB_BLOCK * scales;
}

uint64_t attention_page_bytes(const gb_device *d)
{
    const arch_config *c = &d->model->config;
    return (d->attention.key_bytes + d->attention.value_bytes) * (uint64_t)c->layers * (uint64_t)c->kv_heads;
}

/* Whole 2 MiB of a page are asked for as large pages of the system: attention reads all of them. */
gb_page *attention_page_new(gb_device *d)
{
    uint64_t bytes = attention_page_bytes(d);
    if (bytes < LARGE_PAGE)
        return cpu_allocate_zeros(bytes);
    void *p = NULL;
    if (bytes > SIZE_MAX / 2 || posix_memalign(&p, LARGE_PAGE, (size_t)bytes) != 0)
        return NULL;
#if defined(MADV_HUGEPAGE)
    madvise(p, (size_t)(bytes / LARGE_PAGE * LARGE_PAGE), MADV_HUGEPAGE); /* refused: small ones do */
#endif
    memset(p, 0, (size_t)bytes);
    return p;
}

void attention_page_free(gb_device *d, gb_page *p)
{
    (void)d;
    free(p);
}

void attention_page_copy(gb_device *d, gb_page *to, const gb_page *from)
{
    memcpy(to, from, attention_page_bytes(d));
}

/* Where one layer and KV head's keys and values lie in a page. */
typedef struct plane {
    uint8_t *k, *v;
    float *k_scales, *v_scales; /* q8 only */
} plane;

static plane plane_at(const gb_device *d, void *page, int64_t layer, int64_t head)
{
    const arch_config *c = &d->model->config;
    const attention_state *a = &d->attention;
    uint8_t *k = (uint8_t *)page + (a->key_bytes + a->value_bytes) * (uint64_t)(layer * c->kv_heads + head);
    plane p = {.k = k, .v = k + a->key_bytes};
    if (d->options.kv == ENGINE_KV_Q8) {
        p.k_scales = (float *)(void *)(p.k + (size_t)c->key_dim * GB_CHUNK);
        p.v_scales = (float *)(void *)(p.v + (size_t)c->value_dim * GB_CHUNK);
    }
    return p;
}

/* Zero the positions from first on of one plane of keys: [n][GB_CHUNK] items. */
static void clear_lanes(void *items, int64_t n, int32_t first, size_t item)
{
    for (int64_t i = 0; i < n; i++)
        memset((uint8_t *)items + ((size_t)i * GB_CHUNK + (size_t)first) * item, 0, (size_t)(GB_CHUNK - first) * item);
}

/* The same of values: [GB_CHUNK][n] items. */
static void clear_rows(void *items, int64_t n, int32_t first, size_t item)
{
    memset((uint8_t *)items + (size_t)first * (size_t)n * item, 0, (size_t)(GB_CHUNK - first) * (size_t)n * item);
}

void attention_page_save(const gb_device *d, const gb_page *p, int32_t positions, void *out)
{
    const arch_config *c = &d->model->config;
    memcpy(out, p, attention_page_bytes(d));
    size_t item = d->options.kv == ENGINE_KV_F32 ? 4 : 2;
    for (int64_t i = 0; positions < GB_CHUNK && i < (int64_t)c->layers * c->kv_heads; i++) {
        plane at = plane_at(d, out, i / c->kv_heads, i % c->kv_heads);
        if (d->options.kv == ENGINE_KV_Q8) {
            clear_lanes(at.k, c->key_dim / 4, positions, 4);
            clear_rows(at.v, c->value_dim, positions, 1);
            clear_lanes(at.k_scales, c->key_dim / GB_BLOCK, positions, sizeof(float));
            clear_lanes(at.v_scales, c->value_dim / GB_BLOCK, positions, sizeof(float));
        } else {
            clear_lanes(at.k, c->key_dim, positions, item);
            clear_rows(at.v, c->value_dim, positions, item);
        }
    }
}

void attention_page_load(gb_device *d, gb_page *p, const void *in)
{
    memcpy(p, in, attention_page_bytes(d));
}

/* ---- Storing ----------------------------------------------------------------------------------- */

static int store_f16(const gb_device *d, const float *k, const float *v, const plane *at, int64_t p)
{
    const arch_config *c = &d->model->config;
    uint16_t row[MAX_HEAD], *keys = (uint16_t *)(void *)at->k, *values = (uint16_t *)(void *)at->v;
    int finite = d->kernels->narrow_f16(k, c->key_dim, row);
    for (int64_t i = 0; i < c->key_dim; i++)
        keys[i * GB_CHUNK + p] = row[i];
    return finite & d->kernels->narrow_f16(v, c->value_dim, values + p * c->value_dim);
}

static int store_f32(const gb_device *d, const float *k, const float *v, const plane *at, int64_t p)
{
    const arch_config *c = &d->model->config;
    float *keys = (float *)(void *)at->k, *values = (float *)(void *)at->v;
    for (int64_t i = 0; i < c->key_dim; i++)
        keys[i * GB_CHUNK + p] = k[i];
    memcpy(values + p * c->value_dim, v, (size_t)c->value_dim * sizeof *v);
    return d->kernels->all_finite(k, c->key_dim) & d->kernels->all_finite(v, c->value_dim);
}

static int store_q8(const gb_device *d, const float *k, const float *v, const plane *at, int64_t p)
{
    const arch_config *c = &d->model->config;
    int8_t codes[MAX_HEAD];
    float k_scales[MAX_HEAD / GB_BLOCK], v_scales[MAX_HEAD / GB_BLOCK];
    if (!d->kernels->quantise_q8(k, c->key_dim, codes, k_scales) ||
        !d->kernels->quantise_q8(v, c->value_dim, (int8_t *)at->v + p * c->value_dim, v_scales))
        return 0;
    for (int64_t i = 0; i < c->key_dim; i += 4)
        memcpy(at->k + i * GB_CHUNK + p * 4, codes + i, 4);
    for (int64_t b = 0; b < c->key_dim / GB_BLOCK; b++)
        at->k_scales[b * GB_CHUNK + p] = k_scales[b];
    for (int64_t b = 0; b < c->value_dim / GB_BLOCK; b++)
        at->v_scales[b * GB_CHUNK + p] = v_scales[b];
    return 1;
}

/* Keys and values of one KV head of row t to their page; whether they are finite. */
static int store_head(const store_job *j, int64_t t, int64_t head)
{
    const gb_device *d = j->d;
    const arch_config *c = &d->model->config;
    const gb_row *row = &d->rows[t];
    plane at = plane_at(d, row->pages[row->pos / GB_CHUNK], j->layer, head);
    const float *k = j->k + (t * c->kv_heads + head) * c->key_dim;
    const float *v = j->v + (t * c->kv_heads + head) * c->value_dim;
    int64_t p = row->pos % GB_CHUNK;
    return d->options.kv == ENGINE_KV_F32  ? store_f32(d, k, v, &at, p)
           : d->options.kv == ENGINE_KV_Q8 ? store_q8(d, k, v, &at, p)
                                           : store_f16(d, k, v, &at, p);
}

/* Item (KV head, run of rows). */
static void store_heads(void *arg, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    const store_job *j = arg;
    int64_t heads = j->d->model->config.kv_heads;
    int finite = 1;
    for (int64_t i = begin; i < end; i++) {
        int64_t first = i / heads * STORE_ROWS;
        for (int64_t t = first; t < j->d->n && t < first + STORE_ROWS; t++)
            finite &= store_head(j, t, i % heads);
    }
    cpu_check(j->d, finite);
}

/* Whether rows are few and each of a sequence of its own: none sees what is stored for another. */
static int rows_are_apart(const gb_device *d)
{
    for (int64_t t = 0; t < d->n; t++)
        for (int64_t u = 0; u < t; u++)
            if (d->n > FEW_ROWS || d->rows[t].pages == d->rows[u].pages)
                return 0;
    return 1;
}

/* Keys and values of rows that are apart are stored when a head is attended to, by the worker that reads them. */
void attention_store(gb_device *d, int32_t layer, gb_buffer *k, gb_buffer *v)
{
    const arch_config *c = &d->model->config;
    d->attention.store = (store_job){.d = d, .layer = layer, .k = k->f32, .v = v->f32};
    d->attention.apart = rows_are_apart(d);
    if (d->attention.apart)
        return;
    int64_t runs = (d->n + STORE_ROWS - 1) / STORE_ROWS, rows = d->n < STORE_ROWS ? d->n : STORE_ROWS;
    cpu_split(d, store_heads, &d->attention.store, runs * c->kv_heads, rows * (c->key_dim + c->value_dim));
}

/* ---- Attention ----------------------------------------------------------------------------------- */

typedef struct attention_job {
    gb_device *d;
    int64_t layer;
    gb_mask mask;
    const float *q;         /* [n][heads][key_dim] */
    float *y;               /* [n][heads][value_dim] */
    float *partials;        /* of rows from row0 on */
    int64_t row0, row1;     /* rows of this pass */
    int64_t chunk0, chunks; /* chunks that any of them sees */
    int64_t run, runs;      /* rows of a run, and how many runs */
} attention_job;

/* A partial result is m, l, o[value_dim]; o is aligned. */
static int64_t partial_stride(const gb_device *d)
{
    return VECTOR + (d->model->config.value_dim + VECTOR - 1) / VECTOR * VECTOR;
}

static float *partial_at(const attention_job *j, int64_t row, int64_t head, int64_t chunk)
{
    int64_t heads = j->d->model->config.heads;
    int64_t index = ((row - j->row0) * heads + head) * j->chunks + chunk - j->chunk0;
    return j->partials + index * partial_stride(j->d) + VECTOR - 2;
}

/* The first position that a row sees. */
static int64_t first_seen(const attention_job *j, const gb_row *row)
{
    int64_t first = (int64_t)row->pos + 1 - j->mask.window;
    return j->mask.kind == GB_MASK_WINDOW && first > 0 ? first : 0;
}

/* Item (row, query head): quantise it. */
static void quantise_queries(void *arg, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    attention_job *j = arg;
    gb_device *d = j->d;
    int64_t dim = d->model->config.key_dim;
    for (int64_t i = begin; i < end; i++)
        cpu_check(d, d->kernels->quantise_q8(j->q + i * dim, dim, d->attention.codes + i * dim,
                                             d->attention.scales + i * (dim / GB_BLOCK)));
}

/* Query head h of row t, against positions first … last-1 of a chunk. */
static gb_query query_at(const attention_job *j, int64_t t, int64_t h, int64_t chunk, int64_t first, int64_t last)
{
    const gb_device *d = j->d;
    const arch_config *c = &d->model->config;
    int64_t at = t * c->heads + h;
    gb_query q = {.q = j->q + at * c->key_dim, .first = (int32_t)first, .last = (int32_t)last,
                  .out = partial_at(j, t, h, chunk)};
    if (d->options.kv == ENGINE_KV_Q8) {
        q.q = d->attention.scales + at * (c->key_dim / GB_BLOCK);
        q.codes = d->attention.codes + at * c->key_dim;
    }
    return q;
}

/* n queries against one page; next are the keys after it, or NULL. */
static void attend_page(const attention_job *j, gb_page *page, int64_t head, const gb_query *q, int64_t n,
                        const void *next)
{
    gb_device *d = j->d;
    const arch_config *c = &d->model->config;
    if (n == 0)
        return;
    plane at = plane_at(d, page, j->layer, head);
    gb_kv_chunk kv = {.k = at.k, .v = at.v, .k_scales = at.k_scales, .v_scales = at.v_scales, .key_dim = c->key_dim,
                      .value_dim = c->value_dim, .scale = c->attention_scale, .cap = c->attention_cap, .next = next};
    cpu_check(d, d->kernels->attend[d->options.kv](&kv, q, n));
}

/* One KV head and chunk: the queries of rows begin … end-1 that see it, page by page. */
static void attend_chunk(const attention_job *j, int64_t chunk, int64_t head, int64_t begin, int64_t end)
{
    const gb_device *d = j->d;
    const arch_config *c = &d->model->config;
    int64_t group = c->heads / c->kv_heads, start = chunk * GB_CHUNK, n = 0;
    gb_query queries[MAX_QUERIES];
    gb_page *page = NULL;
    for (int64_t t = begin; t < end; t++) {
        const gb_row *row = &d->rows[t];
        int64_t first = first_seen(j, row) - start, last = (int64_t)row->pos + 1 - start;
        if (first >= GB_CHUNK || last <= 0)
            continue;
        first = first > 0 ? first : 0;
        last = last < GB_CHUNK ? last : GB_CHUNK;
        for (int64_t h = head * group; h < (head + 1) * group; h++) {
            if (row->pages[chunk] != page || n == MAX_QUERIES) {
                attend_page(j, page, head, queries, n, plane_at(d, row->pages[chunk], j->layer, head).k);
                page = row->pages[chunk];
                n = 0;
            }
            queries[n++] = query_at(j, t, h, chunk, first, last);
        }
    }
    if (n == 0)
        return;
    const gb_row *row = &d->rows[end - 1];
    const void *next = NULL;
    if (head + 1 < c->kv_heads)
        next = plane_at(d, page, j->layer, head + 1).k;
    else if (chunk < row->pos / GB_CHUNK)
        next = plane_at(d, row->pages[chunk + 1], j->layer, 0).k;
    attend_page(j, page, head, queries, n, next);
}

/* Query head h of row t: its chunks in ascending order. */
static void merge_head(const attention_job *j, int64_t t, int64_t h)
{
    const gb_device *d = j->d;
    const arch_config *c = &d->model->config;
    const gb_row *row = &d->rows[t];
    int64_t first = first_seen(j, row) / GB_CHUNK, last = row->pos / GB_CHUNK;
    const float *part = partial_at(j, t, h, first);
    d->kernels->merge(part, part + 1, part + 2, partial_stride(d), last - first + 1, c->value_dim,
                      j->y + (t * c->heads + h) * c->value_dim);
}

/* Item (chunk, KV head, run of rows), the last index fastest; of rows that are apart (row, chunk, KV head), so that
 * what a worker stores it reads again at the next position. */
static void attend_chunks(void *arg, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    const attention_job *j = arg;
    const arch_config *c = &j->d->model->config;
    int64_t group = c->heads / c->kv_heads, each = j->chunks * c->kv_heads, apart = j->d->attention.apart;
    for (int64_t i = begin; i < end; i++) {
        int64_t run = apart ? i / each : i % j->runs, index = apart ? i % each : i / j->runs;
        int64_t first = j->row0 + run * j->run, last = first + j->run < j->row1 ? first + j->run : j->row1;
        int64_t chunk = j->chunk0 + index / c->kv_heads, head = index % c->kv_heads;
        if (apart && j->d->rows[first].pos / GB_CHUNK == chunk)
            cpu_check(j->d, store_head(&j->d->attention.store, first, head));
        attend_chunk(j, chunk, head, first, last);
        for (int64_t t = first; j->chunks == 1 && t < last; t++) /* no other chunk is merged with it */
            for (int64_t h = head * group; h < (head + 1) * group; h++)
                merge_head(j, t, h);
    }
}

/* Item (row, query head). */
static void merge_heads(void *arg, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    const attention_job *j = arg;
    int64_t heads = j->d->model->config.heads;
    for (int64_t i = begin; i < end; i++)
        merge_head(j, j->row0 + i / heads, i % heads);
}

/* Item: a run of rows with all their heads and chunks, merged while what the worker has of partial results
 * is in its cache. */
static void attend_runs(void *arg, int64_t begin, int64_t end, int worker)
{
    const attention_job *all = arg;
    const arch_config *c = &all->d->model->config;
    attention_job j = *all;
    j.partials += worker * (all->run * c->heads * all->chunks * partial_stride(all->d));
    for (int64_t i = begin; i < end; i++) {
        j.row0 = all->row0 + i * all->run;
        int64_t last = j.row0 + all->run < all->row1 ? j.row0 + all->run : all->row1;
        for (int64_t k = 0; k < all->chunks * c->kv_heads; k++)
            attend_chunk(&j, all->chunk0 + k / c->kv_heads, k % c->kv_heads, j.row0, last);
        for (int64_t k = 0; k < (last - j.row0) * c->heads; k++)
            merge_head(&j, j.row0 + k / c->heads, k % c->heads);
    }
}

/* How many positions of a chunk a row of this pass sees, about: few where a sequence has just begun. */
static int64_t seen_in_chunk(const attention_job *j)
{
    int64_t seen = (int64_t)j->d->rows[j->row1 - 1].pos + 1;
    return j->chunks == 1 && seen < GB_CHUNK / 2 ? seen : GB_CHUNK / 2;
}

/* Choose rows row0 … row1-1 whose partial results fit into the scratch: at least one does. */
static void next_pass(attention_job *j)
{
    gb_device *d = j->d;
    const arch_config *c = &d->model->config;
    int64_t low = INT64_MAX, high = -1;
    for (j->row1 = j->row0; j->row1 < d->n; j->row1++) {
        const gb_row *row = &d->rows[j->row1];
        int64_t first = first_seen(j, row) / GB_CHUNK, last = row->pos / GB_CHUNK;
        int64_t l = first < low ? first : low, h = last > high ? last : high;
        int64_t floats = (j->row1 + 1 - j->row0) * c->heads * (h - l + 1) * partial_stride(d);
        if (floats > d->attention.partial_floats)
            break;
        low = l;
        high = h;
    }
    j->chunk0 = low;
    j->chunks = high - low + 1;
    int64_t group = c->heads / c->kv_heads;
    j->run = !d->attention.apart && group < MAX_QUERIES ? MAX_QUERIES / group : 1;
    j->runs = (j->row1 - j->row0 + j->run - 1) / j->run;
}

void attention_run(gb_device *d, gb_buffer *y, gb_buffer *q, int32_t layer, gb_mask mask)
{
    const arch_config *c = &d->model->config;
    attention_job j = {.d = d, .layer = layer, .mask = mask, .q = q->f32, .y = y->f32};
    j.partials = d->attention.partials;
    cpu_rewrite(y, q->rows);
    if (d->options.kv == ENGINE_KV_Q8)
        cpu_split(d, quantise_queries, &j, (int64_t)d->n * c->heads, 4 * c->key_dim);
    for (j.row0 = 0; j.row0 < d->n; j.row0 = j.row1) {
        next_pass(&j);
        int64_t rows = j.row1 - j.row0, run = rows < j.run ? rows : j.run;
        if (!d->attention.apart && j.runs >= MANY_RUNS * threads_count(d->pool)) {
            cpu_split(d, attend_runs, &j, j.runs, run * c->heads * j.chunks * (c->key_dim + c->value_dim));
            continue;
        }
        cpu_split(d, attend_chunks, &j, j.chunks * c->kv_heads * j.runs,
                  run * (c->heads / c->kv_heads) * seen_in_chunk(&j) * (c->key_dim + c->value_dim));
        if (j.chunks > 1)
            cpu_split(d, merge_heads, &j, rows * c->heads, j.chunks * c->value_dim);
    }
}

/* ---- State ---------------------------------------------------------------------------------------- */

int attention_init(gb_device *d)
{
    const arch_config *c = &d->model->config;
    attention_state *a = &d->attention;
    uint64_t chunks = (uint64_t)d->options.context_tokens / GB_CHUNK + 1;
    uint64_t row = chunks * (uint64_t)c->heads * (uint64_t)partial_stride(d), batch = (uint64_t)d->options.batch;
    uint64_t queries = batch * (uint64_t)c->heads * (uint64_t)c->key_dim;
    set_page_layout(d);
    a->partial_floats = (int64_t)(row > SCRATCH_FLOATS ? row : row * batch < SCRATCH_FLOATS ? row * batch : SCRATCH_FLOATS);
    a->partials = cpu_allocate((uint64_t)a->partial_floats * sizeof(float));
    if (d->options.kv == ENGINE_KV_Q8) {
        a->codes = cpu_allocate(queries);
        a->scales = cpu_allocate(queries / GB_BLOCK * sizeof(float));
    }
    return a->partials != NULL && (d->options.kv != ENGINE_KV_Q8 || (a->codes != NULL && a->scales != NULL));
}

void attention_free(gb_device *d)
{
    free(d->attention.partials);
    free(d->attention.codes);
    free(d->attention.scales);
}
