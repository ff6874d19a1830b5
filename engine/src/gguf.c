/* gguf.c: the reader of GGUF files (versions 2 and 3, little-endian).
 *
 * Owns the map (or the copy) of the file and the tables over it; engine_file_free() releases
 * both. Nothing is read except through the cursor, which checks every length against the file
 * before use; the first error sticks, with its byte offset. Refused: files that are cut, lie
 * about sizes, repeat or overlap anything, are split, or hold what the format does not allow.
 * Tables grow with what was really parsed, so memory stays a small multiple of the file.
 *
 * A mapped file that another process cuts short kills this one with SIGBUS at the next read of
 * a lost page: no check can prevent it. Open with use_mmap = 0 where files may change. */
#define _DEFAULT_SOURCE
#include "gguf.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dtype.h"
#include "gguf_file.h"
#include "status.h"

typedef unsigned long long ull;

enum {
    MAX_KEY = 65535,           /* bytes of a key, as the format says */
    MAX_TENSOR_NAME = 64,      /* bytes of a tensor's name, likewise */
    MAX_DIMS = 4,
    MIN_KV_BYTES = 8 + 1 + 4 + 1,             /* length, key, type, value */
    MIN_TENSOR_BYTES = 8 + 1 + 4 + 8 + 4 + 8, /* length, name, n_dims, one dim, type, offset */
    MIN_ALIGNMENT = 8,
    DEFAULT_ALIGNMENT = 32,
    MAX_ALIGNMENT = 1 << 20,
    COPY_ALIGNMENT = 4096,     /* of a file that is read, so that it is placed like a mapped one */
};

/* ---- The cursor ---------------------------------------------------------------------------------- */

typedef struct cursor {
    const uint8_t *bytes;
    uint64_t size, pos; /* pos <= size always */
    const char *about;  /* name of the key or tensor that is being read, NULL outside of one */
    uint64_t about_len;
    int in_tensor;
    engine_status status;
    char *err;
    size_t errlen;
} cursor;

/* Record the first error, at byte offset at. what may come from gb_quote() and the like. */
static engine_status fail_at(cursor *c, engine_status status, uint64_t at, const char *what)
{
    if (c->status == ENGINE_OK) {
        c->status = status;
        gb_fail(c->err, c->errlen, status, "byte %llu: %s", (ull)at, what);
    }
    return c->status;
}

/* As fail_at(), with a formatted text. */
#define FAIL_AT(c, status, at, ...)                          \
    do {                                                     \
        char text_[512];                                     \
        snprintf(text_, sizeof text_, __VA_ARGS__);          \
        fail_at(c, status, at, text_);                       \
    } while (0)

/* The next n bytes, or NULL (with the error set) where the file ends before. */
static const uint8_t *take(cursor *c, uint64_t n, const char *what)
{
    if (c->status != ENGINE_OK)
        return NULL;
    if (n > c->size - c->pos) {
        char q[GB_QUOTE_BYTES] = "";
        if (c->about != NULL)
            gb_quote(q, c->about, c->about_len);
        FAIL_AT(c, ENGINE_EFORMAT, c->pos,
                "%s%s%s%s needs %llu bytes, but the file ends at byte %llu: it is cut short or damaged, fetch it again",
                c->about == NULL ? "" : c->in_tensor ? "tensor " : "key ", q, c->about == NULL ? "" : ": ", what,
                (ull)n, (ull)c->size);
        return NULL;
    }
    const uint8_t *p = c->bytes + c->pos;
    c->pos += n;
    return p;
}

static uint32_t take_u32(cursor *c, const char *what)
{
    uint32_t v = 0;
    const uint8_t *p = take(c, sizeof v, what);
    if (p != NULL)
        memcpy(&v, p, sizeof v);
    return v;
}

static uint64_t take_u64(cursor *c, const char *what)
{
    uint64_t v = 0;
    const uint8_t *p = take(c, sizeof v, what);
    if (p != NULL)
        memcpy(&v, p, sizeof v);
    return v;
}

