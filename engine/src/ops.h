/* ops.h: operations over opaque buffers, behind which a device can stand.
 *
 * forward.c and kvcache.c see activations and KV only through this table, and in order, so a
 * device may record what it is asked and run it later; end() waits for it. Operations
 * cannot fail one by one: a value that is not finite is remembered and reported by end().
 * What each computes is in docs/numerics.md; how weights lie in memory is the device's affair. */
#ifndef GB_OPS_H
#define GB_OPS_H
#include "model.h"

typedef struct gb_device gb_device;
typedef struct gb_buffer gb_buffer; /* rows of activations, f32 to the eye */
typedef struct gb_page gb_page;     /* KV of GB_CHUNK positions of one sequence, all layers */

typedef struct gb_device_options {
    int32_t activations;    /* ENGINE_ACTIVATIONS_* */
    int32_t kv;             /* ENGINE_KV_* */
    int32_t context_tokens; /* positions that a sequence may hold */
    int32_t threads;
    int32_t batch; /* rows at most */
    int32_t no_repack;
} gb_device_options;

/* One row of the batch. pages is its sequence's table: page i holds positions from 128 i on. */
typedef struct gb_row {
    int32_t pos;
    int32_t token;
    const float *embedding; /* instead of token where not NULL */
    gb_page *const *pages;
} gb_row;

enum { GB_MASK_CAUSAL = 0, GB_MASK_WINDOW = 1 };

typedef struct gb_mask {
    int kind;
    int32_t window; /* of GB_MASK_WINDOW: a row sees this many positions, its own included */
} gb_mask;

enum { GB_ROPE_FULL = 0, GB_ROPE_LOCAL = 1 };

/* What a matrix makes of rows; bias may be NULL. */
typedef struct gb_product {
    gb_buffer *y;
    const gb_matrix *w;
    const float *bias;
} gb_product;

typedef struct gb_ops {
    const char *name;
    engine_status (*device_new)(gb_device **out, const engine_model *model, const gb_device_options *options, char *err,
                                size_t errlen);
    void (*device_free)(gb_device *d);
    gb_buffer *(*buffer_new)(gb_device *d, int64_t rows, int64_t width); /* NULL where out of memory */
    void (*buffer_free)(gb_device *d, gb_buffer *b);

    gb_page *(*page_new)(gb_device *d); /* NULL where out of memory */
    void (*page_free)(gb_device *d, gb_page *p);
    void (*page_copy)(gb_device *d, gb_page *to, const gb_page *from);
    uint64_t (*page_bytes)(const gb_device *d);
    /* The first positions of a page as bytes (page_bytes of them, the rest zero), and back. */
    void (*page_save)(const gb_device *d, const gb_page *p, int32_t positions, void *out);
    void (*page_load)(gb_device *d, gb_page *p, const void *in);

    /* A batch begins; rows stay as they are until end(). */
    void (*begin)(gb_device *d, const gb_row *rows, int32_t n);
    engine_status (*end)(gb_device *d, char *err, size_t errlen);

    void (*embed)(gb_device *d, gb_buffer *x, const gb_matrix *table, float scale);
    /* y = norm(x) * w over each group of n values; y may be x */
    void (*norm)(gb_device *d, gb_buffer *y, gb_buffer *x, const float *w, int64_t n, float eps);
    /* n (1 … 3) products with the same rows: y = w x + bias each */
    void (*matmul)(gb_device *d, gb_buffer *x, int n, const gb_product *products);
    /* gate.y = act(gate.w x + bias) * (up.w x + bias); kind is GB_GATE_*, up.y is overwritten */
    void (*gated_matmul)(gb_device *d, gb_buffer *x, const gb_product *gate, const gb_product *up, int kind);
    void (*rope)(gb_device *d, gb_buffer *x, int64_t head_dim, int which); /* GB_ROPE_* */
    /* Attention of the same layer comes next, and k and v stay as they are until it has. */
    void (*kv_store)(gb_device *d, int32_t layer, gb_buffer *k, gb_buffer *v);
    void (*attention)(gb_device *d, gb_buffer *y, gb_buffer *q, int32_t layer, gb_mask mask);
    void (*add)(gb_device *d, gb_buffer *x, gb_buffer *y); /* x = x + y */
    void (*gather)(gb_device *d, gb_buffer *y, gb_buffer *x, const int32_t *rows, int32_t n);
    /* Rows first … first+n-1 to the host: as they are, or times w and capped: [n][w->rows]. */
    void (*read)(gb_device *d, gb_buffer *x, int32_t first, int32_t n, float *host);
    void (*logits)(gb_device *d, gb_buffer *x, int32_t first, int32_t n, const gb_matrix *w, float cap, float *host);
} gb_ops;

extern const gb_ops ops_cpu;

#endif
