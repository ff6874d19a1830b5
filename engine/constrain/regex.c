/* regex.c: the language of a pattern (lang.h): tree to nondeterministic automaton, to deterministic one.
 *
 * A state of the result is a set of threads. A thread is a node of the nondeterministic automaton and
 * a set of obligations: languages that the rest of the string must be in, which lookaheads put on it
 * (a negative one as a complement). So lookahead is held exactly wherever it stands. What decides ^
 * and \b is known when a character was read, and part of the state; $, and \b ahead of a character,
 * wait in the set until it is known what follows. Letters that no part of the pattern tells apart are
 * one class (regex_nfa.c). Every thread and edge is counted in the pool's steps; the caps of a language hold. */
#include <stdlib.h>
#include <string.h>

#include "regex_nfa.h"

static const lang *compile_tree(lang_set *s, const regex *r, uint32_t tree, uint32_t context, int search_before,
                                int search_after);

/* ---- Obligations ----------------------------------------------------------------------------- */

/* Whether everything is accepted from the state on. */
static int accepts_all(const lang *l, uint32_t state) {
    if (l->is_length)
        return l->max == LANG_NO_MAX && state >= l->min;
    uint32_t e = l->first[state];
    return l->accept[state] && l->first[state + 1] == e + 1 && l->edges[e].lo == 0 && l->edges[e].hi == LAST_LETTER &&
           l->edges[e].to == state;
}

static int duty_compare(const obligation *a, const obligation *b) {
    if (a->lang->id != b->lang->id)
        return a->lang->id < b->lang->id ? -1 : 1;
    return (a->state > b->state) - (a->state < b->state);
}

static int same_duty(const duties_of *d, const obligation *all, uint32_t n) {
    if (d->n != n)
        return 0;
    for (uint32_t i = 0; i < n; i++)
        if (duty_compare(&d->all[i], &all[i]) != 0)
            return 0;
    return 1;
}

static int grow_duties(subset_machine *m) {
    uint32_t size = m->duty_table_size ? m->duty_table_size * 2 : 16;
    uint32_t *table = scratch_alloc(m->s, size * sizeof *table);
    if (!table)
        return 0;
    memset(table, 0xFF, size * sizeof *table);
    for (uint32_t i = 0; i < m->n_duties; i++) {
        uint32_t at = (uint32_t)m->duties[i].hash & (size - 1);
        while (table[at] != UINT32_MAX)
            at = (at + 1) & (size - 1);
        table[at] = i;
    }
    m->duty_table = table;
    m->duty_table_size = size;
    return 1;
}

/* The number of a set of obligations given in any order; REGEX_NONE: failed. */
static uint32_t duty_number(subset_machine *m, obligation *all, uint32_t n) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        obligation o = all[i];
        uint32_t k = kept;
        while (k > 0 && duty_compare(&all[k - 1], &o) > 0)
            k--;
        if (k > 0 && duty_compare(&all[k - 1], &o) == 0)
            continue;
        memmove(all + k + 1, all + k, (kept - k) * sizeof *all);
        all[k] = o;
        kept++;
    }
    uint64_t h = 7;
    for (uint32_t i = 0; i < kept; i++)
        h = mix64(h, (uint64_t)all[i].lang->id << 32 | all[i].state);
    if (!pool_step(m->s->pool, 2ull * n + 1) || (2 * m->n_duties + 2 > m->duty_table_size && !grow_duties(m)))
        return REGEX_NONE;
    uint32_t at = (uint32_t)h & (m->duty_table_size - 1);
    for (; m->duty_table[at] != UINT32_MAX; at = (at + 1) & (m->duty_table_size - 1))
        if (m->duties[m->duty_table[at]].hash == h && same_duty(&m->duties[m->duty_table[at]], all, kept))
            return m->duty_table[at];
    duties_of *duties = roomier(m->s, m->duties, m->n_duties, &m->cap_duties, sizeof *duties);
    obligation *copy = scratch_alloc(m->s, (kept + 1ull) * sizeof *copy);
    if (!duties || !copy)
        return REGEX_NONE;
    if (kept)
        memcpy(copy, all, kept * sizeof *copy);
    m->duties = duties;
    m->duty_table[at] = m->n_duties;
    duties[m->n_duties] = (duties_of){copy, kept, h};
    return m->n_duties++;
}

enum { MAX_DUTY = 256 };

