/* lang_doc.c: doc_ops over one regular language: the document is a string of it, UTF-8, without quotes.
 * A position is a state and a code point half read; a byte is allowed where some code point that it can
 * become has an edge, so every position can be completed. The distances of all states are found when
 * the program is made (Dijkstra from the accepting ones, backwards); memory belongs to the pool. */
#include "choice.h"
#include "constraint.h"
#include "utf8_part.h"

#include <string.h>

#define CODE_POINT_MAX 0x10ffffu

typedef struct doc_state {
    const lang_edge *edges; /* ascending */
    uint32_t n_edges;
    uint32_t distance;      /* UTF-8 bytes to the nearest accepting state */
} doc_state;

typedef struct lang_doc {
    const lang *language;
    doc_state *states;      /* by number; NULL where the language only bounds the length */
    uint32_t n_states;
    uint32_t min, max;      /* code points, where states is NULL */
} lang_doc;

struct doc {
    uint32_t state;
    utf8_part part;
};

/* ---- Making -------------------------------------------------------------------------------- */

static int read_state(pool *p, lang_doc *d, uint32_t state)
{
    uint32_t n = lang_edges(d->language, state, NULL, 0);
    lang_edge *edges = pool_alloc(p, n * sizeof *edges);
    if (edges == NULL || !pool_step(p, n + 1))
        return 0;
    (void)lang_edges(d->language, state, edges, n);
    d->states[state] = (doc_state){edges, n, LANG_DEAD};
    return 1;
}

static int make_room(pool *p, lang_doc *d, uint32_t *room, uint32_t state)
{
    if (state < *room)
        return 1;
    uint32_t grown = *room < 16 ? 16 : *room;
    while (grown <= state)
        grown *= 2;
    doc_state *states = pool_grow(p, d->states, *room * sizeof *states, grown * sizeof *states);
    if (states == NULL)
        return 0;
    d->states = states;
    *room = grown;
    return 1;
}

/* Read every state that the start leads to; states are numbered densely. */
static int read_states(pool *p, lang_doc *d)
{
    uint32_t room = 0, found = lang_start(d->language);
    if (!make_room(p, d, &room, found))
        return 0;
    for (uint32_t s = 0; s <= found; s++) {
        if (!make_room(p, d, &room, found) || !read_state(p, d, s))
            return 0;
        for (uint32_t i = 0; i < d->states[s].n_edges; i++)
            if (d->states[s].edges[i].to > found)
                found = d->states[s].edges[i].to;
        d->n_states = s + 1;
    }
    return 1;
}

/* Edges turned round, grouped by the state that they lead to. */
typedef struct reversed {
    uint32_t *first; /* [n_states + 1] */
    uint32_t *from;
    uint8_t *bytes;
} reversed;

static int reverse(pool *p, const lang_doc *d, reversed *r)
{
    uint32_t total = 0;
    r->first = pool_alloc(p, (d->n_states + 2) * sizeof *r->first);
    for (uint32_t s = 0; r->first && s < d->n_states; s++)
        for (uint32_t i = 0; i < d->states[s].n_edges; i++, total++)
            r->first[d->states[s].edges[i].to + 2]++;
    r->from = pool_alloc(p, total * sizeof *r->from);
    r->bytes = pool_alloc(p, total);
    if (r->first == NULL || r->from == NULL || r->bytes == NULL)
        return 0;
    for (uint32_t s = 0; s < d->n_states; s++)
        r->first[s + 2] += r->first[s + 1];
    for (uint32_t s = 0; s < d->n_states; s++)
        for (uint32_t i = 0; i < d->states[s].n_edges; i++) {
            const lang_edge *e = &d->states[s].edges[i];
            uint32_t at = r->first[e->to + 1]++;
            r->from[at] = s;
            r->bytes[at] = (uint8_t)utf8_length(e->lo);
        }
    return 1;
}

