/* walk.h: read everything that an open GGUF offers, for the fuzzer and the mutation driver.
 *
 * What the reader promises is checked on the way: indexes and searches agree, every extent lies
 * inside the file. A broken promise aborts, which both programs' hosts count as a finding. */
#ifndef GB_WALK_H
#define GB_WALK_H
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine.h"

enum { WALK_STRINGS = 64 };

static inline void walk_require(int holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "BROKEN PROMISE: %s\n", what);
    abort();
}

/* Sum of bytes: makes the sanitizers see every one of them. */
static inline uint64_t walk_bytes(const void *p, uint64_t n)
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i < n; i++)
        sum += ((const unsigned char *)p)[i];
    return sum;
}

static inline uint64_t walk_strings(const engine_file *file, uint64_t index, uint64_t count)
{
    const char *ptrs[WALK_STRINGS];
    uint64_t lens[WALK_STRINGS], sum = 0;
    char err[256];
    for (uint64_t first = 0; first < count && first < 4 * WALK_STRINGS; first += WALK_STRINGS) {
        uint64_t n = count - first < WALK_STRINGS ? count - first : WALK_STRINGS;
        walk_require(engine_file_kv_strings(file, index, first, n, ptrs, lens, err, sizeof err) == ENGINE_OK,
                     "strings of an open file can be read");
        for (uint64_t i = 0; i < n; i++)
            sum += walk_bytes(ptrs[i], lens[i]);
    }
    walk_require(engine_file_kv_strings(file, index, count, 1, ptrs, lens, err, sizeof err) == ENGINE_EINVAL,
                 "a string past the last is refused");
    return sum;
}

/* Whether an array's or a scalar's bytes are those of its elements, without overflow. */
static inline int walk_counts(const engine_kv *kv)
{
    static const uint64_t size[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    uint64_t bytes;
    if (kv->elem_type == ENGINE_GGUF_STRING)
        return kv->type == ENGINE_GGUF_STRING || kv->count <= kv->data_bytes / 8;
    return !__builtin_mul_overflow(kv->count, size[kv->elem_type], &bytes) && bytes == kv->data_bytes;
}

static inline uint64_t walk_keys(const engine_file *file)
{
    uint64_t sum = 0, size = engine_file_bytes(file);
    char err[256];
    for (uint64_t i = 0; i < engine_file_kv_count(file); i++) {
        engine_kv kv;
        walk_require(engine_file_kv(file, i, &kv, err, sizeof err) == ENGINE_OK, "a key in range can be read");
        walk_require(engine_file_find_kv(file, kv.key, kv.key_len) == (int64_t)i, "a key is found by its name");
        walk_require(kv.offset <= size && kv.data_bytes <= size - kv.offset, "a value lies inside the file");
        walk_require(walk_counts(&kv), "a value's bytes are those of its elements");
        sum += walk_bytes(kv.key, kv.key_len);
        if (kv.data != NULL)
            sum += walk_bytes(kv.data, kv.data_bytes);
        if (kv.type == ENGINE_GGUF_ARRAY && kv.elem_type == ENGINE_GGUF_STRING)
            sum += walk_strings(file, i, kv.count);
    }
    return sum;
}

/* Whether the bytes of a tensor of a type that we run are those of its shape, without overflow. */
static inline int walk_fits(const engine_tensor *t)
{
    uint64_t bytes = engine_type_block_bytes(t->type);
    if (t->dims[0] % engine_type_block_items(t->type) != 0)
        return 0;
    int over = __builtin_mul_overflow(bytes, t->dims[0] / engine_type_block_items(t->type), &bytes);
    for (int i = 1; i < 4; i++)
        over |= t->dims[i] == 0 || __builtin_mul_overflow(bytes, t->dims[i], &bytes);
    return !over && bytes == t->bytes;
}

/* No tensor shares a byte with one of the first few. */
static inline void walk_disjoint(const engine_file *file, const engine_tensor *t, uint64_t index)
{
    for (uint64_t i = 0; i < index && i < WALK_STRINGS; i++) {
        engine_tensor other;
        walk_require(engine_file_tensor(file, i, &other, NULL, 0) == ENGINE_OK, "a tensor in range can be read");
        walk_require(t->offset + t->bytes <= other.offset || other.offset + other.bytes <= t->offset,
                     "no two tensors overlap");
    }
}

/* The first and the last row of every tensor of a type that we run. */
static inline uint64_t walk_tensors(const engine_file *file)
{
    uint64_t sum = 0, size = engine_file_bytes(file);
    char err[256];
    for (uint64_t i = 0; i < engine_file_tensor_count(file); i++) {
        engine_tensor t;
        walk_require(engine_file_tensor(file, i, &t, err, sizeof err) == ENGINE_OK, "a tensor in range can be read");
        walk_require(engine_file_find_tensor(file, t.name, t.name_len) == (int64_t)i, "a tensor is found by its name");
        walk_require(t.offset <= size && t.bytes <= size - t.offset, "a tensor lies inside the file");
        walk_disjoint(file, &t, i);
        if (engine_type_name(t.type) == NULL)
            continue;
        walk_require(walk_fits(&t), "a tensor's size is that of its shape");
        uint64_t rows = t.dims[1] * t.dims[2] * t.dims[3];
        float *row = malloc((size_t)t.dims[0] * sizeof *row);
        walk_require(row != NULL, "a row is no larger than a few times the file");
        for (int last = 0; last < 2; last++)
            walk_require(engine_file_tensor_rows(file, i, last ? rows - 1 : 0, 1, row, err, sizeof err) == ENGINE_OK,
                         "a row of a type that we run decodes");
        walk_require(engine_file_tensor_rows(file, i, rows, 1, row, err, sizeof err) == ENGINE_EINVAL,
                     "a row past the last is refused");
        sum += walk_bytes(row, t.dims[0] * sizeof *row);
        free(row);
    }
    return sum;
}

static inline uint64_t walk_file(const engine_file *file) { return walk_keys(file) + walk_tensors(file); }

#endif
