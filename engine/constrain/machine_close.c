/* machine_close.c: how a document that was cut anywhere ends soonest: the fewest bytes, by the plans of
 * what each open container still needs, and of these the least byte first. Where plans are only lower
 * bounds (items that must differ, `some`), the ending is searched for, depth first with the bound raised
 * until it is found. Owns nothing but the arena of a search. */
#include "machine_int.h"

#include <stdlib.h>
#include <string.h>

#define MAX_FRAMES (MACHINE_MAX_NESTING + 2)
#define SEARCH_STEPS 600000 /* one for each byte tried; 16 and one for each item before it where it is allowed */
#define SEARCH_BYTES (256u << 20)

/* ---- What comes after values ----------------------------------------------------------------- */

static uint32_t item_plan(const machine *m, const frame *f, const item *it)
{
    situation s = {.seen = f->seen, .depth = f->depth, .minus = NONE};
    return (f->kind == FRAME_OBJECT ? plan_object(m, it, &s) : plan_array(m, it, &s)).cost;
}

/* The item being read with all that must follow, in bytes from its first: of a unique array whose cheapest
 * values are known, else 0. */
static uint32_t whole_plan(const machine *m, const frame *f, const item *it)
{
    if (!f->unique || ((const arrinfo *)it->alt)->n_cheapest == 0)
        return 0;
    situation s = {.seen = f->seen, .depth = f->depth, .minus = NONE, .at_least = 1};
    uint32_t cost = plan_array(m, it, &s).cost;
    return cost == NONE ? 0 : cost - (it->count > 0); /* the comma before it is written */
}

/* Entries of w, where those of the containers around it are known. */
static void fill_after(const machine *m, want *w)
{
    const frame *f = w->frame;
    for (uint32_t e = 0; e < w->n; e++) {
        uint32_t best = NONE, least = NONE;
        for (uint32_t k = 0; k < w->entries[e].n_links; k++) {
            const link *l = &w->entries[e].links[k];
            item it = f->items[l->item];
            uint32_t ends = f->want->entries[it.want].after, whole = add_cost(whole_plan(m, f, &it), ends);
            item_count(f, &it, l->counts);
            uint32_t cost = add_cost(item_plan(m, f, &it), ends);
            best = cost < best ? cost : best;
            least = whole < least ? whole : least;
        }
        w->entries[e].after = best;
        w->entries[e].whole = least == NONE ? 0 : least;
    }
    w->has_after = 1;
}

/* Entries of w know what comes after them: computed once, outermost first. */
static void know_after(const machine *m, const want *w)
{
    want *chain[MAX_FRAMES];
    uint32_t n = 0;
    for (; !w->has_after && n < MAX_FRAMES; w = w->frame->want)
        chain[n++] = (want *)(uintptr_t)w;
    while (n > 0)
        fill_after(m, chain[--n]);
}

/* ---- Lower bounds of what completes a position -------------------------------------------------- */

static uint32_t value_bound(const machine *m, const want *w)
{
    uint32_t best = NONE;
    if (w == NULL)
        return NONE;
    know_after(m, w);
    for (uint32_t e = 0; e < w->n; e++) {
        uint32_t cost = add_cost(m->nodes[w->entries[e].node].cost, w->entries[e].after);
        cost = cost < w->entries[e].whole ? w->entries[e].whole : cost;
        best = cost < best ? cost : best;
    }
    return best;
}

static uint32_t frame_bound(const machine *m, const frame *f, int complete)
{
    uint32_t best = NONE;
    if (f->kind == FRAME_ROOT)
        return 0;
    know_after(m, f->want);
    for (uint32_t i = 0; i < f->n; i++) {
        if (complete && !item_complete(&f->items[i], f->kind))
            continue;
        uint32_t cost = complete ? 1 : item_plan(m, f, &f->items[i]);
        cost = add_cost(cost, f->want->entries[f->items[i].want].after);
        best = cost < best ? cost : best;
    }
    return best;
}

/* The same where a string or number is an item that must differ from others: exact for numbers, and for
 * strings where the text so far is one that the array has, so that endings which must not be are not taken for
 * the nearest. */
