/* model.c: binds a file's tensors to a config, by name, type and shape; see model.h.
 *
 * A tensor that is missing, has another shape or an unfit type, or that no part of the
 * architecture uses, is refused by name: an unused tensor means that the model would not be
 * computed as its author meant. The model owns its vectors; matrices point into the file. */
#include "model.h"

#include "fpenv.h"
#include "gguf.h"
#include "mathfn.h"
#include "repack.h"
#include "sha256.h"
#include "status.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_VOCAB = 1 << 24, NAME_BYTES = 64, END_BYTES = 64 };

/* Lengths that a shape is made of, resolved against a config by length_of(). */
enum { WIDTH, QUERY, KEY, VALUE, ATTENDED, FFN, KEY_DIM };

enum { ALWAYS, WITH_QK_NORM, WITH_SANDWICH, WITH_QKV_BIAS, WITH_OTHER_BIAS };

/* One tensor of a layer. in 0-based length of a row; out the rows, -1 for a vector. */
typedef struct tensor_row {
    const char *name; /* after "blk.N." */
    size_t field;     /* of model_layer: a gb_matrix, or a float pointer */
    int in, out;
    int when;
} tensor_row;

#define FIELD(f) offsetof(model_layer, f)

static const tensor_row layer_rows[] = {
    {"attn_norm.weight", FIELD(attn_norm), WIDTH, -1, ALWAYS},
    {"attn_q.weight", FIELD(q), WIDTH, QUERY, ALWAYS},
    {"attn_k.weight", FIELD(k), WIDTH, KEY, ALWAYS},
    {"attn_v.weight", FIELD(v), WIDTH, VALUE, ALWAYS},
    {"attn_output.weight", FIELD(o), ATTENDED, WIDTH, ALWAYS},
    {"attn_q.bias", FIELD(q_bias), QUERY, -1, WITH_QKV_BIAS},
    {"attn_k.bias", FIELD(k_bias), KEY, -1, WITH_QKV_BIAS},
    {"attn_v.bias", FIELD(v_bias), VALUE, -1, WITH_QKV_BIAS},
    {"attn_output.bias", FIELD(o_bias), WIDTH, -1, WITH_OTHER_BIAS},
    {"attn_q_norm.weight", FIELD(q_norm), KEY_DIM, -1, WITH_QK_NORM},
    {"attn_k_norm.weight", FIELD(k_norm), KEY_DIM, -1, WITH_QK_NORM},
    {"post_attention_norm.weight", FIELD(post_attn_norm), WIDTH, -1, WITH_SANDWICH},
    {"ffn_norm.weight", FIELD(ffn_norm), WIDTH, -1, ALWAYS},
    {"ffn_gate.weight", FIELD(gate), WIDTH, FFN, ALWAYS},
    {"ffn_up.weight", FIELD(up), WIDTH, FFN, ALWAYS},
    {"ffn_down.weight", FIELD(down), FFN, WIDTH, ALWAYS},
    {"ffn_gate.bias", FIELD(gate_bias), FFN, -1, WITH_OTHER_BIAS},
    {"ffn_up.bias", FIELD(up_bias), FFN, -1, WITH_OTHER_BIAS},
    {"ffn_down.bias", FIELD(down_bias), WIDTH, -1, WITH_OTHER_BIAS},
    {"post_ffw_norm.weight", FIELD(post_ffn_norm), WIDTH, -1, WITH_SANDWICH},
};

enum { NEVER, OPTIONAL, REQUIRED };

static int need_of(const arch_config *c, int when)
{
    switch (when) {
    case WITH_QK_NORM: return c->qk_norm ? REQUIRED : NEVER;
    case WITH_SANDWICH: return c->sandwich_norm ? REQUIRED : NEVER;
    case WITH_QKV_BIAS: return c->qkv_bias;
    case WITH_OTHER_BIAS: return c->other_bias;
    default: return REQUIRED;
    }
}

static int64_t length_of(const arch_config *c, int length)
{
    switch (length) {
    case QUERY: return (int64_t)c->heads * c->key_dim;
    case KEY: return (int64_t)c->kv_heads * c->key_dim;
    case VALUE: return (int64_t)c->kv_heads * c->value_dim;
    case ATTENDED: return (int64_t)c->heads * c->value_dim;
    case FFN: return c->ffn;
    case KEY_DIM: return c->key_dim;
    default: return c->width;
    }
}

/* ---- Binding ---------------------------------------------------------------------------- */

typedef struct binder {
    engine_model *model;
    const engine_file *file;
    uint8_t *used; /* [tensors of the file] */
    sha256 hash;
    char *err;
    size_t errlen;
} binder;

