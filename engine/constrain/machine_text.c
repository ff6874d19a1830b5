/* machine_text.c: the inside of JSON strings for the machine: characters put together from UTF-8 bytes
 * and escapes, what a half read one can still become, and decoded text that grows byte by byte.
 * Refuses what is not well-formed UTF-8 and lone surrogates, as early as the bytes tell. Owns
 * nothing: text lives in the arena of the position that made it. */
#include "machine_int.h"

#include <string.h>

/* ---- Characters ------------------------------------------------------------------------ */

static int hex_digit(uint8_t b)
{
    if (b >= '0' && b <= '9')
        return b - '0';
    if (b >= 'a' && b <= 'f')
        return b - 'a' + 10;
    return b >= 'A' && b <= 'F' ? b - 'A' + 10 : -1;
}

static int32_t utf8_lead(character *c, uint8_t b)
{
    if (b < 0xC2 || b > 0xF4)
        return CHAR_BAD;
    c->sub = SUB_UTF8;
    c->left = b < 0xE0 ? 1 : b < 0xF0 ? 2 : 3;
    c->part = b < 0xE0 ? b & 0x1F : b < 0xF0 ? b & 0x0F : b & 0x07;
    return CHAR_PART;
}

/* What is too long a spelling, a surrogate or beyond U+10FFFF shows in the first continuation byte: a
 * lead of three bytes has part < 16 with two left, which no sequence of four has. */
static int32_t utf8_next(character *c, uint8_t b)
{
    if ((b & 0xC0) != 0x80)
        return CHAR_BAD;
    if (c->left == 2 && c->part < 16 && ((c->part == 0 && b < 0xA0) || (c->part == 13 && b > 0x9F)))
        return CHAR_BAD;
    if (c->left == 3 && ((c->part == 0 && b < 0x90) || (c->part == 4 && b > 0x8F)))
        return CHAR_BAD;
    c->part = c->part << 6 | (b & 0x3F);
    if (--c->left > 0)
        return CHAR_PART;
    c->sub = SUB_PLAIN;
    return (int32_t)c->part;
}

static int32_t escape_letter(character *c, uint8_t b)
{
    static const char letters[] = "\"\\/bfnrt", means[] = "\"\\/\b\f\n\r\t";
    if (c->plain && b == '/')
        return CHAR_BAD;
    if (b == 'u') {
        c->sub = SUB_HEX;
        c->left = 4;
        c->part = 0;
        return CHAR_PART;
    }
    const char *at = b ? strchr(letters, b) : NULL;
    if (at == NULL)
        return CHAR_BAD;
    c->sub = SUB_PLAIN;
    return means[at - letters];
}

/* Where characters have one spelling, \\u is for the controls without a short escape. */
static const points plain_controls[3] = {{0, 7, 0}, {0x0B, 0x0B, 0}, {0x0E, 0x1F, 0}};

/* The code points lo … hi among those; bytes are to come. */
static uint32_t plain_points(uint32_t lo, uint32_t hi, uint32_t bytes, points *out)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < 3; i++) {
        uint32_t a = plain_controls[i].lo > lo ? plain_controls[i].lo : lo;
        uint32_t b = plain_controls[i].hi < hi ? plain_controls[i].hi : hi;
        if (a <= b)
            out[n++] = (points){a, b, bytes};
    }
    return n;
}

static int32_t hex_next(character *c, uint8_t b)
{
    points set[3];
    int d = hex_digit(b);
    if (d < 0 || (c->plain && b >= 'A' && b <= 'F'))
        return CHAR_BAD;
    uint32_t value = c->part << 4 | (uint32_t)d;
    c->left--;
    uint32_t rest = 4u * c->left;
    if (c->plain && plain_points(value << rest, (value << rest) + (1u << rest) - 1, 0, set) == 0)
        return CHAR_BAD;
    if (c->left == 2 && value >= 0xDC && value <= 0xDF)
        return CHAR_BAD; /* a low surrogate without its high one */
    c->part = value;
    if (c->left > 0)
        return CHAR_PART;
    c->sub = value >= 0xD800 && value <= 0xDBFF ? SUB_HIGH : SUB_PLAIN;
    return c->sub == SUB_HIGH ? CHAR_PART : (int32_t)value;
}

