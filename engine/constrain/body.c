/* body.c: string bodies as an automaton over bytes (body.h). A byte is allowed where some code point
 * that it can still become is followed by the language, so no state is a dead end. Memory is bounded:
 * an automaton that has grown too large is begun anew. */
#include "body.h"

#include <stdlib.h>
#include <string.h>

#include "tokens.h"
#include "utf8_part.h"

#define MAX_STATES 16384u
#define TABLE (4 * MAX_STATES)
#define CODE_POINT_MAX 0x10ffffu
#define HIGH 0xd800u
#define LOW 0xdc00u

/* What has been read of a character. */
enum {
    AT_BOUNDARY,
    IN_UTF8,
    IN_UTF8_SAME,     /* every code point that it can become leads to the places, after `digits` bytes */
    AFTER_BACKSLASH,
    IN_HEX,           /* of \uXXXX: value, digits */
    AFTER_HIGH,       /* a high surrogate: a backslash must follow */
    AFTER_HIGH_SLASH, /* … and a u */
    IN_LOW_HEX,       /* … and the digits of a low surrogate */
};

typedef struct body_content {
    body_places places;
    utf8_part part;
    uint32_t phase, value, digits, high;
} body_content;

struct body {
    uint32_t longest;
    body_content *content; /* by state, from BODY_FIRST on */
    body_row **rows;       /* by state; NULL: not made yet */
    uint32_t n_states, room;
    uint32_t *table;       /* open addressing; 0: free */
    lang_edge *edges;      /* of the place looked at last */
    uint32_t n_edges, edges_room, edges_state;
    const lang *edges_lang;
    body_places last;      /* what a code point led to last, and its state: rows repeat themselves */
    uint32_t last_state;
    int failed;
};

/* ---- States ------------------------------------------------------------------------------- */

static void forget(body *b)
{
    for (uint32_t i = BODY_FIRST; i < b->n_states; i++)
        free(b->rows[i]);
    b->n_states = BODY_FIRST;
    b->last_state = BODY_DEAD;
    memset(b->table, 0, TABLE * sizeof *b->table);
}

body *body_new(uint32_t longest)
{
    body *b = calloc(1, sizeof *b);
    if (b == NULL)
        return NULL;
    b->longest = longest;
    b->room = 2 * BODY_FIRST;
    b->n_states = BODY_FIRST;
    b->content = malloc(b->room * sizeof *b->content);
    b->rows = calloc(b->room, sizeof *b->rows);
    b->table = calloc(TABLE, sizeof *b->table);
    if (b->content != NULL && b->rows != NULL && b->table != NULL)
        return b;
    body_free(b);
    return NULL;
}

void body_free(body *b)
{
    if (b == NULL)
        return;
    for (uint32_t i = BODY_FIRST; b->rows != NULL && i < b->n_states; i++)
        free(b->rows[i]);
    free(b->content);
    free(b->rows);
    free(b->table);
    free(b->edges);
    free(b);
}

static uint64_t hash(const body_content *c)
{
    const unsigned char *bytes = (const unsigned char *)c;
    uint64_t h = 0x9e3779b97f4a7c15u;
    for (size_t i = 0; i < sizeof *c; i += 8) {
        uint64_t word;
        memcpy(&word, bytes + i, 8);
        h = (h ^ word) * 0xff51afd7ed558ccdu;
        h ^= h >> 32;
    }
    return h;
}

_Static_assert(sizeof(body_content) % 8 == 0, "contents are hashed by words");

static int grow(body *b)
{
    uint32_t room = b->room * 2;
    body_content *content = realloc(b->content, room * sizeof *content);
    if (content == NULL)
        return 0;
    b->content = content;
    body_row **rows = realloc(b->rows, room * sizeof *rows);
    if (rows == NULL)
        return 0;
    b->rows = rows;
    b->room = room;
    return 1;
}

