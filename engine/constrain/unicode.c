/* unicode.c: Unicode properties by name. */
#include "regex.h"

int charset_add_property(lang_set *s, charset *c, const char *name, uint64_t len, int *known) {
    (void)c, (void)name, (void)len;
    *known = 0;
    return s->pool->status == ENGINE_OK;
}