/* The duty with one obligation more, LANG_DEAD where it cannot be met. REGEX_NONE is both that and failure. */
static uint32_t duty_with(subset_machine *m, uint32_t number, const lang *l, uint32_t state) {
    obligation all[MAX_DUTY + 1];
    uint32_t n = m->duties[number].n;
    if (state == LANG_DEAD)
        return REGEX_NONE;
    if (accepts_all(l, state))
        return number;
    if (n == MAX_DUTY) {
        (void)pool_fail(m->s->pool, ENGINE_EUNSUPPORTED, "the pattern's lookaheads pile up beyond %d", MAX_DUTY);
        return REGEX_NONE;
    }
    memcpy(all, m->duties[number].all, n * sizeof *all);
    all[n] = (obligation){l, state};
    return duty_number(m, all, n + 1);
}

static uint32_t duty_after(subset_machine *m, uint32_t number, uint32_t letter) {
    obligation all[MAX_DUTY];
    uint32_t n = 0;
    if (number == 0)
        return 0;
    for (uint32_t i = 0; i < m->duties[number].n; i++) {
        obligation o = m->duties[number].all[i];
        uint32_t to = lang_step(o.lang, o.state, code_point_of(letter));
        if (to == LANG_DEAD)
            return REGEX_NONE;
        if (accepts_all(o.lang, to))
            continue;
        all[n++] = (obligation){o.lang, to};
    }
    return duty_number(m, all, n);
}

static int duty_met(const subset_machine *m, uint32_t number) {
    for (uint32_t i = 0; i < m->duties[number].n; i++)
        if (!lang_accepts(m->duties[number].all[i].lang, m->duties[number].all[i].state))
            return 0;
    return 1;
}

/* ---- Closures -------------------------------------------------------------------------------- */

/* What a closure may pass. next: -1 not known yet, 0 no word character (or the end), 1 one. */
typedef struct passing {
    uint32_t context;
    int next, at_end;
} passing;

static int push(subset_machine *m, uint32_t node, uint32_t duty) {
    if (node == REGEX_NONE || duty == REGEX_NONE)
        return m->s->pool->status == ENGINE_OK;
    if (m->seen[node] == m->stamp)
        return 1; /* there without obligations: this one adds nothing */
    if (duty == 0)
        m->seen[node] = m->stamp;
    for (uint32_t i = 0; duty && i < m->n_work; i++)
        if (m->work[i].node == node && m->work[i].duty == duty)
            return pool_step(m->s->pool, i);
    thread *work = roomier(m->s, m->work, m->n_work, &m->cap_work, sizeof *work);
    if (!work || !pool_step(m->s->pool, 1))
        return 0;
    m->work = work;
    work[m->n_work++] = (thread){node, duty};
    return 1;
}

/* Whether a node stays in a set as it is: it waits for a character, or for the end. */
static int stays(const subset_machine *m, uint32_t node, const passing *p) {
    switch (m->nodes[node].kind) {
    case NFA_SET:
    case NFA_MATCH:
    case NFA_REST:
        return 1;
    case NFA_END:
        return !p->at_end && p->next < 0;
    case NFA_WORD:
    case NFA_NOT_WORD:
        return p->next < 0;
    default:
        return 0;
    }
}

static int pass(subset_machine *m, thread t, const passing *p) {
    const nfa_node *n = &m->nodes[t.node];
    int boundary = p->next != ((p->context & CONTEXT_WORD) != 0);
    switch (n->kind) {
    case NFA_SPLIT:
        return push(m, n->a, t.duty) && push(m, n->b, t.duty);
    case NFA_BEGIN:
        return p->context & CONTEXT_START ? push(m, n->a, t.duty) : 1;
    case NFA_END:
        return p->at_end ? push(m, n->a, t.duty) : 1;
    case NFA_WORD:
        return boundary ? push(m, n->a, t.duty) : 1;
    case NFA_NOT_WORD:
        return boundary ? 1 : push(m, n->a, t.duty);
    default: {
        const lang *l = m->looks[n->b].in[p->context];
        uint32_t duty = duty_with(m, t.duty, l, lang_start(l));
        return push(m, n->a, duty);
    }
    }
}

/* Replace m->work by its closure: what stays, each once. Threads whose obligations include those of
 * another of the same node are left out. */
static int close_work(subset_machine *m, const passing *p) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < m->n_work; i++) {
        if (!stays(m, m->work[i].node, p) && !pass(m, m->work[i], p))
            return 0;
    }
    for (uint32_t i = 0; i < m->n_work; i++) {
        thread t = m->work[i];
        if (stays(m, t.node, p) && (t.duty == 0 || m->seen[t.node] != m->stamp))
            m->work[kept++] = t;
    }
    m->n_work = kept;
    return 1;
}