/* A string: u64 length, then that many bytes. */
static const char *take_string(cursor *c, uint64_t *len, const char *what)
{
    *len = take_u64(c, what);
    return (const char *)take(c, *len, what);
}

/* ---- Names ---------------------------------------------------------------------------------------- */

/* Bytes of the UTF-8 sequence at s (n > 0 left), or 0 where it is none, overlong, a surrogate
 * or above U+10FFFF. */
static uint64_t utf8_sequence(const uint8_t *s, uint64_t n)
{
    uint32_t lead = s[0], c;
    uint64_t len = lead < 0x80 ? 1 : lead >> 5 == 6 ? 2 : lead >> 4 == 14 ? 3 : lead >> 3 == 30 ? 4 : 0;
    if (len == 0 || len > n)
        return 0;
    if (len == 1)
        return 1;
    c = lead & (0x7fu >> len);
    for (uint64_t i = 1; i < len; i++) {
        if (s[i] >> 6 != 2)
            return 0;
        c = c << 6 | (s[i] & 63);
    }
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    return c < least[len] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000) ? 0 : len;
}

/* Check a key or a tensor's name that ends at the cursor: not empty, not over max bytes, UTF-8
 * without control characters. From here on errors name it. */
static void check_name(cursor *c, const char *name, uint64_t len, uint64_t max, const char *what)
{
    if (c->status != ENGINE_OK)
        return;
    uint64_t at = c->pos - len;
    if (len == 0 || len > max) {
        FAIL_AT(c, ENGINE_EFORMAT, at - 8, "%s is %llu bytes long; 1 to %llu are allowed", what, (ull)len, (ull)max);
        return;
    }
    const uint8_t *s = (const uint8_t *)name;
    for (uint64_t i = 0; i < len;) {
        uint64_t n = utf8_sequence(s + i, len - i);
        if (n == 0 || s[i] < 0x20 || s[i] == 0x7f) {
            char q[GB_QUOTE_BYTES];
            FAIL_AT(c, ENGINE_EFORMAT, at + i, "%s %s %s", what, gb_quote(q, name, len),
                    n == 0 ? "is not valid UTF-8" : "holds a control character");
            return;
        }
        i += n;
    }
    c->about = name;
    c->about_len = len;
}

/* ---- Tables ----------------------------------------------------------------------------------------- */

/* Room for one more element of item bytes in *table, of which n are used. Doubles. */
static int grow(void **table, uint64_t n, uint64_t *cap, size_t item)
{
    if (n < *cap)
        return 1;
    uint64_t more = *cap == 0 ? 64 : *cap * 2;
    if (more > SIZE_MAX / 2 / item)
        return 0;
    void *p = realloc(*table, (size_t)more * item);
    if (p == NULL)
        return 0;
    *table = p;
    *cap = more;
    return 1;
}

static int by_key(const void *a, const void *b)
{
    const engine_kv *x = *(const engine_kv *const *)a, *y = *(const engine_kv *const *)b;
    int order = gguf_compare_names(x->key, x->key_len, y->key, y->key_len);
    return order != 0 ? order : (x > y) - (x < y);
}

static int by_name(const void *a, const void *b)
{
    const engine_tensor *x = *(const engine_tensor *const *)a, *y = *(const engine_tensor *const *)b;
    int order = gguf_compare_names(x->name, x->name_len, y->name, y->name_len);
    return order != 0 ? order : (x > y) - (x < y);
}

static int by_offset(const void *a, const void *b)
{
    const engine_tensor *x = *(const engine_tensor *const *)a, *y = *(const engine_tensor *const *)b;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    return (x > y) - (x < y);
}

/* ---- Metadata --------------------------------------------------------------------------------------- */

/* Bytes of a scalar of a metadata type, 0 for strings, arrays and unknown numbers. */
static uint64_t scalar_bytes(uint32_t type)
{
    static const uint8_t bytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return type < sizeof bytes ? bytes[type] : 0;
}

