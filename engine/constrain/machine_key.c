/* machine_key.c: keys of objects, byte by byte. Declared keys are a range of the sorted keys that
 * narrows with the decoded text; other keys are read by their languages. A key goes on only while some
 * key that may still come begins with it: neither used nor, for the other ones, declared; and with
 * room for all that must follow. Owns nothing. */
#include "machine_int.h"

#include <string.h>

static int has(const uint64_t *bits, uint32_t i)
{
    return (int)(bits[i >> 6] >> (i & 63) & 1);
}

int any_allowed(const uint64_t *allowed, uint32_t lo, uint32_t hi)
{
    for (uint32_t i = lo; i < hi;) {
        uint64_t word = allowed[i >> 6] >> (i & 63);
        uint32_t left = hi - i;
        if (left < 64)
            word &= (1ull << left) - 1;
        if (word)
            return 1;
        i = (i | 63) + 1;
    }
    return 0;
}

static int order_of(const ir_key *key, const char *word, uint32_t len)
{
    int order = memcmp(key->text, word, key->len < len ? key->len : len);
    return order ? order : key->len < len ? -1 : key->len > len;
}

int word_declared(const objinfo *o, const char *word, uint32_t len, uint32_t *index)
{
    uint32_t lo = 0, hi = o ? o->n_keys : 0;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        int order = order_of(o->key[mid], word, len);
        if (order == 0) {
            *index = mid;
            return 1;
        }
        if (order < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return 0;
}

/* Narrow the range of keys that agree up to `at` to those with this byte there. */
static void narrow(const objinfo *o, uint32_t at, uint8_t byte, uint32_t *lo, uint32_t *hi)
{
    uint32_t a = *lo, b = *hi;
    while (a < b) { /* first key whose byte is not below */
        uint32_t mid = a + (b - a) / 2;
        const ir_key *k = o->key[mid];
        if (k->len <= at || (uint8_t)k->text[at] < byte)
            a = mid + 1;
        else
            b = mid;
    }
    uint32_t first = a;
    b = *hi;
    while (a < b) {
        uint32_t mid = a + (b - a) / 2;
        if ((uint8_t)o->key[mid]->text[at] <= byte)
            a = mid + 1;
        else
            b = mid;
    }
    *lo = first;
    *hi = a;
}

static int in_points(const points *set, uint32_t n, uint32_t cp)
{
    for (uint32_t i = 0; i < n; i++)
        if (cp >= set[i].lo && cp <= set[i].hi)
            return 1;
    return 0;
}

/* ---- Items taking members ------------------------------------------------------------------- */

void item_count_member(const objinfo *o, item *it, uint32_t member)
{
    it->count++;
    if (member >= o->n_keys) {
        it->next = o->n_keys;
        return;
    }
    it->next = o->decl[member] + 1;
    if (has(o->required, member)) {
        it->missing--;
        it->needed -= o->summed ? o->own[member] : 0;
    }
}

void item_take(const objinfo *o, item *it, uint32_t member, uint64_t *words)
{
    item_count_member(o, it, member);
    if (member >= o->n_keys)
        return;
    if (o->n_words > 1) {
        memcpy(words, it->words, o->n_words * sizeof *words);
        words[member >> 6] |= 1ull << (member & 63);
        it->words = words;
    } else {
        it->bits |= 1ull << member;
    }
}

#define STACK_WORDS 1024

/* Whether the item can be completed after this member; for rests whichever way it counts. */
static int member_lives(const machine *m, const frame *f, const item *it, uint32_t member)
{
    const objinfo *o = it->alt;
    uint64_t words[STACK_WORDS];
    const option *at;
    situation s = {.seen = f->seen, .depth = f->depth, .minus = member >= o->n_keys ? member - o->n_keys : NONE};
    item taken = *it;
    item_take(o, &taken, member, words);
    for (uint32_t n = options_of(o->options, o->first, member, &at); n > 0; n--, at++) {
        item counted = taken;
        if (!node_fits(m, at->node, f->depth))
            continue;
        if (at->counts && counted.counted[at->counts - 1] < o->o->some[at->counts - 1].min)
            counted.counted[at->counts - 1]++;
        if (item_lives(m, &counted, FRAME_OBJECT, &s))
            return 1;
    }
    return 0;
}

/* Declared order: keys before `next`, and those behind a required one that is missing, cannot come. */
static void keep_order(const objinfo *o, const item *it, uint64_t *allowed)
{
    uint64_t open[STACK_WORDS];
    const uint64_t *taken = item_bits(it, o);
    memset(open, 0, o->n_words * sizeof *open);
    for (uint32_t d = it->next; d < o->n_keys; d++) {
        uint32_t k = o->rank[d];
        open[k >> 6] |= 1ull << (k & 63);
        if (has(o->required, k) && !has(taken, k))
            break;
    }
    for (uint32_t w = 0; w < o->n_words; w++)
        allowed[w] &= open[w];
}

static int at_limit(const machine *m, const frame *f)
{
    return f->depth + m->max_height > MACHINE_MAX_NESTING;
}

/* Which declared keys may come next for an item. */
static void allowed_keys(const machine *m, const frame *f, const item *it, uint64_t *allowed)
{
    const objinfo *o = it->alt;
    const uint64_t *taken = item_bits(it, o);
    int full = (uint64_t)it->count + it->missing >= o->o->max_members;
    for (uint32_t w = 0; w < o->n_words; w++) {
        allowed[w] = o->usable[w] & ~taken[w];
        if (full)
            allowed[w] &= o->required[w];
    }
    if (!(m->flags & DOC_ORDER_ANY))
        keep_order(o, it, allowed);
    if (o->simple && !at_limit(m, f))
        return;
    for (uint32_t k = 0; k < o->n_keys; k++)
        if (has(allowed, k) && !member_lives(m, f, it, k))
            allowed[k >> 6] &= ~(1ull << (k & 63));
}

static int rest_allowed(const machine *m, const frame *f, const item *it, uint32_t r)
{
    const objinfo *o = it->alt;
    const lang *l = o->o->rest[r].keys;
    if ((uint64_t)it->count + it->missing >= o->o->max_members || m->nodes[o->o->rest[r].value].cost == NONE)
        return 0;
    if (!(m->flags & DOC_ORDER_ANY) && it->missing)
        return 0;
    if (!word_lives(l, lang_start(l), NULL, NULL, 0, o, f->seen))
        return 0;
    return (o->simple && !at_limit(m, f)) || member_lives(m, f, it, o->n_keys + r);
}

int key_possible(const machine *m, const frame *f)
{
    uint64_t allowed[STACK_WORDS];
    for (uint32_t i = 0; i < f->n; i++) {
        const objinfo *o = f->items[i].alt;
        for (uint32_t r = 0; r < o->n_rest; r++)
            if (rest_allowed(m, f, &f->items[i], r))
                return 1;
        allowed_keys(m, f, &f->items[i], allowed);
        if (any_allowed(allowed, 0, o->n_keys))
            return 1;
    }
    return 0;
}

/* ---- Words of rest languages ---------------------------------------------------------------- */

/* Words from state whose next code point is one of lo … hi, saturating. */
static uint64_t words_between(const lang *l, uint32_t state, uint32_t lo, uint32_t hi)
{
    uint64_t total = 0;
    lang_edge e;
    for (uint32_t cp = lo; lang_next_edge(l, state, cp, &e) && e.lo <= hi; cp = e.hi + 1) {
        uint64_t count = lang_count(l, e.to), width = (uint64_t)(e.hi < hi ? e.hi : hi) - e.lo + 1;
        if (count > (LANG_INFINITE - total) / width)
            return LANG_INFINITE;
        total += count * width;
    }
    return total;
}

/* The same of a set. Code points that have an escape of their own are in it twice, and are counted once: those
 * before an element do not overlap one another. */
static uint64_t words_through(const lang *l, uint32_t state, const points *set, uint32_t n)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t more = words_between(l, state, set[i].lo, set[i].hi);
        if (more == LANG_INFINITE)
            return LANG_INFINITE;
        for (uint32_t j = 0; j < i && more > 0; j++) {
            uint32_t lo = set[i].lo > set[j].lo ? set[i].lo : set[j].lo, hi = set[i].hi < set[j].hi ? set[i].hi : set[j].hi;
            more -= lo <= hi ? words_between(l, state, lo, hi) : 0;
        }
        total = more > LANG_INFINITE - total ? LANG_INFINITE : total + more;
    }
    return total;
}

