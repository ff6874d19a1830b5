/* machine_read.c: one byte further in a JSON document. Every open container is a frame with the items
 * that are still possible; a value is read by all nodes that some item could use at once, and when it
 * ends, the items whose node held are advanced. A byte is refused (NULL) when no item is left.
 * Positions and frames live in the caller's arena; nothing that was made is changed again. */
#include "machine_int.h"

#include <stdlib.h>
#include <string.h>

pos *pos_new(doc_arena *arena, uint8_t lex, const frame *f, const want *w, uint32_t n)
{
    pos *p = doc_arena_alloc(arena, sizeof *p + n * sizeof(thread));
    if (p == NULL)
        return NULL;
    memset(p, 0, sizeof *p);
    p->lex = lex;
    p->f = f;
    p->w = w;
    p->distance = NONE;
    p->n = n;
    return p;
}

static pos *pos_like(doc_arena *arena, const pos *at, uint8_t lex, uint32_t n)
{
    pos *p = pos_new(arena, lex, at->f, at->w, n);
    if (p)
        p->raw = at->raw;
    return p;
}

int json_space(const machine *m, uint8_t b)
{
    return (m->flags & DOC_SPACE_FREE) && (b == ' ' || b == '\n' || b == '\t' || b == '\r');
}

const pos *machine_start(const machine *m, doc_arena *arena)
{
    frame *root = doc_arena_alloc(arena, sizeof *root);
    want *w = doc_arena_alloc(arena, sizeof *w + sizeof(entry));
    if (root == NULL || w == NULL)
        return NULL;
    memset(root, 0, sizeof *root);
    memset(w, 0, sizeof *w);
    w->frame = root;
    w->n = 1;
    w->has_after = 1;
    w->entries[0] = (entry){.node = m->program->root};
    return pos_new(arena, LEX_VALUE, root, w, 0);
}

/* ---- Wants ------------------------------------------------------------------------------------ */

/* The item once a value that counts so has been read. */
void item_count(const frame *f, item *it, uint32_t counts)
{
    if (f->kind == FRAME_ARRAY)
        it->count++;
    if (counts == 0)
        return;
    uint32_t min, max = IR_NO_MAX, *at = &it->counted[counts - 1];
    if (f->kind == FRAME_ARRAY) {
        const ir_contains *c = &((const arrinfo *)it->alt)->a->contains[counts - 1];
        min = c->min;
        max = c->max;
    } else {
        min = ((const objinfo *)it->alt)->o->some[counts - 1].min;
    }
    if (max != IR_NO_MAX || *at < min)
        ++*at;
}

/* Whether the item lives on with a value read so. */
static int option_lives(const machine *m, const frame *f, const item *it, const option *o)
{
    if (!node_fits(m, o->node, f->depth))
        return 0;
    if (f->kind == FRAME_OBJECT && ((const objinfo *)it->alt)->o->n_some == 0)
        return 1; /* seen to when the key was read */
    item after = *it;
    item_count(f, &after, o->counts);
    if (f->kind == FRAME_ARRAY && o->counts) {
        const ir_contains *c = &((const arrinfo *)it->alt)->a->contains[o->counts - 1];
        if (c->max != IR_NO_MAX && after.counted[o->counts - 1] > c->max)
            return 0;
    }
    situation s = {.seen = f->seen, .depth = f->depth, .minus = NONE};
    return item_lives(m, &after, f->kind, &s);
}

static uint32_t item_options(const frame *f, uint32_t i, uint32_t member, const option **out)
{
    if (member == NONE)
        return 0;
    if (f->kind == FRAME_OBJECT) {
        const objinfo *o = f->items[i].alt;
        return options_of(o->options, o->first, member, out);
    }
    const arrinfo *a = f->items[i].alt;
    return options_of(a->options, a->first, member, out);
}

typedef struct use { /* item i may read the value by this node */
    uint32_t node, item, counts;
} use;