static void check_bools(cursor *c, const engine_kv *kv)
{
    const uint8_t *p = kv->data;
    char q[GB_QUOTE_BYTES];
    for (uint64_t i = 0; i < kv->count; i++)
        if (p[i] > 1) {
            FAIL_AT(c, ENGINE_EFORMAT, (uint64_t)(p + i - c->bytes), "key %s: a bool must be 0 or 1, not %u",
                    gb_quote(q, kv->key, kv->key_len), p[i]);
            return;
        }
}

/* The elements of an array, behind its element type and count. */
static void parse_array(cursor *c, engine_kv *kv)
{
    char q[GB_QUOTE_BYTES];
    uint64_t type_at = c->pos;
    uint32_t type = take_u32(c, "its element type");
    uint64_t count = take_u64(c, "its length");
    if (c->status != ENGINE_OK)
        return;
    uint64_t item = scalar_bytes(type);
    if (type == ENGINE_GGUF_ARRAY) {
        FAIL_AT(c, ENGINE_EUNSUPPORTED, type_at, "key %s: arrays of arrays are not supported",
                gb_quote(q, kv->key, kv->key_len));
        return;
    }
    if (type != ENGINE_GGUF_STRING && item == 0) {
        FAIL_AT(c, ENGINE_EFORMAT, type_at, "key %s: %u is not the number of an element type",
                gb_quote(q, kv->key, kv->key_len), (unsigned)type);
        return;
    }
    if (count > (c->size - c->pos) / (item == 0 ? 8 : item)) {
        FAIL_AT(c, ENGINE_EFORMAT, type_at + 4,
                "key %s: an array of %llu elements of type %s cannot fit into the %llu bytes that are left",
                gb_quote(q, kv->key, kv->key_len), (ull)count, gguf_value_type_name(type), (ull)(c->size - c->pos));
        return;
    }
    kv->elem_type = (int32_t)type;
    kv->count = count;
    uint64_t start = c->pos, len;
    if (item != 0)
        kv->data = take(c, count * item, "its array");
    else
        for (uint64_t i = 0; i < count && c->status == ENGINE_OK; i++)
            take_string(c, &len, "a string of its array");
    kv->data_bytes = c->pos - start;
}

/* One key with its value. */
static void parse_kv(cursor *c, engine_kv *kv)
{
    char q[GB_QUOTE_BYTES];
    memset(kv, 0, sizeof *kv);
    c->about = NULL;
    kv->key = take_string(c, &kv->key_len, "a key");
    check_name(c, kv->key, kv->key_len, MAX_KEY, "a key");
    uint64_t type_at = c->pos;
    uint32_t type = take_u32(c, "its value's type");
    if (c->status != ENGINE_OK)
        return;
    kv->type = kv->elem_type = (int32_t)type;
    kv->count = 1;
    kv->offset = c->pos;
    if (type == ENGINE_GGUF_STRING) {
        kv->data = take_string(c, &kv->data_bytes, "its string");
    } else if (type == ENGINE_GGUF_ARRAY) {
        parse_array(c, kv);
    } else if (scalar_bytes(type) != 0) {
        kv->data_bytes = scalar_bytes(type);
        kv->data = take(c, kv->data_bytes, "its value");
    } else {
        FAIL_AT(c, ENGINE_EFORMAT, type_at, "key %s: %u is not the number of a value type",
                gb_quote(q, kv->key, kv->key_len), (unsigned)type);
    }
    if (c->status == ENGINE_OK && kv->elem_type == ENGINE_GGUF_BOOL)
        check_bools(c, kv);
}

