/* gbdigest.c: a program without Python that loads a model, evaluates a prompt of ids and prints
 * the gblogits/1 digest of all its logits, for comparison across builds.
 *
 *   gbdigest MODEL [--ids 1,2,3 | --positions N] [--activations wide|int8|f32] [--kv f16|f32|q8]
 *            [--threads N] [--batch N] [--split N] [--beside] [--hostile] [--no-repack]
 *
 * --positions N takes N ids (64 unless said) from all over the vocabulary: id_at() below.
 * --split N feeds N ids per step (KV continuation); --beside interleaves a second sequence;
 * --hostile sets flush-to-zero, denormals-are-zero and rounding down before anything else, as a
 * library in the process might, and fails unless they are still set afterwards.
 * Exit status: 0 done, 1 the engine refused, 2 usage. */
#define _POSIX_C_SOURCE 200809L
#include "engine.h"
#include "sha256.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_IDS = 4096 };

typedef struct settings {
    const char *path;
    int32_t ids[MAX_IDS];
    int32_t n;         /* 0: positions generated ids */
    int32_t positions;
    int32_t split; /* entries of the main sequence per step; 0: all */
    int beside;
    int hostile;
    engine_context_options options;
} settings;

static const char *const activation_names[] = {"wide", "int8", "f32"};
static const char *const kv_names[] = {"f16", "f32", "q8"};

#if defined(__x86_64__)
enum { HOSTILE_WORD = 0x1F80 | 0x8000 | 0x0040 | 0x2000 }; /* MXCSR: FTZ, DAZ, round down */

static void set_control_word(uint64_t word)
{
    uint32_t w = (uint32_t)word;
    __asm__ volatile("ldmxcsr %0" : : "m"(w) : "memory");
}

static uint64_t control_word(void)
{
    uint32_t w;
    __asm__ volatile("stmxcsr %0" : "=m"(w) : : "memory");
    return w & ~0x3Fu; /* without the exceptions that arose */
}
#else
enum { HOSTILE_WORD = 1 << 24 | 2 << 22 }; /* FPCR: FZ, round down */

static void set_control_word(uint64_t word)
{
    __asm__ volatile("msr fpcr, %0" : : "r"(word) : "memory");
}

static uint64_t control_word(void)
{
    uint64_t w;
    __asm__ volatile("mrs %0, fpcr" : "=r"(w) : : "memory");
    return w;
}
#endif

static int usage(void)
{
    fprintf(stderr, "usage: gbdigest MODEL [--ids 1,2,3 | --positions N] [--activations wide|int8|f32]\n"
                    "                [--kv f16|f32|q8] [--threads N] [--batch N] [--split N] [--beside] [--hostile]\n"
                    "                [--no-repack]\n");
    return 2;
}

/* Index of name, or -1. */
static int find_name(const char *const *names, const char *name)
{
    for (int i = 0; i < 3; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    return -1;
}

static int parse_ids(settings *s, const char *text)
{
    s->n = 0;
    while (*text != '\0' && s->n < MAX_IDS) {
        char *end;
        s->ids[s->n++] = (int32_t)strtol(text, &end, 10);
        if (end == text || (*end != ',' && *end != '\0'))
            return 0;
        text = *end == ',' ? end + 1 : end;
    }
    return s->n > 0 && *text == '\0';
}

static int parse(settings *s, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const char *flag = argv[i], *value = i + 1 < argc ? argv[i + 1] : "";
        int takes_value = 1, ok = 1;
        if (strcmp(flag, "--ids") == 0)
            ok = parse_ids(s, value);
        else if (strcmp(flag, "--positions") == 0)
            ok = (s->positions = atoi(value)) > 0 && s->positions <= MAX_IDS;
        else if (strcmp(flag, "--activations") == 0)
            ok = (s->options.activations = find_name(activation_names, value)) >= 0;
        else if (strcmp(flag, "--kv") == 0)
            ok = (s->options.kv = find_name(kv_names, value)) >= 0;
        else if (strcmp(flag, "--threads") == 0)
            ok = (s->options.threads = atoi(value)) > 0;
        else if (strcmp(flag, "--batch") == 0)
            ok = (s->options.batch = atoi(value)) > 0;
        else if (strcmp(flag, "--split") == 0)
            ok = (s->split = atoi(value)) > 0;
        else if (takes_value = 0, strcmp(flag, "--beside") == 0)
            s->beside = 1;
        else if (strcmp(flag, "--hostile") == 0)
            s->hostile = 1;
        else if (strcmp(flag, "--no-repack") == 0)
            s->options.no_repack = 1;
        else if (flag[0] != '-' && s->path == NULL)
            s->path = flag;
        else
            ok = 0;
        if (!ok)
            return 0;
        i += takes_value;
    }
    return s->path != NULL;
}