/* part: the high surrogate in the upper half, the digits read of the low one in the lower. */
static int32_t low_next(character *c, uint8_t b)
{
    int d = hex_digit(b);
    if (d < 0 || (c->left == 4 && d != 13) || (c->left == 3 && d < 12))
        return CHAR_BAD;
    uint32_t low = (c->part & 0xFFFF) << 4 | (uint32_t)d;
    c->part = (c->part & 0xFFFF0000u) | low;
    if (--c->left > 0)
        return CHAR_PART;
    uint32_t high = c->part >> 16;
    c->sub = SUB_PLAIN;
    return (int32_t)(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00));
}

int32_t char_step(character *c, uint8_t b)
{
    switch (c->sub) {
    case SUB_PLAIN:
        if (b >= 0x80)
            return utf8_lead(c, b);
        if (b == '\\') {
            c->sub = SUB_ESCAPE;
            return CHAR_PART;
        }
        return b < 0x20 || b == '"' ? CHAR_BAD : b;
    case SUB_UTF8:
        return utf8_next(c, b);
    case SUB_ESCAPE:
        return escape_letter(c, b);
    case SUB_HEX:
        return hex_next(c, b);
    case SUB_HIGH:
        c->sub = SUB_HIGH_ESCAPE;
        return b == '\\' ? CHAR_PART : CHAR_BAD;
    case SUB_HIGH_ESCAPE:
        c->sub = SUB_LOW;
        c->left = 4;
        c->part <<= 16;
        return b == 'u' ? CHAR_PART : CHAR_BAD;
    default:
        return low_next(c, b);
    }
}

/* The code points lo … hi of \uXXXX with `bytes` to come, surrogate pairs with their second half. */
static uint32_t hex_points(uint32_t lo, uint32_t hi, uint32_t bytes, points *out)
{
    uint32_t n = 0;
    if (lo < 0xD800)
        out[n++] = (points){lo, hi < 0xD7FF ? hi : 0xD7FF, bytes};
    if (hi > 0xDFFF)
        out[n++] = (points){lo > 0xE000 ? lo : 0xE000, hi, bytes};
    uint32_t a = lo > 0xD800 ? lo : 0xD800, b = hi < 0xDBFF ? hi : 0xDBFF;
    if (a <= b)
        out[n++] = (points){0x10000 + ((a - 0xD800) << 10), 0x10000 + ((b - 0xD800) << 10) + 1023, bytes + 6};
    return n;
}

static uint32_t utf8_points(const character *c, points *out)
{
    uint32_t lo = c->part << 6 * c->left, hi = lo + (1u << 6 * c->left) - 1;
    if (c->left == 3) {
        lo = lo < 0x10000 ? 0x10000 : lo;
        hi = hi > 0x10FFFF ? 0x10FFFF : hi;
    } else if (c->left == 2 && c->part < 16) {
        lo = lo < 0x800 ? 0x800 : lo;
        hi = c->part == 13 ? 0xD7FF : hi;
    }
    out[0] = (points){lo, hi, c->left};
    return 1;
}

static uint32_t low_points(uint32_t part, uint32_t left, uint32_t bytes, points *out)
{
    uint32_t base = 0x10000 + (((part >> 16) - 0xD800) << 10);
    uint32_t lo = (part & 0xFFFF) << 4 * left, hi = lo + (1u << 4 * left) - 1;
    lo = lo < 0xDC00 ? 0xDC00 : lo;
    hi = hi > 0xDFFF ? 0xDFFF : hi;
    out[0] = (points){base + lo - 0xDC00, base + hi - 0xDC00, bytes};
    return 1;
}

