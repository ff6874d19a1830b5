/* context.c: sequences of evaluated positions: steps, truncation, forks, snapshots.
 *
 * Everything an entry says is checked before anything is evaluated, and the pages of the whole
 * step are taken first; a step that fails leaves every sequence as long as it was. A context
 * owns its device, buffers and pages, and borrows the model. */
#include "forward.h"
#include "fpenv.h"
#include "kvcache.h"
#include "sha256.h"
#include "status.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_POSITIONS = 1 << 24, MAX_SEQUENCES = 1 << 16, MAX_THREADS = 256, MAX_BATCH = 4096 };

struct engine_context {
    const engine_model *model;
    engine_context_options options;
    const gb_ops *ops;
    gb_device *device;
    forward_buffers buffers;
    kvcache *cache;   /* one sequence more than the caller sees: where a snapshot is restored */
    int32_t *lengths; /* [sequences]: lengths that the step at hand leads to */
    gb_row *rows;     /* [batch] */
    int32_t *wanted;  /* [batch] rows, then [batch] kinds */
    atomic_int cancel;
};

/* ---- Creation ------------------------------------------------------------------------------- */

static engine_status check_range(const char *what, int32_t value, int32_t low, int32_t high, char *err, size_t errlen)
{
    if (value >= low && value <= high)
        return ENGINE_OK;
    return gb_fail(err, errlen, ENGINE_EINVAL, "option %s is %d; it must be %d to %d", what, value, low, high);
}