static uint32_t unused_left(const pos *at, const thread *t, uint32_t left)
{
    const seen *used = at->f->unique ? at->f->seen : NULL;
    if (used == NULL || at->sub != SUB_PLAIN || !must_differ(at->w, t->owner) || (at->lex == LEX_STRING && left > 0))
        return left;
    uint32_t len = text_len(at->text);
    doc_arena *arena = doc_arena_new(SEARCH_BYTES);
    char *word = arena ? doc_arena_alloc(arena, len + 1ull) : NULL;
    if (word != NULL && at->lex == LEX_NUMBER) {
        left = number_left(arena, at, t);
    } else if (word != NULL) {
        situation s = {.seen = used, .minus = NONE};
        text_copy(at->text, 0, word);
        if (seen_has(used, 's', word, len) && cheapest_words(t->lang, t->state, word, len, NULL, &s, 1, &left, 0, NULL) == 0)
            left = NONE;
    }
    doc_arena_free(arena);
    return left;
}

/* Fewest bytes of the code points of lo … hi that the thread goes on with, at most: what half a character may
 * turn out to have cost. */
static uint32_t dearest(const thread *t, uint32_t lo, uint32_t hi)
{
    uint32_t most = 0;
    lang_edge e;
    for (uint32_t cp = lo; lang_next_edge(t->lang, t->state, cp, &e) && e.lo <= hi; cp = e.hi + 1) {
        uint32_t from = e.lo > lo ? e.lo : lo, to = e.hi < hi ? e.hi : hi, bytes = char_bytes(to);
        if (from < 0x20)
            bytes = 6;
        else if (bytes < 2 && ((from <= '"' && to >= '"') || (from <= '\\' && to >= '\\')))
            bytes = 2;
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* Bytes of the item being read that its text so far stands for, spelled shortest: what a value's price is
 * ahead of what must still be written of it. Half a character counts what it costs at most, less what is still
 * to come of it, so an escape that is not needed is below none. */
static int64_t item_paid(const pos *at, const thread *t, const points *set, uint32_t n)
{
    uint32_t len = text_len(at->text);
    int64_t part = n ? INT64_MIN : 0;
    if (at->lex == LEX_LITERAL)
        return at->left;
    if (at->lex == LEX_NUMBER)
        return text_len(at->raw) - at->w->raw_from;
    char *word = malloc(len + 1u);
    if (word == NULL)
        return INT64_MAX; /* the bound is then that of the rest alone */
    text_copy(at->text, 0, word);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t most = dearest(t, set[i].lo, set[i].hi);
        if (most > 0 && (int64_t)most - set[i].bytes > part)
            part = (int64_t)most - set[i].bytes;
    }
    part += part == INT64_MIN ? 0 : 1 + (int64_t)body_bytes(word, len);
    free(word);
    return part == INT64_MIN ? INT64_MAX : part;
}

static uint32_t thread_bound(const machine *m, const pos *at)
{
    uint32_t best = NONE;
    character c = char_at(m, at);
    points set[MAX_POINTS];
    uint32_t n = at->lex == LEX_STRING && at->sub != SUB_PLAIN ? char_points(&c, set) : 0;
    know_after(m, at->w);
    for (uint32_t i = 0; i < at->n; i++) {
        const thread *t = &at->t[i];
        uint32_t cost = 0;
        if (at->lex == LEX_LITERAL)
            cost = (at->sub == 1 ? 5u : 4u) - at->left;
        else
            cost = n ? lang_shortest(t->lang, t->state, set, n)
                     : unused_left(at, t, lang_distance(t->lang, t->state));
        if (at->lex == LEX_STRING)
            cost = add_cost(cost, 1);
        cost = add_cost(cost, at->w->entries[t->owner].after);
        uint32_t whole = at->w->entries[t->owner].whole;
        int64_t paid = whole > 0 ? item_paid(at, t, set, n) : INT64_MAX;
        if (whole > paid && cost < whole - paid)
            cost = whole - paid < NONE ? (uint32_t)(whole - paid) : NONE - 1;
        best = cost < best ? cost : best;
    }
    return best;
}

/* After this key, without it: quote, colon, value, and all the rest. */
static uint32_t member_bound(const machine *m, const frame *f, uint32_t i, uint32_t member, const char *word,
                             uint32_t len)
{
    const objinfo *o = f->items[i].alt;
    uint64_t words[1024];
    item it = f->items[i];
    plan quick;
    situation s = {.seen = f->seen, .word = word, .word_len = len, .minus = NONE, .depth = f->depth};
    const option *at;
    uint32_t best = NONE, n = options_of(o->options, o->first, member, &at);
    item_count_member(o, &it, member);
    if (plan_summed(m, &it, &s, &quick)) { /* there is one option */
        best = add_cost(option_cost(m, at, f->depth), quick.cost);
        n = 0;
    } else {
        it = f->items[i];
        item_take(o, &it, member, words);
    }
    for (; n > 0; n--, at++) {
        item counted = it;
        item_count(f, &counted, at->counts);
        uint32_t cost = add_cost(option_cost(m, at, f->depth), plan_object(m, &counted, &s).cost);
        best = cost < best ? cost : best;
    }
    return add_cost(add_cost(best, 2), f->want->entries[f->items[i].want].after);
}

/* Bytes to the end of the declared key k, the text so far taken off; NONE: it does not go on so. */
static uint32_t declared_left(const machine *m, const pos *at, const ir_key *k)
{
    uint32_t len = text_len(at->text), cp;
    if (at->sub == SUB_PLAIN)
        return body_bytes(k->text + len, k->len - len);
    if (k->len == len)
        return NONE;
    character c = char_at(m, at);
    points set[MAX_POINTS];
    uint32_t n = char_points(&c, set), best = NONE, used = utf8_read(k->text + len, k->len - len, &cp);
    for (uint32_t i = 0; i < n; i++)
        if (cp >= set[i].lo && cp <= set[i].hi && set[i].bytes < best)
            best = set[i].bytes;
    return add_cost(best, body_bytes(k->text + len + used, k->len - len - used));
}

/* The first required key that may come of the sorted lo … hi; NONE: there is none. */
static uint32_t required_in(const objinfo *o, const uint64_t *allowed, uint32_t lo, uint32_t hi)
{
    for (uint32_t k = lo; k < hi; k = (k | 63) + 1) {
        uint64_t bits = (allowed[k >> 6] & o->required[k >> 6]) >> (k & 63);
        if (bits) {
            k += (uint32_t)__builtin_ctzll(bits);
            return k < hi ? k : NONE;
        }
    }
    return NONE;
}

/* Where plans are sums, any required key that may come is as good as another, and better than the others:
 * its bytes are spent anyway. The first of the thread's; NONE: there is none, or it is not that simple. */
static uint32_t any_required(const machine *m, const pos *at, const thread *t)
{
    const item *it = &at->f->items[t->owner];
    situation s = {.seen = at->f->seen, .minus = NONE, .depth = at->f->depth};
    plan quick;
    if (at->sub != SUB_PLAIN || !plan_summed(m, it, &s, &quick))
        return NONE;
    return required_in(it->alt, at->keys->allowed[t->owner], t->state, t->hi);
}

/* Members that a half read declared key can be. */
static uint32_t declared_bound(const machine *m, const pos *at, const thread *t)
{
    const objinfo *o = at->f->items[t->owner].alt;
    const uint64_t *allowed = at->keys->allowed[t->owner];
    uint32_t best = NONE, required = any_required(m, at, t);
    if (required != NONE)
        return add_cost(declared_left(m, at, o->key[required]), member_bound(m, at->f, t->owner, required, NULL, 0));
    for (uint32_t k = t->state; k < t->hi; k++) {
        if (!(allowed[k >> 6] >> (k & 63) & 1))
            continue;
        uint32_t left = declared_left(m, at, o->key[k]);
        if (left == NONE)
            continue;
        uint32_t cost = add_cost(left, member_bound(m, at->f, t->owner, k, NULL, 0));
        best = cost < best ? cost : best;
    }
    return best;
}

/* The cheapest word of the rest from `state`, spelled after `prefix`. */
static uint32_t word_bound(const machine *m, const pos *at, const thread *t, uint32_t state, const char *prefix,
                           uint32_t len, uint32_t *bare)
{
    const objinfo *o = at->f->items[t->owner].alt;
    situation s = {.seen = at->f->seen, .minus = NONE};
    spelled first = {NULL, 0};
    uint32_t cost = NONE;
    *bare = NONE;
    if (cheapest_words(t->lang, state, prefix, len, o, &s, 1, &cost, 1, &first) == 1) {
        *bare = cost;
        cost = add_cost(cost, member_bound(m, at->f, t->owner, o->n_keys + t->rest, first.word, first.len));
    }
    free(first.word);
    return cost;
}

/* Half a character of a key: of the code points that it may become, the one with the cheapest word. Those of
 * an edge go on alike; all but the first are tried only where words through it are taken. */
static uint32_t rest_part_bound(const machine *m, const pos *at, const thread *t, char *word, uint32_t len)
{
    character c = char_at(m, at);
    points set[MAX_POINTS];
    uint32_t n = char_points(&c, set), best = NONE, shortest = NONE;
    lang_edge e;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t cp = set[i].lo; lang_next_edge(t->lang, t->state, cp, &e) && e.lo <= set[i].hi;) {
            uint32_t ahead = lang_distance(t->lang, e.to), bare = NONE;
            cp = e.hi + 1;
            if (add_cost(ahead, set[i].bytes) >= shortest)
                continue; /* no cheaper than what was found */
            uint32_t longer = len + utf8_write(e.lo, (uint8_t *)word + len);
            uint32_t cost = add_cost(set[i].bytes, word_bound(m, at, t, e.to, word, longer, &bare));
            if (add_cost(bare, set[i].bytes) < shortest) {
                shortest = add_cost(bare, set[i].bytes);
                best = cost;
            }
            if (bare != ahead && (bare != NONE || lang_count(t->lang, e.to) != LANG_INFINITE))
                cp = e.lo + 1;
        }
    return best;
}