/* Find a tensor and demand its shape: [rows][length], rows 0 for a vector. *found tells whether
 * it is there; absent is an error only where required. */
static engine_status find(binder *b, const char *name, int64_t length, int64_t rows, int required,
                          engine_tensor *t, const uint8_t **data, int *found)
{
    const void *bytes = NULL;
    *found = gguf_get_tensor(b->file, name, t, &bytes);
    if (!*found)
        return required ? gb_fail(b->err, b->errlen, ENGINE_EFORMAT, "tensor %s is missing; architecture %s needs it",
                                  name, b->model->config.name)
                        : ENGINE_OK;
    int dims = rows == 0 ? 1 : 2;
    if (t->dims[0] != (uint64_t)length || t->dims[1] != (uint64_t)(rows == 0 ? 1 : rows) || t->dims[2] != 1 ||
        t->dims[3] != 1)
        return gb_fail(b->err, b->errlen, ENGINE_EFORMAT,
                       "tensor %s has shape [%llu, %llu, %llu, %llu]; the metadata asks for [%lld%s%.0lld]", name,
                       (unsigned long long)t->dims[0], (unsigned long long)t->dims[1], (unsigned long long)t->dims[2],
                       (unsigned long long)t->dims[3], (long long)length, dims == 2 ? ", " : "", (long long)rows);
    *data = bytes;
    b->used[engine_file_find_tensor(b->file, name, strlen(name))] = 1;
    b->model->weights_bytes += t->bytes;
    sha256_update(&b->hash, name, strlen(name) + 1);
    sha256_update(&b->hash, &t->type, sizeof t->type);
    sha256_update(&b->hash, t->dims, sizeof t->dims);
    uint64_t ends = t->bytes < END_BYTES ? t->bytes : END_BYTES;
    sha256_update(&b->hash, *data, ends);
    sha256_update(&b->hash, *data + (t->bytes - ends), ends);
    return ENGINE_OK;
}

static engine_status bind_matrix(binder *b, const char *name, int64_t k, int64_t rows, int required, gb_matrix *out,
                                 int *found)
{
    engine_tensor t;
    const uint8_t *data = NULL;
    engine_status status = find(b, name, k, rows, required, &t, &data, found);
    if (status != ENGINE_OK || !*found)
        return status;
    const dtype *type = dtype_find(t.type);
    if (type == NULL)
        return gb_fail(b->err, b->errlen, ENGINE_EUNSUPPORTED, "tensor %s: type number %d is not supported", name,
                       t.type);
    if (k % type->items != 0)
        return gb_fail(b->err, b->errlen, ENGINE_EFORMAT, "tensor %s: rows of %lld values are not whole %s blocks of %u",
                       name, (long long)k, type->name, type->items);
    uint64_t row_bytes = (uint64_t)k / type->items * type->bytes;
    *out = (gb_matrix){.type = type, .data = data, .row_bytes = row_bytes, .k = k, .rows = rows,
                       .number = b->model->matrices++};
    return ENGINE_OK;
}

/* Norm weights, biases, frequency factors: float types only, copied to f32. */
static engine_status bind_vector(binder *b, const char *name, int64_t length, int required, float **out)
{
    engine_tensor t;
    const uint8_t *data = NULL;
    int found;
    engine_status status = find(b, name, length, 0, required, &t, &data, &found);
    if (status != ENGINE_OK || !found)
        return status;
    const dtype *type = dtype_find(t.type);
    if (type == NULL || type->quantised)
        return gb_fail(b->err, b->errlen, ENGINE_EUNSUPPORTED,
                       "tensor %s has type %s; a vector must be F32, F16 or BF16", name, type ? type->name : "unknown");
    *out = malloc((size_t)length * sizeof **out);
    if (*out == NULL)
        return gb_fail(b->err, b->errlen, ENGINE_ENOMEM, "out of memory for tensor %s", name);
    type->dequantise(data, (uint64_t)length, *out);
    return ENGINE_OK;
}

static engine_status bind_layer(binder *b, int32_t index)
{
    const arch_config *c = &b->model->config;
    model_layer *layer = &b->model->layers[index];
    for (size_t i = 0; i < sizeof layer_rows / sizeof *layer_rows; i++) {
        const tensor_row *row = &layer_rows[i];
        int need = need_of(c, row->when), found;
        if (need == NEVER)
            continue;
        char name[NAME_BYTES];
        snprintf(name, sizeof name, "blk.%d.%s", index, row->name);
        char *field = (char *)layer + row->field;
        int64_t in = length_of(c, row->in);
        engine_status status =
            row->out < 0
                ? bind_vector(b, name, in, need == REQUIRED, (float **)(void *)field)
                : bind_matrix(b, name, in, length_of(c, row->out), need == REQUIRED, (gb_matrix *)(void *)field, &found);
        if (status != ENGINE_OK)
            return status;
    }
    return ENGINE_OK;
}