/* Five queues, by distance modulo 5: an edge costs 1 to 4 bytes. A state may stand in several. */
static int find_distances(pool *p, lang_doc *d)
{
    reversed r;
    if (!reverse(p, d, &r))
        return 0;
    uint32_t total = r.first[d->n_states] + d->n_states, *next = pool_alloc(p, total * sizeof *next);
    uint32_t *state = pool_alloc(p, total * sizeof *state), head[5], used = 0, waiting = 0;
    if (next == NULL || state == NULL || !pool_step(p, total))
        return 0;
    memset(head, 0xff, sizeof head);
    for (uint32_t s = 0; s < d->n_states; s++)
        if (lang_accepts(d->language, s)) {
            d->states[s].distance = 0;
            state[used] = s;
            next[used] = head[0];
            head[0] = used++;
            waiting++;
        }
    for (uint32_t distance = 0; waiting > 0; distance++)
        while (head[distance % 5] != LANG_DEAD) {
            uint32_t entry = head[distance % 5], s = state[entry];
            head[distance % 5] = next[entry];
            waiting--;
            if (d->states[s].distance != distance)
                continue;
            for (uint32_t i = r.first[s]; i < r.first[s + 1]; i++) {
                doc_state *from = &d->states[r.from[i]];
                if (from->distance <= distance + r.bytes[i])
                    continue;
                from->distance = distance + r.bytes[i];
                state[used] = r.from[i];
                next[used] = head[from->distance % 5];
                head[from->distance % 5] = used++;
                waiting++;
            }
        }
    return 1;
}

/* ---- Reading --------------------------------------------------------------------------------- */

static const doc *make(doc_arena *arena, uint32_t state, utf8_part part)
{
    struct doc *made = doc_arena_alloc(arena, sizeof *made);
    if (made != NULL)
        *made = (struct doc){state, part};
    return made;
}

static const doc *start(void *program, doc_arena *arena)
{
    const lang_doc *d = program;
    return make(arena, lang_start(d->language), (utf8_part){0, 0, 0});
}

/* Edges of a state; of a language that only bounds the length the one that there is. */
static const lang_edge *edges_of(const lang_doc *d, uint32_t state, lang_edge *one, uint32_t *n)
{
    if (d->states != NULL) {
        *n = d->states[state].n_edges;
        return d->states[state].edges;
    }
    *n = lang_edges(d->language, state, one, 1) > 0;
    return one;
}