/* Whether l goes on from state with the rest of a word that the text begins, through the set. */
static int holds_rest(const lang *l, uint32_t state, const text *prefix, const points *set, uint32_t n_set,
                      const char *word, uint32_t len)
{
    uint32_t at = text_len(prefix), cp;
    if (!text_prefixes(prefix, word, len))
        return 0;
    if (set) {
        if (at == len)
            return 0;
        (void)utf8_read(word + at, len - at, &cp);
        if (!in_points(set, n_set, cp))
            return 0;
    }
    while (at < len && state != LANG_DEAD) {
        at += utf8_read(word + at, len - at, &cp);
        state = lang_step(l, state, cp);
    }
    return state != LANG_DEAD && lang_accepts(l, state);
}

int word_lives(const lang *l, uint32_t state, const text *prefix, const points *set, uint32_t n_set, const objinfo *o,
               const seen *used)
{
    if (state == LANG_DEAD)
        return 0;
    if (lang_is_all(l) || (set == NULL && lang_count(l, state) == LANG_INFINITE))
        return 1;
    uint64_t total = set ? words_through(l, state, set, n_set) : lang_count(l, state), taken = 0;
    if (total == LANG_INFINITE || total == 0)
        return total != 0;
    uint32_t index;
    for (uint32_t k = 0; o && k < o->n_keys; k++)
        taken += (uint64_t)holds_rest(l, state, prefix, set, n_set, o->key[k]->text, o->key[k]->len);
    for (const seen *k = used; k && taken < total; k = k->prev)
        if ((k->kind == 'k' || k->kind == 's') && !word_declared(o, k->bytes, k->len, &index))
            taken += (uint64_t)holds_rest(l, state, prefix, set, n_set, k->bytes, k->len);
    return total > taken;
}

