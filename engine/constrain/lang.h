/* lang.h: regular languages of strings of Unicode code points, as minimal automata.
 *
 * A lang is immutable, trimmed (every state can reach acceptance), minimal and interned in its
 * lang_set: equal languages are equal pointers, which is what makes them cheap to compare and to
 * cache masks for. Code points are 0 … 0x10FFFF without the surrogates. Number texts are languages
 * of ASCII code points too. The empty language has no states. All memory comes from the pool; a
 * call that fails returns NULL and the pool tells why.
 *
 * Use the accessors: languages that only bound the length are kept as two numbers. */
#ifndef GAUGEBLOCK_CONSTRAIN_LANG_H
#define GAUGEBLOCK_CONSTRAIN_LANG_H
#include "pool.h"

#define LANG_DEAD UINT32_MAX
#define LANG_INFINITE UINT64_MAX
#define LANG_NO_MAX UINT32_MAX

typedef struct lang lang;
typedef struct lang_set lang_set;

/* An edge: code points lo … hi lead to state `to`. Edges of a state are disjoint and ascending. */
typedef struct lang_edge {
    uint32_t lo, hi, to;
} lang_edge;

lang_set *lang_set_new(pool *p);

/* ---- Building ------------------------------------------------------------------------ */

const lang *lang_empty(lang_set *s);
const lang *lang_all(lang_set *s);                                   /* every string */
const lang *lang_length(lang_set *s, uint32_t min, uint32_t max);    /* code points; max LANG_NO_MAX: unbounded */
/* The strings given, UTF-8, in any order, repeated or not (an enum of 10,000 values is ordinary). */
const lang *lang_words_of(lang_set *s, const char *const *texts, const uint64_t *lens, uint64_t n);
/* An ECMA-262 pattern (the `u` flag's grammar, with the leniency of the plain one where schemas use
 * it: `\-`, `\/`, a lone `]` or `{`), UTF-8. search != 0: a match anywhere, as JSON Schema's
 * `pattern`; else the whole string. Lookahead at an end of the pattern, where it is an intersection
 * or a difference, is held; other lookaround and backreferences are ENGINE_EUNSUPPORTED by name with
 * the offset in the pattern. */
const lang *lang_regex(lang_set *s, const char *pattern, uint64_t len, int search);
/* A JSON Schema `format` ("date", "uuid", …); NULL with the pool still good where the name is unknown,
 * *known tells which. Languages equal what jsonschema's checkers accept, minus what RFCs forbid. */
const lang *lang_format(lang_set *s, const char *name, uint64_t len, int *known);

const lang *lang_and(lang_set *s, const lang *a, const lang *b);
const lang *lang_or(lang_set *s, const lang *a, const lang *b);
const lang *lang_minus(lang_set *s, const lang *a, const lang *b);
const lang *lang_not(lang_set *s, const lang *a);                    /* among all strings */

/* ---- Numbers: texts of JSON numbers whose exact decimal value meets the bounds ------------ */

typedef struct lang_decimal {   /* sign * digits * 10^exponent, digits ASCII without leading zeros, "0" for 0 */
    int negative;
    const char *digits;
    uint32_t n_digits;
    int32_t exponent;
} lang_decimal;

typedef struct lang_range {
    const lang_decimal *min, *max;       /* NULL: unbounded */
    int min_exclusive, max_exclusive;
    const lang_decimal *multiple_of;     /* NULL: any; positive */
    int integer;                         /* 1: the value is an integer, written 1, or 1.0, 1.00, …; 2: written 1 (draft 4) */
} lang_range;

/* Texts follow RFC 8259. With a bound or multiple_of, or integer, texts with an exponent are left out
 * where they cannot be held exactly (never wrongly admitted); the header of number.c says which. */
const lang *lang_numbers(lang_set *s, const lang_range *range);
/* The texts of every JSON number. Never take a complement from it: lang_numbers leaves texts out. */
const lang *lang_number_all(lang_set *s);
/* The texts without an exponent: each is in lang_numbers(range) exactly where its value is in the range. The
 * complement of x among numbers is lang_minus(lang_number_held, x). */
const lang *lang_number_held(lang_set *s);
int lang_decimal_parse(pool *p, const char *text, uint64_t len, lang_decimal *out);

/* ---- Reading ------------------------------------------------------------------------------ */

int lang_is_empty(const lang *l);
int lang_is_all(const lang *l);
/* Only bounds the length: *min and *max are set and 1 is returned. States are then code points read,
 * saturated at *min where there is no maximum. */
int lang_is_length(const lang *l, uint32_t *min, uint32_t *max);
uint32_t lang_id(const lang *l);                                     /* dense, within its set */
uint32_t lang_start(const lang *l);                                  /* LANG_DEAD for the empty language */
uint32_t lang_step(const lang *l, uint32_t state, uint32_t code_point); /* LANG_DEAD: leaves the language */
int lang_accepts(const lang *l, uint32_t state);
/* Fewest bytes that a JSON string body (escapes counted) needs from state to acceptance. */
uint32_t lang_distance(const lang *l, uint32_t state);
/* How many strings lead from state to acceptance, saturating; LANG_INFINITE: no end to them. */
uint64_t lang_count(const lang *l, uint32_t state);
/* The edges of a state; at most cap are written, all are counted. */
uint32_t lang_edges(const lang *l, uint32_t state, lang_edge *out, uint32_t cap);
/* The first edge with code points at or after `from`, those before it cut off; 0: there is none. */
int lang_next_edge(const lang *l, uint32_t state, uint32_t from, lang_edge *out);
/* The strings of a finite language, shortest first, as UTF-8; 0 where there are more than cap. */
uint32_t lang_enumerate(lang_set *s, const lang *l, uint32_t cap, const char **texts, uint64_t *lens);
/* Whether l holds the UTF-8 string. */
int lang_holds(const lang *l, const char *text, uint64_t len);

#endif