static engine_status check_options(const engine_model *m, const engine_context_options *o, char *err, size_t errlen)
{
    const struct {
        const char *what;
        int32_t value, low, high;
    } rows[] = {
        {"activations", o->activations, ENGINE_ACTIVATIONS_WIDE, ENGINE_ACTIVATIONS_F32},
        {"kv", o->kv, ENGINE_KV_F16, ENGINE_KV_Q8},
        {"context_tokens", o->context_tokens, 1, MAX_POSITIONS},
        {"sequences", o->sequences, 1, MAX_SEQUENCES},
        {"threads", o->threads, 1, MAX_THREADS},
        {"batch", o->batch, 1, MAX_BATCH},
        {"no_repack", o->no_repack, 0, 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        engine_status status = check_range(rows[i].what, rows[i].value, rows[i].low, rows[i].high, err, errlen);
        if (status != ENGINE_OK)
            return status;
    }
    if (o->kv == ENGINE_KV_Q8 && (m->config.key_dim % GB_BLOCK != 0 || m->config.value_dim % GB_BLOCK != 0))
        return gb_fail(err, errlen, ENGINE_EUNSUPPORTED,
                       "KV type q8 needs heads of a multiple of %d elements; this model has %d and %d", GB_BLOCK,
                       m->config.key_dim, m->config.value_dim);
    return ENGINE_OK;
}

static engine_status build(engine_context *c, char *err, size_t errlen)
{
    const engine_context_options *o = &c->options;
    gb_device_options device = {.activations = o->activations, .kv = o->kv, .context_tokens = o->context_tokens,
                                .threads = o->threads, .batch = o->batch, .no_repack = o->no_repack};
    engine_status status = c->ops->device_new(&c->device, c->model, &device, err, errlen);
    if (status == ENGINE_OK)
        status = forward_buffers_new(&c->buffers, c->ops, c->device, &c->model->config, o->batch, err, errlen);
    if (status == ENGINE_OK)
        status = kvcache_new(&c->cache, c->ops, c->device, o->sequences + 1, o->context_tokens, err, errlen);
    if (status != ENGINE_OK)
        return status;
    c->lengths = calloc((size_t)o->sequences, sizeof *c->lengths);
    c->rows = calloc((size_t)o->batch, sizeof *c->rows);
    c->wanted = calloc((size_t)o->batch * 2, sizeof *c->wanted);
    if (c->lengths == NULL || c->rows == NULL || c->wanted == NULL)
        return gb_fail(err, errlen, ENGINE_ENOMEM, "out of memory for a batch of %d rows", o->batch);
    return ENGINE_OK;
}

engine_status engine_context_new(engine_context **out, const engine_model *model, const engine_context_options *options,
                                 char *err, size_t errlen)
{
    *out = NULL;
    engine_status status = check_options(model, options, err, errlen);
    if (status != ENGINE_OK)
        return status;
    engine_context *c = calloc(1, sizeof *c);
    if (c == NULL)
        return gb_fail(err, errlen, ENGINE_ENOMEM, "out of memory for a context");
    c->model = model;
    c->options = *options;
    c->ops = &ops_cpu;
    status = build(c, err, errlen);
    if (status != ENGINE_OK) {
        engine_context_free(c);
        return status;
    }
    *out = c;
    return ENGINE_OK;
}

void engine_context_free(engine_context *c)
{
    if (c == NULL)
        return;
    kvcache_free(c->cache);
    if (c->device != NULL)
        forward_buffers_free(&c->buffers, c->ops, c->device);
    c->ops->device_free(c->device);
    free(c->lengths);
    free(c->rows);
    free(c->wanted);
    free(c);
}

uint64_t engine_context_kv_bytes(const engine_context *c)
{
    return kvcache_bytes(c->cache);
}

void engine_context_cancel(engine_context *c, int on)
{
    atomic_store(&c->cancel, on != 0);
}

/* ---- Steps ---------------------------------------------------------------------------------- */

static engine_status check_entry(engine_context *c, const engine_entry *e, int32_t i, char *err, size_t errlen)
{
    const engine_context_options *o = &c->options;
    if (e->seq < 0 || e->seq >= o->sequences)
        return gb_fail(err, errlen, ENGINE_EINVAL, "entry %d: sequence %d; this context has 0 to %d", i, e->seq,
                       o->sequences - 1);
    if (e->want < ENGINE_WANT_NONE || e->want > ENGINE_WANT_HIDDEN)
        return gb_fail(err, errlen, ENGINE_EINVAL, "entry %d: unknown want %d", i, e->want);
    if (e->embedding == NULL && (e->token < 0 || e->token >= c->model->vocab))
        return gb_fail(err, errlen, ENGINE_EINVAL, "entry %d: token %d; this model has 0 to %d", i, e->token,
                       c->model->vocab - 1);
    if (e->pos != c->lengths[e->seq])
        return gb_fail(err, errlen, ENGINE_EINVAL, "entry %d: position %d of sequence %d; the next one is %d", i, e->pos,
                       e->seq, c->lengths[e->seq]);
    if (e->pos >= o->context_tokens)
        return gb_fail(err, errlen, ENGINE_ECONTEXT,
                       "entry %d: position %d of sequence %d is beyond the context of %d positions", i, e->pos, e->seq,
                       o->context_tokens);
    c->lengths[e->seq]++;
    return ENGINE_OK;
}

/* Check all entries and the size of the output; lengths are those after the step. */
static engine_status check_step(engine_context *c, const engine_entry *entries, int32_t n, const float *out,
                                uint64_t out_len, char *err, size_t errlen)
{
    uint64_t floats = 0;
    if (n <= 0 || entries == NULL)
        return gb_fail(err, errlen, ENGINE_EINVAL, "a step of %d entries; it needs at least one", n);
    for (int32_t s = 0; s < c->options.sequences; s++)
        c->lengths[s] = kvcache_length(c->cache, s);
    for (int32_t i = 0; i < n; i++) {
        engine_status status = check_entry(c, &entries[i], i, err, errlen);
        if (status != ENGINE_OK)
            return status;
        if (entries[i].want != ENGINE_WANT_NONE)
            floats += (uint64_t)(entries[i].want == ENGINE_WANT_LOGITS ? c->model->vocab : c->model->config.width);
    }
    if (floats != out_len || (floats > 0 && out == NULL))
        return gb_fail(err, errlen, ENGINE_EINVAL, "the output holds %llu floats; what the entries want is %llu",
                       (unsigned long long)(out == NULL ? 0 : out_len), (unsigned long long)floats);
    return ENGINE_OK;
}

static engine_status reserve_step(engine_context *c, char *err, size_t errlen)
{
    for (int32_t s = 0; s < c->options.sequences; s++) {
        if (c->lengths[s] == kvcache_length(c->cache, s))
            continue;
        engine_status status = kvcache_reserve(c->cache, s, c->lengths[s], err, errlen);
        if (status != ENGINE_OK)
            return status;
    }
    return ENGINE_OK;
}

/* Evaluate n entries that fit into one batch; *out moves past what they deliver. */
static engine_status run_batch(engine_context *c, const engine_entry *entries, int32_t n, float **out, char *err,
                               size_t errlen)
{
    int32_t *kinds = c->wanted + c->options.batch;
    forward_wants wants = {.rows = c->wanted, .kinds = kinds, .out = *out};
    for (int32_t i = 0; i < n; i++) {
        const engine_entry *e = &entries[i];
        c->rows[i] = (gb_row){.pos = e->pos, .token = e->token, .embedding = e->embedding,
                              .pages = kvcache_pages(c->cache, e->seq)};
        if (e->want == ENGINE_WANT_NONE)
            continue;
        c->wanted[wants.n] = i;
        kinds[wants.n++] = e->want;
        *out += e->want == ENGINE_WANT_LOGITS ? c->model->vocab : c->model->config.width;
    }
    return forward(c->model, c->ops, c->device, &c->buffers, c->rows, n, &wants, &c->cancel, err, errlen);
}

static GB_NOINLINE engine_status run_step(engine_context *c, const engine_entry *entries, int32_t n, float *out,
                                          char *err, size_t errlen)
{
    engine_status status = reserve_step(c, err, errlen);
    int32_t batch = c->options.batch;
    for (int32_t i = 0; i < n && status == ENGINE_OK; i += batch)
        status = run_batch(c, entries + i, n - i < batch ? n - i : batch, &out, err, errlen);
    for (int32_t s = 0; s < c->options.sequences; s++) {
        if (status == ENGINE_OK)
            kvcache_set_length(c->cache, s, c->lengths[s]);
        else
            kvcache_truncate(c->cache, s, kvcache_length(c->cache, s));
    }
    return status;
}

engine_status engine_step(engine_context *c, const engine_entry *entries, int32_t n, float *out, uint64_t out_len,
                          char *err, size_t errlen)
{
    engine_status status = check_step(c, entries, n, out, out_len, err, errlen);
    if (status != ENGINE_OK)
        return status;
    gb_fpenv saved = gb_fpenv_enter();
    status = run_step(c, entries, n, out, err, errlen);
    gb_fpenv_leave(saved);
    return status;
}

/* ---- Sequences ------------------------------------------------------------------------------ */

static engine_status check_sequence(const engine_context *c, int32_t seq, char *err, size_t errlen)
{
    if (seq >= 0 && seq < c->options.sequences)
        return ENGINE_OK;
    return gb_fail(err, errlen, ENGINE_EINVAL, "sequence %d; this context has 0 to %d", seq, c->options.sequences - 1);
}

int32_t engine_sequence_length(const engine_context *c, int32_t seq)
{
    return seq >= 0 && seq < c->options.sequences ? kvcache_length(c->cache, seq) : -1;
}

engine_status engine_sequence_truncate(engine_context *c, int32_t seq, int32_t length, char *err, size_t errlen)
{
    engine_status status = check_sequence(c, seq, err, errlen);
    if (status != ENGINE_OK)
        return status;
    int32_t now = kvcache_length(c->cache, seq);
    if (length < 0 || length > now)
        return gb_fail(err, errlen, ENGINE_EINVAL, "cannot truncate sequence %d of %d positions to %d", seq, now, length);
    kvcache_truncate(c->cache, seq, length);
    return ENGINE_OK;
}

engine_status engine_sequence_fork(engine_context *c, int32_t src, int32_t dst, char *err, size_t errlen)
{
    engine_status status = check_sequence(c, src, err, errlen);
    if (status == ENGINE_OK)
        status = check_sequence(c, dst, err, errlen);
    if (status == ENGINE_OK)
        kvcache_fork(c->cache, src, dst);
    return status;
}

/* ---- Snapshots ------------------------------------------------------------------------------ */

/* What stands before the pages; hash covers everything but itself. */
typedef struct snapshot_header {
    char magic[8];
    uint8_t fingerprint[32]; /* of the model */
    int32_t activations, kv;
    int32_t length;
    int32_t pages;
    uint64_t page_bytes;
    uint8_t hash[32];
} snapshot_header;

static const char snapshot_magic[8] = "GBSEQ1\r\n";

static int32_t pages_of(int32_t length)
{
    return length / GB_CHUNK + (length % GB_CHUNK != 0);
}

uint64_t engine_sequence_snapshot_bytes(const engine_context *c, int32_t seq)
{
    if (seq < 0 || seq >= c->options.sequences)
        return 0;
    uint64_t pages = (uint64_t)pages_of(kvcache_length(c->cache, seq));
    return sizeof(snapshot_header) + pages * c->ops->page_bytes(c->device);
}

static snapshot_header make_header(const engine_context *c, int32_t length)
{
    snapshot_header h;
    memset(&h, 0, sizeof h);
    memcpy(h.magic, snapshot_magic, sizeof h.magic);
    memcpy(h.fingerprint, c->model->fingerprint, sizeof h.fingerprint);
    h.activations = c->options.activations;
    h.kv = c->options.kv;
    h.length = length;
    h.pages = pages_of(length);
    h.page_bytes = c->ops->page_bytes(c->device);
    return h;
}

static void hash_snapshot(const snapshot_header *h, const uint8_t *pages, uint8_t out[32])
{
    sha256 s;
    sha256_init(&s);
    sha256_update(&s, h, offsetof(snapshot_header, hash));
    sha256_update(&s, pages, (size_t)(h->page_bytes * (uint64_t)h->pages));
    sha256_final(&s, out);
}

engine_status engine_sequence_snapshot(const engine_context *c, int32_t seq, void *out, uint64_t bytes, char *err,
                                       size_t errlen)
{
    engine_status status = check_sequence(c, seq, err, errlen);
    if (status != ENGINE_OK)
        return status;
    uint64_t needed = engine_sequence_snapshot_bytes(c, seq);
    if (bytes != needed)
        return gb_fail(err, errlen, ENGINE_EINVAL, "a snapshot of sequence %d takes %llu bytes, not %llu", seq,
                       (unsigned long long)needed, (unsigned long long)bytes);
    snapshot_header h = make_header(c, kvcache_length(c->cache, seq));
    uint8_t *pages = (uint8_t *)out + sizeof h;
    for (int32_t i = 0; i < h.pages; i++) {
        int32_t positions = h.length - i * GB_CHUNK < GB_CHUNK ? h.length - i * GB_CHUNK : GB_CHUNK;
        c->ops->page_save(c->device, kvcache_pages(c->cache, seq)[i], positions, pages + h.page_bytes * (uint64_t)i);
    }
    hash_snapshot(&h, pages, h.hash);
    memcpy(out, &h, sizeof h);
    return ENGINE_OK;
}

static engine_status check_snapshot(const engine_context *c, const void *state, uint64_t bytes, snapshot_header *h,
                                    char *err, size_t errlen)
{
    uint8_t hash[32];
    if (state == NULL || bytes < sizeof *h)
        return gb_fail(err, errlen, ENGINE_EINVAL, "not a snapshot: %llu bytes, the header alone has %llu",
                       (unsigned long long)bytes, (unsigned long long)sizeof *h);
    memcpy(h, state, sizeof *h);
    if (memcmp(h->magic, snapshot_magic, sizeof h->magic) != 0)
        return gb_fail(err, errlen, ENGINE_EINVAL, "not a snapshot: the first bytes are not its mark");
    snapshot_header expected = make_header(c, h->length);
    if (memcmp(h->fingerprint, expected.fingerprint, sizeof h->fingerprint) != 0)
        return gb_fail(err, errlen, ENGINE_EINVAL, "the snapshot was made with another model");
    if (h->activations != expected.activations || h->kv != expected.kv)
        return gb_fail(err, errlen, ENGINE_EINVAL,
                       "the snapshot was made with activations %d and KV type %d; this context has %d and %d",
                       h->activations, h->kv, expected.activations, expected.kv);
    if (h->length < 0 || h->length > c->options.context_tokens)
        return gb_fail(err, errlen, ENGINE_ECONTEXT, "the snapshot holds %d positions; this context has room for %d",
                       h->length, c->options.context_tokens);
    if (h->pages != expected.pages || h->page_bytes != expected.page_bytes ||
        bytes != sizeof *h + h->page_bytes * (uint64_t)h->pages)
        return gb_fail(err, errlen, ENGINE_EINVAL, "the snapshot is damaged: its sizes do not agree with %llu bytes",
                       (unsigned long long)bytes);
    hash_snapshot(h, (const uint8_t *)state + sizeof *h, hash);
    if (memcmp(hash, h->hash, sizeof hash) != 0)
        return gb_fail(err, errlen, ENGINE_EINVAL, "the snapshot is damaged: its SHA-256 does not match");
    return ENGINE_OK;
}

engine_status engine_sequence_restore(engine_context *c, int32_t seq, const void *state, uint64_t bytes, char *err,
                                      size_t errlen)
{
    snapshot_header h;
    engine_status status = check_sequence(c, seq, err, errlen);
    if (status == ENGINE_OK)
        status = check_snapshot(c, state, bytes, &h, err, errlen);
    if (status != ENGINE_OK)
        return status;
    int32_t spare = c->options.sequences;
    status = kvcache_reserve(c->cache, spare, h.length, err, errlen);
    if (status != ENGINE_OK)
        return status;
    const uint8_t *pages = (const uint8_t *)state + sizeof h;
    for (int32_t i = 0; i < h.pages; i++)
        c->ops->page_load(c->device, kvcache_pages(c->cache, spare)[i], pages + h.page_bytes * (uint64_t)i);
    kvcache_set_length(c->cache, spare, h.length);
    kvcache_fork(c->cache, spare, seq);
    kvcache_truncate(c->cache, spare, 0);
    return ENGINE_OK;
}
