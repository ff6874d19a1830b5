/* body.h: what may stand in a JSON string up to its closing quote, as an automaton over bytes.
 *
 * A state is a set of places in languages and what was read of a character: an escape, a surrogate pair,
 * a UTF-8 sequence. States and their rows of 256 are made when they are first needed, so a walk of a
 * whole vocabulary costs a load per byte. Places in languages that only bound the length are kept as
 * what is left of the bounds, clipped to what one token can use up: they are the same for every schema.
 * A body may also be read raw: text that is no JSON string, without quotes and escapes.
 * Not thread-safe; body_free() frees. */
#ifndef GAUGEBLOCK_CONSTRAIN_BODY_H
#define GAUGEBLOCK_CONSTRAIN_BODY_H
#include "lang.h"

#define BODY_PLACES 8

enum {
    BODY_JSON = 0,
    BODY_RAW = 1,      /* text that is no JSON string */
    BODY_PLAIN = 2,    /* a JSON string whose characters have one spelling (DOC_PLAIN) */
};

#define BODY_DEAD 0u  /* the byte is not allowed */
#define BODY_FIRST 256u /* the first state. Below: the byte is the quote that closes the string, and the bits
                         * tell which of the places that the walk began at lead here and accept */

/* A place in a language: its state a; or, with lang NULL, at least a and at most b more code points. */
typedef struct body_place {
    const lang *lang;
    uint32_t a, b;
    uint64_t from;     /* bit set of the places that lead here */
} body_place;

typedef struct body_places {
    uint32_t n;
    uint32_t raw;      /* BODY_* */
    body_place at[BODY_PLACES];
} body_places;

typedef struct body body;

body *body_new(uint32_t longest); /* bytes of the longest token */
void body_free(body *b);
/* Places for languages and states, canonical: equal sets are equal bytes. */
void body_places_of(const body *b, const lang *const *langs, const uint32_t *states, uint32_t n, int raw,
                    body_places *out);
/* The state for places; 0: out of memory. States stay valid until the next call of body_state. */
uint32_t body_state(body *b, const body_places *places);
/* Where each byte leads from a state: BODY_DEAD, an exit or a state. */
typedef struct body_row {
    uint32_t to[256];
    uint64_t runs;    /* classes of bytes (tokens.h) that all lead to the state `next` */
    uint32_t next;
} body_row;

/* NULL: out of memory. Valid until the next call of body_row_of. */
const body_row *body_row_of(body *b, uint32_t state);

#endif
