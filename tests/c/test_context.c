/* test_context.c: steps, sequences and snapshots of tiny models: the same bits however they are
 * run, and every refusal leaves the sequences as they were. The argument is a folder that
 * `python -m fixtures.tiny` filled. */
#include "check.h"
#include "model_file.h"

enum { N = 300, SEQUENCES = 3 };

static const char *folder;
static char err[512];

static int32_t id_at(int32_t seq, int32_t pos)
{
    return (pos * pos * 31 + pos * 17 + seq * 101 + 5) % 256;
}

static engine_context_options options_of(int32_t activations, int32_t kv, int32_t threads, int32_t batch)
{
    return (engine_context_options){.activations = activations, .kv = kv, .context_tokens = N,
                                    .sequences = SEQUENCES, .threads = threads, .batch = batch};
}

/* Evaluate positions first … last-1 of seq in one step; logits of all of them, or NULL. */
static engine_status advance(engine_context *c, int32_t vocab, int32_t seq, int32_t first, int32_t last, float *out)
{
    engine_entry entries[N];
    int32_t n = last - first;
    for (int32_t i = 0; i < n; i++)
        entries[i] = (engine_entry){.seq = seq, .pos = first + i, .token = id_at(seq, first + i),
                                    .want = out != NULL ? ENGINE_WANT_LOGITS : ENGINE_WANT_NONE};
    return engine_step(c, entries, n, out, out != NULL ? (uint64_t)n * (uint64_t)vocab : 0, err, sizeof err);
}

/* All logits of sequence 0 in steps of the given size, beside sequence 1 where asked. */
static float *evaluate(const opened *o, engine_context_options options, int32_t step, int beside)
{
    engine_context *c = open_context(o, options);
    int32_t vocab = o->info.vocab;
    float *out = calloc((size_t)N * (size_t)vocab, sizeof *out);
    for (int32_t first = 0; first < N; first += step) {
        engine_entry entries[2 * N];
        int32_t last = first + step < N ? first + step : N, used = 0;
        for (int32_t i = first; i < last; i++) {
            if (beside)
                entries[used++] = (engine_entry){.seq = 1, .pos = i, .token = id_at(1, i)};
            entries[used++] = (engine_entry){.pos = i, .token = id_at(0, i), .want = ENGINE_WANT_LOGITS};
        }
        CHECK(engine_step(c, entries, used, out + (size_t)first * (size_t)vocab,
                          (uint64_t)(last - first) * (uint64_t)vocab, err, sizeof err) == ENGINE_OK);
    }
    engine_context_free(c);
    return out;
}

static void check_same(const opened *o, const float *expected, engine_context_options options, int32_t step, int beside)
{
    float *found = evaluate(o, options, step, beside);
    CHECK(memcmp(expected, found, (size_t)N * (size_t)o->info.vocab * sizeof *found) == 0);
    free(found);
}

static void same_bits_of(const char *name, int32_t activations, int32_t kv)
{
    opened o = open_model(folder, name);
    float *expected = evaluate(&o, options_of(activations, kv, 1, 512), N, 0);
    check_same(&o, expected, options_of(activations, kv, 2, 64), N, 0);
    check_same(&o, expected, options_of(activations, kv, 3, 7), 50, 1);
    check_same(&o, expected, options_of(activations, kv, 1, 1), 129, 0);
    free(expected);
    close_model(&o);
}

static void same_bits(void)
{
    same_bits_of("llama-q4_k_m", ENGINE_ACTIVATIONS_WIDE, ENGINE_KV_F16);
    same_bits_of("llama-odd", ENGINE_ACTIVATIONS_INT8, ENGINE_KV_F32);
    same_bits_of("qwen2-q4_k_m", ENGINE_ACTIVATIONS_WIDE, ENGINE_KV_Q8);
    same_bits_of("qwen3-q8_0", ENGINE_ACTIVATIONS_F32, ENGINE_KV_F32);
    same_bits_of("gemma3-q4_k_m", ENGINE_ACTIVATIONS_INT8, ENGINE_KV_F16);
}