/* ---- Reading --------------------------------------------------------------------------------- */

static const objinfo *owner_of(const frame *f, const thread *t)
{
    return f->items[t->owner].alt;
}

/* Threads of the items at the start of a key, written to t where it is given. */
static uint32_t key_threads(const machine *m, const frame *f, const keyset *keys, thread *t)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < f->n; i++) {
        const objinfo *o = f->items[i].alt;
        if (any_allowed(keys->allowed[i], 0, o->n_keys))
            t[n++] = (thread){NULL, 0, o->n_keys, i, NONE};
        for (uint32_t r = 0; r < o->n_rest; r++)
            if (rest_allowed(m, f, &f->items[i], r))
                t[n++] = (thread){o->o->rest[r].keys, lang_start(o->o->rest[r].keys), 0, i, r};
    }
    return n;
}

const pos *key_open(const machine *m, doc_arena *arena, const pos *at)
{
    const frame *f = at->f;
    uint32_t most = 0;
    for (uint32_t i = 0; i < f->n; i++)
        most += 1 + ((const objinfo *)f->items[i].alt)->n_rest;
    keyset *keys = doc_arena_alloc(arena, sizeof *keys);
    const uint64_t **allowed = doc_arena_alloc(arena, f->n * sizeof *allowed);
    pos *p = pos_new(arena, LEX_KEY, f, NULL, most);
    if (keys == NULL || allowed == NULL || p == NULL)
        return NULL;
    for (uint32_t i = 0; i < f->n; i++) {
        const objinfo *o = f->items[i].alt;
        uint64_t *bits = doc_arena_alloc(arena, (o->n_words + 1) * sizeof *bits);
        if (bits == NULL)
            return NULL;
        allowed_keys(m, f, &f->items[i], bits);
        allowed[i] = bits;
    }
    keys->allowed = allowed;
    p->keys = keys;
    p->raw = at->raw;
    p->n = key_threads(m, f, keys, p->t);
    return p->n ? p : NULL;
}

uint32_t key_first_from(const objinfo *o, uint32_t at, uint32_t cp, uint32_t lo, uint32_t hi)
{
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2, found;
        const ir_key *k = o->key[mid];
        if (k->len > at && utf8_read(k->text + at, k->len - at, &found) > 0 && found >= cp)
            hi = mid;
        else
            lo = mid + 1;
    }
    return lo;
}

/* Half a character: the thread lives if some key goes on with what it can become. */
static int key_part_lives(const pos *at, const thread *t, const points *set, uint32_t n_set)
{
    const objinfo *o = owner_of(at->f, t);
    if (t->lang)
        return word_lives(t->lang, t->state, at->text, set, n_set, o, at->f->seen);
    const uint64_t *allowed = at->keys->allowed[t->owner];
    uint32_t len = text_len(at->text);
    for (uint32_t i = 0; i < n_set; i++) {
        uint32_t first = key_first_from(o, len, set[i].lo, t->state, t->hi);
        if (any_allowed(allowed, first, key_first_from(o, len, set[i].hi + 1, first, t->hi)))
            return 1;
    }
    return 0;
}