static void clear_work(subset_machine *m) {
    m->n_work = 0;
    m->stamp++;
}

/* ---- Deterministic states -------------------------------------------------------------------- */

static int compare_threads(const void *pa, const void *pb) {
    const thread *a = pa, *b = pb;
    if (a->node != b->node)
        return a->node < b->node ? -1 : 1;
    return (a->duty > b->duty) - (a->duty < b->duty);
}

static void sort_threads(thread *t, uint32_t n) {
    if (n > 24) {
        qsort(t, n, sizeof *t, compare_threads);
        return;
    }
    for (uint32_t i = 1; i < n; i++) {
        thread x = t[i];
        uint32_t k = i;
        for (; k > 0 && compare_threads(&t[k - 1], &x) > 0; k--)
            t[k] = t[k - 1];
        t[k] = x;
    }
}

static int grow_states(subset_machine *m) {
    uint32_t size = m->table_size ? m->table_size * 2 : 128;
    uint32_t *table = scratch_alloc(m->s, size * sizeof *table);
    if (!table)
        return 0;
    memset(table, 0xFF, size * sizeof *table);
    for (uint32_t i = 0; i < m->n_states; i++) {
        uint32_t at = (uint32_t)m->states[i].hash & (size - 1);
        while (table[at] != UINT32_MAX)
            at = (at + 1) & (size - 1);
        table[at] = i;
    }
    m->table = table;
    m->table_size = size;
    return 1;
}

/* The state whose set is m->work (closed); REGEX_NONE where it is empty or on failure. */
static uint32_t state_number(subset_machine *m, uint32_t context) {
    if (m->n_work == 0)
        return REGEX_NONE;
    for (uint32_t i = 0; i < m->n_work; i++) {
        if (m->nodes[m->work[i].node].kind == NFA_REST && m->work[i].duty == 0) {
            m->work[0] = m->work[i]; /* whatever else is there, everything is accepted */
            m->n_work = 1;
            context = 0;
        }
    }
    sort_threads(m->work, m->n_work);
    uint64_t h = mix64(3, context);
    for (uint32_t i = 0; i < m->n_work; i++)
        h = mix64(h, (uint64_t)m->work[i].node << 32 | m->work[i].duty);
    if (2 * m->n_states + 2 > m->table_size && !grow_states(m))
        return REGEX_NONE;
    uint32_t at = (uint32_t)h & (m->table_size - 1);
    for (; m->table[at] != UINT32_MAX; at = (at + 1) & (m->table_size - 1)) {
        const state_set *x = &m->states[m->table[at]];
        if (x->hash == h && x->n == m->n_work && x->context == context &&
            memcmp(x->threads, m->work, m->n_work * sizeof *m->work) == 0)
            return m->table[at];
    }
    state_set *states = roomier(m->s, m->states, m->n_states, &m->cap_states, sizeof *states);
    thread *copy = scratch_alloc(m->s, m->n_work * sizeof *copy);
    if (!states || !copy)
        return REGEX_NONE;
    memcpy(copy, m->work, m->n_work * sizeof *copy);
    m->states = states;
    m->table[at] = m->n_states;
    states[m->n_states] = (state_set){copy, m->n_work, context, h};
    return m->n_states++;
}

/* m->work = the threads of a state, closed again with more known. */
static int reopen(subset_machine *m, uint32_t state, const passing *p) {
    clear_work(m);
    for (uint32_t i = 0; i < m->states[state].n; i++)
        if (!push(m, m->states[state].threads[i].node, m->states[state].threads[i].duty))
            return 0;
    return close_work(m, p);
}

static int waits(const subset_machine *m, uint32_t state, int for_word) {
    for (uint32_t i = 0; i < m->states[state].n; i++) {
        uint8_t kind = m->nodes[m->states[state].threads[i].node].kind;
        if (kind == NFA_WORD || kind == NFA_NOT_WORD || (!for_word && kind == NFA_END))
            return 1;
    }
    return 0;
}

/* 1 accepts, 0 not, -1 failed. */
static int state_accepts(subset_machine *m, uint32_t state) {
    const state_set *x = &m->states[state];
    const thread *threads = x->threads;
    uint32_t n = x->n;
    if (waits(m, state, 0)) {
        passing p = {.context = x->context, .next = 0, .at_end = 1};
        if (!reopen(m, state, &p))
            return -1;
        threads = m->work;
        n = m->n_work;
    }
    for (uint32_t i = 0; i < n; i++) {
        uint8_t kind = m->nodes[threads[i].node].kind;
        if ((kind == NFA_MATCH || kind == NFA_REST) && duty_met(m, threads[i].duty))
            return 1;
    }
    return 0;
}

