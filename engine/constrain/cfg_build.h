/* cfg_build.h: between the two halves of building: rules as one nondeterministic automaton
 * (cfg_nfa.c), and the automata that the recogniser runs on (cfg_build.c). */
#ifndef GAUGEBLOCK_CONSTRAIN_CFG_BUILD_H
#define GAUGEBLOCK_CONSTRAIN_CFG_BUILD_H
#include "cfg.h"

#define NFA_EMPTY UINT32_MAX   /* an edge that reads nothing */
#define NFA_CALL 0x10000u      /* plus a rule; less: lo << 8 | hi, bytes */
#define NFA_STRICT 0x80000000u /* with NFA_CALL: taken only where the rule reads something */

typedef struct nfa_edge {
    uint32_t from, to, label;
} nfa_edge;

/* Rule r of the source begins at state 2 * r and ends at 2 * r + 1; the document is rule n_rules - 1. */
typedef struct nfa {
    cfg_source *s;
    uint32_t n_rules, n_states;
    nfa_edge *edges;         /* sorted by from, once made */
    uint64_t n_edges, room;
    uint64_t *first;         /* n_states + 1 */
    uint32_t *distance;      /* of a state to the end of its rule, in bytes; CFG_INFINITE */
    uint8_t *inlined;        /* by rule: its calls are copies of its body */
    uint8_t *nullable;       /* by rule: admits the empty text */
    uint8_t *needed;         /* by rule: some call of it is none */
    uint32_t *queue, n_queue; /* the rules that are needed */
    int capped;              /* a distance above the limit was met */
    uint32_t depth;          /* of copies within copies */
} nfa;

static inline int nfa_is_call(uint32_t label)
{
    return label >= NFA_CALL && label != NFA_EMPTY;
}

static inline uint32_t nfa_rule(uint32_t label)
{
    return (label & ~NFA_STRICT) - NFA_CALL;
}

static inline uint32_t nfa_cost(const nfa *a, uint32_t rule)
{
    return a->distance[2 * rule];
}

/* All rules, with distances. */
engine_status cfg_nfa_build(nfa *a, cfg_source *s, const cfg_expr *document);

#endif