/* Rows of the embedding decide the vocabulary; tokenizer and metadata must agree with them. */
static engine_status bind_vocabulary(binder *b)
{
    engine_model *m = b->model;
    engine_tensor t;
    const void *data;
    if (!gguf_get_tensor(b->file, "token_embd.weight", &t, &data))
        return gb_fail(b->err, b->errlen, ENGINE_EFORMAT, "tensor token_embd.weight is missing");
    if (t.dims[1] > MAX_VOCAB)
        return gb_fail(b->err, b->errlen, ENGINE_EFORMAT, "tensor token_embd.weight has %llu rows; at most %d are supported",
                       (unsigned long long)t.dims[1], MAX_VOCAB);
    m->vocab = (int32_t)t.dims[1];
    engine_kv tokens;
    char key[96];
    uint32_t stated = 0;
    int found = gguf_get_array(b->file, "tokenizer.ggml.tokens", ENGINE_GGUF_STRING, &tokens, b->err, b->errlen);
    if (found < 0)
        return ENGINE_EFORMAT;
    if (found == 1 && tokens.count != t.dims[1])
        return gb_fail(b->err, b->errlen, ENGINE_EFORMAT,
                       "tokenizer.ggml.tokens holds %llu tokens but token_embd.weight has %d rows",
                       (unsigned long long)tokens.count, m->vocab);
    snprintf(key, sizeof key, "%s.vocab_size", m->config.name);
    found = gguf_get_u32(b->file, key, &stated, b->err, b->errlen);
    if (found < 0)
        return ENGINE_EFORMAT;
    if (found == 1 && stated != t.dims[1])
        return gb_fail(b->err, b->errlen, ENGINE_EFORMAT, "metadata key %s is %u but token_embd.weight has %d rows", key,
                       stated, m->vocab);
    int there;
    engine_status status = bind_matrix(b, "token_embd.weight", m->config.width, m->vocab, 1, &m->embedding, &there);
    if (status == ENGINE_OK)
        status = bind_matrix(b, "output.weight", m->config.width, m->vocab, 0, &m->output, &there);
    m->tied_output = !there;
    if (!there)
        m->output = m->embedding;
    return status;
}

/* Radians per position of each pair: base^(-2i/dims), divided by the model's factor and scaling. */
static GB_NOINLINE void rope_frequencies(const arch_config *c, const float *factors, double *full, double *local)
{
    for (int32_t i = 0; i < c->rope_dims / 2; i++) {
        double exponent = -(double)(2 * i) / (double)c->rope_dims;
        full[i] = gb_pow((double)c->rope_base, exponent);
        if (factors != NULL)
            full[i] = full[i] / (double)factors[i];
        full[i] = full[i] / (double)c->rope_linear;
        local[i] = gb_pow((double)c->rope_base_local, exponent);
    }
}

static engine_status bind_rope(binder *b)
{
    engine_model *m = b->model;
    const arch_config *c = &m->config;
    float *factors = NULL;
    int64_t pairs = c->rope_dims / 2;
    engine_status status = ENGINE_OK;
    if (c->rope_factors)
        status = bind_vector(b, "rope_freqs.weight", pairs, 0, &factors);
    for (int64_t i = 0; status == ENGINE_OK && factors != NULL && i < pairs; i++)
        if (!(factors[i] >= 0.1f && factors[i] <= 1e6f))
            status = gb_fail(b->err, b->errlen, ENGINE_EFORMAT,
                             "tensor rope_freqs.weight: factor %lld is %g; it must be 0.1 to 1e6", (long long)i,
                             (double)factors[i]);
    if (status == ENGINE_OK) {
        for (int i = 0; i < 2; i++)
            m->rope_inverse[i] = malloc((size_t)pairs * sizeof(double));
        if (m->rope_inverse[0] == NULL || m->rope_inverse[1] == NULL)
            status = gb_fail(b->err, b->errlen, ENGINE_ENOMEM, "out of memory for rope frequencies");
        else
            rope_frequencies(c, factors, m->rope_inverse[0], m->rope_inverse[1]);
    }
    free(factors);
    return status;
}

static int ends_with(const engine_tensor *t, const char *suffix)
{
    size_t n = strlen(suffix);
    return t->name_len >= n && memcmp(t->name + t->name_len - n, suffix, n) == 0;
}

/* Tables of inverse frequencies that old converters wrote: nothing reads them. */
static int is_harmless(const engine_tensor *t)
{
    return ends_with(t, "attn_rot_embd.weight") || ends_with(t, "rotary_emb.inv_freq");
}