static int add_move(subset_machine *m, uint32_t class, uint32_t node, uint32_t duty) {
    thread *moves = roomier(m->s, m->moves[class], m->n_moves[class], &m->cap_moves[class], sizeof *moves);
    if (!moves || !pool_step(m->s->pool, 1))
        return 0;
    m->moves[class] = moves;
    moves[m->n_moves[class]++] = (thread){node, duty};
    return 1;
}

/* Put where the threads go into m->moves, for the classes that are (or are not) word characters; both: 2. */
static int move_threads(subset_machine *m, const thread *threads, uint32_t n, int word) {
    for (uint32_t i = 0; i < n; i++) {
        const nfa_node *node = &m->nodes[threads[i].node];
        if (node->kind != NFA_SET && node->kind != NFA_REST)
            continue;
        int rest = node->kind == NFA_REST;
        uint32_t count = 0;
        const uint32_t *list = rest ? NULL : m->set_classes[node->b];
        for (uint32_t k = rest ? 0 : list[0]; rest ? k < m->n_classes : k != REGEX_NONE;
             k = rest ? k + 1 : list[++count]) {
            if (word != 2 && m->class_is_word[k] != word)
                continue;
            uint32_t duty = duty_after(m, threads[i].duty, m->class_letter[k]);
            if (duty == REGEX_NONE) {
                if (m->s->pool->status != ENGINE_OK)
                    return 0;
                continue;
            }
            if (!add_move(m, k, rest ? threads[i].node : node->a, duty))
                return 0;
        }
    }
    return 1;
}

static int fill_moves(subset_machine *m, uint32_t state) {
    memset(m->n_moves, 0, m->n_classes * sizeof *m->n_moves);
    if (!waits(m, state, 1))
        return move_threads(m, m->states[state].threads, m->states[state].n, 2);
    for (int word = 0; word < 2; word++) {
        passing p = {.context = m->states[state].context, .next = word};
        if (!reopen(m, state, &p) || !move_threads(m, m->work, m->n_work, word))
            return 0;
    }
    return 1;
}

/* The class before k whose letters lead to the same places; k itself where there is none. */
static uint32_t same_moves(const subset_machine *m, uint32_t k) {
    for (uint32_t i = 0; i < m->n_kinds; i++) {
        uint32_t other = m->kinds[i];
        if (m->n_moves[other] == m->n_moves[k] &&
            (!m->uses_word || m->class_is_word[other] == m->class_is_word[k]) &&
            memcmp(m->moves[other], m->moves[k], m->n_moves[k] * sizeof **m->moves) == 0)
            return other;
    }
    return k;
}

/* The state behind each class of letters: target[class], REGEX_NONE where there is none. */
static int state_targets(subset_machine *m, uint32_t state, uint32_t *target) {
    if (!fill_moves(m, state))
        return 0;
    m->n_kinds = 0;
    for (uint32_t k = 0; k < m->n_classes; k++) {
        target[k] = REGEX_NONE;
        if (m->n_moves[k] == 0)
            continue;
        uint32_t same = same_moves(m, k);
        if (same != k) {
            target[k] = target[same];
            continue;
        }
        m->kinds[m->n_kinds++] = k;
        clear_work(m);
        for (uint32_t i = 0; i < m->n_moves[k]; i++)
            if (!push(m, m->moves[k][i].node, m->moves[k][i].duty))
                return 0;
        uint32_t context = m->uses_word && m->class_is_word[k] ? CONTEXT_WORD : 0;
        passing p = {.context = context, .next = -1};
        if (!close_work(m, &p))
            return 0;
        target[k] = state_number(m, context);
    }
    return pool_step(m->s->pool, (uint64_t)m->n_classes);
}

static int explore(subset_machine *m, dfa *d) {
    uint32_t *target = scratch_alloc(m->s, m->n_classes * sizeof *target);
    if (!target || !dfa_init(m->s, d, 32, 64))
        return 0;
    for (uint32_t i = 0; i < m->n_states; i++) {
        int accepts = state_accepts(m, i);
        if (accepts < 0 || !dfa_state(m->s, d, accepts) || !state_targets(m, i, target))
            return 0;
        for (uint32_t k = 0; k < m->n_segments; k++) {
            uint32_t to = target[m->segment_class[k]];
            uint32_t end = k + 1 < m->n_segments ? m->segment[k + 1] - 1 : LAST_LETTER;
            if (to != REGEX_NONE && !dfa_edge(m->s, d, m->segment[k], end, to))
                return 0;
        }
    }
    dfa_close(d);
    return 1;
}