/* n keys into the file's table, then its sorted index; duplicates end here. */
static engine_status parse_kvs(engine_file *f, cursor *c, uint64_t n)
{
    uint64_t cap = 0;
    char q[GB_QUOTE_BYTES];
    for (uint64_t i = 0; i < n && c->status == ENGINE_OK; i++) {
        if (!grow((void **)&f->kv, i, &cap, sizeof *f->kv))
            return fail_at(c, ENGINE_ENOMEM, c->pos, "out of memory while reading the metadata");
        parse_kv(c, &f->kv[i]);
    }
    if (c->status != ENGINE_OK)
        return c->status;
    f->n_kv = n;
    f->kv_by_key = malloc((size_t)(n + 1) * sizeof *f->kv_by_key);
    if (f->kv_by_key == NULL)
        return fail_at(c, ENGINE_ENOMEM, c->pos, "out of memory while reading the metadata");
    for (uint64_t i = 0; i < n; i++)
        f->kv_by_key[i] = &f->kv[i];
    qsort(f->kv_by_key, (size_t)n, sizeof *f->kv_by_key, by_key);
    for (uint64_t i = 1; i < n; i++) {
        const engine_kv *a = f->kv_by_key[i - 1], *b = f->kv_by_key[i];
        if (gguf_compare_names(a->key, a->key_len, b->key, b->key_len) == 0) {
            FAIL_AT(c, ENGINE_EFORMAT, (uint64_t)((const uint8_t *)b->key - c->bytes),
                    "key %s stands twice in the metadata", gb_quote(q, b->key, b->key_len));
            break;
        }
    }
    return c->status;
}

/* ---- Tensors ----------------------------------------------------------------------------------------- */

/* Bytes of the tensor from its type and shape; at is where its dimensions stand in the file. */
static void size_tensor(cursor *c, engine_tensor *t, uint64_t at)
{
    char q[GB_QUOTE_BYTES];
    const dtype *type = dtype_known(t->type);
    if (type == NULL) {
        FAIL_AT(c, ENGINE_EUNSUPPORTED, at + 8 * (uint64_t)t->n_dims,
                "tensor %s has type number %d, which is unknown (or was withdrawn), so its size cannot be checked",
                gb_quote(q, t->name, t->name_len), (int)t->type);
        return;
    }
    if (t->dims[0] % type->items != 0) {
        FAIL_AT(c, ENGINE_EFORMAT, at, "tensor %s: rows of %llu values are no multiple of type %s's block of %u",
                gb_quote(q, t->name, t->name_len), (ull)t->dims[0], type->name, (unsigned)type->items);
        return;
    }
    uint64_t blocks = t->dims[0] / type->items, limit = c->size / type->bytes;
    int fits = blocks <= limit;
    for (int i = 1; i < MAX_DIMS && fits; i++) {
        fits = t->dims[i] <= limit / blocks;
        blocks *= fits ? t->dims[i] : 1;
    }
    if (!fits) {
        FAIL_AT(c, ENGINE_EFORMAT, at, "tensor %s: its shape [%llu, %llu, %llu, %llu] of type %s is larger than the file",
                gb_quote(q, t->name, t->name_len), (ull)t->dims[0], (ull)t->dims[1], (ull)t->dims[2], (ull)t->dims[3],
                type->name);
        return;
    }
    t->bytes = blocks * type->bytes;
}

/* One tensor's name, shape, type and offset (relative to the data section still). */
static void parse_tensor(cursor *c, engine_tensor *t, uint32_t alignment)
{
    char q[GB_QUOTE_BYTES];
    memset(t, 0, sizeof *t);
    c->about = NULL;
    c->in_tensor = 1;
    t->name = take_string(c, &t->name_len, "a tensor's name");
    check_name(c, t->name, t->name_len, MAX_TENSOR_NAME, "a tensor's name");
    uint64_t at = c->pos;
    uint32_t n_dims = take_u32(c, "its number of dimensions");
    if (c->status != ENGINE_OK)
        return;
    if (n_dims == 0 || n_dims > MAX_DIMS) {
        FAIL_AT(c, ENGINE_EFORMAT, at, "tensor %s has %u dimensions; 1 to %d are allowed",
                gb_quote(q, t->name, t->name_len), (unsigned)n_dims, MAX_DIMS);
        return;
    }
    t->n_dims = (int32_t)n_dims;
    for (uint32_t i = 0; i < MAX_DIMS; i++) {
        t->dims[i] = i < n_dims ? take_u64(c, "its shape") : 1;
        if (t->dims[i] == 0 && c->status == ENGINE_OK)
            FAIL_AT(c, ENGINE_EFORMAT, at + 4 + 8 * (uint64_t)i, "tensor %s: dimension %u is zero",
                    gb_quote(q, t->name, t->name_len), (unsigned)i);
    }
    t->type = (int32_t)take_u32(c, "its type");
    uint64_t offset_at = c->pos;
    t->offset = take_u64(c, "its offset");
    if (c->status != ENGINE_OK)
        return;
    if (t->offset % alignment != 0)
        FAIL_AT(c, ENGINE_EFORMAT, offset_at, "tensor %s: offset %llu is no multiple of the alignment %u",
                gb_quote(q, t->name, t->name_len), (ull)t->offset, (unsigned)alignment);
    size_tensor(c, t, at + 4);
}

