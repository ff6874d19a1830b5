/* arch.c: one row per model family, and the reading of metadata into a config.
 *
 * Refuses unknown families, keys that ask for a computation that is not implemented (experts,
 * YaRN, non-causal attention, …), and numbers outside the bounds below, always with the key's
 * name. Owns nothing: strings of the config point into this file's tables. */
#include "arch.h"

#include "kernels.h"
#include "gguf.h"
#include "status.h"

#include <stdio.h>
#include <string.h>

enum {
    MAX_WIDTH = 1 << 17,
    MAX_FFN = 1 << 20,
    MAX_HEADS = 1 << 12,
    MAX_HEAD_DIM = 1 << 10,
    MAX_CONTEXT = 1 << 30,
    KEY_BYTES = 96,
};

typedef struct family {
    const char *name;
    int gate;
    int neox;
    int qkv_bias, other_bias;
    int qk_norm;
    int sandwich_norm;
    int scaled_embedding; /* times the square root of the width */
    int rope_factors;
    int window_period;    /* every n-th layer sees everything, the others a window; 0: no windows */
    float local_base;     /* rope base of layers with a window, unless the file says otherwise */
    int wide_query_layers; /* with this many layers, scores scale by width / heads, not by head_dim */
} family;

static const family families[] = {
    {.name = "llama", .gate = GB_GATE_SILU, .qkv_bias = 1, .other_bias = 1, .rope_factors = 1},
    {.name = "qwen2", .gate = GB_GATE_SILU, .neox = 1, .qkv_bias = 2},
    {.name = "qwen3", .gate = GB_GATE_SILU, .neox = 1, .qk_norm = 1},
    {.name = "gemma3", .gate = GB_GATE_GELU_TANH, .neox = 1, .qk_norm = 1, .sandwich_norm = 1,
     .scaled_embedding = 1, .window_period = 6, .local_base = 10000.0f, .wide_query_layers = 62},
};

/* Where a file's metadata is read; the first failure sticks. */
typedef struct reader {
    const engine_file *file;
    const char *prefix;
    engine_status status;
    char *err;
    size_t errlen;
} reader;

static void key_of(const reader *r, const char *suffix, char key[KEY_BYTES])
{
    snprintf(key, KEY_BYTES, "%s.%s", r->prefix, suffix);
}

static void refuse(reader *r, engine_status code, const char *key, const char *why)
{
    if (r->status == ENGINE_OK)
        r->status = gb_fail(r->err, r->errlen, code, "metadata key %s: %s", key, why);
}

/* An integer in [low, high]; fallback where the key is absent, or -1 where it is required. */
static int32_t read_int(reader *r, const char *suffix, int64_t fallback, int64_t low, int64_t high)
{
    char key[KEY_BYTES];
    uint32_t value = 0;
    if (r->status != ENGINE_OK)
        return 0;
    key_of(r, suffix, key);
    int found = gguf_get_u32(r->file, key, &value, r->err, r->errlen);
    if (found < 0)
        r->status = ENGINE_EFORMAT;
    else if (found == 0 && fallback < 0)
        refuse(r, ENGINE_EFORMAT, key, "missing, but this architecture needs it");
    else if (found == 0)
        return (int32_t)fallback;
    else if (value < low || value > high)
        r->status = gb_fail(r->err, r->errlen, ENGINE_EFORMAT, "metadata key %s is %u; it must be %lld to %lld", key,
                            value, (long long)low, (long long)high);
    return r->status == ENGINE_OK ? (int32_t)value : 0;
}

/* A float in [low, high]; a negative fallback means that the key is required. */
static float read_float(reader *r, const char *suffix, float fallback, float low, float high)
{
    char key[KEY_BYTES];
    float value = 0.0f;
    if (r->status != ENGINE_OK)
        return 0.0f;
    key_of(r, suffix, key);
    int found = gguf_get_f32(r->file, key, &value, r->err, r->errlen);
    if (found < 0)
        r->status = ENGINE_EFORMAT;
    else if (found == 0 && fallback < 0.0f)
        refuse(r, ENGINE_EFORMAT, key, "missing, but this architecture needs it");
    else if (found == 0)
        return fallback;
    else if (!(value >= low && value <= high))
        r->status = gb_fail(r->err, r->errlen, ENGINE_EFORMAT, "metadata key %s is %g; it must be %g to %g", key,
                            (double)value, (double)low, (double)high);
    return r->status == ENGINE_OK ? value : 0.0f;
}

