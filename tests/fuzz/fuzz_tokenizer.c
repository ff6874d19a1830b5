/* fuzz_tokenizer.c: libFuzzer target of the vocabulary reader and of tokenisation.
 *
 * An input that begins with "GGUF" is a file: its vocabulary is opened and used on a fixed text.
 * Any other input is a text for one of the vocabularies of the *.gguf files in the folder
 * $GAUGEBLOCK_FUZZ_MODELS: byte 0 chooses it, byte 1 the flags, byte 2 how many literal spans
 * follow (two bytes each), the rest is text. Promises: counts do not depend on room, nothing is
 * written past it, byte-level BPE gives the bytes back, and no steering token meets a literal span. */
#define _POSIX_C_SOURCE 200809L
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gguf.h"
#include "walk.h"

enum { MAX_VOCABS = 64, MAX_SPANS = 16, ERR = 1024, TAIL = 1 << 20 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static engine_vocab *vocabs[MAX_VOCABS];
static int n_vocabs;

/* The vocabulary of a file in memory. Inputs are short, so a header often describes more tensor
 * data than follow: such a file is tried again with zeros behind it. */
static engine_vocab *open_vocab(const void *bytes, uint64_t n)
{
    engine_file *file;
    engine_vocab *vocab = NULL;
    char err[ERR] = "";
    uint8_t *longer = NULL;
    engine_status status = gguf_open_memory(&file, bytes, n, err, sizeof err);
    if (status != ENGINE_OK && strstr(err, "pass the end of the file") != NULL) {
        longer = calloc(1, n + TAIL);
        walk_require(longer != NULL, "the fuzzer has memory");
        memcpy(longer, bytes, n);
        status = gguf_open_memory(&file, longer, n + TAIL, err, sizeof err);
    }
    if (status != ENGINE_OK) {
        free(longer);
        return NULL;
    }
    if (engine_vocab_open(&vocab, file, err, sizeof err) != ENGINE_OK)
        walk_require(vocab == NULL && err[0] != '\0', "a refused vocabulary says why and hands nothing over");
    engine_file_free(file);
    free(longer);
    return vocab;
}

static void open_file(const char *folder, const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "rb");
    walk_require(f != NULL, "the seed can be read");
    fseek(f, 0, SEEK_END);
    long size = ftell(f);
    rewind(f);
    char *bytes = malloc((size_t)size + 1);
    walk_require(bytes != NULL && fread(bytes, 1, (size_t)size, f) == (size_t)size, "the seed is read whole");
    fclose(f);
    vocabs[n_vocabs] = open_vocab(bytes, (uint64_t)size);
    n_vocabs += vocabs[n_vocabs] != NULL;
    free(bytes);
}

static void open_seeds(void)
{
    const char *folder = getenv("GAUGEBLOCK_FUZZ_MODELS");
    walk_require(folder != NULL, "GAUGEBLOCK_FUZZ_MODELS names the folder of the tiny models");
    DIR *dir = opendir(folder);
    walk_require(dir != NULL, "GAUGEBLOCK_FUZZ_MODELS is a folder");
    for (struct dirent *entry; (entry = readdir(dir)) != NULL && n_vocabs < MAX_VOCABS;) {
        size_t n = strlen(entry->d_name);
        if (n > 5 && strcmp(entry->d_name + n - 5, ".gguf") == 0)
            open_file(folder, entry->d_name);
    }
    closedir(dir);
    walk_require(n_vocabs > 0, "a tiny model has a vocabulary");
}

/* A token that must not come out of a literal span. */
static int steering(const engine_vocab *v, const engine_vocab_info *info, int32_t id)
{
    int32_t kind = engine_token_kind(v, id);
    return kind == ENGINE_TOKEN_CONTROL || id == info->bos || engine_token_is_end(v, id)
        || (kind == ENGINE_TOKEN_UNKNOWN && id != info->unk);
}

