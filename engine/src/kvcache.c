/* kvcache.c: reference-counted pages and per-sequence tables; see kvcache.h.
 *
 * Owns all pages; the device owns what is in them. Lengths and ids are checked by context.c. */
#include "kvcache.h"

#include "status.h"

#include <stdlib.h>
#include <string.h>

typedef struct sequence {
    int32_t length;   /* positions evaluated */
    int32_t n;        /* pages in the table */
    gb_page **pages;  /* [pages_max] */
    int32_t **refs;   /* [pages_max]: how many tables hold the page */
} sequence;

struct kvcache {
    const gb_ops *ops;
    gb_device *device;
    int32_t sequences;
    int32_t pages_max;
    uint64_t in_use;
    sequence *seq;
};

static void drop_page(kvcache *c, sequence *s, int32_t i)
{
    if (--*s->refs[i] == 0) {
        c->ops->page_free(c->device, s->pages[i]);
        free(s->refs[i]);
        c->in_use--;
    }
    s->pages[i] = NULL;
    s->refs[i] = NULL;
}

/* Put a fresh page into slot i; 0 where out of memory. */
static int take_page(kvcache *c, gb_page **page, int32_t **refs)
{
    *refs = malloc(sizeof **refs);
    *page = *refs == NULL ? NULL : c->ops->page_new(c->device);
    if (*page == NULL) {
        free(*refs);
        return 0;
    }
    **refs = 1;
    c->in_use++;
    return 1;
}

/* Make slot i writable: new where the table ends, a copy where it is shared. */
static int own_page(kvcache *c, sequence *s, int32_t i)
{
    gb_page *page;
    int32_t *refs;
    if (i < s->n && *s->refs[i] == 1)
        return 1;
    if (!take_page(c, &page, &refs))
        return 0;
    if (i < s->n) {
        c->ops->page_copy(c->device, page, s->pages[i]);
        drop_page(c, s, i);
    } else {
        s->n = i + 1;
    }
    s->pages[i] = page;
    s->refs[i] = refs;
    return 1;
}

engine_status kvcache_reserve(kvcache *c, int32_t seq, int32_t until, char *err, size_t errlen)
{
    sequence *s = &c->seq[seq];
    int32_t before = s->n;
    int32_t last = (until + GB_CHUNK - 1) / GB_CHUNK;
    for (int32_t i = s->length / GB_CHUNK; i < last; i++) {
        if (own_page(c, s, i))
            continue;
        while (s->n > before)
            drop_page(c, s, --s->n);
        return gb_fail(err, errlen, ENGINE_ENOMEM, "out of memory for the KV pages of sequence %d at position %d", seq,
                       i * GB_CHUNK);
    }
    return ENGINE_OK;
}

void kvcache_set_length(kvcache *c, int32_t seq, int32_t length)
{
    c->seq[seq].length = length;
}

void kvcache_truncate(kvcache *c, int32_t seq, int32_t length)
{
    sequence *s = &c->seq[seq];
    while (s->n > (length + GB_CHUNK - 1) / GB_CHUNK)
        drop_page(c, s, --s->n);
    s->length = length;
}

void kvcache_fork(kvcache *c, int32_t src, int32_t dst)
{
    sequence *from = &c->seq[src], *to = &c->seq[dst];
    if (src == dst)
        return;
    kvcache_truncate(c, dst, 0);
    for (int32_t i = 0; i < from->n; i++) {
        to->pages[i] = from->pages[i];
        to->refs[i] = from->refs[i];
        ++*to->refs[i];
    }
    to->n = from->n;
    to->length = from->length;
}

int32_t kvcache_length(const kvcache *c, int32_t seq)
{
    return c->seq[seq].length;
}

uint64_t kvcache_bytes(const kvcache *c)
{
    return c->in_use * c->ops->page_bytes(c->device);
}

gb_page *const *kvcache_pages(const kvcache *c, int32_t seq)
{
    return c->seq[seq].pages;
}

engine_status kvcache_new(kvcache **out, const gb_ops *ops, gb_device *device, int32_t sequences, int32_t context_tokens,
                          char *err, size_t errlen)
{
    *out = NULL;
    kvcache *c = calloc(1, sizeof *c);
    if (c == NULL)
        goto fail;
    c->ops = ops;
    c->device = device;
    c->pages_max = context_tokens / GB_CHUNK + 1;
    c->seq = calloc((size_t)sequences, sizeof *c->seq);
    if (c->seq == NULL)
        goto fail;
    c->sequences = sequences;
    for (int32_t i = 0; i < sequences; i++) {
        c->seq[i].pages = calloc((size_t)c->pages_max, sizeof *c->seq[i].pages);
        c->seq[i].refs = calloc((size_t)c->pages_max, sizeof *c->seq[i].refs);
        if (c->seq[i].pages == NULL || c->seq[i].refs == NULL)
            goto fail;
    }
    *out = c;
    return ENGINE_OK;
fail:
    kvcache_free(c);
    return gb_fail(err, errlen, ENGINE_ENOMEM, "out of memory for the page tables of %d sequences of %d positions",
                   sequences, context_tokens);
}

void kvcache_free(kvcache *c)
{
    if (c == NULL)
        return;
    for (int32_t i = 0; i < c->sequences; i++) {
        if (c->seq[i].pages != NULL && c->seq[i].refs != NULL)
            kvcache_truncate(c, i, 0);
        free(c->seq[i].pages);
        free(c->seq[i].refs);
    }
    free(c->seq);
    free(c);
}
