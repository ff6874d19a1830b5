/* forward.c: the forward pass of every family, written against ops.h only.
 *
 * Shapes: n rows of one batch, each a position of some sequence. Families differ by the fields
 * of arch_config, never by a copy of this function. Owns nothing but the buffers it makes. */
#include "forward.h"

#include "status.h"

#include <string.h>

/* Attention of one layer: x += o(attend(rope(q(norm x)), kv)). */
static void attention_block(const engine_model *m, int32_t il, const gb_ops *ops, gb_device *d,
                            const forward_buffers *b)
{
    const arch_config *c = &m->config;
    const model_layer *l = &m->layers[il];
    int local = c->local[il];
    int which = local ? GB_ROPE_LOCAL : GB_ROPE_FULL;
    gb_mask mask = {local ? GB_MASK_WINDOW : GB_MASK_CAUSAL, local ? c->window : 0};

    const gb_product qkv[] = {
        {b->q, &l->q, l->q_bias}, /* [n][heads][key_dim] */
        {b->k, &l->k, l->k_bias}, /* [n][kv_heads][key_dim] */
        {b->v, &l->v, l->v_bias}, /* [n][kv_heads][value_dim] */
    };
    const gb_product output = {b->h, &l->o, l->o_bias}; /* [n][width] */

    ops->norm(d, b->h, b->x, l->attn_norm, c->width, c->norm_eps); /* h: [n][width] */
    ops->matmul(d, b->h, 3, qkv);
    if (c->qk_norm) {
        ops->norm(d, b->q, b->q, l->q_norm, c->key_dim, c->norm_eps);
        ops->norm(d, b->k, b->k, l->k_norm, c->key_dim, c->norm_eps);
    }
    ops->rope(d, b->q, c->key_dim, which);
    ops->rope(d, b->k, c->key_dim, which);
    ops->kv_store(d, il, b->k, b->v);
    ops->attention(d, b->a, b->q, il, mask); /* a: [n][heads][value_dim], over stored KV */
    ops->matmul(d, b->a, 1, &output);
    if (c->sandwich_norm)
        ops->norm(d, b->h, b->h, l->post_attn_norm, c->width, c->norm_eps);
    ops->add(d, b->x, b->h);
}

/* Feed-forward of one layer: x += down(gate(g(norm x)) * u(norm x)). */
static void feed_forward_block(const engine_model *m, int32_t il, const gb_ops *ops, gb_device *d,
                               const forward_buffers *b)
{
    const arch_config *c = &m->config;
    const model_layer *l = &m->layers[il];
    const gb_product gate = {b->g, &l->gate, l->gate_bias}; /* [n][ffn] */
    const gb_product up = {b->u, &l->up, l->up_bias};       /* [n][ffn] */
    const gb_product down = {b->h, &l->down, l->down_bias}; /* [n][width] */

    ops->norm(d, b->h, b->x, l->ffn_norm, c->width, c->norm_eps);
    ops->gated_matmul(d, b->h, &gate, &up, c->gate);
    ops->matmul(d, b->g, 1, &down);
    if (c->sandwich_norm)
        ops->norm(d, b->h, b->h, l->post_ffn_norm, c->width, c->norm_eps);
    ops->add(d, b->x, b->h);
}

/* Final norm and output matrix for the wanted rows, in runs of one kind. */
static void deliver(const engine_model *m, const gb_ops *ops, gb_device *d, const forward_buffers *b,
                    const forward_wants *wants)
{
    const arch_config *c = &m->config;
    float *out = wants->out;
    ops->gather(d, b->h, b->x, wants->rows, wants->n); /* h: [wanted][width] */
    ops->norm(d, b->h, b->h, m->output_norm, c->width, c->norm_eps);
    for (int32_t first = 0, n; first < wants->n; first += n) {
        int32_t kind = wants->kinds[first];
        for (n = 1; first + n < wants->n && wants->kinds[first + n] == kind;)
            n++;
        if (kind == ENGINE_WANT_LOGITS)
            ops->logits(d, b->h, first, n, &m->output, c->logit_cap, out);
        else
            ops->read(d, b->h, first, n, out);
        out += (int64_t)n * (kind == ENGINE_WANT_LOGITS ? m->vocab : c->width);
    }
}

engine_status forward(const engine_model *model, const gb_ops *ops, gb_device *d, const forward_buffers *b,
                      const gb_row *rows, int32_t n, const forward_wants *wants, atomic_int *cancel, char *err,
                      size_t errlen)
{
    engine_status status = ENGINE_OK;
    ops->begin(d, rows, n);
    ops->embed(d, b->x, &model->embedding, model->config.embedding_scale); /* x: [n][width] */
    for (int32_t il = 0; il < model->config.layers && status == ENGINE_OK; il++) {
        if (atomic_load(cancel)) {
            status = gb_fail(err, errlen, ENGINE_ECANCELLED, "cancelled before layer %d", il);
            break;
        }
        attention_block(model, il, ops, d, b);
        feed_forward_block(model, il, ops, d, b);
    }
    if (status == ENGINE_OK && wants->n > 0)
        deliver(model, ops, d, b, wants);
    engine_status finished = ops->end(d, err, errlen);
    return status != ENGINE_OK ? status : finished;
}

engine_status forward_buffers_new(forward_buffers *out, const gb_ops *ops, gb_device *d, const arch_config *c,
                                  int32_t rows, char *err, size_t errlen)
{
    *out = (forward_buffers){
        .x = ops->buffer_new(d, rows, c->width),
        .h = ops->buffer_new(d, rows, c->width),
        .q = ops->buffer_new(d, rows, (int64_t)c->heads * c->key_dim),
        .k = ops->buffer_new(d, rows, (int64_t)c->kv_heads * c->key_dim),
        .v = ops->buffer_new(d, rows, (int64_t)c->kv_heads * c->value_dim),
        .a = ops->buffer_new(d, rows, (int64_t)c->heads * c->value_dim),
        .g = ops->buffer_new(d, rows, c->ffn),
        .u = ops->buffer_new(d, rows, c->ffn),
    };
    if (out->x && out->h && out->q && out->k && out->v && out->a && out->g && out->u)
        return ENGINE_OK;
    forward_buffers_free(out, ops, d);
    return gb_fail(err, errlen, ENGINE_ENOMEM, "out of memory for the activations of %d rows; ask for a smaller batch",
                   rows);
}

void forward_buffers_free(forward_buffers *b, const gb_ops *ops, gb_device *d)
{
    gb_buffer *all[] = {b->x, b->h, b->q, b->k, b->v, b->a, b->g, b->u};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        ops->buffer_free(d, all[i]);
    memset(b, 0, sizeof *b);
}