static int by_node(const void *a, const void *b)
{
    const use *x = a, *y = b;
    if (x->node != y->node)
        return x->node < y->node ? -1 : 1;
    if (x->item != y->item)
        return x->item < y->item ? -1 : 1;
    return (x->counts > y->counts) - (x->counts < y->counts);
}

static want *want_of(doc_arena *arena, const frame *f, use *uses, uint32_t n)
{
    uint32_t n_entries = 0;
    if (n > 1)
        qsort(uses, n, sizeof *uses, by_node);
    for (uint32_t i = 0; i < n; i++)
        n_entries += i == 0 || uses[i].node != uses[i - 1].node;
    want *w = doc_arena_alloc(arena, sizeof *w + n_entries * sizeof(entry) + n * sizeof(link));
    if (w == NULL)
        return NULL;
    link *links = (link *)(void *)(w->entries + n_entries);
    *w = (want){.frame = f, .n = 0};
    for (uint32_t i = 0; i < n; i++) {
        if (i == 0 || uses[i].node != uses[i - 1].node)
            w->entries[w->n++] = (entry){.node = uses[i].node, .links = links + i, .after = NONE};
        links[i] = (link){uses[i].item, uses[i].counts};
        w->entries[w->n - 1].n_links++;
    }
    return w;
}

const want *want_new(const machine *m, doc_arena *arena, const frame *f, const uint32_t *members)
{
    const option *at;
    use few[8], *uses = few;
    uint32_t room = 0, n = 0;
    for (uint32_t i = 0; i < f->n; i++)
        room += item_options(f, i, members[i], &at);
    if (room > 8 && (uses = doc_arena_alloc(arena, room * sizeof *uses)) == NULL)
        return NULL;
    for (uint32_t i = 0; i < f->n; i++)
        for (uint32_t k = item_options(f, i, members[i], &at); k > 0; k--, at++)
            if (option_lives(m, f, &f->items[i], at))
                uses[n++] = (use){at->node, i, at->counts};
    return n ? want_of(arena, f, uses, n) : NULL;
}

/* ---- Values end --------------------------------------------------------------------------------- */

static int same_item(const item *a, const item *b, uint32_t kind)
{
    if (a->alt != b->alt || a->want != b->want || a->count != b->count || a->next != b->next ||
        a->missing != b->missing || memcmp(a->counted, b->counted, sizeof a->counted) != 0)
        return 0;
    const objinfo *o = a->alt;
    if (kind == FRAME_ARRAY || o->n_words == 0)
        return 1;
    return memcmp(item_bits(a, o), item_bits(b, o), o->n_words * sizeof(uint64_t)) == 0;
}

static void add_item(frame *f, const item *it)
{
    for (uint32_t i = 0; i < f->n; i++)
        if (same_item(&f->items[i], it, f->kind))
            return;
    f->items[f->n++] = *it;
}

/* Whether nothing changes in an object's frame: one item, which goes on and counts nothing. */
static int stays(const want *w, const uint32_t *ends, uint32_t n)
{
    const frame *f = w->frame;
    return f->kind == FRAME_OBJECT && f->n == 1 && n == 1 && w->entries[ends[0]].n_links == 1 &&
           w->entries[ends[0]].links[0].counts == 0;
}

/* The value at hand in canonical form, unless the array has it already (*again). */
static const seen *item_seen(doc_arena *arena, const want *w, const text *raw, int *again)
{
    uint32_t len = text_len(raw) - w->raw_from;
    char *all = doc_arena_alloc(arena, (uint64_t)len + 1);
    if (all == NULL)
        return NULL;
    text_copy(raw, w->raw_from, all);
    const seen *new_seen = canonical_item(arena, w->frame->seen, all, len);
    *again = new_seen && seen_has(new_seen->prev, new_seen->kind, new_seen->bytes, new_seen->len);
    return *again ? new_seen->prev : new_seen;
}