static engine_status refuse_unused(binder *b)
{
    for (uint64_t i = 0; i < engine_file_tensor_count(b->file); i++) {
        engine_tensor t;
        engine_status status = engine_file_tensor(b->file, i, &t, b->err, b->errlen);
        if (status != ENGINE_OK)
            return status;
        if (!b->used[i] && !is_harmless(&t))
            return gb_fail(b->err, b->errlen, ENGINE_EUNSUPPORTED,
                           "tensor %.*s is not part of architecture %s as implemented here; without it the model would "
                           "not be computed as meant",
                           (int)(t.name_len < 64 ? t.name_len : 64), t.name, b->model->config.name);
    }
    return ENGINE_OK;
}

static engine_status bind_all(binder *b)
{
    engine_model *m = b->model;
    sha256_init(&b->hash);
    engine_status status = bind_vocabulary(b);
    if (status == ENGINE_OK)
        status = bind_vector(b, "output_norm.weight", m->config.width, 1, &m->output_norm);
    if (status == ENGINE_OK)
        status = bind_rope(b);
    for (int32_t i = 0; status == ENGINE_OK && i < m->config.layers; i++)
        status = bind_layer(b, i);
    if (status == ENGINE_OK)
        status = refuse_unused(b);
    sha256_update(&b->hash, m->config.name, strlen(m->config.name) + 1);
    for (int i = 0; status == ENGINE_OK && i < 2; i++)
        sha256_update(&b->hash, m->rope_inverse[i], (size_t)(m->config.rope_dims / 2) * sizeof(double));
    sha256_final(&b->hash, m->fingerprint);
    return status;
}

/* ---- Public ------------------------------------------------------------------------------ */

static engine_status selftest_once(char *err, size_t errlen)
{
    static atomic_int passed;
    if (atomic_load(&passed))
        return ENGINE_OK;
    engine_status status = engine_selftest(err, errlen);
    if (status == ENGINE_OK)
        atomic_store(&passed, 1);
    return status;
}

engine_status engine_model_load(engine_model **out, const engine_file *file, char *err, size_t errlen)
{
    *out = NULL;
    engine_status status = selftest_once(err, errlen);
    if (status != ENGINE_OK)
        return status;
    engine_model *m = calloc(1, sizeof *m);
    if (m == NULL)
        return gb_fail(err, errlen, ENGINE_ENOMEM, "out of memory for a model");
    m->file = file;
    m->repack = gb_repack_new();
    if (m->repack == NULL) {
        engine_model_free(m);
        return gb_fail(err, errlen, ENGINE_ENOMEM, "out of memory for a model");
    }
    gb_fpenv saved = gb_fpenv_enter();
    binder b = {.model = m, .file = file, .err = err, .errlen = errlen};
    status = arch_read(&m->config, file, err, errlen);
    if (status == ENGINE_OK) {
        b.used = calloc((size_t)engine_file_tensor_count(file) + 1, 1);
        m->layers = calloc((size_t)m->config.layers, sizeof *m->layers);
        if (b.used == NULL || m->layers == NULL)
            status = gb_fail(err, errlen, ENGINE_ENOMEM, "out of memory for %d layers", m->config.layers);
    }
    if (status == ENGINE_OK)
        status = bind_all(&b);
    gb_fpenv_leave(saved);
    free(b.used);
    if (status != ENGINE_OK) {
        engine_model_free(m);
        return status;
    }
    *out = m;
    return ENGINE_OK;
}

void engine_model_free(engine_model *m)
{
    if (m == NULL)
        return;
    for (int32_t i = 0; m->layers != NULL && i < m->config.layers; i++)
        for (size_t j = 0; j < sizeof layer_rows / sizeof *layer_rows; j++)
            if (layer_rows[j].out < 0)
                free(*(float **)(void *)((char *)&m->layers[i] + layer_rows[j].field));
    gb_repack_free(m->repack);
    free(m->layers);
    free(m->output_norm);
    free(m->rope_inverse[0]);
    free(m->rope_inverse[1]);
    free(m);
}

engine_status engine_model_describe(const engine_model *m, engine_model_info *out)
{
    const arch_config *c = &m->config;
    *out = (engine_model_info){
        .architecture = c->name, .vocab = m->vocab, .width = c->width, .layers = c->layers, .heads = c->heads,
        .kv_heads = c->kv_heads, .head_dim = c->key_dim, .ffn = c->ffn, .context_train = c->context_train,
        .window = c->window, .tied_output = m->tied_output, .weights_bytes = m->weights_bytes,
    };
    return ENGINE_OK;
}