/* Whether another thread reads a required key of the same object, where plans are sums: all that it takes is
 * spent by the words of a rest as well, and they come on top. */
static int beside_required(const machine *m, const pos *at, const thread *t)
{
    for (uint32_t i = 0; i < at->n; i++)
        if (at->t[i].lang == NULL && at->t[i].owner == t->owner)
            return any_required(m, at, &at->t[i]) != NONE;
    return 0;
}

static uint32_t rest_bound(const machine *m, const pos *at, const thread *t)
{
    uint32_t len = text_len(at->text), bare;
    char *word = malloc(len + 8u);
    if (word == NULL)
        return NONE;
    text_copy(at->text, 0, word);
    uint32_t cost = at->sub == SUB_PLAIN ? word_bound(m, at, t, t->state, word, len, &bare)
                                         : rest_part_bound(m, at, t, word, len);
    free(word);
    return cost;
}

static uint32_t key_bound(const machine *m, const pos *at)
{
    uint32_t best = NONE;
    know_after(m, at->f->want);
    for (uint32_t i = 0; i < at->n; i++) {
        const thread *t = &at->t[i];
        if (t->lang != NULL && beside_required(m, at, t))
            continue;
        uint32_t cost = t->lang == NULL ? declared_bound(m, at, t) : rest_bound(m, at, t);
        best = cost < best ? cost : best;
    }
    return best;
}