/* What becomes of w's frame where the value was in the nodes of these entries; NULL: nothing. */
static const frame *advance(doc_arena *arena, const want *w, const uint32_t *ends, uint32_t n, const text *raw)
{
    const frame *f = w->frame;
    uint32_t room = 0;
    int again = 0;
    for (uint32_t i = 0; i < n; i++)
        room += w->entries[ends[i]].n_links;
    frame *next = doc_arena_alloc(arena, sizeof *next + room * sizeof(item));
    if (next == NULL)
        return NULL;
    *next = *f;
    next->n = 0;
    next->index += f->kind == FRAME_ARRAY;
    if (f->unique && (next->seen = item_seen(arena, w, raw, &again)) == NULL)
        return NULL;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < w->entries[ends[i]].n_links; k++) {
            const link *l = &w->entries[ends[i]].links[k];
            item it = f->items[l->item];
            if (again && ((const arrinfo *)it.alt)->a->unique)
                continue;
            item_count(f, &it, l->counts);
            add_item(next, &it);
        }
    return next->n ? next : NULL;
}

/* The value ended and was in the nodes of these entries of w: the position behind it. */
static const pos *end_value(doc_arena *arena, const want *w, const uint32_t *ends, uint32_t n, const text *raw)
{
    const frame *f = w->frame;
    if (f->kind != FRAME_ROOT && !stays(w, ends, n) && (f = advance(arena, w, ends, n, raw)) == NULL)
        return NULL;
    pos *p = pos_new(arena, LEX_AFTER, f, NULL, 0);
    if (p)
        p->raw = raw;
    return p;
}

int must_differ(const want *w, uint32_t e)
{
    if (!w->frame->unique)
        return 0;
    for (uint32_t k = 0; k < w->entries[e].n_links; k++)
        if (!((const arrinfo *)w->frame->items[w->entries[e].links[k].item].alt)->a->unique)
            return 0;
    return 1;
}

/* ---- Containers --------------------------------------------------------------------------------- */

int item_complete(const item *it, uint32_t kind)
{
    if (kind == FRAME_ARRAY) {
        const ir_array *a = ((const arrinfo *)it->alt)->a;
        for (uint32_t j = 0; j < a->n_contains; j++)
            if (it->counted[j] < a->contains[j].min || it->counted[j] > a->contains[j].max)
                return 0;
        return it->count >= a->min_items;
    }
    const objinfo *o = it->alt;
    if (it->missing || it->count < o->o->min_members)
        return 0;
    for (uint32_t j = 0; j < o->o->n_some; j++)
        if (it->counted[j] < o->o->some[j].min)
            return 0;
    const uint64_t *bits = item_bits(it, o);
    for (uint32_t i = 0; i < o->o->n_implies; i++) {
        uint32_t a = o->rank[o->o->implies[i].if_key], b = o->rank[o->o->implies[i].then_key];
        if ((bits[a >> 6] >> (a & 63) & 1) && !(bits[b >> 6] >> (b & 63) & 1))
            return 0;
    }
    return 1;
}

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static const pos *close_container(doc_arena *arena, const pos *at, uint8_t byte)
{
    const frame *f = at->f;
    uint32_t few[16], *ends = few, n = 0, kept = 0;
    if (f->n > 16 && (ends = doc_arena_alloc(arena, f->n * sizeof *ends)) == NULL)
        return NULL;
    for (uint32_t i = 0; i < f->n; i++)
        if (item_complete(&f->items[i], f->kind))
            ends[n++] = f->items[i].want;
    if (n > 1) {
        qsort(ends, n, sizeof *ends, by_number);
        for (uint32_t i = 0; i < n; i++)
            if (i == 0 || ends[i] != ends[i - 1])
                ends[kept++] = ends[i];
        n = kept;
    }
    const text *raw = at->raw;
    if (f->record && (raw = text_add(arena, raw, byte)) == NULL)
        return NULL;
    return n ? end_value(arena, f->want, ends, n, f->up->record ? raw : NULL) : NULL;
}

