/* fuzz_gguf.c: libFuzzer target of the GGUF reader and of the decoders behind it.
 *
 * Opens the input from memory and walks all keys, strings and tensors. Inputs are short, so a
 * well-formed header often describes more data than follow: such a one is tried again with
 * zeros behind it, which lets the fuzzer get past the check of extents. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "gguf.h"
#include "walk.h"

enum { TAIL = 1 << 20 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* 1 where the input was refused only because its tensors pass its end. */
static int open_and_walk(const uint8_t *data, size_t size)
{
    engine_file *file;
    char err[1024] = "";
    if (gguf_open_memory(&file, data, size, err, sizeof err) == ENGINE_OK) {
        volatile uint64_t sum = walk_file(file);
        (void)sum;
        engine_file_free(file);
        return 0;
    }
    walk_require(file == NULL, "nothing is handed over with a refusal");
    walk_require(strncmp(err, "byte ", 5) == 0, "a refusal names its byte offset");
    return strstr(err, "pass the end of the file") != NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!open_and_walk(data, size))
        return 0;
    uint8_t *longer = calloc(1, size + TAIL);
    if (longer == NULL)
        return 0;
    memcpy(longer, data, size);
    open_and_walk(longer, size + TAIL);
    free(longer);
    return 0;
}