/* Behind a comma, where plans are sums and each item still requires members: the plans without the comma.
 * 0: it is not that simple. */
static int next_required_bound(const machine *m, const frame *f, uint32_t *bound)
{
    situation s = {.seen = f->seen, .minus = NONE, .depth = f->depth};
    *bound = NONE;
    know_after(m, f->want);
    for (uint32_t i = 0; i < f->n; i++) {
        const item *it = &f->items[i];
        plan quick;
        if (it->missing == 0 || it->count == 0 || !plan_summed(m, it, &s, &quick) || quick.cost == NONE)
            return 0;
        uint32_t cost = add_cost(quick.cost - 1, f->want->entries[it->want].after);
        *bound = cost < *bound ? cost : *bound;
    }
    return 1;
}

/* Behind a comma: the key's quote first. */
static uint32_t next_key_bound(const machine *m, const pos *at)
{
    uint32_t quick;
    if (next_required_bound(m, at->f, &quick))
        return quick;
    doc_arena *arena = doc_arena_new(64u << 20);
    const pos *inside = arena ? key_open(m, arena, at) : NULL;
    uint32_t cost = inside ? add_cost(key_bound(m, inside), 1) : NONE;
    doc_arena_free(arena);
    return cost;
}

static uint32_t bound_of(const machine *m, const pos *at)
{
    uint32_t value, closed;
    switch (at->lex) {
    case LEX_VALUE:
        return value_bound(m, at->w);
    case LEX_COLON:
        return add_cost(value_bound(m, at->w), 1);
    case LEX_FIRST_ITEM:
        value = value_bound(m, at->w);
        closed = frame_bound(m, at->f, 1);
        return value < closed ? value : closed;
    case LEX_FIRST_KEY:
    case LEX_AFTER:
        return frame_bound(m, at->f, 0);
    case LEX_NEXT_KEY:
        return next_key_bound(m, at);
    case LEX_KEY:
        return key_bound(m, at);
    default:
        return thread_bound(m, at);
    }
}