static const family *find_family(reader *r)
{
    const char *name;
    uint64_t len;
    int found = gguf_get_str(r->file, "general.architecture", &name, &len, r->err, r->errlen);
    if (found < 0)
        r->status = ENGINE_EFORMAT;
    else if (found == 0)
        refuse(r, ENGINE_EFORMAT, "general.architecture", "missing, so the file is not a model");
    if (r->status != ENGINE_OK)
        return NULL;
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (strlen(families[i].name) == len && memcmp(families[i].name, name, len) == 0)
            return &families[i];
    r->status = gb_fail(r->err, r->errlen, ENGINE_EUNSUPPORTED,
                        "architecture \"%.*s\" is not supported; supported are llama, qwen2, qwen3, gemma3",
                        (int)(len < 64 ? len : 64), name);
    return NULL;
}

/* Keys that would change the computation, and are refused unless neutral. */
static void refuse_unimplemented(reader *r, const family *f)
{
    char key[KEY_BYTES];
    int flag;
    if (read_int(r, "expert_count", 0, 0, UINT32_MAX) != 0) {
        key_of(r, "expert_count", key);
        refuse(r, ENGINE_EUNSUPPORTED, key, "mixtures of experts are not supported");
    }
    if (f->window_period == 0 && read_int(r, "attention.sliding_window", 0, 0, UINT32_MAX) != 0) {
        key_of(r, "attention.sliding_window", key);
        refuse(r, ENGINE_EUNSUPPORTED, key, "sliding windows are not supported for this architecture");
    }
    if (r->status != ENGINE_OK)
        return;
    key_of(r, "attention.causal", key);
    int found = gguf_get_bool(r->file, key, &flag, r->err, r->errlen);
    if (found < 0)
        r->status = ENGINE_EFORMAT;
    else if (found == 1 && !flag)
        refuse(r, ENGINE_EUNSUPPORTED, key, "only causal attention is supported");
}

static void read_sizes(reader *r, arch_config *c)
{
    c->width = read_int(r, "embedding_length", -1, 1, MAX_WIDTH);
    c->layers = read_int(r, "block_count", -1, 1, ARCH_MAX_LAYERS);
    c->heads = read_int(r, "attention.head_count", -1, 1, MAX_HEADS);
    c->kv_heads = read_int(r, "attention.head_count_kv", c->heads, 1, MAX_HEADS);
    c->ffn = read_int(r, "feed_forward_length", -1, 1, MAX_FFN);
    c->context_train = read_int(r, "context_length", -1, 1, MAX_CONTEXT);
    c->norm_eps = read_float(r, "attention.layer_norm_rms_epsilon", -1.0f, 0.0f, 1.0f);
    if (r->status != ENGINE_OK)
        return;
    if (c->heads % c->kv_heads != 0) {
        r->status = gb_fail(r->err, r->errlen, ENGINE_EFORMAT,
                            "%s.attention.head_count %d is not a multiple of head_count_kv %d", r->prefix, c->heads,
                            c->kv_heads);
        return;
    }
    int32_t dim = c->width % c->heads == 0 ? c->width / c->heads : -1;
    c->key_dim = read_int(r, "attention.key_length", dim, 1, MAX_HEAD_DIM);
    c->value_dim = read_int(r, "attention.value_length", dim, 1, MAX_HEAD_DIM);
    if (r->status == ENGINE_OK && (c->key_dim > MAX_HEAD_DIM || c->value_dim > MAX_HEAD_DIM))
        r->status = gb_fail(r->err, r->errlen, ENGINE_EFORMAT, "heads of %d and %d elements; at most %d are supported",
                            c->key_dim, c->value_dim, MAX_HEAD_DIM);
}

/* The kind of position scaling: none or linear; all others are refused by name. */
static void read_rope_scaling(reader *r, arch_config *c)
{
    char key[KEY_BYTES];
    const char *kind = NULL;
    uint64_t len = 0;
    if (r->status != ENGINE_OK)
        return;
    key_of(r, "rope.scaling.type", key);
    int found = gguf_get_str(r->file, key, &kind, &len, r->err, r->errlen);
    if (found < 0) {
        r->status = ENGINE_EFORMAT;
        return;
    }
    int none = found == 1 && len == 4 && memcmp(kind, "none", 4) == 0;
    int linear = found == 1 && len == 6 && memcmp(kind, "linear", 6) == 0;
    if (found == 1 && !none && !linear) {
        r->status = gb_fail(r->err, r->errlen, ENGINE_EUNSUPPORTED,
                            "metadata key %s: \"%.*s\" is not supported; supported are none and linear", key,
                            (int)(len < 64 ? len : 64), kind);
        return;
    }
    /* rope.scale_linear is the older spelling of the factor */
    float old = read_float(r, "rope.scale_linear", 0.0f, 0.0f, 1e6f);
    float factor = read_float(r, "rope.scaling.factor", old, 0.0f, 1e6f);
    c->rope_linear = none || factor == 0.0f ? 1.0f : factor;
    if (c->rope_linear < 1.0f) {
        key_of(r, "rope.scaling.factor", key);
        refuse(r, ENGINE_EUNSUPPORTED, key, "positions can be divided by 1 and more only");
    }
    if (read_float(r, "rope.scaling.attn_factor", 1.0f, 0.0f, 1e6f) != 1.0f) {
        key_of(r, "rope.scaling.attn_factor", key);
        refuse(r, ENGINE_EUNSUPPORTED, key, "only 1 is supported");
    }
}