/* Make offsets absolute, keep every tensor inside the file, and let no two overlap. Leaves
 * order sorted by offset. */
static void place_tensors(engine_file *f, cursor *c, const engine_tensor **order)
{
    char q[GB_QUOTE_BYTES], q2[GB_QUOTE_BYTES];
    uint64_t pad = (f->alignment - c->pos % f->alignment) % f->alignment;
    uint64_t room = c->size - c->pos < pad ? 0 : c->size - c->pos - pad;
    for (uint64_t i = 0; i < f->n_tensors; i++) {
        engine_tensor *t = &f->tensors[i];
        uint64_t info_at = (uint64_t)((const uint8_t *)t->name - c->bytes);
        if (t->offset > room || t->bytes > room - t->offset) {
            FAIL_AT(c, ENGINE_EFORMAT, info_at,
                    "tensor %s: its %llu bytes at data offset %llu pass the end of the file (%llu bytes of data): "
                    "it is cut short or damaged, fetch it again",
                    gb_quote(q, t->name, t->name_len), (ull)t->bytes, (ull)t->offset, (ull)room);
            return;
        }
        t->offset += c->pos + pad;
        order[i] = t;
    }
    qsort(order, (size_t)f->n_tensors, sizeof *order, by_offset);
    for (uint64_t i = 1; i < f->n_tensors; i++) {
        const engine_tensor *a = order[i - 1], *b = order[i];
        if (b->offset - a->offset < a->bytes) {
            FAIL_AT(c, ENGINE_EFORMAT, b->offset, "tensors %s and %s overlap", gb_quote(q, a->name, a->name_len),
                    gb_quote(q2, b->name, b->name_len));
            return;
        }
    }
}

static engine_status parse_tensors(engine_file *f, cursor *c, uint64_t n)
{
    uint64_t cap = 0;
    char q[GB_QUOTE_BYTES];
    for (uint64_t i = 0; i < n && c->status == ENGINE_OK; i++) {
        if (!grow((void **)&f->tensors, i, &cap, sizeof *f->tensors))
            return fail_at(c, ENGINE_ENOMEM, c->pos, "out of memory while reading the tensor list");
        parse_tensor(c, &f->tensors[i], f->alignment);
    }
    if (c->status != ENGINE_OK)
        return c->status;
    f->n_tensors = n;
    f->tensor_by_name = malloc((size_t)(n + 1) * sizeof *f->tensor_by_name);
    if (f->tensor_by_name == NULL)
        return fail_at(c, ENGINE_ENOMEM, c->pos, "out of memory while reading the tensor list");
    place_tensors(f, c, f->tensor_by_name);
    if (c->status != ENGINE_OK)
        return c->status;
    qsort(f->tensor_by_name, (size_t)n, sizeof *f->tensor_by_name, by_name);
    for (uint64_t i = 1; i < n; i++) {
        const engine_tensor *a = f->tensor_by_name[i - 1], *b = f->tensor_by_name[i];
        if (gguf_compare_names(a->name, a->name_len, b->name, b->name_len) == 0) {
            FAIL_AT(c, ENGINE_EFORMAT, (uint64_t)((const uint8_t *)b->name - c->bytes), "tensor %s is listed twice",
                    gb_quote(q, b->name, b->name_len));
            break;
        }
    }
    return c->status;
}

