/* json_read.h: a strict reader of JSON texts into a tree, for schemas and lists of choices.
 *
 * RFC 8259 without leniency: UTF-8 without a byte order mark, no lone surrogates raw or escaped, no
 * duplicate keys, nothing after the value. Numbers keep their text, members their order, values their
 * byte offset. Depth, size and number of values are bounded. All memory belongs to the pool. */
#ifndef GAUGEBLOCK_CONSTRAIN_JSON_READ_H
#define GAUGEBLOCK_CONSTRAIN_JSON_READ_H
#include "pool.h"

enum { JSON_NULL, JSON_FALSE, JSON_TRUE, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT };

enum { JSON_MAX_DEPTH = 512 };

typedef struct json_value json_value;

typedef struct json_member {
    const char *key;        /* decoded UTF-8; may hold NUL */
    uint32_t len;
    json_value *value;
} json_member;

struct json_value {
    uint8_t type;
    uint8_t fresh;          /* for the client: 1 until it has seen the value */
    uint32_t n;             /* string, number: bytes of text; array, object: children */
    uint32_t slot;          /* index within the parent */
    uint32_t offset;        /* of the first byte in the source */
    json_value *parent;     /* NULL: the root */
    union {
        const char *text;         /* string: decoded; number: as written; NUL-terminated besides */
        json_value **items;
        json_member *members;
    };
    void *resource;         /* for the client: the schema resource that the value belongs to */
    void *meaning;          /* for the client: what the value was compiled to */
};

/* NULL: refused, with the reason in the pool (ENGINE_EFORMAT with the byte offset). */
json_value *json_read(pool *p, const char *text, uint64_t len);

/* The member with this key, or NULL; also NULL where v is NULL or no object. */
json_value *json_get(const json_value *v, const char *key);
json_value *json_get_len(const json_value *v, const char *key, uint64_t len);

/* Write the JSON pointer of v, UTF-8, cut to cap and NUL-terminated. */
void json_pointer_of(const json_value *v, char *out, size_t cap);

/* Whether two values are equal as JSON values: members in any order, numbers as decimals. */
int json_equal(const json_value *a, const json_value *b);

/* The exact value of a number's text in canonical form: sign, digits without zeros at either end, and
 * the exponent of the last digit; zero has no digits. digits is room for n bytes of the text. 0: the
 * exponent does not fit 31 bits. */
int json_decimal(const json_value *v, char *digits, uint32_t *n_digits, int64_t *exponent, int *negative);

#endif
