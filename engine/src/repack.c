/* repack.c: all matrices of a model as panels in one piece of memory; see repack.h. They lie in
 * the order in which a step reads them, so that prefetching runs on from one to the next. Owns
 * that memory; refuses when there is not enough. */
#define _DEFAULT_SOURCE
#include "repack.h"

#include "gguf.h"
#include "status.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { HUGE_PAGE = 2 << 20, UNIT_BYTES = 512 << 10, MATRICES_OF_LAYER = 7, ALIGNMENT = 64 };

struct gb_repack {
    pthread_mutex_t lock;
    int built;
    gb_panels *panels; /* by number of the matrix */
    uint8_t *memory;
    uint64_t bytes;
};

/* Units of work: panels of one matrix that come from about UNIT_BYTES of the file. */
typedef struct packing {
    const engine_model *model;
    const gb_matrix **matrices; /* [count] in the order in which a step reads them */
    int64_t *units;             /* [count + 1]: units before each */
    int64_t count;
    gb_panels *panels;
} packing;

gb_repack *gb_repack_new(void)
{
    gb_repack *r = calloc(1, sizeof *r);
    if (r != NULL)
        pthread_mutex_init(&r->lock, NULL);
    return r;
}

void gb_repack_free(gb_repack *r)
{
    if (r == NULL)
        return;
    if (r->memory != NULL)
        munmap(r->memory, r->bytes);
    free(r->panels);
    pthread_mutex_destroy(&r->lock);
    free(r);
}

const gb_panels *gb_repack_find(const gb_repack *r, const gb_matrix *w)
{
    return &r->panels[w->number];
}

static int64_t panels_of_unit(const gb_matrix *w)
{
    return (int64_t)(UNIT_BYTES / (w->row_bytes * GB_PANEL_ROWS)) + 1;
}

/* List the matrices and cut them into units. */
static int plan(packing *p, const engine_model *m)
{
    int64_t n = 0, most = (int64_t)m->config.layers * MATRICES_OF_LAYER + 1;
    p->model = m;
    p->matrices = calloc((size_t)most, sizeof *p->matrices);
    p->units = calloc((size_t)most + 1, sizeof *p->units);
    if (p->matrices == NULL || p->units == NULL)
        return 0;
    for (int32_t i = 0; i < m->config.layers; i++) {
        const model_layer *l = &m->layers[i];
        const gb_matrix *all[MATRICES_OF_LAYER] = {&l->q, &l->k, &l->v, &l->o, &l->gate, &l->up, &l->down};
        for (int j = 0; j < MATRICES_OF_LAYER; j++)
            p->matrices[n++] = all[j];
    }
    p->matrices[n++] = &m->output;
    p->count = n;
    for (int64_t i = 0; i < n; i++) {
        int64_t panels = gb_panel_count(p->matrices[i]->rows), unit = panels_of_unit(p->matrices[i]);
        p->units[i + 1] = p->units[i] + (panels + unit - 1) / unit;
    }
    return 1;
}

static void release_rows(const packing *p, const gb_matrix *w, int64_t r0, int64_t r1)
{
    gguf_release(p->model->file, w->data + (uint64_t)r0 * w->row_bytes, (uint64_t)(r1 - r0) * w->row_bytes);
}

static void pack_units(void *arg, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    const packing *p = arg;
    int64_t i = 0;
    for (int64_t u = begin; u < end; u++) {
        while (p->units[i + 1] <= u)
            i++;
        const gb_matrix *w = p->matrices[i];
        const gb_panels *to = &p->panels[w->number];
        int64_t panels = gb_panel_count(w->rows), unit = panels_of_unit(w), first = (u - p->units[i]) * unit;
        int64_t last = first + unit < panels ? first + unit : panels;
        for (int64_t q = first; q < last; q++)
            gb_panel_pack(w, q, to->data + (uint64_t)q * to->panel_bytes);
        release_rows(p, w, first * GB_PANEL_ROWS, last * GB_PANEL_ROWS < w->rows ? last * GB_PANEL_ROWS : w->rows);
    }
}

/* Memory for the panels, in large pages where the system grants them. */
static uint8_t *reserve(uint64_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    madvise(p, bytes, MADV_HUGEPAGE);
    return p;
}

static engine_status build(gb_repack *r, packing *p, threads *pool, char *err, size_t errlen)
{
    const engine_model *m = p->model;
    uint64_t bytes = 0;
    r->panels = calloc((size_t)m->matrices, sizeof *r->panels);
    if (r->panels == NULL)
        return gb_fail(err, errlen, ENGINE_ENOMEM, "out of memory for %d matrices", m->matrices);
    for (int64_t i = 0; i < p->count; i++) {
        const gb_matrix *w = p->matrices[i];
        gb_panels *to = &r->panels[w->number];
        *to = (gb_panels){.type = w->type, .panel_bytes = gb_panel_bytes(w->type, w->k), .k = w->k, .rows = w->rows};
        bytes += ((uint64_t)gb_panel_count(w->rows) * to->panel_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
    r->bytes = bytes + 2 * HUGE_PAGE; /* room to align, and to prefetch past the end */
    r->memory = reserve(r->bytes);
    if (r->memory == NULL)
        return gb_fail(err, errlen, ENGINE_ENOMEM,
                       "no memory for %llu bytes of repacked weights; run without repacking, from the file's own bytes",
                       (unsigned long long)bytes);
    uint8_t *at = (uint8_t *)(((uintptr_t)r->memory + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE);
    for (int64_t i = 0; i < p->count; i++) {
        gb_panels *to = &r->panels[p->matrices[i]->number];
        to->data = at;
        at += ((uint64_t)gb_panel_count(to->rows) * to->panel_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
    p->panels = r->panels;
    threads_run(pool, pack_units, p, p->units[p->count], 1);
    for (int64_t i = 0; i < p->count; i++) /* what neighbouring units read at their seams */
        release_rows(p, p->matrices[i], 0, p->matrices[i]->rows);
    r->built = 1;
    return ENGINE_OK;
}

engine_status gb_repack_build(const engine_model *model, threads *pool, char *err, size_t errlen)
{
    gb_repack *r = model->repack;
    packing p = {0};
    engine_status status = ENGINE_OK;
    pthread_mutex_lock(&r->lock);
    if (!r->built) {
        status = plan(&p, model) ? build(r, &p, pool, err, errlen)
                                 : gb_fail(err, errlen, ENGINE_ENOMEM, "out of memory for a list of matrices");
        if (status != ENGINE_OK) {
            free(r->panels);
            r->panels = NULL;
        }
        free(p.matrices);
        free(p.units);
    }
    pthread_mutex_unlock(&r->lock);
    return status;
}