/* ---- The header as a whole -------------------------------------------------------------------------- */

/* Magic and version. Byte-swapped and older forms are named, so that the reader of the text
 * knows what the file is. */
static engine_status parse_magic(engine_file *f, cursor *c)
{
    if (c->size == 0)
        return fail_at(c, ENGINE_EFORMAT, 0, "the file is empty: fetch it again");
    const uint8_t *m = take(c, 4, "the magic number \"GGUF\"");
    if (m == NULL)
        return c->status;
    static const char old[][5] = {"lmgg", "fmgg", "tjgg", "algg"}; /* ggml, ggmf, ggjt, ggla as stored */
    for (size_t i = 0; i < sizeof old / sizeof old[0]; i++)
        if (memcmp(m, old[i], 4) == 0)
            return fail_at(c, ENGINE_EUNSUPPORTED, 0,
                           "this is a GGML file from before GGUF: convert the original model to GGUF again");
    if (memcmp(m, "FUGG", 4) == 0)
        return fail_at(c, ENGINE_EUNSUPPORTED, 0, "this is a big-endian GGUF file; only little-endian is supported");
    if (memcmp(m, "vers", 4) == 0)
        return fail_at(c, ENGINE_EFORMAT, 0, "this looks like a Git LFS pointer, not a model: run git lfs pull");
    if (memcmp(m, "GGUF", 4) != 0) {
        FAIL_AT(c, ENGINE_EFORMAT, 0, "not a GGUF file: it begins with %02x %02x %02x %02x, not 47 47 55 46 (\"GGUF\")",
                m[0], m[1], m[2], m[3]);
        return c->status;
    }
    f->version = take_u32(c, "the version");
    if (c->status != ENGINE_OK || f->version == 2 || f->version == 3)
        return c->status;
    if (f->version != 0 && (f->version & 0xffff) == 0)
        return fail_at(c, ENGINE_EUNSUPPORTED, 4, "this is a big-endian GGUF file; only little-endian is supported");
    FAIL_AT(c, ENGINE_EUNSUPPORTED, 4, "GGUF version %u is not supported (2 and 3 are): convert the model again",
            (unsigned)f->version);
    return c->status;
}

/* The keys that decide how the rest of the file is read. */
static engine_status apply_general_keys(engine_file *f, cursor *c)
{
    static const char key[] = "general.alignment";
    uint32_t parts = 0;
    f->alignment = DEFAULT_ALIGNMENT;
    int64_t i = engine_file_find_kv(f, key, sizeof key - 1);
    if (i >= 0) {
        const engine_kv *kv = &f->kv[i];
        if (kv->type != ENGINE_GGUF_U32) {
            FAIL_AT(c, ENGINE_EFORMAT, kv->offset, "key \"%s\" must be of type u32, not %s", key,
                    gguf_value_type_name((uint32_t)kv->type));
            return c->status;
        }
        memcpy(&f->alignment, kv->data, sizeof f->alignment);
        if (f->alignment < MIN_ALIGNMENT || f->alignment > MAX_ALIGNMENT || (f->alignment & (f->alignment - 1)) != 0) {
            FAIL_AT(c, ENGINE_EFORMAT, kv->offset, "key \"%s\": %u is not a power of two from %d to %d", key,
                    (unsigned)f->alignment, MIN_ALIGNMENT, MAX_ALIGNMENT);
            return c->status;
        }
    }
    int found = gguf_get_u32(f, "split.count", &parts, c->err, c->errlen);
    if (found < 0)
        return c->status = ENGINE_EFORMAT;
    if (found > 0 && parts > 1) {
        i = engine_file_find_kv(f, "split.count", 11);
        FAIL_AT(c, ENGINE_EUNSUPPORTED, f->kv[i].offset,
                "this is one of %u parts of a split file (key \"split.count\"), which is not supported: "
                "merge them, for example with llama-gguf-split --merge",
                (unsigned)parts);
    }
    return c->status;
}

