/* gguf.h: what the rest of the C core sees of a GGUF file beyond engine.h.
 * Getters return 1 and set *out where the key exists with a fitting type and range, 0 where it
 * is absent, -1 (with err set, naming key and byte offset) where it is there but unusable. */
#ifndef GB_GGUF_H
#define GB_GGUF_H
#include "engine.h"

int gguf_get_u32(const engine_file *f, const char *key, uint32_t *out, char *err, size_t errlen); /* any integer type */
int gguf_get_f32(const engine_file *f, const char *key, float *out, char *err, size_t errlen);    /* finite only */
int gguf_get_bool(const engine_file *f, const char *key, int *out, char *err, size_t errlen);
int gguf_get_str(const engine_file *f, const char *key, const char **out, uint64_t *len, char *err, size_t errlen);
/* Array with the given element type (ENGINE_GGUF_*). */
int gguf_get_array(const engine_file *f, const char *key, int32_t elem_type, engine_kv *out, char *err, size_t errlen);
/* Tensor and its bytes by name; 0 where absent. Data is aligned to the file's alignment (a power
 * of two from 8 to 1 MiB, nearly always 32), or to 4096 where that is less. */
int gguf_get_tensor(const engine_file *f, const char *name, engine_tensor *out, const void **data);
/* Tell that these bytes of the file will not be read soon: a map gives their memory back. */
void gguf_release(const engine_file *f, const void *bytes, uint64_t size);
/* Open a file that lies in memory; bytes stay the caller's and must outlive it (tests, fuzzing). */
engine_status gguf_open_memory(engine_file **out, const void *bytes, uint64_t size, char *err, size_t errlen);

#endif
