/* regex_nfa.c: the nondeterministic automaton of a pattern's tree, repetitions unfolded, and the classes of
 * letters that no part of the pattern tells apart. Unfolding is capped and refused by name. */
#include <stdlib.h>
#include <string.h>

#include "regex_nfa.h"

void *roomier(lang_set *s, void *old, uint32_t n, uint32_t *cap, uint64_t size) {
    if (n < *cap)
        return old;
    uint32_t bigger = *cap ? *cap * 2 : 16;
    void *at = scratch_alloc(s, bigger * size);
    if (!at)
        return NULL;
    if (n)
        memcpy(at, old, n * size);
    *cap = bigger;
    return at;
}

/* ---- The nondeterministic automaton -------------------------------------------------------- */

uint32_t nfa_add(subset_machine *m, uint8_t kind, uint32_t a, uint32_t b) {
    if (m->n_nodes >= MAX_NFA) {
        (void)pool_fail(m->s->pool, ENGINE_EUNSUPPORTED,
                        "the pattern's repetitions unfold to more than %d places: lower their bounds", MAX_NFA);
        return REGEX_NONE;
    }
    nfa_node *nodes = roomier(m->s, m->nodes, m->n_nodes, &m->cap_nodes, sizeof *nodes);
    if (!nodes || !pool_step(m->s->pool, 1))
        return REGEX_NONE;
    m->nodes = nodes;
    nodes[m->n_nodes] = (nfa_node){kind, a, b};
    return m->n_nodes++;
}

static uint32_t build_repeat(subset_machine *m, const regex_node *n, uint32_t next) {
    uint32_t at = next;
    if (m->r->nodes[n->a].kind == NODE_EMPTY)
        return next;
    if (n->max == REGEX_NO_MAX) {
        at = nfa_add(m, NFA_SPLIT, REGEX_NONE, next);
        uint32_t body = at == REGEX_NONE ? at : regex_nfa_build(m, n->a, at);
        if (body == REGEX_NONE)
            return body;
        m->nodes[at].a = body;
    } else {
        for (uint32_t i = n->min; i < n->max && at != REGEX_NONE; i++) {
            uint32_t body = regex_nfa_build(m, n->a, at);
            at = body == REGEX_NONE ? body : nfa_add(m, NFA_SPLIT, body, next);
        }
    }
    for (uint32_t i = 0; i < n->min && at != REGEX_NONE; i++)
        at = regex_nfa_build(m, n->a, at);
    return at;
}

static uint32_t build_look(subset_machine *m, uint32_t tree, uint32_t next) {
    uint32_t i = 0;
    while (i < m->n_looks && m->looks[i].tree != tree)
        i++;
    if (i == MAX_LOOKS) {
        (void)pool_fail(m->s->pool, ENGINE_EUNSUPPORTED, "the pattern has more than %d lookaheads", MAX_LOOKS);
        return REGEX_NONE;
    }
    if (i == m->n_looks)
        m->looks[m->n_looks++] = (look){.tree = tree};
    return nfa_add(m, NFA_LOOK, next, i);
}

