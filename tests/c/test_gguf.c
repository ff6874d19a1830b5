/* test_gguf.c: the reader under sanitizers: every tiny model mapped and from memory, every
 * prefix of a header in a block of its exact size, every change of its first bytes; and half
 * precision there and back. Takes the folder of tiny models. */
#define _POSIX_C_SOURCE 200809L
#include "../fuzz/walk.h"
#include "check.h"
#include "dtype.h"
#include "gguf.h"

#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <unistd.h>

enum { HEADER = 1500 }; /* first bytes of a model: counts, keys, the start of an array of strings */

static const char *folder;

/* The bytes of a model in a block of exactly their number; the caller frees them. */
static uint8_t *load(const char *name, size_t *size)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *in = fopen(path, "rb");
    walk_require(in != NULL && fseek(in, 0, SEEK_END) == 0, "the model can be opened");
    *size = (size_t)ftell(in);
    rewind(in);
    uint8_t *bytes = malloc(*size);
    walk_require(bytes != NULL && fread(bytes, 1, *size, in) == *size, "the model can be read");
    fclose(in);
    return bytes;
}

static uint64_t open_and_walk(const char *name, int use_mmap)
{
    char path[4096], err[1024] = "";
    engine_file *file;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int fd = open(path, O_RDONLY);
    CHECK(engine_file_open(&file, fd, use_mmap, err, sizeof err) == ENGINE_OK);
    close(fd);
    if (file == NULL)
        return 0;
    uint64_t sum = walk_file(file);
    engine_file_free(file);
    return sum;
}

static void every_model_reads_alike_mapped_and_copied(void)
{
    DIR *dir = opendir(folder);
    int models = 0;
    CHECK(dir != NULL);
    for (struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;)
        if (strstr(entry->d_name, ".gguf") != NULL) {
            uint64_t mapped = open_and_walk(entry->d_name, 1);
            CHECK(mapped != 0 && mapped == open_and_walk(entry->d_name, 0));
            models++;
        }
    CHECK(models >= 13); /* one for each tensor type at least */
    closedir(dir);
}

static void every_prefix_is_refused(void)
{
    size_t size;
    uint8_t *bytes = load("llama-q4_k.gguf", &size);
    for (size_t n = 0; n < size; n += n < HEADER ? 1 : 997) {
        char err[1024] = "";
        engine_file *file;
        uint8_t *prefix = malloc(n == 0 ? 1 : n);
        memcpy(prefix, bytes, n);
        CHECK(gguf_open_memory(&file, prefix, n, err, sizeof err) == ENGINE_EFORMAT);
        CHECK(file == NULL && strncmp(err, "byte ", 5) == 0);
        free(prefix);
    }
    free(bytes);
}

static void every_changed_byte_is_read_or_refused(void)
{
    static const uint8_t changes[] = {0x01, 0x80, 0xff, 0x20};
    size_t size;
    uint8_t *bytes = load("llama-q4_0.gguf", &size);
    int opened = 0, refused = 0;
    for (size_t at = 0; at < HEADER; at++)
        for (size_t i = 0; i < sizeof changes; i++) {
            char err[1024] = "";
            engine_file *file;
            bytes[at] ^= changes[i];
            if (gguf_open_memory(&file, bytes, size, err, sizeof err) == ENGINE_OK) {
                CHECK(walk_keys(file) != 0);
                engine_file_free(file);
                opened++;
            } else {
                CHECK(file == NULL && strncmp(err, "byte ", 5) == 0);
                refused++;
            }
            bytes[at] ^= changes[i];
        }
    CHECK(opened > 100 && refused > 100);
    free(bytes);
}

static void half_precision_goes_there_and_back(void)
{
    for (uint32_t h = 0; h < 65536; h++) {
        float f = gb_f16_to_f32((uint16_t)h);
        uint16_t back = gb_f32_to_f16(f);
        CHECK(back == h || (isnan(f) && isnan(gb_f16_to_f32(back)) && (back >> 15) == (h >> 15)));
    }
    CHECK(gb_f16_to_f32(0x0001) == 0x1p-24f && gb_f16_to_f32(0x7bff) == 65504.0f);
    CHECK(gb_f32_to_f16(0x1p-25f) == 0 && gb_f32_to_f16(0x1.000002p-25f) == 1);
    CHECK(gb_f32_to_f16(65519.996f) == 0x7bff && gb_f32_to_f16(65520.0f) == 0x7c00);
}

int main(int argc, char **argv)
{
    static const test tests[] = {
        {"every model reads alike, mapped and copied", every_model_reads_alike_mapped_and_copied},
        {"every prefix is refused", every_prefix_is_refused},
        {"every changed byte is read or refused", every_changed_byte_is_read_or_refused},
        {"half precision goes there and back", half_precision_goes_there_and_back},
    };
    if (argc != 2) {
        printf("usage: test_gguf FOLDER_OF_TINY_MODELS\n");
        return 2;
    }
    folder = argv[1];
    return run_tests(tests, sizeof tests / sizeof tests[0]);
}
