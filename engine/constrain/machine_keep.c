/* machine_keep.c: copies of positions in another arena, whole: the frames from the root on, what each
 * is read for, keys and items used, and texts. Languages and alternatives belong to the machine and
 * are shared. NULL: out of memory. */
#include "machine_int.h"

#include <string.h>

#define MAX_FRAMES (MACHINE_MAX_NESTING + 2)

static void *copy(doc_arena *to, const void *from, uint64_t bytes)
{
    void *at = doc_arena_alloc(to, bytes);
    if (at && bytes)
        memcpy(at, from, bytes);
    return at;
}

static const text *keep_text(doc_arena *to, const text *t, int *ok)
{
    uint32_t n = text_len(t);
    if (n == 0)
        return NULL;
    text *all = doc_arena_alloc(to, (uint64_t)n * sizeof *all);
    if (all == NULL) {
        *ok = 0;
        return NULL;
    }
    for (; t; t = t->prev) {
        all[t->len - 1] = *t;
        all[t->len - 1].prev = t->len > 1 ? &all[t->len - 2] : NULL;
    }
    return &all[n - 1];
}

static const seen *keep_seen(doc_arena *to, const seen *list, int *ok)
{
    const seen *first = NULL, **end = &first;
    for (const seen *k = list; k; k = k->prev) {
        seen *made = copy(to, k, sizeof *k + k->len + 1);
        if (made == NULL) {
            *ok = 0;
            return NULL;
        }
        *end = made;
        end = (const seen **)&made->prev;
    }
    *end = NULL;
    return first;
}

static const want *keep_want(doc_arena *to, const want *w, const frame *in, int *ok)
{
    uint32_t n_links = 0;
    for (uint32_t e = 0; e < w->n; e++)
        n_links += w->entries[e].n_links;
    want *made = doc_arena_alloc(to, sizeof *made + w->n * sizeof(entry) + n_links * sizeof(link));
    if (made == NULL) {
        *ok = 0;
        return NULL;
    }
    memcpy(made, w, sizeof *made + w->n * sizeof(entry));
    made->frame = in;
    link *links = (link *)(void *)(made->entries + w->n);
    for (uint32_t e = 0; e < w->n; e++) {
        if (w->entries[e].n_links)
            memcpy(links, w->entries[e].links, w->entries[e].n_links * sizeof *links);
        made->entries[e].links = links;
        links += w->entries[e].n_links;
    }
    return made;
}

static const frame *keep_frame(doc_arena *to, const frame *f, const frame *up, int *ok)
{
    frame *made = copy(to, f, sizeof *f + f->n * sizeof(item));
    if (made == NULL) {
        *ok = 0;
        return NULL;
    }
    made->up = up;
    made->seen = keep_seen(to, f->seen, ok);
    made->key = keep_text(to, f->key, ok);
    made->want = f->want ? keep_want(to, f->want, up, ok) : NULL;
    for (uint32_t i = 0; i < f->n && f->kind == FRAME_OBJECT; i++) {
        const objinfo *o = f->items[i].alt;
        if (o->n_words > 1 && f->items[i].words != o->taken_none) {
            made->items[i].words = copy(to, f->items[i].words, o->n_words * sizeof(uint64_t));
            *ok &= made->items[i].words != NULL;
        }
    }
    return made;
}

static const keyset *keep_keys(doc_arena *to, const keyset *keys, const frame *f, int *ok)
{
    keyset *made = doc_arena_alloc(to, sizeof *made);
    const uint64_t **allowed = doc_arena_alloc(to, f->n * sizeof *allowed);
    if (made == NULL || allowed == NULL) {
        *ok = 0;
        return NULL;
    }
    for (uint32_t i = 0; i < f->n; i++) {
        const objinfo *o = f->items[i].alt;
        allowed[i] = copy(to, keys->allowed[i], (o->n_words + 1) * sizeof(uint64_t));
        *ok &= allowed[i] != NULL;
    }
    made->allowed = allowed;
    return made;
}

const pos *machine_keep(const machine *m, doc_arena *to, const pos *at)
{
    (void)m;
    const frame *chain[MAX_FRAMES], *up = NULL;
    uint32_t n = 0;
    int ok = 1;
    for (const frame *f = at->f; f && n < MAX_FRAMES; f = f->up)
        chain[n++] = f;
    while (n > 0 && ok)
        up = keep_frame(to, chain[--n], up, &ok);
    pos *made = ok ? copy(to, at, sizeof *at + at->n * sizeof(thread)) : NULL;
    if (made == NULL)
        return NULL;
    made->f = up;
    made->w = at->w ? keep_want(to, at->w, up, &ok) : NULL;
    made->text = keep_text(to, at->text, &ok);
    made->raw = keep_text(to, at->raw, &ok);
    made->keys = at->keys ? keep_keys(to, at->keys, up, &ok) : NULL;
    return ok ? made : NULL;
}