static void forks_and_truncation(void)
{
    opened o = open_model(folder, "gemma3-q8_0");
    int32_t vocab = o.info.vocab;
    float *all = evaluate(&o, options_of(ENGINE_ACTIVATIONS_WIDE, ENGINE_KV_F16, 1, 512), N, 0);
    float *row = calloc((size_t)vocab, sizeof *row);
    engine_context *c = open_context(&o, options_of(ENGINE_ACTIVATIONS_WIDE, ENGINE_KV_F16, 1, 64));
    CHECK(advance(c, vocab, 0, 0, 200, NULL) == ENGINE_OK);
    uint64_t two_pages = engine_context_kv_bytes(c);
    CHECK(engine_sequence_fork(c, 0, 2, err, sizeof err) == ENGINE_OK);
    CHECK(engine_context_kv_bytes(c) == two_pages); /* shared until one side writes */
    CHECK(engine_sequence_truncate(c, 2, 140, err, sizeof err) == ENGINE_OK);
    engine_entry other = {.seq = 2, .pos = 140, .token = 9};
    CHECK(engine_step(c, &other, 1, NULL, 0, err, sizeof err) == ENGINE_OK);
    CHECK(engine_context_kv_bytes(c) == two_pages / 2 * 3); /* the page that was written */
    CHECK(advance(c, vocab, 0, 200, 201, row) == ENGINE_OK);
    CHECK(memcmp(row, all + 200 * (size_t)vocab, (size_t)vocab * sizeof *row) == 0);
    CHECK(engine_sequence_truncate(c, 0, 90, err, sizeof err) == ENGINE_OK);
    CHECK(advance(c, vocab, 0, 90, 91, row) == ENGINE_OK);
    CHECK(memcmp(row, all + 90 * (size_t)vocab, (size_t)vocab * sizeof *row) == 0);
    CHECK(engine_sequence_length(c, 0) == 91 && engine_sequence_length(c, 2) == 141);
    CHECK(engine_sequence_truncate(c, 0, 92, err, sizeof err) == ENGINE_EINVAL);
    CHECK(engine_sequence_truncate(c, 0, 0, err, sizeof err) == ENGINE_OK);
    CHECK(engine_sequence_truncate(c, 2, 0, err, sizeof err) == ENGINE_OK);
    CHECK(engine_context_kv_bytes(c) == 0);
    CHECK(engine_sequence_fork(c, 0, SEQUENCES, err, sizeof err) == ENGINE_EINVAL);
    engine_context_free(c);
    free(row);
    free(all);
    close_model(&o);
}

static void check_garbage(engine_context *c, uint8_t *state, uint64_t bytes)
{
    for (uint64_t at = 0; at < bytes; at += at < 128 ? 1 : 997) {
        state[at] ^= 0x41;
        CHECK(engine_sequence_restore(c, 1, state, bytes, err, sizeof err) != ENGINE_OK);
        state[at] ^= 0x41;
    }
    for (uint64_t cut = 0; cut < bytes; cut += 1009)
        CHECK(engine_sequence_restore(c, 1, state, cut, err, sizeof err) != ENGINE_OK);
    CHECK(engine_sequence_length(c, 1) == 3);
}