/* ---- The whole ------------------------------------------------------------------------------- */

/* The languages that lookaheads put on the rest of the string, in each context that can arise. */
static int compile_looks(subset_machine *m) {
    for (uint32_t i = 0; i < m->n_looks; i++) {
        const regex_node *n = &m->r->nodes[m->looks[i].tree];
        for (uint32_t context = 0; context < CONTEXTS; context++) {
            uint32_t same = n->uses_word ? context : n->uses_begin ? context & CONTEXT_START : 0;
            const lang *l = m->looks[i].in[same];
            if (same == context) {
                l = compile_tree(m->s, m->r, n->a, context, 0, 1);
                l = l && n->negative ? lang_not(m->s, l) : l;
            }
            if (!l)
                return 0;
            m->looks[i].in[context] = l;
        }
    }
    return 1;
}

static int prepare(subset_machine *m, uint32_t context) {
    m->seen = scratch_zero(m->s, m->n_nodes * sizeof *m->seen);
    m->moves = scratch_zero(m->s, m->n_classes * sizeof *m->moves);
    m->n_moves = scratch_zero(m->s, m->n_classes * sizeof *m->n_moves);
    m->cap_moves = scratch_zero(m->s, m->n_classes * sizeof *m->cap_moves);
    m->kinds = scratch_alloc(m->s, m->n_classes * sizeof *m->kinds);
    if (!m->kinds || !m->seen || !m->moves || !m->n_moves || !m->cap_moves || duty_number(m, NULL, 0) != 0)
        return 0;
    clear_work(m);
    passing p = {.context = context, .next = -1};
    if (!push(m, m->entry, 0) || !close_work(m, &p))
        return 0;
    (void)state_number(m, context);
    return m->s->pool->status == ENGINE_OK;
}

static const lang *compile_tree(lang_set *s, const regex *r, uint32_t tree, uint32_t context, int search_before,
                                int search_after) {
    scratch_mark mark = scratch_here(s);
    const lang *result = NULL;
    subset_machine *m = scratch_zero(s, sizeof *m);
    dfa d;
    if (!m)
        return NULL;
    m->s = s;
    m->r = r;
    m->uses_word = r->nodes[tree].uses_word;
    uint32_t end = nfa_add(m, search_after ? NFA_REST : NFA_MATCH, REGEX_NONE, 0);
    m->entry = end == REGEX_NONE ? end : regex_nfa_build(m, tree, end);
    if (m->entry != REGEX_NONE && search_before && !regex_anchored(r, tree)) {
        uint32_t loop = nfa_add(m, NFA_SPLIT, m->entry, REGEX_NONE);
        uint32_t any = loop == REGEX_NONE ? loop : nfa_add(m, NFA_SET, loop, r->n_sets - 1);
        if (any != REGEX_NONE)
            m->nodes[loop].b = any;
        m->entry = any == REGEX_NONE ? any : loop;
    }
    if (m->entry == REGEX_NONE || !compile_looks(m) || !find_classes(m) || !prepare(m, context))
        goto done;
    if (m->n_states == 0)
        result = s->empty;
    else if (explore(m, &d))
        result = lang_from_dfa(s, &d);
done:
    scratch_release(s, mark);
    return result;
}

/* The set of all letters becomes the last one. */
static int add_any(lang_set *s, regex *r) {
    charset *sets = scratch_alloc(s, (r->n_sets + 1ull) * sizeof *sets);
    charset any = {0};
    if (!sets || !charset_add(s, &any, 0, LAST_LETTER))
        return 0;
    if (r->n_sets)
        memcpy(sets, r->sets, r->n_sets * sizeof *sets);
    sets[r->n_sets++] = any;
    r->sets = sets;
    return 1;
}

const lang *lang_regex(lang_set *s, const char *pattern, uint64_t len, int search) {
    scratch_mark mark = scratch_here(s);
    regex r;
    const lang *result = NULL;
    if (regex_parse(s, &r, pattern, len) && add_any(s, &r))
        result = compile_tree(s, &r, r.root, CONTEXT_START, search, search);
    scratch_release(s, mark);
    return result;
}