/* The first edge that reaches lo or beyond. */
static uint32_t first_edge(const lang_edge *edges, uint32_t n, uint32_t lo)
{
    uint32_t low = 0, high = n;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (edges[middle].hi < lo)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Surrogates are no code points, though an edge of a length language may span them. */
static int only_surrogates(uint32_t lo, uint32_t hi)
{
    return lo >= 0xd800 && hi <= 0xdfff;
}

/* Whether an edge has a code point in lo … hi. */
static int reaches(const lang_doc *d, uint32_t state, uint32_t lo, uint32_t hi)
{
    lang_edge one[2];
    uint32_t n;
    const lang_edge *edges = edges_of(d, state, one, &n);
    uint32_t i = first_edge(edges, n, lo);
    return lo <= hi && !only_surrogates(lo, hi) && i < n && edges[i].lo <= hi;
}

static const doc *step(void *program, doc_arena *arena, const doc *at, uint8_t byte)
{
    const lang_doc *d = program;
    utf8_part part = at->part;
    if (!utf8_read(&part, byte))
        return NULL;
    if (part.left == 0) {
        uint32_t to = lang_step(d->language, at->state, part.bits);
        uint32_t lo, hi;
        utf8_range(&part, &lo, &hi);
        return to == LANG_DEAD || lo > hi || only_surrogates(lo, hi) ? NULL : make(arena, to, (utf8_part){0, 0, 0});
    }
    uint32_t lo, hi;
    utf8_range(&part, &lo, &hi);
    return reaches(d, at->state, lo, hi) ? make(arena, at->state, part) : NULL;
}

static void allowed(void *program, const doc *at, uint64_t set[4])
{
    const lang_doc *d = program;
    uint32_t low = at->part.left ? 0x80 : 0, high = at->part.left ? 0xc0 : 0x100;
    memset(set, 0, 4 * sizeof *set);
    for (uint32_t byte = low; byte < high; byte++) {
        utf8_part part = at->part;
        uint32_t lo, hi;
        if (!utf8_read(&part, (uint8_t)byte))
            continue;
        utf8_range(&part, &lo, &hi);
        if (reaches(d, at->state, lo, hi))
            set[byte >> 6] |= (uint64_t)1 << (byte & 63);
    }
}

static int accepting(void *program, const doc *at)
{
    const lang_doc *d = program;
    return at->part.left == 0 && lang_accepts(d->language, at->state);
}

static const doc *keep(void *program, doc_arena *to, const doc *at)
{
    (void)program;
    return make(to, at->state, at->part);
}

static uint32_t state_distance(const lang_doc *d, uint32_t state)
{
    if (d->states != NULL)
        return d->states[state].distance;
    return lang_accepts(d->language, state) ? 0 : d->min - state; /* states count code points read */
}

/* A shortest way on from a position: its first code point, the state behind it, and the bytes in all.
 * The edges ascend, so the first that is as short as any begins with the least bytes. */
static uint32_t shortest(const lang_doc *d, const doc *at, uint32_t *code_point)
{
    lang_edge one[2];
    uint32_t n, lo = 0, hi = CODE_POINT_MAX, best = UINT32_MAX;
    const lang_edge *edges = edges_of(d, at->state, one, &n);
    if (at->part.left > 0)
        utf8_range(&at->part, &lo, &hi);
    for (uint32_t i = first_edge(edges, n, lo); i < n && edges[i].lo <= hi; i++) {
        uint32_t c = edges[i].lo > lo ? edges[i].lo : lo;
        if (c >= 0xd800 && c <= 0xdfff)
            c = 0xe000;
        uint32_t bytes = at->part.left > 0 ? at->part.left : utf8_length(c), rest = state_distance(d, edges[i].to);
        if (c <= hi && c <= edges[i].hi && rest < UINT32_MAX - 4 && bytes + rest < best) {
            best = bytes + rest;
            *code_point = c;
        }
    }
    return best;
}

static uint32_t distance(void *program, const doc *at)
{
    const lang_doc *d = program;
    uint32_t code_point;
    if (at->part.left == 0)
        return state_distance(d, at->state);
    return shortest(d, at, &code_point);
}

static int closing(void *program, const doc *at, uint8_t *byte)
{
    const lang_doc *d = program;
    uint8_t bytes[4];
    uint32_t code_point = 0;
    if (accepting(program, at) || shortest(d, at, &code_point) == UINT32_MAX)
        return 0;
    uint32_t n = utf8_write(code_point, bytes);
    *byte = bytes[at->part.left > 0 ? n - at->part.left : 0];
    return 1;
}

static uint32_t pointer(void *program, const doc *at, char *out, uint32_t cap)
{
    (void)program;
    (void)at;
    if (cap > 0)
        out[0] = '\0';
    return 0;
}

static void lexical(void *program, const doc *at, doc_lexical *out)
{
    const lang_doc *d = program;
    out->kind = at->part.left > 0 ? DOC_IN_OTHER : DOC_IN_TEXT;
    out->n_langs = 1;
    out->langs[0] = d->language;
    out->states[0] = at->state;
    out->uniform = 0;
}

/* The whole text, at its beginning: a state that a finite language comes back to there is none. */
static int alternatives(void *program, doc_arena *arena, const doc *at, doc_choice *out)
{
    const lang_doc *d = program;
    int begins = at->part.left == 0 && at->state == lang_start(d->language);
    choice_writer *w = begins ? doc_arena_alloc(arena, sizeof *w) : NULL;
    if (w == NULL)
        return 0;
    w->arena = arena;
    w->out = out;
    w->len = w->steps = 0;
    out->kind = DOC_CHOICE_TEXT;
    return choice_words(w, d->language, at->state, 0);
}

static void release(void *program)
{
    (void)program; /* of the pool */
}

static const doc_ops OPS = {
    .start = start,
    .step = step,
    .allowed = allowed,
    .accepting = accepting,
    .keep = keep,
    .distance = distance,
    .closing = closing,
    .pointer = pointer,
    .lexical = lexical,
    .exceptions = NULL, /* no position is uniform */
    .free = release,
    .alternatives = alternatives,
};

engine_status lang_doc_new(pool *p, const lang *language, const doc_ops **ops, void **program)
{
    lang_doc *d = pool_alloc(p, sizeof *d);
    if (d == NULL || language == NULL)
        return p->status;
    if (lang_is_empty(language))
        return pool_fail(p, ENGINE_EUNSUPPORTED, "no text at all fits the constraint");
    d->language = language;
    if (!lang_is_length(language, &d->min, &d->max) && read_states(p, d))
        (void)find_distances(p, d);
    *ops = &OPS;
    *program = d;
    return p->status;
}
