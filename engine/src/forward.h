/* forward.h: one batch through all layers. */
#ifndef GB_FORWARD_H
#define GB_FORWARD_H
#include "ops.h"

#include <stdatomic.h>

/* The activations of one batch; owned by the context. */
typedef struct forward_buffers {
    gb_buffer *x;    /* [rows][width] the residual stream */
    gb_buffer *h;    /* [rows][width] */
    gb_buffer *q;    /* [rows][heads key_dim] */
    gb_buffer *k;    /* [rows][kv_heads key_dim] */
    gb_buffer *v;    /* [rows][kv_heads value_dim] */
    gb_buffer *a;    /* [rows][heads value_dim] */
    gb_buffer *g;    /* [rows][ffn] */
    gb_buffer *u;    /* [rows][ffn] */
} forward_buffers;

/* What is wanted of the batch: rows in ascending order, each with its kind. */
typedef struct forward_wants {
    const int32_t *rows;
    const int32_t *kinds; /* ENGINE_WANT_LOGITS or ENGINE_WANT_HIDDEN */
    int32_t n;
    float *out;           /* the results, one after the other */
} forward_wants;

engine_status forward_buffers_new(forward_buffers *out, const gb_ops *ops, gb_device *d, const arch_config *c,
                                  int32_t rows, char *err, size_t errlen);
void forward_buffers_free(forward_buffers *b, const gb_ops *ops, gb_device *d);

/* Evaluate rows, whose KV pages are writable. Stops with ENGINE_ECANCELLED at the first layer
 * that finds *cancel set. */
engine_status forward(const engine_model *model, const gb_ops *ops, gb_device *d, const forward_buffers *b,
                      const gb_row *rows, int32_t n, const forward_wants *wants, atomic_int *cancel, char *err,
                      size_t errlen);

#endif
