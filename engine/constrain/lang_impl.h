/* lang_impl.h: what the files behind lang.h share: the shape of a language, automata in the making,
 * and scratch memory.
 *
 * Inside, the alphabet is 0 … LETTERS - 1: the code points with the surrogates cut out, so that "any
 * character" is one edge. Scratch is taken from the pool once and used again by every operation: mark
 * it, and release it at the end. Languages hold no scratch. */
#ifndef GAUGEBLOCK_CONSTRAIN_LANG_IMPL_H
#define GAUGEBLOCK_CONSTRAIN_LANG_IMPL_H
#include "lang.h"

#define LETTERS 0x10F800u
#define LAST_LETTER (LETTERS - 1)
#define SURROGATES 0xD800u
#define LANG_MAX_STATES 200000u   /* of one language, before it is minimised too */
#define LANG_MAX_EDGES 4000000u
#define LANG_MAX_MIN 1000000u     /* the largest minLength that is held */

struct lang {
    uint32_t id, n_states;        /* n_states 0: the empty language, or one that only bounds the length */
    uint32_t is_length, min, max;
    uint32_t n_edges;
    const uint32_t *first;        /* n_states + 1: edges of a state */
    const lang_edge *edges;       /* letters */
    const uint8_t *accept;
    const uint32_t *distance;
    const uint64_t *count;
    uint64_t hash;
    const uint8_t *ascii_class;   /* 128, or NULL */
    const uint32_t *ascii;        /* n_states * n_classes targets */
    uint32_t n_classes;
};

typedef struct scratch_block {
    struct scratch_block *next;
    uint64_t size, used;
    unsigned char *data;
} scratch_block;

typedef struct scratch_mark {
    scratch_block *block;
    uint64_t used;
} scratch_mark;

typedef struct lang_memo {        /* the result of an operation on two languages */
    uint64_t key;                 /* op << 60 | a << 30 | b; 0: free */
    const lang *result;
} lang_memo;

struct lang_set {
    pool *pool;
    const lang **table;           /* open addressing, by hash */
    uint32_t n_langs, table_size;
    lang_memo *memo;
    uint32_t n_memo, memo_size;
    scratch_block *blocks, *current;
    const lang *empty, *all, *number_all, *number_held;
    struct lang_name *formats;    /* formats made so far (formats.c) */
};

/* An automaton in the making: states in any order, edges of a state disjoint and ascending (letters),
 * edges of state i at first[i] … first[i + 1] - 1. Belongs to scratch. */
typedef struct dfa {
    uint32_t n_states, start, n_edges, cap_states, cap_edges;
    uint32_t *first;
    lang_edge *edges;
    uint8_t *accept;
} dfa;

static inline uint32_t letter_of(uint32_t code_point) {
    return code_point >= 0xE000u ? code_point - 0x800u : code_point;
}
static inline uint32_t code_point_of(uint32_t letter) {
    return letter >= SURROGATES ? letter + 0x800u : letter;
}
static inline uint64_t mix64(uint64_t h, uint64_t v) {
    h = (h ^ v) * 0x9E3779B97F4A7C15u;
    return h ^ (h >> 29);
}

/* Scratch: aligned to 16, not zeroed; NULL once the pool has failed. */
void *scratch_alloc(lang_set *s, uint64_t bytes);
void *scratch_zero(lang_set *s, uint64_t bytes);
scratch_mark scratch_here(lang_set *s);
void scratch_release(lang_set *s, scratch_mark mark);

/* A dfa grows state by state: open one, add its edges ascending, open the next. 0: failed. */
int dfa_init(lang_set *s, dfa *d, uint32_t states, uint32_t edges);
int dfa_state(lang_set *s, dfa *d, int accepting);
int dfa_edge(lang_set *s, dfa *d, uint32_t lo, uint32_t hi, uint32_t to);   /* of the last state; adjacent ones are joined */
void dfa_close(dfa *d);           /* after the last edge */

/* The language of an automaton: trimmed, minimised, numbered canonically, interned. */
const lang *lang_from_dfa(lang_set *s, const dfa *d);
/* The same for one that is minimal and trimmed already. */
const lang *lang_from_minimal(lang_set *s, const dfa *d);
/* dfa_minimise (minimise.c): the trimmed, minimal automaton of d, in scratch; 0: failed. */
int dfa_minimise(lang_set *s, const dfa *d, dfa *out);

/* Decode one code point of valid UTF-8 at text[*at]; UINT32_MAX where it is malformed. */
uint32_t utf8_next(const char *text, uint64_t len, uint64_t *at);
uint32_t utf8_put(uint32_t code_point, char out[4]);

#endif
