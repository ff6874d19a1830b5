/* gguf_access.c: what is asked of an opened GGUF file: keys, strings, tensors, decoded rows, and typed
 * getters for the C core. Owns nothing; refuses indices out of range and values of another type, naming
 * key and byte offset. */
#include <stdio.h>
#include <string.h>

#include "dtype.h"
#include "gguf_file.h"
#include "status.h"

typedef unsigned long long ull;

const char *gguf_value_type_name(uint32_t type)
{
    static const char *const names[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                        "bool", "string", "array", "u64", "i64", "f64"};
    return type < sizeof names / sizeof names[0] ? names[type] : "unknown";
}

int gguf_compare_names(const char *a, uint64_t a_len, const char *b, uint64_t b_len)
{
    if (a_len != b_len)
        return a_len < b_len ? -1 : 1;
    return memcmp(a, b, a_len);
}

/* ---- Access --------------------------------------------------------------------------------------------- */

uint64_t engine_file_bytes(const engine_file *file) { return file->size; }
uint32_t engine_file_version(const engine_file *file) { return file->version; }
uint64_t engine_file_kv_count(const engine_file *file) { return file->n_kv; }
uint64_t engine_file_tensor_count(const engine_file *file) { return file->n_tensors; }

engine_status engine_file_kv(const engine_file *file, uint64_t index, engine_kv *out, char *err, size_t errlen)
{
    if (index >= file->n_kv)
        return gb_fail(err, errlen, ENGINE_EINVAL, "there is no key number %llu: the file has %llu", (ull)index,
                       (ull)file->n_kv);
    *out = file->kv[index];
    return ENGINE_OK;
}

int64_t engine_file_find_kv(const engine_file *file, const char *key, uint64_t key_len)
{
    engine_kv wanted = {.key = key, .key_len = key_len};
    uint64_t low = 0, high = file->n_kv;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        const engine_kv *kv = file->kv_by_key[middle];
        int order = gguf_compare_names(wanted.key, wanted.key_len, kv->key, kv->key_len);
        if (order == 0)
            return kv - file->kv;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return -1;
}

engine_status engine_file_tensor(const engine_file *file, uint64_t index, engine_tensor *out, char *err, size_t errlen)
{
    if (index >= file->n_tensors)
        return gb_fail(err, errlen, ENGINE_EINVAL, "there is no tensor number %llu: the file has %llu", (ull)index,
                       (ull)file->n_tensors);
    *out = file->tensors[index];
    return ENGINE_OK;
}

int64_t engine_file_find_tensor(const engine_file *file, const char *name, uint64_t name_len)
{
    uint64_t low = 0, high = file->n_tensors;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        const engine_tensor *t = file->tensor_by_name[middle];
        int order = gguf_compare_names(name, name_len, t->name, t->name_len);
        if (order == 0)
            return t - file->tensors;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return -1;
}

engine_status engine_file_tensor_rows(const engine_file *file, uint64_t index, uint64_t first, uint64_t n,
                                      float *out, char *err, size_t errlen)
{
    char q[GB_QUOTE_BYTES];
    engine_tensor t = {0};
    engine_status status = engine_file_tensor(file, index, &t, err, errlen);
    if (status != ENGINE_OK)
        return status;
    const dtype *type = dtype_find(t.type);
    if (type == NULL)
        return gb_fail(err, errlen, ENGINE_EUNSUPPORTED, "tensor %s has type %s, which this engine does not decode",
                       gb_quote(q, t.name, t.name_len), dtype_known(t.type)->name);
    uint64_t rows = t.dims[1] * t.dims[2] * t.dims[3];
    if (first > rows || n > rows - first)
        return gb_fail(err, errlen, ENGINE_EINVAL, "tensor %s has %llu rows; %llu from number %llu on were asked for",
                       gb_quote(q, t.name, t.name_len), (ull)rows, (ull)n, (ull)first);
    uint64_t row_bytes = t.dims[0] / type->items * type->bytes;
    return engine_dequantize(t.type, file->bytes + t.offset + first * row_bytes, n * row_bytes, n * t.dims[0], out,
                             err, errlen);
}

/* ---- Typed getters for the C core -------------------------------------------------------------------- */

/* 1 with *kv set, 0 where the key is absent. */
static int find(const engine_file *f, const char *key, const engine_kv **kv)
{
    int64_t i = engine_file_find_kv(f, key, strlen(key));
    if (i < 0)
        return 0;
    *kv = &f->kv[i];
    return 1;
}