uint32_t char_points(const character *c, points out[MAX_POINTS])
{
    static const uint8_t simple[8] = {'\b', '\t', '\n', '\f', '\r', '"', '/', '\\'};
    uint32_t n = 0;
    switch (c->sub) {
    case SUB_UTF8:
        return utf8_points(c, out);
    case SUB_ESCAPE:
        for (uint32_t i = 0; i < 8; i++)
            if (!c->plain || simple[i] != '/')
                out[n++] = (points){simple[i], simple[i], 1};
        return n + (c->plain ? plain_points(0, 0x1F, 5, out + n) : hex_points(0, 0xFFFF, 5, out + n));
    case SUB_HEX:
        if (c->plain)
            return plain_points(c->part << 4 * c->left, (c->part << 4 * c->left) + (1u << 4 * c->left) - 1, c->left, out);
        return hex_points(c->part << 4 * c->left, (c->part << 4 * c->left) + (1u << 4 * c->left) - 1, c->left, out);
    case SUB_HIGH:
        return low_points(c->part << 16, 4, 6, out);
    case SUB_HIGH_ESCAPE:
        return low_points(c->part << 16, 4, 5, out);
    case SUB_LOW:
        return low_points(c->part, c->left, c->left, out);
    default: /* between characters: any may follow */
        out[0] = (points){0, 0xD7FF, 0};
        out[1] = (points){0xE000, 0x10FFFF, 0};
        return 2;
    }
}

uint32_t char_bytes(uint32_t cp)
{
    if (cp < 0x20)
        return cp == '\b' || cp == '\t' || cp == '\n' || cp == '\f' || cp == '\r' ? 2 : 6;
    if (cp < 0x80)
        return cp == '"' || cp == '\\' ? 2 : 1;
    return cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
}

uint32_t utf8_write(uint32_t cp, uint8_t out[4])
{
    if (cp < 0x80) {
        out[0] = (uint8_t)cp;
        return 1;
    }
    uint32_t n = cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
    static const uint8_t lead[5] = {0, 0, 0xC0, 0xE0, 0xF0};
    for (uint32_t i = n - 1; i > 0; i--, cp >>= 6)
        out[i] = (uint8_t)(0x80 | (cp & 0x3F));
    out[0] = (uint8_t)(lead[n] | cp);
    return n;
}

uint32_t utf8_read(const char *at, uint32_t len, uint32_t *cp)
{
    uint8_t b = (uint8_t)at[0];
    uint32_t n = b < 0x80 ? 1 : b < 0xE0 ? 2 : b < 0xF0 ? 3 : 4;
    static const uint8_t mask[5] = {0, 0x7F, 0x1F, 0x0F, 0x07};
    *cp = b & mask[n];
    for (uint32_t i = 1; i < n && i < len; i++)
        *cp = *cp << 6 | ((uint8_t)at[i] & 0x3F);
    return n <= len ? n : len;
}

uint32_t body_bytes(const char *s, uint32_t len)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < len; i++) { /* bytes of UTF-8 sequences count one each */
        uint8_t b = (uint8_t)s[i];
        total += b < 0x80 ? char_bytes(b) : 1;
    }
    return total < NONE - 1 ? (uint32_t)total : NONE - 1;
}

/* ---- Languages at a half read character --------------------------------------------------- */

uint32_t lang_shortest(const lang *l, uint32_t state, const points *set, uint32_t n)
{
    uint32_t best = NONE;
    lang_edge e;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t cp = set[i].lo; lang_next_edge(l, state, cp, &e) && e.lo <= set[i].hi; cp = e.hi + 1) {
            uint32_t cost = add_cost(set[i].bytes, lang_distance(l, e.to));
            best = cost < best ? cost : best;
        }
    return best;
}

int lang_lives(const lang *l, uint32_t state, const points *set, uint32_t n)
{
    uint32_t min, max;
    if (lang_is_length(l, &min, &max))
        return n > 0 && (max == LANG_NO_MAX || state < max);
    return lang_shortest(l, state, set, n) != NONE;
}

/* ---- Text -------------------------------------------------------------------------------- */

const text *text_add(doc_arena *arena, const text *prev, uint8_t byte)
{
    text *t = doc_arena_alloc(arena, sizeof *t);
    if (t != NULL)
        *t = (text){prev, text_len(prev) + 1, byte};
    return t;
}

uint32_t text_len(const text *t)
{
    return t ? t->len : 0;
}

void text_copy(const text *t, uint32_t from, char *out)
{
    for (; t && t->len > from; t = t->prev)
        out[t->len - 1 - from] = (char)t->byte;
}

int text_prefixes(const text *t, const char *s, uint32_t len)
{
    if (text_len(t) > len)
        return 0;
    for (; t; t = t->prev)
        if (s[t->len - 1] != (char)t->byte)
            return 0;
    return 1;
}
