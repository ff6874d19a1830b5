/* gguf_file.h: the opened file as gguf.c (parsing) and gguf_access.c (reading) share it. */
#ifndef GB_GGUF_FILE_H
#define GB_GGUF_FILE_H
#include "gguf.h"

enum { FROM_CALLER, FROM_MAP, FROM_HEAP };

struct engine_file {
    const uint8_t *bytes;
    uint64_t size;
    int origin;              /* FROM_*: who releases bytes */
    uint32_t version;
    uint32_t alignment;
    uint64_t n_kv, n_tensors;
    engine_kv *kv;           /* in the file's order */
    engine_tensor *tensors;
    const engine_kv **kv_by_key; /* sorted by length, then bytes: lookups and duplicates */
    const engine_tensor **tensor_by_name;
};

/* "u8" … "f64" of a metadata value type, "unknown" for other numbers. (gguf_access.c) */
const char *gguf_value_type_name(uint32_t type);
/* The order of the sorted tables: by length, then by bytes. (gguf_access.c) */
int gguf_compare_names(const char *a, uint64_t a_len, const char *b, uint64_t b_len);

#endif