/* Nodes for a tree that go on at `next`; where they begin. Trees lean to the left, so `a` is looped on. */
uint32_t regex_nfa_build(subset_machine *m, uint32_t tree, uint32_t next) {
    const regex_node *n = &m->r->nodes[tree];
    uint32_t other = REGEX_NONE;
    for (uint32_t end = next; n->kind == NODE_CAT || n->kind == NODE_ALT; n = &m->r->nodes[n->a]) {
        if (n->kind == NODE_CAT && other != REGEX_NONE)
            break;
        if (n->kind == NODE_CAT) {
            next = end = regex_nfa_build(m, n->b, next);
            if (next == REGEX_NONE)
                return next;
            continue;
        }
        uint32_t branch = regex_nfa_build(m, n->b, end);
        other = branch == REGEX_NONE || other == REGEX_NONE ? branch : nfa_add(m, NFA_SPLIT, branch, other);
        if (other == REGEX_NONE)
            return other;
    }
    tree = (uint32_t)(n - m->r->nodes);
    uint32_t at = next;
    switch (n->kind) {
    case NODE_EMPTY:
        break;
    case NODE_CAT:
        at = regex_nfa_build(m, tree, next);
        break;
    case NODE_SET:
        at = nfa_add(m, NFA_SET, next, n->a);
        break;
    case NODE_REPEAT:
        at = build_repeat(m, n, next);
        break;
    case NODE_LOOK:
        at = build_look(m, tree, next);
        break;
    default:
        at = nfa_add(m, n->kind == NODE_BEGIN ? NFA_BEGIN : n->kind == NODE_END ? NFA_END
                        : n->kind == NODE_WORD ? NFA_WORD : NFA_NOT_WORD, next, 0);
    }
    return at == REGEX_NONE || other == REGEX_NONE ? at : nfa_add(m, NFA_SPLIT, at, other);
}

/* Whether all matches of a tree begin at the string's beginning. */
int regex_anchored(const regex *r, uint32_t tree) {
    const regex_node *n = &r->nodes[tree];
    while (n->kind == NODE_CAT)
        n = &r->nodes[n->a];
    for (; n->kind == NODE_ALT; n = &r->nodes[n->a]) {
        if (!regex_anchored(r, n->b))
            return 0;
    }
    if (n->kind == NODE_CAT)
        return regex_anchored(r, (uint32_t)(n - r->nodes));
    if (n->kind == NODE_REPEAT && n->min > 0)
        return regex_anchored(r, n->a);
    return n->kind == NODE_BEGIN;
}

/* ---- Classes of letters ---------------------------------------------------------------------- */

static int compare_u32(const void *pa, const void *pb) {
    uint32_t a = *(const uint32_t *)pa, b = *(const uint32_t *)pb;
    return (a > b) - (a < b);
}

/* Where any set, or any language of a lookahead, begins or ends: ascending, first 0. */
static int find_segments(subset_machine *m) {
    charset cuts = {0};
    charset word = {0};
    if (!charset_add(m->s, &cuts, 0, 0) || (m->uses_word && !charset_add_class(m->s, &word, 'w')))
        return 0;
    for (uint32_t i = 0; i <= m->r->n_sets; i++)
        if (!charset_add_set(m->s, &cuts, i < m->r->n_sets ? &m->r->sets[i] : &word))
            return 0;
    for (uint32_t i = 0; i < m->n_looks; i++) {
        for (uint32_t k = 0; k < CONTEXTS; k++) {
            const lang *l = m->looks[i].in[k];
            for (uint32_t e = 0; l && e < l->n_edges; e++)
                if (!charset_add(m->s, &cuts, l->edges[e].lo, l->edges[e].hi))
                    return 0;
        }
    }
    m->segment = scratch_alloc(m->s, (2ull * cuts.n + 1) * sizeof *m->segment);
    if (!m->segment)
        return 0;
    uint32_t n = 0, kept = 1;
    m->segment[n++] = 0;
    for (uint32_t i = 1; i < cuts.n; i++) {
        m->segment[n++] = cuts.ranges[i].lo;
        if (cuts.ranges[i].hi < LAST_LETTER)
            m->segment[n++] = cuts.ranges[i].hi + 1;
    }
    qsort(m->segment, n, sizeof *m->segment, compare_u32);
    for (uint32_t i = 1; i < n; i++)
        if (m->segment[i] != m->segment[kept - 1])
            m->segment[kept++] = m->segment[i];
    m->n_segments = kept;
    return pool_step(m->s->pool, n);
}