/* An item at the start of an alternative of entry e's node. */
static int start_item(const machine *m, item *it, uint32_t kind, const void *alt, uint32_t e, uint32_t depth)
{
    memset(it, 0, sizeof *it);
    it->alt = alt;
    it->want = e;
    if (kind == FRAME_OBJECT) {
        const objinfo *o = alt;
        it->missing = o->n_required;
        it->needed = o->needed;
        it->words = o->taken_none;
    }
    if (depth + m->max_height <= MACHINE_MAX_NESTING)
        return 1; /* such alternatives as cannot be completed at all were left out */
    situation s = {.depth = depth, .minus = NONE};
    return item_lives(m, it, (int)kind, &s);
}

static frame *open_frame(const machine *m, doc_arena *arena, const pos *at, uint32_t kind)
{
    uint32_t room = 0, depth = at->f->depth + 1u;
    if (depth > MACHINE_MAX_NESTING)
        return NULL;
    for (uint32_t e = 0; e < at->w->n; e++) {
        const nodeinfo *n = &m->nodes[at->w->entries[e].node];
        room += kind == FRAME_OBJECT ? n->n_objects : n->n_arrays;
    }
    frame *f = room ? doc_arena_alloc(arena, sizeof *f + room * sizeof(item)) : NULL;
    if (f == NULL)
        return NULL;
    *f = (frame){.up = at->f, .want = at->w, .kind = (uint16_t)kind, .depth = (uint16_t)depth};
    for (uint32_t e = 0; e < at->w->n; e++) {
        const nodeinfo *n = &m->nodes[at->w->entries[e].node];
        for (uint32_t i = 0; i < (kind == FRAME_OBJECT ? n->n_objects : n->n_arrays); i++) {
            const void *alt = kind == FRAME_OBJECT ? (const void *)&n->objects[i] : (const void *)&n->arrays[i];
            f->n += (uint32_t)start_item(m, &f->items[f->n], kind, alt, e, depth);
            if (kind == FRAME_ARRAY && n->arrays[i].a->unique)
                f->unique = 1;
        }
    }
    f->record = f->unique || f->up->record;
    return f->n ? f : NULL;
}

/* Text of a unique array's items begins with each item of the outermost such array. */
static const text *raw_after(doc_arena *arena, const frame *f, const text *raw, uint8_t byte, int *ok)
{
    *ok = 1;
    if (!f->record || (f->unique && !f->up->record))
        return NULL;
    raw = text_add(arena, raw, byte);
    *ok = raw != NULL;
    return raw;
}

/* What array items wait for next: after '[' and after ','. */
static const want *next_item(const machine *m, doc_arena *arena, const frame *f, const text *raw)
{
    uint32_t few[16], *members = few;
    if (f->n > 16 && (members = doc_arena_alloc(arena, f->n * sizeof *members)) == NULL)
        return NULL;
    for (uint32_t i = 0; i < f->n; i++) {
        const arrinfo *a = f->items[i].alt;
        uint32_t at = f->items[i].count;
        members[i] = at >= a->max ? NONE : at < a->a->n_prefix ? at : a->a->n_prefix;
    }
    want *w = (want *)(uintptr_t)want_new(m, arena, f, members);
    if (w && f->unique)
        w->raw_from = text_len(raw);
    return w;
}

static const pos *open_container(const machine *m, doc_arena *arena, const pos *at, uint8_t byte)
{
    int ok;
    uint32_t kind = byte == '{' ? FRAME_OBJECT : FRAME_ARRAY;
    const frame *f = open_frame(m, arena, at, kind);
    const text *raw = f ? raw_after(arena, f, at->raw, byte, &ok) : NULL;
    if (f == NULL || !ok)
        return NULL;
    pos *p = pos_new(arena, kind == FRAME_OBJECT ? LEX_FIRST_KEY : LEX_FIRST_ITEM, f, NULL, 0);
    if (p == NULL)
        return NULL;
    p->raw = raw;
    if (kind == FRAME_ARRAY)
        p->w = next_item(m, arena, f, raw); /* NULL: only ']' may follow */
    return doc_arena_failed(arena) ? NULL : p;
}