/* Byte-level BPE: every token has a place in the text, so both promises can be checked exactly. */
static void check_places(const engine_vocab *v, const engine_vocab_info *info, const int32_t *ids, uint64_t n,
                         const char *text, uint64_t len, const engine_span *spans, uint64_t n_spans)
{
    uint64_t at = 0, size;
    char err[ERR];
    const char *bytes;
    for (uint64_t i = 0; i < n; i++, at += size) {
        walk_require(engine_token_bytes(v, ids[i], 1, &bytes, &size, err, sizeof err) == ENGINE_OK, "ids are valid");
        walk_require(size <= len - at && memcmp(bytes, text + at, size) == 0, "tokens spell the text");
        for (uint64_t k = 0; k < n_spans && steering(v, info, ids[i]); k++)
            walk_require(spans[k].begin == spans[k].end || spans[k].end <= at || spans[k].begin >= at + size,
                         "no steering token meets a literal span");
    }
    walk_require(at == len, "tokens spell the whole text");
}

static void use(const engine_vocab *v, uint32_t flags, const engine_span *spans, uint64_t n_spans, const char *text,
                uint64_t len, int exact)
{
    char err[ERR];
    uint64_t n, again;
    engine_vocab_info info;
    engine_vocab_describe(v, &info);
    engine_status status = engine_tokenize(v, text, len, flags, spans, n_spans, NULL, 0, &n, err, sizeof err);
    walk_require(status == (n > 0 ? ENGINE_EINVAL : ENGINE_OK), "without room only an empty text is tokenised");
    int32_t *ids = malloc((n + 1) * sizeof *ids);
    walk_require(ids != NULL, "the fuzzer has memory");
    ids[n / 2] = ids[n] = -7;
    engine_tokenize(v, text, len, flags, spans, n_spans, ids, n / 2, &again, err, sizeof err);
    walk_require(again == n && ids[n / 2] == -7, "counts do not depend on room, and nothing is written past it");
    status = engine_tokenize(v, text, len, flags, spans, n_spans, ids, n, &again, err, sizeof err);
    walk_require(status == ENGINE_OK && again == n && ids[n] == -7, "with room for all it succeeds");
    for (uint64_t i = 0; i < n; i++)
        walk_require(engine_token_kind(v, ids[i]) != 0, "ids are inside the vocabulary");
    if (exact && strcmp(info.model, "gpt2") == 0 && !(flags & ENGINE_TOKENIZE_BOS_EOS))
        check_places(v, &info, ids, n, text, len, spans, n_spans);
    if (exact && n_spans == 1 && spans[0].begin == 0 && spans[0].end == len && !(flags & ENGINE_TOKENIZE_BOS_EOS))
        for (uint64_t i = 0; i < n; i++)
            walk_require(!steering(v, &info, ids[i]), "a text that is all literal has no steering token");
    free(ids);
}

static void as_file(const uint8_t *data, size_t size)
{
    static const char text[] = "It's <|im_end|> 12  \n</s>\xff\xe2\x96\x81 \xe4\xb8\xad<tool>";
    engine_span all = {0, sizeof text - 1};
    engine_vocab *v = open_vocab(data, size);
    if (v == NULL)
        return;
    use(v, ENGINE_TOKENIZE_SPECIAL | ENGINE_TOKENIZE_BOS_EOS, NULL, 0, text, sizeof text - 1, 0);
    use(v, 0, &all, 1, text, sizeof text - 1, 0);
    engine_vocab_free(v);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    engine_span spans[MAX_SPANS];
    if (n_vocabs == 0)
        open_seeds();
    if (size >= 4 && memcmp(data, "GGUF", 4) == 0) {
        as_file(data, size);
        return 0;
    }
    uint64_t n_spans = size > 2 ? data[2] % (MAX_SPANS + 1) : 0, head = 3 + 2 * n_spans;
    if (size < head)
        return 0;
    const char *text = (const char *)data + head;
    uint64_t len = size - head, at = 0;
    for (uint64_t i = 0; i < n_spans; i++) { /* gaps and lengths, cut to the text */
        uint64_t gap = data[3 + 2 * i], length = data[4 + 2 * i];
        spans[i].begin = at += gap < len - at ? gap : len - at;
        spans[i].end = at += length < len - at ? length : len - at;
    }
    use(vocabs[data[0] % n_vocabs], data[1] & 3u, spans, n_spans, text, len, 1);
    spans[0] = (engine_span){0, len};
    use(vocabs[data[0] % n_vocabs], data[1] & 3u, spans, 1, text, len, 1);
    return 0;
}
