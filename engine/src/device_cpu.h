/* device_cpu.h: what the files of the CPU device share. ops_cpu.c owns the device, its buffers and the
 * matrix products; attention_cpu.c owns what is in a page and the attention over it. */
#ifndef GB_DEVICE_CPU_H
#define GB_DEVICE_CPU_H
#include "ops.h"
#include "repack.h"
#include "threads.h"

#include <stdatomic.h>

enum { FEW_ROWS = 16 }; /* a batch up to here reads the weights as fast as memory gives them */

struct gb_buffer {
    int64_t rows, width; /* rows in use */
    float *f32;          /* [rows][width] */
    gb_act32 *act;       /* [rows][width / 32]; NULL where never needed */
    gb_acts acts;        /* the same for panels; data is NULL where never needed */
    int64_t first;       /* act and acts begin at this row */
    int64_t quantised;   /* rows from it on that they hold now */
};

/* What attention_store() was asked to store. */
typedef struct store_job {
    gb_device *d;
    int64_t layer;
    const float *k, *v; /* [n][kv_heads][key_dim], [n][kv_heads][value_dim] */
} store_job;

/* Pages and the scratch of attention; released with attention_free(). */
typedef struct attention_state {
    uint64_t key_bytes, value_bytes; /* of one layer and head in a page */
    float *partials;                 /* [rows][heads][chunks] of one chunk's result each */
    int64_t partial_floats;
    int8_t *codes;  /* KV q8: queries of a batch, [rows][heads][key_dim], and */
    float *scales;  /* [rows][heads][key_dim / 32] */
    store_job store; /* of the layer; where rows are apart, attention_run() stores */
    int apart;
} attention_state;

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
    float *cs[2];       /* [context_tokens][rope_dims / 2][2] cosine and sine, GB_ROPE_* */
    uint8_t *cs_known;  /* [context_tokens]: that position's are computed */
    int32_t *positions; /* [batch]: those to compute now */
    int64_t looked_up;  /* rows of an embedding without panels since its pages were given back */

    attention_state attention;
};

/* Aligned memory with undefined contents, or zeros; NULL where there is none. Release with free(). */
void *cpu_allocate(uint64_t bytes);
void *cpu_allocate_zeros(uint64_t bytes);
/* Split items of the given cost each (element operations); small work stays in the caller. */
void cpu_split(gb_device *d, threads_fn fn, void *arg, int64_t items, int64_t cost);
/* Remember that a value was not finite. */
void cpu_check(gb_device *d, int finite);
/* b is about to be written, with so many rows. */
void cpu_rewrite(gb_buffer *b, int64_t rows);

int attention_init(gb_device *d); /* 0 where out of memory */
void attention_free(gb_device *d);
gb_page *attention_page_new(gb_device *d);
void attention_page_free(gb_device *d, gb_page *p);
void attention_page_copy(gb_device *d, gb_page *to, const gb_page *from);
uint64_t attention_page_bytes(const gb_device *d);
void attention_page_save(const gb_device *d, const gb_page *p, int32_t positions, void *out);
void attention_page_load(gb_device *d, gb_page *p, const void *in);
void attention_store(gb_device *d, int32_t layer, gb_buffer *k, gb_buffer *v);
void attention_run(gb_device *d, gb_buffer *y, gb_buffer *q, int32_t layer, gb_mask mask);

#endif