static const pos *after_value(const machine *m, doc_arena *arena, const pos *at, uint8_t byte)
{
    const frame *f = at->f;
    if (json_space(m, byte))
        return at;
    if (f->kind == FRAME_ROOT)
        return NULL;
    if (byte == (f->kind == FRAME_OBJECT ? '}' : ']'))
        return close_container(arena, at, byte);
    if (byte != ',')
        return NULL;
    int ok;
    const text *raw = raw_after(arena, f, at->raw, byte, &ok);
    if (!ok)
        return NULL;
    pos *p = NULL;
    if (f->kind == FRAME_OBJECT) {
        p = key_possible(m, f) ? pos_new(arena, LEX_NEXT_KEY, f, NULL, 0) : NULL;
    } else {
        const want *w = next_item(m, arena, f, raw);
        p = w ? pos_new(arena, LEX_VALUE, f, w, 0) : NULL;
    }
    if (p)
        p->raw = raw;
    return p;
}

/* ---- Scalars --------------------------------------------------------------------------------------- */

static const char *const literals[3] = {"true", "false", "null"};

static const pos *literal_start(const machine *m, doc_arena *arena, const pos *at, uint8_t which)
{
    pos *p = pos_like(arena, at, LEX_LITERAL, at->w->n);
    if (p == NULL)
        return NULL;
    p->sub = which;
    p->left = 1;
    p->n = 0;
    for (uint32_t e = 0; e < at->w->n; e++) {
        const ir_node *n = &m->program->nodes[at->w->entries[e].node];
        int admits = which == 0 ? n->admits_true : which == 1 ? n->admits_false : n->admits_null;
        if (admits && must_differ(at->w, e))
            admits = !seen_has(at->f->seen, 'o', literals[which], (uint32_t)strlen(literals[which]));
        if (admits)
            p->t[p->n++] = (thread){NULL, 0, 0, e, 0};
    }
    return p->n ? p : NULL;
}

static const pos *end_threads(doc_arena *arena, const pos *at, const text *raw, int accept)
{
    uint32_t few[16], *ends = few, n = 0;
    if (at->n > 16 && (ends = doc_arena_alloc(arena, at->n * sizeof *ends)) == NULL)
        return NULL;
    for (uint32_t i = 0; i < at->n; i++)
        if (!accept || lang_accepts(at->t[i].lang, at->t[i].state))
            ends[n++] = at->t[i].owner;
    return n ? end_value(arena, at->w, ends, n, raw) : NULL;
}

static const text *raw_with(doc_arena *arena, const pos *at, uint8_t byte)
{
    return at->f->record ? text_add(arena, at->raw, byte) : NULL;
}

static const pos *literal_step(doc_arena *arena, const pos *at, uint8_t byte)
{
    const char *word = literals[at->sub];
    if ((uint8_t)word[at->left] != byte)
        return NULL;
    if (word[at->left + 1] == 0)
        return end_threads(arena, at, raw_with(arena, at, byte), 0);
    pos *p = pos_like(arena, at, LEX_LITERAL, at->n);
    if (p == NULL)
        return NULL;
    p->sub = at->sub;
    p->left = (uint8_t)(at->left + 1);
    memcpy(p->t, at->t, at->n * sizeof *p->t);
    return p;
}