static uint32_t bound(const machine *m, const pos *at)
{
    if (at->distance == NONE)
        ((pos *)(uintptr_t)at)->distance = bound_of(m, at);
    return at->distance;
}

/* ---- Search where bounds are not exact ------------------------------------------------------------ */

typedef struct step {
    const pos *at;
    uint64_t mark;               /* of the arena before it was made */
    int next;                    /* byte to try */
} step;

typedef struct ending {
    const machine *m;
    doc_arena *arena;
    step *stack;
    uint32_t top, room, limit, beyond, steps; /* beyond: the least length found above the limit */
} ending;

static int push(ending *q, const pos *at, uint64_t mark)
{
    if (q->top == q->room) {
        step *grown = realloc(q->stack, (q->room * 2 + 64) * sizeof *grown);
        if (grown == NULL)
            return 0;
        q->stack = grown;
        q->room = q->room * 2 + 64;
    }
    q->stack[q->top++] = (step){at, mark, 0};
    return 1;
}

/* Depth first within the limit; 1: found, the path lies on the stack. -1: effort or memory is spent. */
static int within(ending *q, const pos *at)
{
    q->top = 0;
    q->beyond = NONE;
    if (!push(q, at, doc_arena_mark(q->arena)))
        return -1;
    while (q->top > 0) {
        step *s = &q->stack[q->top - 1];
        if (bound(q->m, s->at) == 0)
            return 1;
        if (s->next == 256) {
            doc_arena_reset(q->arena, s->mark);
            q->top--;
            continue;
        }
        uint64_t mark = doc_arena_mark(q->arena);
        const pos *next = machine_step(q->m, q->arena, s->at, (uint8_t)s->next++);
        q->steps += next == NULL ? 1 : 16 + (s->at->f->seen ? s->at->f->seen->n : 0);
        if (doc_arena_failed(q->arena) || q->steps > SEARCH_STEPS)
            return -1;
        if (next == NULL || next == s->at) {
            doc_arena_reset(q->arena, mark);
            continue;
        }
        uint32_t length = add_cost(bound(q->m, next), q->top);
        if (length > q->limit) {
            q->beyond = length < q->beyond ? length : q->beyond;
            doc_arena_reset(q->arena, mark);
            continue;
        }
        if (!push(q, next, mark))
            return -1;
    }
    return 0;
}

/* The exact length of the shortest ending, with its first bytes. */
static uint32_t search_ending(const machine *m, const pos *at, uint8_t *out, uint32_t cap)
{
    ending q = {.m = m, .arena = doc_arena_new(SEARCH_BYTES), .limit = bound(m, at)};
    uint32_t length = NONE;
    while (q.arena && q.limit != NONE) {
        int found = within(&q, at);
        if (found > 0) {
            length = q.top - 1;
            for (uint32_t i = 0; i < length && i < cap; i++)
                out[i] = (uint8_t)(q.stack[i].next - 1);
        }
        if (found)
            break;
        q.limit = q.beyond;
    }
    doc_arena_free(q.arena);
    free(q.stack);
    return length;
}

/* Bounds may be too low wherever the program has nodes whose cost is itself a bound, and inside arrays
 * whose items must differ, once there are others or more must follow. */
static int must_search(const machine *m, const pos *at)
{
    if (m->search)
        return 1;
    for (const frame *f = at->f; f->record; f = f->up) {
        if (!f->unique)
            continue;
        if (f->seen)
            return 1;
        for (uint32_t i = 0; i < f->n; i++)
            if (((const arrinfo *)f->items[i].alt)->a->min_items > f->items[i].count)
                return 1;
    }
    return 0;
}

static void set_bytes(uint64_t set[4], const char *bytes)
{
    for (; *bytes; bytes++)
        set[(uint8_t)*bytes >> 6] |= 1ull << (*bytes & 63);
}

/* The bytes, spelled shortest, that a thread's declared keys go on with: of the required ones alone, where they
 * are the nearest. 0: that takes too many steps to tell. */