static engine_status parse(engine_file *f, cursor *c)
{
    if (parse_magic(f, c) != ENGINE_OK)
        return c->status;
    uint64_t n_tensors = take_u64(c, "the number of tensors");
    uint64_t n_kv = take_u64(c, "the number of keys");
    if (c->status != ENGINE_OK)
        return c->status;
    uint64_t left = c->size - c->pos;
    if (n_tensors > left / MIN_TENSOR_BYTES)
        FAIL_AT(c, ENGINE_EFORMAT, 8, "%llu tensors cannot be described in the %llu bytes that follow", (ull)n_tensors,
                (ull)left);
    if (n_kv > left / MIN_KV_BYTES)
        FAIL_AT(c, ENGINE_EFORMAT, 16, "%llu keys cannot stand in the %llu bytes that follow", (ull)n_kv, (ull)left);
    if (c->status != ENGINE_OK || parse_kvs(f, c, n_kv) != ENGINE_OK || apply_general_keys(f, c) != ENGINE_OK)
        return c->status;
    return parse_tensors(f, c, n_tensors);
}

/* ---- Opening and closing --------------------------------------------------------------------------- */

/* Parse the file's bytes and hand it over, or free it. */
static engine_status finish_open(engine_file **out, engine_file *f, char *err, size_t errlen)
{
    cursor c = {.bytes = f->bytes, .size = f->size, .err = err, .errlen = errlen};
    engine_status status = parse(f, &c);
    if (status != ENGINE_OK) {
        engine_file_free(f);
        return status;
    }
    *out = f;
    return ENGINE_OK;
}

engine_status gguf_open_memory(engine_file **out, const void *bytes, uint64_t size, char *err, size_t errlen)
{
    *out = NULL;
    engine_file *f = calloc(1, sizeof *f);
    if (f == NULL)
        return gb_fail(err, errlen, ENGINE_ENOMEM, "out of memory while opening the file");
    f->bytes = bytes;
    f->size = size;
    f->origin = FROM_CALLER;
    return finish_open(out, f, err, errlen);
}

/* The size of the regular file behind fd. Asking first means that nothing is ever read from a
 * FIFO or a device, where a read could block. */
static engine_status regular_size(int fd, uint64_t *size, char *err, size_t errlen)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return gb_fail(err, errlen, ENGINE_EIO, "file descriptor %d cannot be examined: %s", fd, strerror(errno));
    if (!S_ISREG(st.st_mode)) {
        const char *what = S_ISDIR(st.st_mode)    ? "a directory"
                           : S_ISFIFO(st.st_mode) ? "a FIFO"
                           : S_ISSOCK(st.st_mode) ? "a socket"
                                                  : "a device";
        return gb_fail(err, errlen, ENGINE_EIO, "this is %s, not a regular file: give the path of a .gguf file", what);
    }
    if ((uint64_t)st.st_size > SIZE_MAX / 2)
        return gb_fail(err, errlen, ENGINE_EIO, "a file of %llu bytes is too large for this machine",
                       (ull)st.st_size);
    *size = (uint64_t)st.st_size;
    return ENGINE_OK;
}