/* The thread after a whole code point; 0: it dies. `now` is the text with it. */
static int key_point(const pos *at, thread *t, uint32_t cp, const text *now)
{
    const objinfo *o = owner_of(at->f, t);
    if (t->lang) {
        t->state = lang_step(t->lang, t->state, cp);
        return t->state != LANG_DEAD && word_lives(t->lang, t->state, now, NULL, 0, o, at->f->seen);
    }
    uint8_t utf8[4];
    uint32_t n = utf8_write(cp, utf8), len = text_len(at->text);
    for (uint32_t i = 0; i < n; i++)
        narrow(o, len + i, utf8[i], &t->state, &t->hi);
    return any_allowed(at->keys->allowed[t->owner], t->state, t->hi);
}

static const pos *key_character(const machine *m, doc_arena *arena, const pos *at, uint8_t byte)
{
    character c = char_at(m, at);
    points set[MAX_POINTS];
    int32_t cp = char_step(&c, byte);
    if (cp == CHAR_BAD)
        return NULL;
    pos *p = pos_new(arena, LEX_KEY, at->f, NULL, at->n);
    if (p == NULL)
        return NULL;
    p->keys = at->keys;
    p->raw = at->raw;
    p->text = at->text;
    p->sub = c.sub;
    p->left = c.left;
    p->part = c.part;
    p->n = 0;
    uint8_t utf8[4];
    uint32_t n_set = cp == CHAR_PART ? char_points(&c, set) : 0;
    for (uint32_t i = 0, n = cp >= 0 ? utf8_write((uint32_t)cp, utf8) : 0; i < n; i++)
        if ((p->text = text_add(arena, p->text, utf8[i])) == NULL)
            return NULL;
    for (uint32_t i = 0; i < at->n; i++) {
        thread *t = &p->t[p->n];
        *t = at->t[i];
        p->n += (uint32_t)(cp >= 0 ? key_point(at, t, (uint32_t)cp, p->text) : key_part_lives(at, t, set, n_set));
    }
    return p->n ? p : NULL;
}

/* The member that a key is for this thread; NONE: it is none. */
static uint32_t key_member(const pos *at, const thread *t, const char *word, uint32_t len)
{
    const objinfo *o = owner_of(at->f, t);
    uint32_t index;
    if (t->lang == NULL) {
        int it_is = t->state < t->hi && o->key[t->state]->len == len && has(at->keys->allowed[t->owner], t->state);
        return it_is ? t->state : NONE;
    }
    if (!lang_accepts(t->lang, t->state) || word_declared(o, word, len, &index) ||
        seen_has(at->f->seen, 'k', word, len))
        return NONE;
    return o->n_keys + t->rest;
}

static const seen *key_seen(doc_arena *arena, const pos *at)
{
    uint32_t len = text_len(at->text);
    seen *k = doc_arena_alloc(arena, sizeof *k + len + 1);
    if (k == NULL)
        return NULL;
    k->prev = at->f->seen;
    k->n = k->prev ? k->prev->n + 1 : 1;
    k->len = len;
    k->kind = 'k';
    text_copy(at->text, 0, k->bytes);
    k->bytes[len] = 0;
    return k;
}

/* The frame with the items that take this key, members[] saying as what. */
static const frame *key_frame(doc_arena *arena, const pos *at, uint32_t **members)
{
    const frame *f = at->f;
    const seen *word = key_seen(arena, at);
    frame *next = doc_arena_alloc(arena, sizeof *next + f->n * sizeof(item));
    uint32_t *which = doc_arena_alloc(arena, f->n * sizeof *which + 1);
    if (word == NULL || next == NULL || which == NULL)
        return NULL;
    *next = *f;
    next->key = at->text;
    next->n = 0;
    int others = 0;
    for (uint32_t i = 0; i < at->n; i++) {
        uint32_t member = key_member(at, &at->t[i], word->bytes, word->len);
        if (member == NONE)
            continue;
        const objinfo *o = owner_of(f, &at->t[i]);
        uint64_t *words = NULL;
        if (o->n_words > 1 && (words = doc_arena_alloc(arena, o->n_words * sizeof *words)) == NULL)
            return NULL;
        others |= member >= o->n_keys;
        which[next->n] = member;
        next->items[next->n] = f->items[at->t[i].owner];
        item_take(o, &next->items[next->n++], member, words);
    }
    if (others)
        next->seen = word;
    *members = which;
    return next->n ? next : NULL;
}

const pos *key_step(const machine *m, doc_arena *arena, const pos *at, uint8_t byte)
{
    if (byte != '"' || at->sub != SUB_PLAIN)
        return key_character(m, arena, at, byte);
    uint32_t *members;
    const frame *f = key_frame(arena, at, &members);
    const want *w = f ? want_new(m, arena, f, members) : NULL;
    pos *p = w ? pos_new(arena, LEX_COLON, f, w, 0) : NULL;
    if (p)
        p->raw = at->raw;
    return p;
}