static int declared_bytes(const machine *m, const pos *at, const thread *t, uint64_t set[4])
{
    const objinfo *o = at->f->items[t->owner].alt;
    const uint64_t *allowed = at->keys->allowed[t->owner];
    uint32_t len = text_len(at->text), steps = 0, cp, required = any_required(m, at, t);
    for (uint32_t k = t->state, next; k < t->hi; k = next) {
        uint8_t utf8[4] = {'"'};
        next = k + 1;
        if (o->key[k]->len > len && utf8_read(o->key[k]->text + len, o->key[k]->len - len, &cp) > 0) {
            (void)utf8_write(cp < 0x20 || cp == '"' ? '\\' : cp, utf8);
            next = key_first_from(o, len, cp + 1, k, t->hi);
        }
        if (required == NONE || required_in(o, allowed, k, next) != NONE)
            set[utf8[0] >> 6] |= 1ull << (utf8[0] & 63);
        if (++steps > 64)
            return 0;
    }
    return 1;
}

static int key_bytes(const machine *m, const pos *at, uint64_t set[4])
{
    if (at->sub != SUB_PLAIN)
        return 0;
    for (uint32_t i = 0; i < at->n; i++) {
        const thread *t = &at->t[i];
        if (t->lang != NULL ? !beside_required(m, at, t) : !declared_bytes(m, at, t, set))
            return 0;
    }
    return 1;
}

/* The bytes among which those after which the bound is least are; 0: it may be any. */
static int likely_bytes(const machine *m, const pos *at, uint64_t set[4])
{
    memset(set, 0, 4 * sizeof *set);
    switch (at->lex) {
    case LEX_STRING:
        return 0;
    case LEX_KEY:
        return key_bytes(m, at, set);
    case LEX_LITERAL:
        set_bytes(set, "aelnrstu");
        return 1;
    case LEX_NUMBER:
        set_bytes(set, "\t\n\r +,-.0123456789Ee]}");
        return 1;
    case LEX_COLON:
        set_bytes(set, ":");
        return 1;
    case LEX_FIRST_KEY:
        set_bytes(set, "\"}");
        return 1;
    case LEX_NEXT_KEY:
        set_bytes(set, "\"");
        return 1;
    case LEX_AFTER:
        set_bytes(set, ",]}");
        return 1;
    default:
        set_bytes(set, "\"-0123456789[]fnt{");
        return 1;
    }
}

/* The byte after which the bound is least, the first of those; 0: there is none. */
static int least_of(const machine *m, doc_arena *arena, const pos *at, const uint64_t *likely, int digits, uint8_t *byte)
{
    uint32_t best = bound(m, at), least = NONE;
    for (int b = 0; b < 256 && least != best - 1; b++) {
        if (likely && !(likely[b >> 6] >> (b & 63) & 1))
            continue;
        uint64_t mark = doc_arena_mark(arena);
        const pos *next = machine_step(m, arena, at, (uint8_t)b);
        uint32_t cost = next && next != at ? bound(m, next) : NONE;
        if (cost >= best && !digits && next && at->lex == LEX_NUMBER && next->lex == LEX_NUMBER)
            cost = NONE;
        if (cost < least) {
            least = cost;
            *byte = (uint8_t)b;
        }
        doc_arena_reset(arena, mark);
    }
    return least != NONE;
}

/* The next byte of an ending; 0: none is needed. Bounds rise behind a number: digits that lead nowhere look
 * cheaper, and are taken only where nothing else may come. Bounds of the items of a unique array count a number's
 * digits as paid: where those could not be searched out, it ends as soon as it may. */
static int least_byte(const machine *m, doc_arena *arena, const pos *at, uint8_t *byte)
{
    uint64_t set[4], ends[4] = {0};
    const uint64_t *likely = likely_bytes(m, at, set) ? set : NULL;
    uint32_t best = bound(m, at);
    if (best == 0 || best == NONE)
        return 0;
    set_bytes(ends, ",]}");
    if (at->lex == LEX_NUMBER && at->f->unique && must_search(m, at) && least_of(m, arena, at, ends, 0, byte))
        return 1;
    return least_of(m, arena, at, likely, 0, byte) || least_of(m, arena, at, likely, 1, byte);
}

/* An ending that need not be the shortest, by the bounds alone: its length, at most cap, and its bytes where
 * out is not NULL. */
