/* drive.c: runs GGUF files that arrive on standard input through the whole C core, one by one.
 *
 * A request is a frame of u64: size of the file, n, number of the mutant, run; then n bytes. The
 * file is these bytes, grown with zeros to the size (a hole, mapped) where the size exceeds n;
 * else it is read into a heap block of its exact size, so that a sanitizer sees any step past its
 * end. run == 0 stops before a token is evaluated. The answer is one line: "ok" after a token, "loaded" where
 * run is 0, or "<stage> <status> <text>" with what refused. Mutations are made by mutate_gguf.py. */
#define _POSIX_C_SOURCE 200809L
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "engine.h"
#include "walk.h"

enum { IDS = 64, ERR = 1024 };

typedef struct frame {
    uint64_t size, n, number, run;
    uint8_t *bytes;
} frame;

typedef struct verdict {
    const char *stage;
    engine_status status;
    char err[ERR];
} verdict;

/* 1 with a frame whose bytes the caller frees, 0 at the end of the input. */
static int read_frame(frame *f)
{
    uint64_t head[4];
    if (fread(head, sizeof head, 1, stdin) != 1)
        return 0;
    f->size = head[0];
    f->n = head[1];
    f->number = head[2];
    f->run = head[3];
    f->bytes = malloc(f->n + 1);
    walk_require(f->bytes != NULL, "the driver has memory for a frame");
    if (fread(f->bytes, 1, f->n, stdin) == f->n)
        return 1;
    free(f->bytes);
    return 0;
}

static void write_all(int fd, const uint8_t *bytes, uint64_t n)
{
    for (uint64_t done = 0; done < n;) {
        ssize_t wrote = pwrite(fd, bytes + done, n - done, (off_t)done);
        walk_require(wrote > 0, "the scratch file can be written");
        done += (uint64_t)wrote;
    }
}

/* One token through a context; which token and which options, the mutant's number says: all activations and KV types occur. */
static int evaluate(const engine_model *model, uint64_t number, verdict *v)
{
    engine_model_info info;
    engine_context *context = NULL;
    engine_context_options options = {.activations = (int32_t)(number % 3), .kv = (int32_t)(number / 3 % 3),
                                      .context_tokens = 8, .sequences = 1, .threads = 1, .batch = 4};
    engine_sampler_options greedy = {.temperature = 0, .top_p = 1, .repeat_penalty = 1};
    int32_t token = 0;
    v->stage = "context";
    engine_model_describe(model, &info);
    if (info.head_dim % 32 != 0 && options.kv == ENGINE_KV_Q8) /* refused for such heads */
        options.kv = ENGINE_KV_F16;
    float *logits = malloc(sizeof *logits * (size_t)info.vocab);
    walk_require(logits != NULL, "logits are no larger than a few times the file");
    v->status = engine_context_new(&context, model, &options, v->err, ERR);
    if (v->status == ENGINE_OK) {
        engine_entry entry = {.seq = 0, .pos = 0, .token = (int32_t)(number % (uint64_t)info.vocab),
                              .want = ENGINE_WANT_LOGITS};
        v->stage = "step";
        v->status = engine_step(context, &entry, 1, logits, (uint64_t)info.vocab, v->err, ERR);
    }
    if (v->status == ENGINE_OK) {
        v->stage = "sample";
        v->status = engine_sample(logits, info.vocab, &greedy, NULL, 0, 0, &token, v->err, ERR);
    }
    if (v->status == ENGINE_OK)
        walk_require(token >= 0 && token < info.vocab, "a sampled token is in the vocabulary");
    engine_context_free(context);
    free(logits);
    return v->status == ENGINE_OK;
}

/* Tokenise with and without specials, and spell some tokens. */
static int use_vocab(const engine_vocab *vocab, verdict *v)
{
    static const char text[] = "Hello <|im_start|>w\xc3\xb6rld\xff 12345\n\n  <bos>\xe2\x98\x83";
    int32_t ids[IDS];
    uint64_t n = 0, len;
    const char *bytes;
    engine_vocab_info info;
    v->stage = "tokenize";
    engine_vocab_describe(vocab, &info);
    for (uint32_t flags = 0; flags < 4; flags++) {
        v->status = engine_tokenize(vocab, text, sizeof text - 1, flags, NULL, 0, ids, IDS, &n, v->err, ERR);
        if (v->status != ENGINE_OK)
            return 0;
    }
    for (int32_t id = 0; id < info.size && id < 300; id++) {
        if (engine_token_bytes(vocab, id, 1, &bytes, &len, v->err, ERR) == ENGINE_OK)
            walk_bytes(bytes, len);
        if (engine_token_text(vocab, id, &bytes, &len, v->err, ERR) == ENGINE_OK)
            walk_bytes(bytes, len);
    }
    return 1;
}

/* All stages on an open file. */
static void use_file(const engine_file *file, const frame *f, verdict *v)
{
    engine_vocab *vocab = NULL;
    engine_model *model = NULL;
    if (f->size == f->n) { /* a hole decodes to zeros: nothing to learn, and much to read */
        volatile uint64_t sum = walk_file(file);
        (void)sum;
    } else {
        walk_keys(file);
    }
    v->stage = "vocab";
    v->status = engine_vocab_open(&vocab, file, v->err, ERR);
    if (v->status != ENGINE_OK || !use_vocab(vocab, v))
        goto done;
    v->stage = "model";
    v->status = engine_model_load(&model, file, v->err, ERR);
    if (v->status == ENGINE_OK && f->run)
        evaluate(model, f->number, v);
done:
    engine_model_free(model);
    engine_vocab_free(vocab);
}

int main(void)
{
    frame f;
    verdict v;
    FILE *scratch = tmpfile();
    walk_require(scratch != NULL, "a scratch file can be made");
    while (read_frame(&f)) {
        engine_file *file = NULL;
        int hole = f.size > f.n;
        walk_require(ftruncate(fileno(scratch), 0) == 0, "the scratch file can be emptied");
        write_all(fileno(scratch), f.bytes, f.n);
        walk_require(ftruncate(fileno(scratch), (off_t)f.size) == 0, "the scratch file can be sized");
        memset(&v, 0, sizeof v);
        v.stage = "open";
        v.status = engine_file_open(&file, fileno(scratch), hole, v.err, ERR);
        walk_require((file != NULL) == (v.status == ENGINE_OK), "a file is handed over exactly on success");
        if (file != NULL)
            use_file(file, &f, &v);
        engine_file_free(file);
        free(f.bytes);
        if (v.status == ENGINE_OK)
            printf(f.run ? "ok\n" : "loaded\n");
        else
            printf("%s %d %s\n", v.stage, (int)v.status, v.err);
        fflush(stdout);
    }
    fclose(scratch);
    return 0;
}
