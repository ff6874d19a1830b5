/* kvcache.h: which pages hold which sequence. A page is one attention chunk of one sequence in
 * all layers; pages are shared by forks and copied before the first write. */
#ifndef GB_KVCACHE_H
#define GB_KVCACHE_H
#include "ops.h"

typedef struct kvcache kvcache;

engine_status kvcache_new(kvcache **out, const gb_ops *ops, gb_device *device, int32_t sequences, int32_t context_tokens,
                          char *err, size_t errlen);
void kvcache_free(kvcache *c);
int32_t kvcache_length(const kvcache *c, int32_t seq);
uint64_t kvcache_bytes(const kvcache *c); /* of pages in use */
/* The table of a sequence; it stays where it is. */
gb_page *const *kvcache_pages(const kvcache *c, int32_t seq);
/* Make positions length … until-1 writable without changing the length. On failure the
 * sequence is as before, apart from pages that are no longer shared. */
engine_status kvcache_reserve(kvcache *c, int32_t seq, int32_t until, char *err, size_t errlen);
void kvcache_set_length(kvcache *c, int32_t seq, int32_t length); /* within what was reserved */
/* Drop positions from length on, and pages that hold none. */
void kvcache_truncate(kvcache *c, int32_t seq, int32_t length);
void kvcache_fork(kvcache *c, int32_t src, int32_t dst);

#endif