static uint32_t some_ending(const machine *m, const pos *at, uint8_t *out, uint32_t cap)
{
    doc_arena *arena = doc_arena_new(SEARCH_BYTES);
    uint32_t n = 0;
    uint8_t byte;
    while (arena && n < cap && at && least_byte(m, arena, at, &byte)) {
        at = machine_step(m, arena, at, byte);
        if (out && at)
            out[n] = byte;
        n += at != NULL;
    }
    doc_arena_free(arena);
    return n;
}

uint32_t machine_distance(const machine *m, const pos *at)
{
    uint8_t first;
    uint32_t exact = must_search(m, at) ? search_ending(m, at, &first, 1) : bound(m, at);
    return exact != NONE ? exact : some_ending(m, at, NULL, NONE);
}

uint32_t machine_ending(const machine *m, const pos *at, uint8_t *out, uint32_t cap)
{
    if (!must_search(m, at))
        return 0;
    uint32_t length = search_ending(m, at, out, cap);
    return length == NONE ? some_ending(m, at, out, cap) : length < cap ? length : cap;
}

int machine_closing(const machine *m, const pos *at, uint8_t *byte)
{
    if (must_search(m, at)) {
        uint32_t exact = search_ending(m, at, byte, 1);
        if (exact != NONE)
            return exact > 0;
    }
    uint64_t set[4];
    if (likely_bytes(m, at, set) && doc_one_byte(set, byte))
        return 1; /* every position that is reached has an ending */
    doc_arena *arena = doc_arena_new(SEARCH_BYTES);
    int found = arena ? least_byte(m, arena, at, byte) : 0;
    doc_arena_free(arena);
    return found;
}

int machine_accepting(const pos *at)
{
    if (at->f->kind != FRAME_ROOT)
        return 0;
    if (at->lex == LEX_AFTER)
        return 1;
    for (uint32_t i = 0; at->lex == LEX_NUMBER && i < at->n; i++)
        if (lang_accepts(at->t[i].lang, at->t[i].state))
            return 1;
    return 0;
}

/* ---- JSON pointer ------------------------------------------------------------------------------------ */

typedef struct writer {
    char *out;
    uint32_t n, cap;             /* n: bytes of the whole pointer; steps that do not fit into cap are not written */
} writer;

static int escaped(uint8_t b)
{
    return b == '~' || b == '/';
}

/* Where `bytes` more are written; NULL: they are counted only. */
static char *room_for(writer *w, uint32_t bytes)
{
    char *at = bytes < w->cap && w->n < w->cap - bytes ? w->out + w->n : NULL;
    w->n = add_cost(w->n, bytes);
    return at;
}

static void put_index(writer *w, uint32_t index)
{
    uint32_t n = 2;
    for (uint32_t left = index; left >= 10; left /= 10)
        n++;
    char *at = room_for(w, n);
    for (; at && n > 1; index /= 10)
        at[--n] = (char)('0' + index % 10);
    if (at)
        at[0] = '/';
}

/* A key's text hangs together backwards, and is written so. */
static void put_key(writer *w, const text *key)
{
    uint32_t n = 1;
    for (const text *t = key; t; t = t->prev)
        n += 1u + (uint32_t)escaped(t->byte);
    char *at = room_for(w, n);
    for (const text *t = key; at && t; t = t->prev) {
        at[--n] = t->byte == '~' ? '0' : t->byte == '/' ? '1' : (char)t->byte;
        if (escaped(t->byte))
            at[--n] = '~';
    }
    if (at)
        at[0] = '/';
}

/* The step into the value at hand of f. */
static void put_step(writer *w, const frame *f)
{
    if (f->kind == FRAME_ARRAY)
        put_index(w, f->index);
    else if (f->kind == FRAME_OBJECT)
        put_key(w, f->key);
}

uint32_t machine_pointer(const pos *at, char *out, uint32_t cap)
{
    const frame *chain[MAX_FRAMES];
    uint32_t n = 0;
    writer w = {out, 0, cap};
    for (const frame *f = at->f; f && n < MAX_FRAMES; f = f->up)
        chain[n++] = f;
    while (n > 1)
        put_step(&w, chain[--n]); /* every frame but the innermost has a value open */
    if (at->lex == LEX_STRING || at->lex == LEX_NUMBER || at->lex == LEX_LITERAL)
        put_step(&w, at->f);
    if (cap)
        out[w.n < cap ? w.n : 0] = 0;
    return w.n;
}