/* For each segment the sets that hold it: bit i of member[segment * words + i / 64]; \w is the last. */
static uint64_t *find_members(subset_machine *m, uint32_t words) {
    uint64_t *member = scratch_zero(m->s, (uint64_t)m->n_segments * words * sizeof *member);
    charset word = {0};
    if (!member || !charset_add_class(m->s, &word, 'w'))
        return NULL;
    for (uint32_t i = 0; i <= m->r->n_sets; i++) {
        const charset *c = i < m->r->n_sets ? &m->r->sets[i] : &word;
        if (i == m->r->n_sets && !m->uses_word)
            break;
        for (uint32_t k = 0, at = 0; k < c->n; k++) {
            uint32_t lo = at, hi = m->n_segments;
            while (hi - lo > 1) { /* the segment that begins with the range */
                uint32_t mid = lo + (hi - lo) / 2;
                if (m->segment[mid] <= c->ranges[k].lo)
                    lo = mid;
                else
                    hi = mid;
            }
            for (at = lo; at < m->n_segments && m->segment[at] <= c->ranges[k].hi; at++)
                member[(uint64_t)at * words + i / 64] |= 1ull << (i % 64);
            if (!pool_step(m->s->pool, at - lo + 1))
                return NULL;
        }
    }
    return member;
}

/* Number the segments' classes: by membership, or (with lookaheads) each segment its own. */
static int number_classes(subset_machine *m, const uint64_t *member, uint32_t words) {
    uint32_t size = 16;
    while (size < 2 * m->n_segments)
        size *= 2;
    uint32_t *table = scratch_alloc(m->s, size * sizeof *table), *of = m->segment_class;
    if (!table)
        return 0;
    memset(table, 0xFF, size * sizeof *table);
    for (uint32_t i = 0; i < m->n_segments; i++) {
        uint64_t h = m->n_looks ? i : 0;
        for (uint32_t w = 0; w < words; w++)
            h = mix64(h, member[(uint64_t)i * words + w]);
        uint32_t at = (uint32_t)h & (size - 1);
        while (table[at] != UINT32_MAX &&
               (m->n_looks || memcmp(member + (uint64_t)table[at] * words, member + (uint64_t)i * words,
                                     words * sizeof *member) != 0))
            at = (at + 1) & (size - 1);
        if (table[at] == UINT32_MAX) {
            table[at] = i;
            m->class_letter[m->n_classes] = m->segment[i];
            of[i] = m->n_classes++;
        } else {
            of[i] = of[table[at]];
        }
    }
    return 1;
}

int find_classes(subset_machine *m) {
    uint32_t n_sets = m->r->n_sets, words = n_sets / 64 + 1;
    if (!find_segments(m))
        return 0;
    uint64_t *member = find_members(m, words);
    m->segment_class = scratch_alloc(m->s, m->n_segments * sizeof *m->segment_class);
    m->class_letter = scratch_alloc(m->s, m->n_segments * sizeof *m->class_letter);
    m->set_classes = scratch_alloc(m->s, (n_sets + 1ull) * sizeof *m->set_classes);
    if (!member || !m->segment_class || !m->class_letter || !m->set_classes || !number_classes(m, member, words))
        return 0;
    m->class_is_word = scratch_zero(m->s, m->n_classes);
    uint32_t *first = scratch_alloc(m->s, m->n_classes * sizeof *first);  /* a segment of the class */
    if (!m->class_is_word || !first)
        return 0;
    for (uint32_t i = m->n_segments; i-- > 0;)
        first[m->segment_class[i]] = i;
    for (uint32_t i = 0; i <= n_sets; i++) {
        uint32_t *list = scratch_alloc(m->s, (m->n_classes + 1ull) * sizeof *list), n = 0;
        if (!list || !pool_step(m->s->pool, m->n_classes))
            return 0;
        for (uint32_t k = 0; k < m->n_classes; k++) {
            if (member[(uint64_t)first[k] * words + i / 64] >> (i % 64) & 1) {
                list[n++] = k;
                if (i == n_sets)
                    m->class_is_word[k] = 1;
            }
        }
        list[n] = REGEX_NONE;
        m->set_classes[i] = list;
    }
    return 1;
}