static const pos *string_start(const machine *m, doc_arena *arena, const pos *at)
{
    pos *p = pos_like(arena, at, LEX_STRING, at->w->n);
    if (p == NULL)
        return NULL;
    p->n = 0;
    p->plain = !at->f->unique;
    for (uint32_t e = 0; e < at->w->n; e++) {
        const lang *l = m->program->nodes[at->w->entries[e].node].string;
        if (lang_is_empty(l) ||
            (must_differ(at->w, e) && !word_lives(l, lang_start(l), NULL, NULL, 0, NULL, at->f->seen)))
            continue;
        p->plain &= (uint8_t)lang_is_all(l);
        p->t[p->n++] = (thread){l, lang_start(l), 0, e, 0};
    }
    return p->n ? p : NULL;
}

static int string_part_lives(const pos *at, const thread *t, const points *set, uint32_t n)
{
    if (must_differ(at->w, t->owner))
        return word_lives(t->lang, t->state, at->text, set, n, NULL, at->f->seen);
    return lang_lives(t->lang, t->state, set, n);
}

/* The threads of `at` that go on with a whole code point, or with what it can still become. */
static void string_threads(const pos *at, pos *p, int32_t cp, const points *set, uint32_t n_set)
{
    p->n = 0;
    for (uint32_t i = 0; i < at->n; i++) {
        thread *t = &p->t[p->n];
        *t = at->t[i];
        if (cp == CHAR_PART) {
            p->n += (uint32_t)string_part_lives(at, t, set, n_set);
            continue;
        }
        t->state = lang_step(t->lang, t->state, (uint32_t)cp);
        p->n += t->state != LANG_DEAD &&
                (!must_differ(at->w, t->owner) || word_lives(t->lang, t->state, p->text, NULL, 0, NULL, at->f->seen));
    }
}

static const pos *string_character(const machine *m, doc_arena *arena, const pos *at, uint8_t byte)
{
    character c = char_at(m, at);
    points set[MAX_POINTS];
    int32_t cp = char_step(&c, byte);
    if (cp == CHAR_BAD)
        return NULL;
    if (at->plain && at->sub == SUB_PLAIN && cp >= 0 && !at->f->record)
        return at;
    pos *p = pos_like(arena, at, LEX_STRING, at->n);
    if (p == NULL)
        return NULL;
    p->plain = at->plain;
    p->sub = c.sub;
    p->left = c.left;
    p->part = c.part;
    p->text = at->text;
    uint8_t utf8[4];
    for (uint32_t i = 0, n = at->f->unique && cp >= 0 ? utf8_write((uint32_t)cp, utf8) : 0; i < n; i++)
        if ((p->text = text_add(arena, p->text, utf8[i])) == NULL)
            return NULL;
    if (at->plain)
        memcpy(p->t, at->t, at->n * sizeof *p->t);
    else
        string_threads(at, p, cp, set, cp == CHAR_PART ? char_points(&c, set) : 0);
    return p->n ? p : NULL;
}

static const pos *string_step(const machine *m, doc_arena *arena, const pos *at, uint8_t byte)
{
    if (byte != '"' || at->sub != SUB_PLAIN)
        return string_character(m, arena, at, byte);
    return end_threads(arena, at, raw_with(arena, at, byte), 1);
}

static const pos *number_start(const machine *m, doc_arena *arena, const pos *at, uint8_t byte)
{
    pos *p = pos_like(arena, at, LEX_NUMBER, at->w->n);
    if (p == NULL)
        return NULL;
    p->n = 0;
    for (uint32_t e = 0; e < at->w->n; e++) {
        const lang *l = m->program->nodes[at->w->entries[e].node].number;
        uint32_t state = lang_is_empty(l) ? LANG_DEAD : lang_step(l, lang_start(l), byte);
        if (state != LANG_DEAD)
            p->t[p->n++] = (thread){l, state, 0, e, 0};
    }
    return p->n ? p : NULL;
}