/* Read size bytes from the start of fd, whatever its position. */
static engine_status read_all(uint8_t *to, int fd, uint64_t size, char *err, size_t errlen)
{
    for (uint64_t done = 0; done < size;) {
        uint64_t want = size - done < (1u << 30) ? size - done : 1u << 30;
        ssize_t got = pread(fd, to + done, (size_t)want, (off_t)done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return gb_fail(err, errlen, ENGINE_EIO, "byte %llu: the file cannot be read: %s", (ull)done,
                           strerror(errno));
        if (got == 0)
            return gb_fail(err, errlen, ENGINE_EIO, "byte %llu: the file was cut from %llu bytes while it was read",
                           (ull)done, (ull)size);
        done += (uint64_t)got;
    }
    return ENGINE_OK;
}

engine_status engine_file_open(engine_file **out, int fd, int use_mmap, char *err, size_t errlen)
{
    *out = NULL;
    uint64_t size = 0;
    engine_status status = regular_size(fd, &size, err, errlen);
    if (status != ENGINE_OK)
        return status;
    engine_file *f = calloc(1, sizeof *f);
    if (f == NULL)
        return gb_fail(err, errlen, ENGINE_ENOMEM, "out of memory while opening the file");
    f->size = size;
    void *p = NULL;
    if (size == 0)
        return finish_open(out, f, err, errlen);
    if (use_mmap) {
        p = mmap(NULL, (size_t)size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (p == MAP_FAILED) {
            status = gb_fail(err, errlen, ENGINE_EIO, "the file cannot be mapped (%s): try without mmap",
                             strerror(errno));
            goto fail;
        }
        f->bytes = p;
        f->origin = FROM_MAP;
    } else {
        if (posix_memalign(&p, COPY_ALIGNMENT, (size_t)size) != 0) {
            status = gb_fail(err, errlen, ENGINE_ENOMEM, "no memory for a file of %llu bytes: open it mapped",
                             (ull)size);
            goto fail;
        }
        f->bytes = p;
        f->origin = FROM_HEAP;
        status = read_all(p, fd, size, err, errlen);
        if (status != ENGINE_OK)
            goto fail;
    }
    return finish_open(out, f, err, errlen);
fail:
    engine_file_free(f);
    return status;
}

void engine_file_free(engine_file *file)
{
    if (file == NULL)
        return;
    if (file->origin == FROM_MAP)
        munmap((void *)(uintptr_t)file->bytes, (size_t)file->size);
    else if (file->origin == FROM_HEAP)
        free((void *)(uintptr_t)file->bytes);
    free(file->kv);
    free(file->tensors);
    free(file->kv_by_key);
    free(file->tensor_by_name);
    free(file);
}

void gguf_release(const engine_file *f, const void *bytes, uint64_t size)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t first = ((uintptr_t)bytes + page - 1) / page * page, end = ((uintptr_t)bytes + size) / page * page;
    if (f->origin == FROM_MAP && first < end)
        madvise((void *)first, end - first, MADV_DONTNEED);
}

/* ---- Strings of an array, parsed again -------------------------------------------------------------- */

/* Walks from the array's start: O(first + n), so ask for many at once. */
engine_status engine_file_kv_strings(const engine_file *file, uint64_t index, uint64_t first, uint64_t n,
                                     const char **ptrs, uint64_t *lens, char *err, size_t errlen)
{
    char q[GB_QUOTE_BYTES];
    engine_kv kv = {0};
    engine_status status = engine_file_kv(file, index, &kv, err, errlen);
    if (status != ENGINE_OK)
        return status;
    if (kv.type != ENGINE_GGUF_ARRAY || kv.elem_type != ENGINE_GGUF_STRING)
        return gb_fail(err, errlen, ENGINE_EINVAL, "key %s at byte %llu is not an array of strings",
                       gb_quote(q, kv.key, kv.key_len), (ull)kv.offset);
    if (first > kv.count || n > kv.count - first)
        return gb_fail(err, errlen, ENGINE_EINVAL, "key %s has %llu strings; %llu from number %llu on were asked for",
                       gb_quote(q, kv.key, kv.key_len), (ull)kv.count, (ull)n, (ull)first);
    /* 12 bytes of element type and count stand before the strings. */
    cursor c = {.bytes = file->bytes, .size = file->size, .pos = kv.offset + 12, .err = err, .errlen = errlen};
    for (uint64_t i = 0; i < first + n && c.status == ENGINE_OK; i++) {
        uint64_t len;
        const char *s = take_string(&c, &len, "a string of its array");
        if (i >= first) {
            ptrs[i - first] = s;
            lens[i - first] = len;
        }
    }
    return c.status;
}