static void read_rope(reader *r, const family *f, arch_config *c)
{
    c->rope_dims = read_int(r, "rope.dimension_count", c->key_dim, 2, MAX_HEAD_DIM);
    c->rope_base = read_float(r, "rope.freq_base", 10000.0f, 1.0f, 1e12f);
    c->rope_base_local = c->rope_base;
    if (f->window_period != 0)
        c->rope_base_local = read_float(r, "rope.freq_base_swa", f->local_base, 1.0f, 1e12f);
    read_rope_scaling(r, c);
    if (r->status == ENGINE_OK && (c->rope_dims % 2 != 0 || c->rope_dims > c->key_dim))
        r->status = gb_fail(r->err, r->errlen, ENGINE_EFORMAT,
                            "%s.rope.dimension_count %d: it must be even and at most the head's %d elements", r->prefix,
                            c->rope_dims, c->key_dim);
}

/* Which layers are local: an array of flags, a period, or the family's period. */
static void read_windows(reader *r, const family *f, arch_config *c)
{
    char key[KEY_BYTES];
    engine_kv pattern;
    if (r->status != ENGINE_OK || f->window_period == 0)
        return;
    c->window = read_int(r, "attention.sliding_window", 0, 0, MAX_CONTEXT);
    if (r->status != ENGINE_OK || c->window == 0)
        return;
    key_of(r, "attention.sliding_window_pattern", key);
    int64_t index = engine_file_find_kv(r->file, key, strlen(key));
    int is_array = index >= 0 && engine_file_kv(r->file, (uint64_t)index, &pattern, r->err, r->errlen) == ENGINE_OK &&
                   pattern.type == ENGINE_GGUF_ARRAY;
    if (!is_array) {
        int32_t period = read_int(r, "attention.sliding_window_pattern", f->window_period, 1, ARCH_MAX_LAYERS);
        for (int32_t i = 0; r->status == ENGINE_OK && i < c->layers; i++)
            c->local[i] = i % period != period - 1;
        return;
    }
    if (gguf_get_array(r->file, key, ENGINE_GGUF_BOOL, &pattern, r->err, r->errlen) != 1)
        r->status = ENGINE_EFORMAT;
    else if (pattern.count != (uint64_t)c->layers)
        refuse(r, ENGINE_EFORMAT, key, "it must hold one flag per layer");
    for (int32_t i = 0; r->status == ENGINE_OK && i < c->layers; i++)
        c->local[i] = ((const uint8_t *)pattern.data)[i] != 0;
}

static void read_scales(reader *r, const family *f, arch_config *c)
{
    if (r->status != ENGINE_OK)
        return;
    int32_t dim = f->wide_query_layers == c->layers ? c->width / c->heads : c->key_dim;
    float natural = 1.0f / __builtin_sqrtf((float)dim);
    c->attention_scale = read_float(r, "attention.scale", 0.0f, 0.0f, 1e6f);
    if (c->attention_scale == 0.0f)
        c->attention_scale = natural;
    c->embedding_scale = f->scaled_embedding ? __builtin_sqrtf((float)c->width) : 1.0f;
    c->attention_cap = read_float(r, "attn_logit_softcapping", 0.0f, 0.0f, 1e6f);
    c->logit_cap = read_float(r, "final_logit_softcapping", 0.0f, 0.0f, 1e6f);
}

engine_status arch_read(arch_config *out, const engine_file *file, char *err, size_t errlen)
{
    reader r = {.file = file, .status = ENGINE_OK, .err = err, .errlen = errlen};
    memset(out, 0, sizeof *out);
    const family *f = find_family(&r);
    if (f == NULL)
        return r.status;
    r.prefix = f->name;
    *out = (arch_config){
        .name = f->name, .gate = f->gate, .neox = f->neox, .qkv_bias = f->qkv_bias, .other_bias = f->other_bias,
        .qk_norm = f->qk_norm, .sandwich_norm = f->sandwich_norm, .rope_factors = f->rope_factors,
    };
    read_sizes(&r, out);
    refuse_unimplemented(&r, f);
    read_rope(&r, f, out);
    read_windows(&r, f, out);
    read_scales(&r, f, out);
    return r.status;
}