static int unusable(const engine_kv *kv, const char *wanted, char *err, size_t errlen)
{
    char q[GB_QUOTE_BYTES];
    gb_fail(err, errlen, ENGINE_EFORMAT, "byte %llu: key %s must be %s; it is %s type %s", (ull)kv->offset,
            gb_quote(q, kv->key, kv->key_len), wanted, kv->type == ENGINE_GGUF_ARRAY ? "an array of" : "of",
            gguf_value_type_name((uint32_t)kv->elem_type));
    return -1;
}

/* The value of any integer type as sign and magnitude. */
static int integer(const engine_kv *kv, uint64_t *magnitude, int *negative)
{
    int64_t v = 0;
    switch (kv->type) {
    case ENGINE_GGUF_I8: v = *(const int8_t *)kv->data; break;
    case ENGINE_GGUF_I16: { int16_t x; memcpy(&x, kv->data, sizeof x); v = x; break; }
    case ENGINE_GGUF_I32: { int32_t x; memcpy(&x, kv->data, sizeof x); v = x; break; }
    case ENGINE_GGUF_I64: memcpy(&v, kv->data, sizeof v); break;
    case ENGINE_GGUF_U8: case ENGINE_GGUF_U16: case ENGINE_GGUF_U32: case ENGINE_GGUF_U64:
        *magnitude = 0; /* little-endian: the low bytes come first */
        *negative = 0;
        memcpy(magnitude, kv->data, kv->data_bytes);
        return 1;
    default: return 0;
    }
    *negative = v < 0;
    *magnitude = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
    return 1;
}

int gguf_get_u32(const engine_file *f, const char *key, uint32_t *out, char *err, size_t errlen)
{
    const engine_kv *kv;
    uint64_t magnitude;
    int negative;
    char q[GB_QUOTE_BYTES];
    if (!find(f, key, &kv))
        return 0;
    if (!integer(kv, &magnitude, &negative))
        return unusable(kv, "an integer", err, errlen);
    if (negative || magnitude > UINT32_MAX) {
        gb_fail(err, errlen, ENGINE_EFORMAT, "byte %llu: key %s is %s%llu, which is not from 0 to 4294967295",
                (ull)kv->offset, gb_quote(q, kv->key, kv->key_len), negative ? "-" : "", (ull)magnitude);
        return -1;
    }
    *out = (uint32_t)magnitude;
    return 1;
}

int gguf_get_f32(const engine_file *f, const char *key, float *out, char *err, size_t errlen)
{
    const engine_kv *kv;
    uint32_t bits;
    char q[GB_QUOTE_BYTES];
    if (!find(f, key, &kv))
        return 0;
    if (kv->type != ENGINE_GGUF_F32)
        return unusable(kv, "a number of type f32", err, errlen);
    memcpy(&bits, kv->data, sizeof bits);
    if ((bits & 0x7f800000u) == 0x7f800000u) {
        gb_fail(err, errlen, ENGINE_EFORMAT, "byte %llu: key %s is not a finite number", (ull)kv->offset,
                gb_quote(q, kv->key, kv->key_len));
        return -1;
    }
    memcpy(out, &bits, sizeof *out);
    return 1;
}

int gguf_get_bool(const engine_file *f, const char *key, int *out, char *err, size_t errlen)
{
    const engine_kv *kv;
    if (!find(f, key, &kv))
        return 0;
    if (kv->type != ENGINE_GGUF_BOOL)
        return unusable(kv, "a bool", err, errlen);
    *out = *(const uint8_t *)kv->data;
    return 1;
}

int gguf_get_str(const engine_file *f, const char *key, const char **out, uint64_t *len, char *err, size_t errlen)
{
    const engine_kv *kv;
    if (!find(f, key, &kv))
        return 0;
    if (kv->type != ENGINE_GGUF_STRING)
        return unusable(kv, "a string", err, errlen);
    *out = kv->data;
    *len = kv->data_bytes;
    return 1;
}

int gguf_get_array(const engine_file *f, const char *key, int32_t elem_type, engine_kv *out, char *err, size_t errlen)
{
    const engine_kv *kv;
    char wanted[64];
    if (!find(f, key, &kv))
        return 0;
    if (kv->type != ENGINE_GGUF_ARRAY || kv->elem_type != elem_type) {
        snprintf(wanted, sizeof wanted, "an array of type %s", gguf_value_type_name((uint32_t)elem_type));
        return unusable(kv, wanted, err, errlen);
    }
    *out = *kv;
    return 1;
}

int gguf_get_tensor(const engine_file *f, const char *name, engine_tensor *out, const void **data)
{
    int64_t i = engine_file_find_tensor(f, name, strlen(name));
    if (i < 0)
        return 0;
    *out = f->tensors[i];
    *data = f->bytes + out->offset;
    return 1;
}
