/* regex_nfa.h: what the two halves of the maker of automata share: the nondeterministic automaton of a
 * pattern and its classes of letters (regex_nfa.c), and the sets of threads built on them (regex.c). All of it
 * lives in scratch. */
#ifndef GAUGEBLOCK_CONSTRAIN_REGEX_NFA_H
#define GAUGEBLOCK_CONSTRAIN_REGEX_NFA_H
#include "regex.h"

enum { MAX_NFA = 400000, MAX_LOOKS = 64 };

enum { NFA_SET, NFA_SPLIT, NFA_BEGIN, NFA_END, NFA_WORD, NFA_NOT_WORD, NFA_LOOK, NFA_MATCH, NFA_REST };

/* What is known before the next character: nothing was read; the last character was one of \w. */
enum { CONTEXT_START = 1, CONTEXT_WORD = 2, CONTEXTS = 3 };

typedef struct nfa_node {
    uint8_t kind;
    uint32_t a, b;        /* where to; SET: a, set b; LOOK: a, look b */
} nfa_node;

typedef struct thread {
    uint32_t node, duty;  /* duty: a set of obligations, 0 the empty one */
} thread;

typedef struct obligation {
    const lang *lang;
    uint32_t state;
} obligation;

typedef struct duties_of {
    obligation *all;      /* ordered by language and state, no two equal */
    uint32_t n;
    uint64_t hash;
} duties_of;

typedef struct look {
    uint32_t tree;        /* the node of the tree */
    const lang *in[CONTEXTS];  /* by context: the rest of the string must be in it */
} look;

typedef struct state_set {
    thread *threads;
    uint32_t n, context;
    uint64_t hash;
} state_set;

typedef struct subset_machine {
    lang_set *s;
    const regex *r;
    nfa_node *nodes;
    uint32_t n_nodes, cap_nodes, entry;
    look looks[MAX_LOOKS];
    uint32_t n_looks;
    int uses_word;
    /* classes of letters */
    uint32_t *segment, *segment_class;   /* first letter of a segment, and its class */
    uint32_t n_segments, n_classes;
    uint32_t *class_letter;              /* a letter of the class */
    uint8_t *class_is_word;
    uint32_t **set_classes;              /* classes of a set, ended by REGEX_NONE */
    /* states */
    state_set *states;
    uint32_t n_states, cap_states, *table, table_size;
    uint32_t universal;                  /* the state that accepts everything, or REGEX_NONE */
    /* work */
    thread *work, *bucket;
    uint32_t n_work, cap_work;
    uint32_t *seen, stamp;               /* by node: in this closure with no obligations */
    thread **moves;                      /* by class */
    uint32_t *n_moves, *cap_moves;
    uint32_t *kinds, n_kinds;            /* classes that lead to different places, of one state */
    duties_of *duties;
    uint32_t n_duties, cap_duties, *duty_table, duty_table_size;
} subset_machine;

/* A copy of an array with room for one more; NULL: failed. */
void *roomier(lang_set *s, void *old, uint32_t n, uint32_t *cap, uint64_t size);
uint32_t nfa_add(subset_machine *m, uint8_t kind, uint32_t a, uint32_t b);   /* REGEX_NONE: failed */
/* Nodes for a tree that go on at `next`; where they begin. */
uint32_t regex_nfa_build(subset_machine *m, uint32_t tree, uint32_t next);
/* Whether all matches of a tree begin at the string's beginning. */
int regex_anchored(const regex *r, uint32_t tree);
/* Sort the letters into classes that nothing in the pattern tells apart; 0: failed. */
int find_classes(subset_machine *m);

#endif