/* The prompt of the golden digests. */
static int32_t id_at(int64_t i, int32_t vocab)
{
    return (int32_t)((i * i * 7919 + i * 104729 + 17) % vocab);
}

/* Evaluate the ids, and beside them, if asked, the same ids in reverse as another sequence. */
static engine_status evaluate(const settings *s, engine_context *c, int32_t vocab, float *logits, char *err, size_t n)
{
    static engine_entry entries[2 * MAX_IDS];
    int32_t step = s->split > 0 ? s->split : s->n;
    for (int32_t first = 0; first < s->n; first += step) {
        int32_t count = s->n - first < step ? s->n - first : step, used = 0;
        for (int32_t i = first; i < first + count; i++) {
            if (s->beside)
                entries[used++] = (engine_entry){.seq = 1, .pos = i, .token = s->ids[s->n - 1 - i]};
            entries[used++] = (engine_entry){.seq = 0, .pos = i, .token = s->ids[i], .want = ENGINE_WANT_LOGITS};
        }
        engine_status status = engine_step(c, entries, used, logits + (size_t)first * (size_t)vocab,
                                           (uint64_t)count * (uint64_t)vocab, err, n);
        if (status != ENGINE_OK)
            return status;
    }
    return ENGINE_OK;
}

static void print_digest(const settings *s, int32_t vocab, const float *logits)
{
    sha256 h;
    char line[64];
    uint8_t out[32];
    uint32_t sizes[2] = {(uint32_t)s->n, (uint32_t)vocab};
    int len = snprintf(line, sizeof line, "gblogits/1 %s %s %s\n", engine_numerics(),
                       activation_names[s->options.activations], kv_names[s->options.kv]);
    sha256_init(&h);
    sha256_update(&h, line, (size_t)len);
    sha256_update(&h, sizes, sizeof sizes);
    sha256_update(&h, logits, (size_t)s->n * (size_t)vocab * sizeof *logits);
    sha256_final(&h, out);
    for (int i = 0; i < 32; i++)
        printf("%02x", out[i]);
    printf("\n");
}

static int run(settings *s)
{
    char err[512] = "";
    engine_file *file = NULL;
    engine_model *model = NULL;
    engine_context *context = NULL;
    engine_model_info info;
    float *logits = NULL;
    engine_status status = ENGINE_EIO;
    int fd = open(s->path, O_RDONLY);
    if (s->hostile)
        set_control_word(HOSTILE_WORD);
    if (fd < 0) {
        fprintf(stderr, "gbdigest: cannot open %s\n", s->path);
        return 1;
    }
    if ((status = engine_file_open(&file, fd, 1, err, sizeof err)) != ENGINE_OK)
        goto done;
    if ((status = engine_model_load(&model, file, err, sizeof err)) != ENGINE_OK)
        goto done;
    engine_model_describe(model, &info);
    for (int32_t i = 0; s->n == 0 && i < s->positions; i++)
        s->ids[i] = id_at(i, info.vocab);
    s->n = s->n == 0 ? s->positions : s->n;
    s->options.context_tokens = s->n;
    s->options.sequences = s->beside ? 2 : 1;
    if ((status = engine_context_new(&context, model, &s->options, err, sizeof err)) != ENGINE_OK)
        goto done;
    logits = malloc((size_t)s->n * (size_t)info.vocab * sizeof *logits);
    if (logits == NULL) {
        snprintf(err, sizeof err, "out of memory");
        status = ENGINE_ENOMEM;
        goto done;
    }
    if ((status = evaluate(s, context, info.vocab, logits, err, sizeof err)) != ENGINE_OK)
        goto done;
    if (s->hostile && control_word() != (HOSTILE_WORD & ~(uint64_t)0x3F)) {
        snprintf(err, sizeof err, "the control word was not restored");
        status = ENGINE_ESELFTEST;
        goto done;
    }
    print_digest(s, info.vocab, logits);
done:
    if (status != ENGINE_OK)
        fprintf(stderr, "gbdigest: %s: %s\n", s->path, err);
    free(logits);
    engine_context_free(context);
    engine_model_free(model);
    engine_file_free(file);
    close(fd);
    return status == ENGINE_OK ? 0 : 1;
}

int main(int argc, char **argv)
{
    static settings s = {.positions = 64, .options = {.threads = 1, .batch = 512}};
    return parse(&s, argc, argv) ? run(&s) : usage();
}
