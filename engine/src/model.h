/* model.h: weights bound to a config. Matrices stay in the file's bytes, vectors (norms, biases)
 * are f32 copies, and rope's inverse frequencies are computed once. */
#ifndef GB_MODEL_H
#define GB_MODEL_H
#include "arch.h"
#include "kernels.h"

typedef struct gb_repack gb_repack; /* repack.h */

typedef struct model_layer {
    gb_matrix q, k, v, o;           /* [heads key_dim | kv_heads key_dim | kv_heads value_dim][width], [width][heads value_dim] */
    gb_matrix gate, up, down;       /* [ffn][width], [ffn][width], [width][ffn] */
    float *attn_norm, *ffn_norm;    /* [width] */
    float *q_norm, *k_norm;         /* [key_dim], NULL without qk_norm */
    float *post_attn_norm, *post_ffn_norm; /* [width], NULL without sandwich_norm */
    float *q_bias, *k_bias, *v_bias, *o_bias, *gate_bias, *up_bias, *down_bias; /* NULL where absent */
} model_layer;

struct engine_model {
    const engine_file *file; /* borrowed */
    gb_repack *repack;       /* where backends keep the weights in their own form; shared by contexts */
    arch_config config;
    int32_t vocab;
    gb_matrix embedding; /* [vocab][width] */
    gb_matrix output;    /* [vocab][width]; the embedding's where tied */
    int tied_output;
    float *output_norm;  /* [width] */
    model_layer *layers;
    int32_t matrices;    /* their numbers are 0 … matrices-1 */
    double *rope_inverse[2]; /* [rope_dims / 2] radians per position: full layers, local layers */
    uint64_t weights_bytes;
    uint8_t fingerprint[32]; /* SHA-256 of config, names, shapes, and the ends of every tensor */
};

#endif