/* The number of the state with this content; its padding must be zero. BODY_DEAD: out of memory. */
static uint32_t intern(body *b, const body_content *c)
{
    uint32_t slot = (uint32_t)hash(c) & (TABLE - 1);
    for (; b->table[slot] != 0; slot = (slot + 1) & (TABLE - 1))
        if (memcmp(&b->content[b->table[slot]], c, sizeof *c) == 0)
            return b->table[slot];
    if ((b->n_states == b->room && !grow(b)) || b->n_states >= 2 * MAX_STATES) {
        b->failed = 1;
        return BODY_DEAD;
    }
    b->content[b->n_states] = *c;
    b->rows[b->n_states] = NULL;
    b->table[slot] = b->n_states;
    return b->n_states++;
}

static int compare_places(const body_place *a, const body_place *b)
{
    if (a->lang != b->lang)
        return (uintptr_t)a->lang < (uintptr_t)b->lang ? -1 : 1;
    if (a->a != b->a)
        return a->a < b->a ? -1 : 1;
    return a->b < b->b ? -1 : a->b > b->b;
}

/* Put a place in order, unless it is there; a shorter bound of length than another's stays beside it. */
static void add_place(body_places *places, body_place place)
{
    uint32_t i = 0;
    while (i < places->n && compare_places(&places->at[i], &place) < 0)
        i++;
    if (i < places->n && compare_places(&places->at[i], &place) == 0) {
        places->at[i].from |= place.from;
        return;
    }
    memmove(&places->at[i + 1], &places->at[i], (places->n - i) * sizeof places->at[0]);
    places->at[i] = place;
    places->n++;
}

void body_places_of(const body *b, const lang *const *langs, const uint32_t *states, uint32_t n, int raw,
                    body_places *out)
{
    memset(out, 0, sizeof *out);
    out->raw = (uint32_t)raw;
    for (uint32_t i = 0; i < n; i++) {
        body_place place = {langs[i], states[i], 0, 0};
        uint32_t min, max;
        if (lang_is_length(langs[i], &min, &max)) {
            uint32_t left = min > states[i] ? min - states[i] : 0;
            uint32_t most = max == LANG_NO_MAX ? LANG_NO_MAX : max - states[i];
            place.lang = NULL;
            place.a = left > b->longest ? b->longest + 1 : left;
            place.b = most > b->longest ? LANG_NO_MAX : most;
        }
        add_place(out, place);
    }
    for (uint32_t i = 0; i < out->n; i++)
        out->at[i].from = (uint64_t)1 << i;
}

uint32_t body_state(body *b, const body_places *places)
{
    body_content c;
    memset(&c, 0, sizeof c);
    c.places = *places;
    b->failed = 0;
    if (b->n_states > MAX_STATES)
        forget(b);
    return intern(b, &c);
}

/* ---- Languages --------------------------------------------------------------------------------- */

static void place_step(const body_place *place, uint32_t code_point, body_places *out)
{
    body_place next = *place;
    if (place->lang != NULL) {
        next.a = lang_step(place->lang, place->a, code_point);
        if (next.a == LANG_DEAD)
            return;
    } else {
        if (place->b == 0)
            return;
        next.a -= next.a > 0;
        next.b -= next.b != LANG_NO_MAX;
    }
    add_place(out, next);
}

static int read_edges(body *b, const body_place *place)
{
    if (b->edges_lang == place->lang && b->edges_state == place->a)
        return 1;
    uint32_t n = lang_edges(place->lang, place->a, b->edges, b->edges_room);
    if (n > b->edges_room) {
        lang_edge *edges = realloc(b->edges, 2 * n * sizeof *edges);
        if (edges == NULL) {
            b->failed = 1;
            return 0;
        }
        b->edges = edges;
        b->edges_room = 2 * n;
        (void)lang_edges(place->lang, place->a, b->edges, b->edges_room);
    }
    b->n_edges = n;
    b->edges_lang = place->lang;
    b->edges_state = place->a;
    return 1;
}

