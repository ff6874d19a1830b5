/* json_scan.h: which part of a JSON document a byte belongs to, for text that a constraint has let
 * through already; an ending uses it to name the values that it writes. Nothing is validated. */
#ifndef GAUGEBLOCK_CONSTRAIN_JSON_SCAN_H
#define GAUGEBLOCK_CONSTRAIN_JSON_SCAN_H
#include <stdint.h>

#define JSON_SCAN_DEPTH 1024

enum { SCAN_BETWEEN = 0, SCAN_STRING = 1, SCAN_LITERAL = 2, SCAN_NUMBER = 3 };

typedef struct json_scan {
    uint8_t state;     /* SCAN_* */
    uint8_t escaped;   /* the next byte of the string is escaped */
    uint8_t key;       /* the string is a key, or a key comes next */
    uint32_t depth;    /* containers that are open */
    uint64_t objects[JSON_SCAN_DEPTH / 64]; /* bit per depth: it is an object */
} json_scan;

static inline void json_scan_open(json_scan *s, int object)
{
    uint64_t bit = (uint64_t)1 << (s->depth & 63), *word = &s->objects[s->depth / 64 % (JSON_SCAN_DEPTH / 64)];
    *word = object ? *word | bit : *word & ~bit;
    s->depth++;
    s->key = (uint8_t)object;
}

static inline int json_scan_in_object(const json_scan *s)
{
    uint32_t top = s->depth - 1;
    return s->depth > 0 && (s->objects[top / 64 % (JSON_SCAN_DEPTH / 64)] >> (top & 63) & 1);
}

/* Read a byte. 1: a value begins with it. */
static inline int json_scan_read(json_scan *s, uint8_t byte)
{
    if (s->state == SCAN_STRING) {
        if (s->escaped)
            s->escaped = 0;
        else if (byte == '\\')
            s->escaped = 1;
        else if (byte == '"')
            s->state = SCAN_BETWEEN;
        return 0;
    }
    switch (byte) {
    case ' ':
    case '\t':
    case '\n':
    case '\r':
        s->state = SCAN_BETWEEN;
        return 0;
    case ':':
        s->state = SCAN_BETWEEN;
        s->key = 0;
        return 0;
    case ',':
        s->state = SCAN_BETWEEN;
        s->key = (uint8_t)json_scan_in_object(s);
        return 0;
    case '}':
    case ']':
        s->state = SCAN_BETWEEN;
        s->depth -= s->depth > 0;
        s->key = 0;
        return 0;
    case '{':
    case '[':
        json_scan_open(s, byte == '{');
        return 1;
    case '"':
        s->state = SCAN_STRING;
        return !s->key;
    default: {
        if (s->state != SCAN_BETWEEN)
            return 0;
        s->state = byte == '-' || (byte >= '0' && byte <= '9') ? SCAN_NUMBER : SCAN_LITERAL;
        return 1;
    }
    }
}

/* A value is half read, and an ending that begins with byte (-1: that has no byte) decides how it goes on.
 * That is so for a number in any case: only what follows it says that it has ended. */
static inline int json_scan_half_read(const json_scan *s, int byte)
{
    if (s->state == SCAN_STRING)
        return !s->key;
    return s->state == SCAN_NUMBER || (s->state == SCAN_LITERAL && byte >= 'a' && byte <= 'z');
}

#endif