static void snapshots_of(int32_t kv)
{
    opened o = open_model(folder, "qwen2-q4_k_m");
    int32_t vocab = o.info.vocab;
    engine_context_options options = options_of(ENGINE_ACTIVATIONS_WIDE, kv, 1, 64);
    float *rows = calloc((size_t)vocab * 2, sizeof *rows);
    engine_context *c = open_context(&o, options);
    CHECK(advance(c, vocab, 0, 0, 150, NULL) == ENGINE_OK);
    CHECK(advance(c, vocab, 1, 0, 3, NULL) == ENGINE_OK);
    uint64_t bytes = engine_sequence_snapshot_bytes(c, 0);
    uint8_t *state = malloc(bytes), *again = malloc(bytes);
    CHECK(engine_sequence_snapshot(c, 0, state, bytes, err, sizeof err) == ENGINE_OK);
    CHECK(engine_sequence_snapshot(c, 0, state, bytes - 1, err, sizeof err) == ENGINE_EINVAL);
    check_garbage(c, state, bytes);
    CHECK(engine_sequence_restore(c, 1, state, bytes, err, sizeof err) == ENGINE_OK);
    CHECK(engine_sequence_length(c, 1) == 150);
    /* the tail of the last page is zero, so equal sequences have equal snapshots */
    CHECK(advance(c, vocab, 0, 150, 160, NULL) == ENGINE_OK);
    CHECK(engine_sequence_truncate(c, 0, 150, err, sizeof err) == ENGINE_OK);
    CHECK(engine_sequence_snapshot(c, 0, again, bytes, err, sizeof err) == ENGINE_OK);
    CHECK(memcmp(state, again, bytes) == 0);
    engine_entry entries[2] = {{.seq = 0, .pos = 150, .token = 7, .want = ENGINE_WANT_LOGITS},
                               {.seq = 1, .pos = 150, .token = 7, .want = ENGINE_WANT_LOGITS}};
    CHECK(engine_step(c, entries, 2, rows, 2 * (uint64_t)vocab, err, sizeof err) == ENGINE_OK);
    CHECK(memcmp(rows, rows + vocab, (size_t)vocab * sizeof *rows) == 0);
    engine_context_free(c);
    options.kv = kv == ENGINE_KV_F32 ? ENGINE_KV_F16 : ENGINE_KV_F32;
    c = open_context(&o, options);
    CHECK(engine_sequence_restore(c, 0, state, bytes, err, sizeof err) == ENGINE_EINVAL);
    CHECK(strstr(err, "KV type") != NULL);
    engine_context_free(c);
    opened stranger = open_model(folder, "qwen3-q8_0");
    options.kv = kv;
    c = open_context(&stranger, options);
    CHECK(engine_sequence_restore(c, 0, state, bytes, err, sizeof err) == ENGINE_EINVAL);
    CHECK(strstr(err, "another model") != NULL);
    engine_context_free(c);
    close_model(&stranger);
    free(again);
    free(state);
    free(rows);
    close_model(&o);
}

static void snapshots(void)
{
    snapshots_of(ENGINE_KV_F16);
    snapshots_of(ENGINE_KV_F32);
    snapshots_of(ENGINE_KV_Q8);
}