/* The first edge read that reaches lo or beyond. */
static uint32_t first_edge(const body *b, uint32_t lo)
{
    uint32_t low = 0, high = b->n_edges;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (b->edges[middle].hi < lo)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Whether a place goes on with a code point of lo … hi that is no surrogate. */
static int place_reaches(body *b, const body_place *place, uint32_t lo, uint32_t hi)
{
    if (lo >= HIGH && lo <= 0xdfff)
        lo = 0xe000;
    if (hi >= HIGH && hi <= 0xdfff)
        hi = HIGH - 1;
    if (lo > hi)
        return 0;
    if (place->lang == NULL)
        return place->b > 0;
    if (!read_edges(b, place))
        return 0;
    uint32_t i = first_edge(b, lo);
    return i < b->n_edges && b->edges[i].lo <= hi;
}

static int reaches(body *b, const body_places *places, uint32_t lo, uint32_t hi)
{
    for (uint32_t i = 0; i < places->n; i++)
        if (place_reaches(b, &places->at[i], lo, hi))
            return 1;
    return 0;
}

/* Which of the places that the walk began at accept here. */
static uint32_t accepting(const body_places *places)
{
    uint64_t from = 0;
    for (uint32_t i = 0; i < places->n; i++) {
        const body_place *p = &places->at[i];
        if (p->lang != NULL ? lang_accepts(p->lang, p->a) : p->a == 0)
            from |= p->from;
    }
    return (uint32_t)from;
}

/* ---- Rows ----------------------------------------------------------------------------------------- */

static void places_after(const body_places *from, uint32_t code_point, body_places *to)
{
    memset(to, 0, sizeof *to);
    to->raw = from->raw;
    for (uint32_t i = 0; i < from->n; i++)
        place_step(&from->at[i], code_point, to);
}

/* The state after a whole code point. */
static uint32_t after(body *b, const body_places *from, uint32_t code_point)
{
    body_content next;
    memset(&next, 0, sizeof next);
    places_after(from, code_point, &next.places);
    if (next.places.n == 0)
        return BODY_DEAD;
    if (b->last_state == BODY_DEAD || memcmp(&b->last, &next.places, sizeof b->last) != 0) {
        b->last = next.places;
        b->last_state = intern(b, &next);
    }
    return b->last_state;
}

/* Whether a control without a short escape, of lo … hi, is followed: what \u is for in plain strings. */
static int controls(body *b, const body_places *places, uint32_t lo, uint32_t hi)
{
    static const uint32_t ranges[3][2] = {{0, 7}, {0x0b, 0x0b}, {0x0e, 0x1f}};
    for (uint32_t i = 0; i < 3; i++) {
        uint32_t first = lo > ranges[i][0] ? lo : ranges[i][0], last = hi < ranges[i][1] ? hi : ranges[i][1];
        if (first <= last && reaches(b, places, first, last))
            return 1;
    }
    return 0;
}

/* Whether some character that may be escaped is followed. */
static int escapes(body *b, const body_places *places)
{
    if (places->raw != BODY_PLAIN)
        return reaches(b, places, 0, CODE_POINT_MAX);
    return reaches(b, places, 0, 0x1f) || reaches(b, places, '"', '"') || reaches(b, places, '\\', '\\');
}

/* Whether the hexadecimal digits so far can become a code point that is followed: a character of the
 * basic plane, or the first half of a pair. */
static int hex_reaches(body *b, const body_content *c)
{
    uint32_t shift = 4 * (4 - c->digits), lo = c->value << shift, hi = lo | ((1u << shift) - 1);
    if (c->places.raw == BODY_PLAIN)
        return controls(b, &c->places, lo, hi);
    if (reaches(b, &c->places, lo, hi))
        return 1;
    uint32_t first = lo > HIGH ? lo : HIGH, last = hi < LOW - 1 ? hi : LOW - 1;
    return first <= last && reaches(b, &c->places, 0x10000 + ((first - HIGH) << 10),
                                    0x10000 + ((last - HIGH) << 10) + 0x3ff);
}

static int low_reaches(body *b, const body_content *c)
{
    uint32_t shift = 4 * (4 - c->digits), lo = c->value << shift, hi = lo | ((1u << shift) - 1);
    uint32_t first = lo > LOW ? lo : LOW, last = hi < 0xdfff ? hi : 0xdfff, base = 0x10000 + ((c->high - HIGH) << 10);
    return first <= last && reaches(b, &c->places, base + first - LOW, base + last - LOW);
}

/* Whether all of lo … hi, no surrogate among them, takes a place along one way. */
static int place_same(body *b, const body_place *place, uint32_t lo, uint32_t hi)
{
    if (place->lang == NULL)
        return 1;
    if (!read_edges(b, place))
        return 0;
    uint32_t i = first_edge(b, lo);
    return i == b->n_edges || b->edges[i].lo > hi || (b->edges[i].lo <= lo && b->edges[i].hi >= hi);
}

/* Code points that lead to the same places need not be told apart: most of the planes are alike. */
static int same(body *b, const body_places *places, const utf8_part *part, uint32_t lo, uint32_t hi)
{
    if (hi - lo + 1 != 1u << (6 * part->left) || (lo <= 0xdfff && hi >= HIGH))
        return 0;
    for (uint32_t i = 0; i < places->n; i++)
        if (!place_same(b, &places->at[i], lo, hi))
            return 0;
    return 1;
}

static uint32_t tail_state(body *b, const body_places *places, uint32_t left)
{
    body_content c;
    memset(&c, 0, sizeof c);
    c.places = *places;
    c.phase = left > 0 ? IN_UTF8_SAME : AT_BOUNDARY;
    c.digits = left;
    return intern(b, &c);
}

static uint32_t utf8_byte(body *b, const body_content *c, uint8_t byte)
{
    body_content next = *c;
    uint32_t lo, hi;
    if (!utf8_read(&next.part, byte))
        return BODY_DEAD;
    utf8_range(&next.part, &lo, &hi);
    if (lo > hi || (lo >= HIGH && hi <= 0xdfff))
        return BODY_DEAD;
    if (next.part.left == 0)
        return after(b, &c->places, next.part.bits);
    if (same(b, &c->places, &next.part, lo, hi)) {
        body_places to;
        places_after(&c->places, lo, &to);
        return to.n > 0 ? tail_state(b, &to, next.part.left) : BODY_DEAD;
    }
    next.phase = IN_UTF8;
    return reaches(b, &c->places, lo, hi) ? intern(b, &next) : BODY_DEAD;
}

static int hex_digit(uint8_t byte)
{
    if (byte >= '0' && byte <= '9')
        return byte - '0';
    if (byte >= 'a' && byte <= 'f')
        return byte - 'a' + 10;
    return byte >= 'A' && byte <= 'F' ? byte - 'A' + 10 : -1;
}

static uint32_t hex_byte(body *b, const body_content *c, uint8_t byte)
{
    body_content next = *c;
    int digit = hex_digit(byte);
    if (digit < 0 || (c->places.raw == BODY_PLAIN && byte >= 'A' && byte <= 'F'))
        return BODY_DEAD;
    next.value = c->value << 4 | (uint32_t)digit;
    next.digits++;
    int low = c->phase == IN_LOW_HEX;
    if (!(low ? low_reaches(b, &next) : hex_reaches(b, &next)))
        return BODY_DEAD;
    if (next.digits < 4)
        return intern(b, &next);
    if (low)
        return after(b, &c->places, 0x10000 + ((c->high - HIGH) << 10) + (next.value - LOW));
    if (next.value < HIGH || next.value > 0xdfff)
        return after(b, &c->places, next.value);
    next.phase = AFTER_HIGH;
    next.high = next.value;
    next.value = next.digits = 0;
    return intern(b, &next);
}

static uint32_t escape_byte(body *b, const body_content *c, uint8_t byte)
{
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    const char *known = byte ? strchr(names, byte) : NULL;
    int plain = c->places.raw == BODY_PLAIN;
    if (plain && (byte == '/' || (byte == 'u' && !controls(b, &c->places, 0, 0x1f))))
        return BODY_DEAD;
    if (known != NULL)
        return after(b, &c->places, (uint8_t)values[known - names]);
    body_content next = *c;
    next.phase = IN_HEX;
    return byte == 'u' ? intern(b, &next) : BODY_DEAD; /* it was reached because something follows */
}

static uint32_t boundary_byte(body *b, const body_content *c, uint8_t byte)
{
    if (c->places.raw != BODY_RAW) {
        if (byte < 0x20)
            return BODY_DEAD;
        if (byte == '"')
            return accepting(&c->places); /* none: dead */
        if (byte == '\\') {
            body_content next = *c;
            next.phase = AFTER_BACKSLASH;
            return escapes(b, &c->places) ? intern(b, &next) : BODY_DEAD;
        }
    }
    return byte < 0x80 ? after(b, &c->places, byte) : utf8_byte(b, c, byte);
}

static uint32_t high_byte(body *b, const body_content *c, uint8_t byte)
{
    body_content next = *c;
    int slash = c->phase == AFTER_HIGH;
    next.phase = slash ? AFTER_HIGH_SLASH : IN_LOW_HEX;
    return byte == (slash ? '\\' : 'u') ? intern(b, &next) : BODY_DEAD;
}

/* Where a byte leads. */
static uint32_t target(body *b, const body_content *c, uint8_t byte)
{
    switch (c->phase) {
    case AT_BOUNDARY:
        return boundary_byte(b, c, byte);
    case IN_UTF8:
        return utf8_byte(b, c, byte);
    case IN_UTF8_SAME:
        return (byte & 0xc0) == 0x80 ? tail_state(b, &c->places, c->digits - 1) : BODY_DEAD;
    case AFTER_BACKSLASH:
        return escape_byte(b, c, byte);
    case IN_HEX:
    case IN_LOW_HEX:
        return hex_byte(b, c, byte);
    default:
        return high_byte(b, c, byte);
    }
}

/* Of where letters, digits and blanks lead, what most bytes lead to; and the classes that do so as a whole. */
static void find_runs(body_row *row)
{
    static const uint8_t samples[3] = {'a', '0', ' '};
    uint32_t most = 0;
    row->next = BODY_DEAD;
    for (uint32_t i = 0; i < 3; i++) {
        uint32_t n = 0, to = row->to[samples[i]];
        for (uint32_t byte = 0; byte < 256; byte++)
            n += row->to[byte] == to;
        if (to >= BODY_FIRST && n > most) {
            most = n;
            row->next = to;
        }
    }
    row->runs = row->next == BODY_DEAD ? 0 : UINT64_MAX;
    for (uint32_t byte = 0; byte < 256; byte++)
        if (row->to[byte] != row->next)
            row->runs &= ~((uint64_t)1 << byte_class((uint8_t)byte));
}

const body_row *body_row_of(body *b, uint32_t state)
{
    if (b->rows[state] != NULL)
        return b->rows[state];
    body_row *row = malloc(sizeof *row);
    if (row == NULL)
        return NULL;
    body_content c = b->content[state]; /* a copy: the array moves as states are added */
    for (uint32_t byte = 0; byte < 256; byte++)
        row->to[byte] = target(b, &c, (uint8_t)byte);
    find_runs(row);
    if (b->failed) {
        free(row);
        return NULL;
    }
    b->rows[state] = row;
    return row;
}
