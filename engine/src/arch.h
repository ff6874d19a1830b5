/* arch.h: model families as data. A family is a row of flags in arch.c; reading a file's
 * metadata through it gives an arch_config, from which one forward pass serves them all. */
#ifndef GB_ARCH_H
#define GB_ARCH_H
#include "engine.h"

enum { ARCH_MAX_LAYERS = 512 };

typedef struct arch_config {
    const char *name; /* "llama", "qwen2", "qwen3", "gemma3" */
    int32_t width, layers, heads, kv_heads;
    int32_t key_dim, value_dim; /* per head */
    int32_t ffn;
    int32_t context_train;
    float norm_eps;
    float embedding_scale; /* 1: none */
    float attention_scale; /* multiplies every score */
    float attention_cap;   /* soft cap of scores, 0: none */
    float logit_cap;       /* soft cap of logits, 0: none */
    int gate;              /* GB_GATE_* */
    int qk_norm;           /* norm over each query and key head before rope */
    int sandwich_norm;     /* norm after attention and after the feed-forward, before the residual */
    int qkv_bias;          /* 0: none, 1: allowed, 2: required */
    int other_bias;        /* biases of output, gate, up, down: 0 none, 1 allowed */
    int rope_factors;      /* rope_freqs.weight is allowed */
    int neox;              /* rope pairs element i with i + pairs, else 2i with 2i + 1 */
    int32_t rope_dims;     /* leading elements of a head that rotate; even */
    float rope_base;       /* of layers that see everything */
    float rope_base_local; /* of layers with a window */
    float rope_linear;     /* positions are divided by this in layers that see everything; 1: none */
    int32_t window;        /* positions that a local layer sees, itself included; 0: no local layers */
    uint8_t local[ARCH_MAX_LAYERS];
} arch_config;

/* Read and check the metadata of file. An unknown architecture, a key that would change the
 * computation in a way that we do not implement, and absurd numbers are refused by name. */
engine_status arch_read(arch_config *out, const engine_file *file, char *err, size_t errlen);

#endif