/* Each entry is refused with the given status after a good one, and nothing is evaluated. */
static void refusals(void)
{
    opened o = open_model(folder, "llama-q4_0");
    int32_t vocab = o.info.vocab;
    engine_context *c = open_context(&o, options_of(ENGINE_ACTIVATIONS_INT8, ENGINE_KV_F16, 1, 8));
    float *out = calloc((size_t)vocab, sizeof *out);
    const struct {
        engine_entry entry;
        engine_status status;
        const char *text;
    } rows[] = {
        {{.seq = 3, .pos = 0}, ENGINE_EINVAL, "sequence 3"},
        {{.seq = -1, .pos = 0}, ENGINE_EINVAL, "sequence -1"},
        {{.pos = 2}, ENGINE_EINVAL, "position 2"},
        {{.pos = 0}, ENGINE_EINVAL, "position 0"},
        {{.pos = -1}, ENGINE_EINVAL, "position -1"},
        {{.pos = 1, .token = -1}, ENGINE_EINVAL, "token -1"},
        {{.pos = 1, .token = vocab}, ENGINE_EINVAL, "token"},
        {{.pos = 1, .want = 3}, ENGINE_EINVAL, "want 3"},
        {{.pos = 1, .want = ENGINE_WANT_LOGITS}, ENGINE_EINVAL, "output"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        engine_entry entries[2] = {{.pos = 0, .token = 1}, rows[i].entry};
        CHECK(engine_step(c, entries, 2, out, 0, err, sizeof err) == rows[i].status);
        CHECK(strstr(err, rows[i].text) != NULL);
        CHECK(engine_sequence_length(c, 0) == 0 && engine_context_kv_bytes(c) == 0);
    }
    CHECK(engine_step(c, NULL, 0, NULL, 0, err, sizeof err) == ENGINE_EINVAL);
    CHECK(advance(c, vocab, 0, 0, N, NULL) == ENGINE_OK);
    engine_entry beyond = {.pos = N, .token = 1};
    CHECK(engine_step(c, &beyond, 1, NULL, 0, err, sizeof err) == ENGINE_ECONTEXT);
    CHECK(engine_sequence_length(c, 0) == N && engine_sequence_length(c, 3) == -1);
    engine_context_free(c);
    free(out);
    close_model(&o);
}

static void cancellation_and_nonfinite(void)
{
    opened o = open_model(folder, "llama-q4_0");
    engine_context *c = open_context(&o, options_of(ENGINE_ACTIVATIONS_WIDE, ENGINE_KV_F16, 2, 8));
    float *row = calloc((size_t)o.info.width, sizeof *row);
    CHECK(advance(c, 0, 0, 0, 5, NULL) == ENGINE_OK);
    engine_context_cancel(c, 1);
    CHECK(advance(c, 0, 0, 5, 200, NULL) == ENGINE_ECANCELLED);
    CHECK(engine_sequence_length(c, 0) == 5);
    engine_context_cancel(c, 0);
    row[3] = __builtin_inff();
    engine_entry bad = {.pos = 5, .embedding = row};
    CHECK(engine_step(c, &bad, 1, NULL, 0, err, sizeof err) == ENGINE_ENONFINITE);
    CHECK(engine_sequence_length(c, 0) == 5);
    row[3] = 1.0f;
    CHECK(engine_step(c, &bad, 1, NULL, 0, err, sizeof err) == ENGINE_OK);
    CHECK(engine_sequence_length(c, 0) == 6);
    engine_context_free(c);
    free(row);
    close_model(&o);
}

/* A row of the embedding matrix given as an embedding is that token. */
static void embeddings_and_hidden(void)
{
    opened o = open_model(folder, "gemma3-q8_0");
    int32_t width = o.info.width, vocab = o.info.vocab;
    float *row = calloc((size_t)width, sizeof *row), *out = calloc(2 * (size_t)(width + vocab), sizeof *out);
    int64_t index = engine_file_find_tensor(o.file, "token_embd.weight", 17);
    CHECK(engine_file_tensor_rows(o.file, (uint64_t)index, 77, 1, row, err, sizeof err) == ENGINE_OK);
    engine_context *c = open_context(&o, options_of(ENGINE_ACTIVATIONS_WIDE, ENGINE_KV_F16, 1, 8));
    engine_entry entries[4] = {{.seq = 0, .token = 77, .want = ENGINE_WANT_HIDDEN},
                               {.seq = 1, .embedding = row, .want = ENGINE_WANT_HIDDEN},
                               {.seq = 0, .pos = 1, .token = 1, .want = ENGINE_WANT_LOGITS},
                               {.seq = 1, .pos = 1, .token = 1, .want = ENGINE_WANT_LOGITS}};
    CHECK(engine_step(c, entries, 4, out, 2 * (uint64_t)(width + vocab), err, sizeof err) == ENGINE_OK);
    CHECK(memcmp(out, out + width, (size_t)width * sizeof *out) == 0);
    CHECK(memcmp(out + 2 * width, out + 2 * width + vocab, (size_t)vocab * sizeof *out) == 0);
    engine_context_free(c);
    free(out);
    free(row);
    close_model(&o);
}

static void options(void)
{
    opened o = open_model(folder, "llama-odd"); /* heads of 20 elements */
    engine_context_options good = options_of(ENGINE_ACTIVATIONS_WIDE, ENGINE_KV_F16, 1, 8);
    int32_t *fields[] = {&good.activations, &good.kv, &good.context_tokens, &good.sequences, &good.threads, &good.batch};
    for (int i = 0; i < 6; i++) {
        engine_context *c = NULL;
        int32_t kept = *fields[i];
        *fields[i] = -1;
        CHECK(engine_context_new(&c, o.model, &good, err, sizeof err) == ENGINE_EINVAL && c == NULL);
        CHECK(strstr(err, "is -1; it must be") != NULL);
        *fields[i] = 1 << 30;
        CHECK(engine_context_new(&c, o.model, &good, err, sizeof err) == ENGINE_EINVAL && c == NULL);
        *fields[i] = kept;
    }
    engine_context *c = NULL;
    good.kv = ENGINE_KV_Q8;
    CHECK(engine_context_new(&c, o.model, &good, err, sizeof err) == ENGINE_EUNSUPPORTED && c == NULL);
    close_model(&o);
}

int main(int argc, char **argv)
{
    static const test tests[] = {
        {"same bits however it is run", same_bits},
        {"forks and truncation", forks_and_truncation},
        {"snapshots, damaged ones too", snapshots},
        {"refusals evaluate nothing", refusals},
        {"cancellation and values that are not finite", cancellation_and_nonfinite},
        {"embeddings and hidden states", embeddings_and_hidden},
        {"options out of range", options},
    };
    if (argc < 2)
        return 2;
    folder = argv[1];
    return run_tests(tests, sizeof tests / sizeof *tests);
}