static const pos *number_step(const machine *m, doc_arena *arena, const pos *at, uint8_t byte)
{
    if (byte == ',' || byte == ']' || byte == '}' || json_space(m, byte)) {
        const pos *ended = end_threads(arena, at, at->raw, 1);
        return ended ? after_value(m, arena, ended, byte) : NULL;
    }
    pos *p = pos_like(arena, at, LEX_NUMBER, at->n);
    if (p == NULL)
        return NULL;
    p->n = 0;
    for (uint32_t i = 0; i < at->n; i++) {
        uint32_t state = lang_step(at->t[i].lang, at->t[i].state, byte);
        if (state == LANG_DEAD)
            continue;
        p->t[p->n] = at->t[i];
        p->t[p->n++].state = state;
    }
    return p->n ? p : NULL;
}

/* Numbers of a unique array: only threads that can become a number the array does not have. */
static const pos *unused_numbers(doc_arena *arena, const pos *at)
{
    pos *p = (pos *)(uintptr_t)at;
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n; i++)
        if (!must_differ(p->w, p->t[i].owner) || number_left(arena, p, &p->t[i]) != NONE)
            p->t[n++] = p->t[i];
    p->n = n;
    return n ? p : NULL;
}

/* ---- Steps ------------------------------------------------------------------------------------------ */

static const pos *value_start(const machine *m, doc_arena *arena, const pos *at, uint8_t byte)
{
    if (at->w == NULL)
        return NULL;
    switch (byte) {
    case '"':
        return string_start(m, arena, at);
    case '{':
    case '[':
        return open_container(m, arena, at, byte);
    case 't':
        return literal_start(m, arena, at, 0);
    case 'f':
        return literal_start(m, arena, at, 1);
    case 'n':
        return literal_start(m, arena, at, 2);
    default:
        return byte == '-' || (byte >= '0' && byte <= '9') ? number_start(m, arena, at, byte) : NULL;
    }
}

static const pos *step_in(const machine *m, doc_arena *arena, const pos *at, uint8_t byte)
{
    switch (at->lex) {
    case LEX_STRING:
        return string_step(m, arena, at, byte);
    case LEX_KEY:
        return key_step(m, arena, at, byte);
    case LEX_NUMBER:
        return number_step(m, arena, at, byte);
    case LEX_LITERAL:
        return literal_step(arena, at, byte);
    case LEX_AFTER:
        return after_value(m, arena, at, byte);
    default:
        break;
    }
    if (json_space(m, byte))
        return at;
    switch (at->lex) {
    case LEX_FIRST_ITEM:
        return byte == ']' ? close_container(arena, at, byte) : value_start(m, arena, at, byte);
    case LEX_FIRST_KEY:
        return byte == '"' ? key_open(m, arena, at) : byte == '}' ? close_container(arena, at, byte) : NULL;
    case LEX_NEXT_KEY:
        return byte == '"' ? key_open(m, arena, at) : NULL;
    case LEX_COLON:
        if (byte != ':')
            return NULL;
        return pos_like(arena, at, LEX_VALUE, 0);
    default:
        return value_start(m, arena, at, byte);
    }
}

/* Whether the step wrote `raw` itself: what opens, separates and ends values does. */
static int raw_written(const pos *at, const pos *p)
{
    return p->lex == LEX_AFTER || p->lex == LEX_FIRST_KEY || p->lex == LEX_FIRST_ITEM || p->lex == LEX_NEXT_KEY ||
           (p->lex == LEX_VALUE && at->lex != LEX_COLON);
}

const pos *machine_step(const machine *m, doc_arena *arena, const pos *at, uint8_t byte)
{
    const pos *next = step_in(m, arena, at, byte);
    if (next == NULL || next == at || doc_arena_failed(arena))
        return doc_arena_failed(arena) ? NULL : next;
    if (!next->f->record)
        return next;
    pos *p = (pos *)(uintptr_t)next; /* made by this step: nobody else has it yet */
    if (!raw_written(at, p) && (p->raw = text_add(arena, at->raw, byte)) == NULL)
        return NULL;
    if (p->lex == LEX_NUMBER && p->f->unique)
        return unused_numbers(arena, p);
    return p;
}
