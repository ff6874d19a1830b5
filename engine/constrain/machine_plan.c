/* machine_plan.c: what an item of the machine still needs, and the fewest bytes that give it. Exact for
 * arrays and objects, but for three kinds where the bytes are a lower bound (machine->search is then
 * set, and endings are searched): unique arrays, `some`, and implications beside a minimum of members.
 * Refuses nothing; all arithmetic saturates. */
#include "machine_int.h"

#include <stdlib.h>
#include <string.h>

uint32_t add_cost(uint32_t a, uint32_t b)
{
    if (a == NONE || b == NONE)
        return NONE;
    return a > NONE - 1 - b ? NONE - 1 : a + b;
}

static uint32_t mul_cost(uint32_t a, uint32_t b)
{
    if (a == NONE)
        return b ? NONE : 0;
    uint64_t product = (uint64_t)a * b;
    return product < NONE - 1 ? (uint32_t)product : NONE - 1;
}

int node_fits(const machine *m, uint32_t node, uint32_t depth)
{
    const nodeinfo *n = &m->nodes[node];
    return n->cost != NONE && depth + n->height <= MACHINE_MAX_NESTING;
}

uint32_t option_cost(const machine *m, const option *o, uint32_t depth)
{
    return node_fits(m, o->node, depth) ? m->nodes[o->node].cost : NONE;
}

uint32_t options_of(const option *options, const uint32_t *first, uint32_t i, const option **out)
{
    *out = options + (first ? first[i] : i);
    return first ? first[i + 1] - first[i] : 1;
}

/* The cheapest way to read a member or item with `counts`, or without. */
static plan best_option(const machine *m, const option *options, const uint32_t *first, uint32_t i,
                        uint32_t counts, uint32_t depth)
{
    const option *at;
    plan best = {NONE, 0};
    for (uint32_t n = options_of(options, first, i, &at); n > 0; n--, at++) {
        uint32_t cost = at->counts == counts ? option_cost(m, at, depth) : NONE;
        uint32_t height = cost != NONE ? m->nodes[at->node].height : 0;
        if (cost < best.cost || (cost == best.cost && height < best.height))
            best = (plan){cost, height};
    }
    return best;
}

static plan plan_add(plan a, plan b)
{
    return (plan){add_cost(a.cost, b.cost), a.height > b.height ? a.height : b.height};
}

static plan plan_min(plan a, plan b)
{
    if (a.cost != b.cost)
        return a.cost < b.cost ? a : b;
    return a.height <= b.height ? a : b;
}

/* ---- Arrays --------------------------------------------------------------------------------- */

/* The k cheapest values that the unique array does not have yet. 0: they are not known. */
static int plan_unused(const arrinfo *ai, const seen *used, uint32_t k, plan *out)
{
    uint32_t total = 0;
    if (ai->n_cheapest == 0 || (used && used->n + k > ai->a->min_items)) /* so many of each kind are known */
        return 0;
    for (uint32_t i = 0; k > 0 && i < ai->n_cheapest; i++) {
        const seen *value = ai->cheapest[i].value;
        if (seen_has(used, value->kind, value->bytes, value->len))
            continue;
        total = add_cost(total, ai->cheapest[i].cost);
        k--;
    }
    if (k > 0)
        return 0;
    *out = (plan){total, 0};
    return 1;
}

/* k items from the homogeneous tail, of which those counted meet what `contains` still needs. Without a
 * maximum a counted item is as well an uncounted one, and never cheaper. */
static plan plan_tail(const machine *m, const arrinfo *ai, const item *it, uint32_t k, uint32_t depth)
{
    uint32_t tail = ai->a->n_prefix, n_contains = ai->a->n_contains, others = k;
    plan other = best_option(m, ai->options, ai->first, tail, 0, depth), total = {0, 0};
    for (uint32_t j = 0; j < n_contains; j++) {
        const ir_contains *c = &ai->a->contains[j];
        uint32_t n = c->min > it->counted[j] ? c->min - it->counted[j] : 0;
        plan counted = best_option(m, ai->options, ai->first, tail, j + 1, depth);
        others -= n;
        if (c->max != IR_NO_MAX && counted.cost < other.cost) {
            uint32_t more = c->max - it->counted[j] - n;
            more = more < others ? more : others;
            n += more;
            others -= more;
        }
        if (n)
            total = plan_add(total, (plan){mul_cost(counted.cost, n), counted.height});
    }
    if (others)
        total = plan_add(total, (plan){mul_cost(other.cost, others), other.height});
    return total;
}

static plan with_commas(plan total, uint32_t before, uint32_t added)
{
    uint32_t commas = added == 0 ? 0 : before ? added : added - 1;
    return plan_add(total, (plan){add_cost(commas, 1), 0}); /* and the closing bracket */
}

plan plan_array(const machine *m, const item *it, const situation *s)
{
    const arrinfo *ai = it->alt;
    const ir_array *a = ai->a;
    uint32_t least = a->min_items > it->count ? a->min_items - it->count : 0;
    if (least < s->at_least)
        least = s->at_least;
    if (it->count > ai->max || least > ai->max - it->count)
        return (plan){NONE, 0};
    if (a->unique && ai->values != LANG_INFINITE && it->count >= a->n_prefix &&
        (uint64_t)(it->count - a->n_prefix) + least > ai->values)
        return (plan){NONE, 0};
    uint32_t prefix = it->count < a->n_prefix ? a->n_prefix - it->count : 0;
    uint64_t need = 0;
    for (uint32_t j = 0; j < a->n_contains; j++)
        need += a->contains[j].min > it->counted[j] ? a->contains[j].min - it->counted[j] : 0;
    if (need && need + prefix > least) {
        if (need + prefix > ai->max - it->count)
            return (plan){NONE, 0};
        least = (uint32_t)need + prefix;
    }
    plan total = {0, 0};
    for (uint32_t i = 0; i < prefix && i < least; i++)
        total = plan_add(total, best_option(m, ai->options, ai->first, it->count + i, 0, s->depth));
    if (least > prefix && !plan_unused(ai, s->seen, least - prefix, &total))
        total = plan_add(total, plan_tail(m, ai, it, least - prefix, s->depth));
    return with_commas(total, it->count, least);
}

/* ---- Words of a language in order of bytes -------------------------------------------------- */

typedef struct search {
    const lang *l;
    const objinfo *o;
    const situation *s;
    char *word;
    uint32_t len, room, n, want, exact;
    uint64_t met;                /* words found, with those excluded */
    uint32_t *costs;
    spelled *first;              /* the first n_first of them */
    uint32_t n_first;
    uint64_t effort;
    int failed;
    seen_index taken;            /* keys or items seen */
} search;

static int excluded(const search *q)
{
    if (q->s->word && q->s->word_len == q->len && memcmp(q->s->word, q->word, q->len) == 0)
        return 1;
    if (seen_index_has(&q->taken, 'k', q->word, q->len) || seen_index_has(&q->taken, 's', q->word, q->len))
        return 1;
    uint32_t index;
    return word_declared(q->o, q->word, q->len, &index);
}

typedef struct level {       /* one character of the word being spelled */
    uint32_t state, cp, len, spent;
} level;

static void found_word(search *q)
{
    q->met++;
    if (excluded(q))
        return;
    if (q->n < q->n_first) {
        spelled *to = &q->first[q->n];
        to->word = malloc(q->len + 1u);
        if (to->word == NULL) {
            q->failed = 1;
            return;
        }
        memcpy(to->word, q->word, q->len);
        to->len = q->len;
    }
    q->costs[q->n++] = q->exact;
}

/* All words that take exactly q->exact more bytes, depth first with a stack of its own. */
static void words_of_cost(search *q, uint32_t start, level *stack, uint32_t max_levels)
{
    uint32_t top = 0, base = q->len;
    stack[0] = (level){start, 0, base, 0};
    if (q->exact == 0 && lang_accepts(q->l, start))
        found_word(q);
    while (q->n < q->want && !q->failed) {
        level *at = &stack[top];
        lang_edge e = {0, 0, 0};
        int found = at->spent < q->exact && lang_next_edge(q->l, at->state, at->cp, &e);
        if (++q->effort > 4000000)
            q->failed = 1;
        if (!found) {
            if (top-- == 0)
                return;
            continue;
        }
        uint32_t cp = e.lo, to = e.to, spent = at->spent + char_bytes(cp), rest = lang_distance(q->l, to);
        at->cp = cp + 1;
        if (rest == NONE || spent > q->exact || rest > q->exact - spent) {
            if (cp >= 0x80) /* later ones of the edge take no fewer bytes */
                at->cp = e.hi + 1;
            continue;
        }
        if (top + 1 >= max_levels || at->len + 4 > q->room) {
            q->failed = 1;
            return;
        }
        q->len = at->len + utf8_write(cp, (uint8_t *)q->word + at->len);
        if (spent == q->exact) {
            if (lang_accepts(q->l, to))
                found_word(q);
        } else {
            stack[++top] = (level){to, 0, q->len, spent};
        }
    }
}

#define MAX_LEVELS (1u << 20) /* bytes of a word that a filler may take */

/* Room for words of `exact` more bytes. */
static int grow_levels(search *q, level **stack, uint32_t *levels)
{
    if (q->exact + 2 <= *levels)
        return 1;
    uint32_t n = (q->exact + 2) * 2;
    char *word = n > MAX_LEVELS ? NULL : realloc(q->word, q->len + (size_t)n * 4);
    if (word == NULL)
        return 0;
    q->word = word;
    q->room = q->len + n * 4;
    level *grown = realloc(*stack, n * sizeof **stack);
    if (grown == NULL)
        return 0;
    *stack = grown;
    *levels = n;
    return 1;
}

uint32_t cheapest_words(const lang *l, uint32_t state, const char *prefix, uint32_t prefix_len, const objinfo *o,
                        const situation *s, uint32_t n, uint32_t *costs, uint32_t n_first, spelled *first)
{
    uint32_t least = state == LANG_DEAD ? NONE : lang_distance(l, state), levels = 0;
    if (least == NONE || n == 0)
        return 0;
    uint64_t count = lang_count(l, state);
    search q = {.l = l, .o = o, .s = s, .want = n, .costs = costs, .first = first, .n_first = n_first,
                .len = prefix_len};
    level *stack = NULL;
    seen_index_open(&q.taken, s->seen);
    for (q.exact = least; q.n < n && q.met < count && !q.failed; q.exact++) {
        q.len = prefix_len;
        if (!grow_levels(&q, &stack, &levels))
            break;
        if (prefix_len)
            memcpy(q.word, prefix, prefix_len);
        words_of_cost(&q, state, stack, levels);
    }
    free(q.word);
    seen_index_close(&q.taken);
    free(stack);
    return q.n;
}

/* ---- Objects -------------------------------------------------------------------------------- */

#define MAX_WORDS 1024 /* bit sets on the stack: 65,536 declared keys */

static int has(const uint64_t *bits, uint32_t i)
{
    return (int)(bits[i >> 6] >> (i & 63) & 1);
}

/* Keys that must still come: required ones, and by implication from those seen and those. */
static void pending_keys(const objinfo *o, const uint64_t *taken, uint64_t *need)
{
    for (uint32_t w = 0; w < o->n_words; w++)
        need[w] = o->required[w] & ~taken[w];
    for (int grew = o->o->n_implies > 0; grew;) {
        grew = 0;
        for (uint32_t i = 0; i < o->o->n_implies; i++) {
            uint32_t a = o->rank[o->o->implies[i].if_key], b = o->rank[o->o->implies[i].then_key];
            if ((has(taken, a) || has(need, a)) && !has(taken, b) && !has(need, b)) {
                need[b >> 6] |= 1ull << (b & 63);
                grew = 1;
            }
        }
    }
}

/* Whether sorted key k may still come. */
static int key_open_to(const machine *m, const objinfo *o, const item *it, uint32_t k, uint32_t depth)
{
    if (!(m->flags & DOC_ORDER_ANY) && o->decl[k] < it->next)
        return 0;
    return best_option(m, o->options, o->first, k, 0, depth).cost != NONE;
}

/* With all that it implies. */
static int implied_open(const machine *m, const objinfo *o, const item *it, uint32_t k, const uint64_t *taken,
                        uint32_t depth)
{
    if (o->o->n_implies == 0)
        return 1;
    uint64_t marked[MAX_WORDS];
    memset(marked, 0, o->n_words * sizeof *marked);
    marked[k >> 6] |= 1ull << (k & 63);
    for (int grew = 1; grew;) {
        grew = 0;
        for (uint32_t i = 0; i < o->o->n_implies; i++) {
            uint32_t a = o->rank[o->o->implies[i].if_key], b = o->rank[o->o->implies[i].then_key];
            if (!has(marked, a) || has(marked, b) || has(taken, b))
                continue;
            if (!key_open_to(m, o, it, b, depth))
                return 0;
            marked[b >> 6] |= 1ull << (b & 63);
            grew = 1;
        }
    }
    return 1;
}

typedef struct tally {       /* what an object's further members cost */
    plan total;              /* of those that must come, each in its cheapest way */
    uint32_t n;              /* how many those are */
    uint32_t *fill;          /* costs of the others, cheapest first */
    uint32_t n_fill, height;
} tally;

static int by_cost(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static int add_needed(const machine *m, const item *it, const uint64_t *need, uint32_t depth, tally *t)
{
    const objinfo *o = it->alt;
    for (uint32_t w = 0; w < o->n_words; w++)
        for (uint64_t bits = need[w]; bits; bits &= bits - 1) {
            uint32_t k = w * 64 + (uint32_t)__builtin_ctzll(bits);
            if (!key_open_to(m, o, it, k, depth))
                return 0;
            plan value = best_option(m, o->options, o->first, k, 0, depth);
            value.cost = add_cost(value.cost, add_cost(o->bytes[k], 3));
            t->total = plan_add(t->total, value);
            if (t->total.cost == NONE)
                return 0;
            t->n++;
        }
    return 1;
}

/* Costs of up to `extra` more members beyond those needed, cheapest first. */
static int add_fillers(const machine *m, const item *it, const situation *s, const uint64_t *taken,
                       const uint64_t *need, uint32_t extra, tally *t)
{
    const objinfo *o = it->alt;
    uint64_t room = (uint64_t)o->n_keys + ((uint64_t)extra + 1) * o->n_rest + 1;
    t->fill = malloc(room * sizeof *t->fill);
    if (t->fill == NULL)
        return 0;
    for (uint32_t k = 0; k < o->n_keys; k++) {
        if (has(taken, k) || has(need, k) || !key_open_to(m, o, it, k, s->depth) ||
            !implied_open(m, o, it, k, taken, s->depth))
            continue;
        plan value = best_option(m, o->options, o->first, k, 0, s->depth);
        if (value.cost == NONE)
            continue;
        t->height = value.height > t->height ? value.height : t->height;
        t->fill[t->n_fill++] = add_cost(value.cost, add_cost(o->bytes[k], 3));
    }
    for (uint32_t r = 0; r < o->n_rest; r++) {
        plan value = best_option(m, o->options, o->first, o->n_keys + r, 0, s->depth);
        if (value.cost == NONE)
            continue;
        uint32_t *costs = t->fill + t->n_fill;
        uint32_t more = r == s->minus, n = cheapest_words(o->o->rest[r].keys, lang_start(o->o->rest[r].keys), NULL, 0,
                                                           o, s, extra + more, costs, 0, NULL);
        n -= n > 0 ? more : 0; /* one of them is the key being read */
        for (uint32_t i = 0; i < n; i++)
            costs[i] = add_cost(costs[i], add_cost(value.cost, 3));
        if (n)
            t->height = value.height > t->height ? value.height : t->height;
        t->n_fill += n;
    }
    qsort(t->fill, t->n_fill, sizeof *t->fill, by_cost);
    return 1;
}

/* Keys of rest r that are not taken. */
static uint64_t rest_left(const objinfo *o, uint32_t r, const situation *s)
{
    const lang *l = o->o->rest[r].keys;
    uint64_t count = lang_is_empty(l) ? 0 : lang_count(l, lang_start(l)), taken = 0;
    uint32_t index;
    if (count == LANG_INFINITE)
        return count;
    for (uint32_t k = 0; k < o->n_keys; k++)
        taken += (uint64_t)lang_holds(l, o->key[k]->text, o->key[k]->len);
    for (const seen *k = s->seen; k; k = k->prev)
        taken += lang_holds(l, k->bytes, k->len) && !word_declared(o, k->bytes, k->len, &index);
    if (s->word && !word_declared(o, s->word, s->word_len, &index))
        taken += (uint64_t)lang_holds(l, s->word, s->word_len);
    return count - taken - (r == s->minus && count > taken);
}

static uint32_t some_need(const item *it, const ir_some *some, uint32_t j)
{
    return some->min > it->counted[j] ? some->min - it->counted[j] : 0;
}

/* Members that `some` still asks for; NONE: there are not that many keys. By Hall's theorem enough keys
 * exist if each set of `some`s finds as many as it needs in the rests that serve any of it. */
static uint32_t some_members(const machine *m, const item *it, const situation *s, plan *sum)
{
    const objinfo *o = it->alt;
    uint32_t n_some = o->o->n_some, total = 0;
    for (uint32_t set = 1; set < 1u << n_some; set++) {
        uint64_t need = 0, left = 0;
        for (uint32_t j = 0; j < n_some; j++)
            need += set >> j & 1 ? some_need(it, &o->o->some[j], j) : 0;
        for (uint32_t r = 0; need && r < o->n_rest && left < need; r++)
            for (uint32_t j = 0; j < n_some; j++)
                if (set >> j & 1 &&
                    best_option(m, o->options, o->first, o->n_keys + r, j + 1, s->depth).cost != NONE) {
                    uint64_t more = rest_left(o, r, s);
                    left = more > LANG_INFINITE - left ? LANG_INFINITE : left + more;
                    break;
                }
        if (need > left)
            return NONE;
    }
    for (uint32_t j = 0; j < n_some; j++) {
        uint32_t need = some_need(it, &o->o->some[j], j);
        plan best = {NONE, 0};
        for (uint32_t r = 0; need && r < o->n_rest; r++) {
            plan one = best_option(m, o->options, o->first, o->n_keys + r, j + 1, s->depth);
            const lang *keys = o->o->rest[r].keys; /* a lower bound takes the shortest, be it used */
            one.cost = lang_is_empty(keys) ? NONE : add_cost(one.cost, lang_distance(keys, lang_start(keys)) + 3);
            best = plan_min(best, one);
        }
        if (need)
            *sum = plan_add(*sum, (plan){mul_cost(best.cost, need), best.height});
        total += need;
    }
    return total;
}

/* Costs of `fill` more members; `some` of them are those that `some` asks for, in `sum` already. */
static int fill_up(const machine *m, const item *it, const situation *s, const uint64_t *need, uint32_t fill,
                   uint32_t some, plan *sum)
{
    tally t = {.total = {0, 0}};
    int ok = add_fillers(m, it, s, item_bits(it, it->alt), need, fill, &t) && t.n_fill >= fill;
    for (uint32_t i = 0; ok && i < fill - some; i++)
        sum->cost = add_cost(sum->cost, t.fill[i]);
    sum->height = t.height > sum->height ? t.height : sum->height;
    free(t.fill);
    return ok;
}

int plan_summed(const machine *m, const item *it, const situation *s, plan *out)
{
    const objinfo *o = it->alt;
    uint32_t total = it->count + it->missing;
    if (!o->summed || s->depth + m->max_height > MACHINE_MAX_NESTING || total < o->o->min_members ||
        it->missing < s->at_least)
        return 0;
    *out = total > o->o->max_members ? (plan){NONE, 0} : with_commas((plan){it->needed, 0}, it->count, it->missing);
    return 1;
}

plan plan_object(const machine *m, const item *it, const situation *s)
{
    const objinfo *o = it->alt;
    const ir_object *ob = o->o;
    uint64_t need[MAX_WORDS];
    tally t = {.total = {0, 0}};
    plan none = {NONE, 0}, quick;
    if (plan_summed(m, it, s, &quick))
        return quick;
    pending_keys(o, item_bits(it, o), need);
    if (!add_needed(m, it, need, s->depth, &t))
        return none;
    uint32_t total = it->count + t.n, some = ob->n_some ? some_members(m, it, s, &t.total) : 0;
    if (some == NONE)
        return none;
    uint32_t fill = ob->min_members > total ? ob->min_members - total : 0;
    if (t.n + fill < s->at_least)
        fill = s->at_least - t.n;
    fill = fill < some ? some : fill;
    if (total > ob->max_members || fill > ob->max_members - total)
        return none;
    if (fill > some && !fill_up(m, it, s, need, fill, some, &t.total))
        return none;
    return with_commas(t.total, it->count, t.n + fill);
}

int item_lives(const machine *m, const item *it, int kind, const situation *s)
{
    if (kind == FRAME_OBJECT)
        return plan_object(m, it, s).cost != NONE;
    return plan_array(m, it, s).cost != NONE;
}

/* ---- Values of unique arrays ---------------------------------------------------------------- */

uint64_t node_values(const machine *m, uint32_t node)
{
    const ir_node *n = &m->program->nodes[node];
    if (n->n_objects || n->n_arrays)
        return LANG_INFINITE; /* what ir_unique_holdable promises */
    uint64_t total = (uint64_t)n->admits_null + n->admits_true + n->admits_false;
    if (!lang_is_empty(n->string)) {
        uint64_t strings = lang_count(n->string, lang_start(n->string));
        total = strings > LANG_INFINITE - 1 - total ? LANG_INFINITE : total + strings;
    }
    if (total != LANG_INFINITE && !lang_is_empty(n->number)) {
        const lang *texts = lang_and(m->program->langs, n->number, m->canonical);
        uint64_t numbers = texts == NULL || lang_is_empty(texts) ? 0 : lang_count(texts, lang_start(texts));
        total = numbers > LANG_INFINITE - 1 - total ? LANG_INFINITE : total + numbers;
    }
    return total;
}

typedef struct collecting {
    machine *m;
    doc_arena *arena;
    arrinfo *ai;
    uint32_t room;
    priced *values;
} collecting;

/* One more value, given as JSON text or, for kind 's', decoded. */
static int collect(collecting *c, char kind, const char *bytes, uint32_t len, uint32_t cost)
{
    uint64_t mark = doc_arena_mark(c->arena);
    const seen *from = kind == 's' ? NULL : canonical_item(c->arena, NULL, bytes, len);
    if (kind != 's' && from == NULL)
        return 0;
    kind = from ? from->kind : kind;
    len = from ? from->len : len;
    seen *to = pool_alloc(c->m->p, sizeof *to + len + 1ull);
    if (to == NULL)
        return 0;
    *to = (seen){NULL, 1, len, kind};
    memcpy(to->bytes, from ? from->bytes : bytes, len);
    c->values[c->ai->n_cheapest++] = (priced){to, cost};
    doc_arena_reset(c->arena, mark);
    return 1;
}

/* The cheapest words of l, as values of this kind that cost `more` bytes beside their text. *all: there are
 * no others. */
static int collect_words(collecting *c, const lang *l, char kind, uint32_t more, int *all)
{
    spelled words[MAX_CHEAPEST] = {{NULL, 0}};
    uint32_t costs[MAX_CHEAPEST], n = 0;
    situation s = {.minus = NONE};
    *all = l != NULL && lang_is_empty(l);
    if (l == NULL || *all)
        return *all;
    n = cheapest_words(l, lang_start(l), NULL, 0, NULL, &s, c->room, costs, c->room, words);
    *all = n == lang_count(l, lang_start(l));
    int ok = *all || n == c->room; /* else the search was given up */
    for (uint32_t i = 0; i < n; i++) {
        ok = ok && collect(c, kind, words[i].word, words[i].len, add_cost(costs[i], more));
        free(words[i].word);
    }
    return ok;
}

/* Numbers by their texts without exponents, if none is shorter with one: "1e3". */
static int collect_numbers(collecting *c, const lang *l)
{
    static const char exponents[] = "[^eE]*[eE].*";
    uint32_t from = c->ai->n_cheapest;
    int all, ok = collect_words(c, lang_is_empty(l) ? l : lang_and(c->m->program->langs, l, c->m->canonical), 'n', 0, &all);
    for (uint32_t i = from; ok && i < c->ai->n_cheapest; i++) {
        const priced *v = &c->values[i];
        ok = v->value->len >= v->cost || !lang_holds(l, v->value->bytes, v->value->len);
        if (!all && v->cost > 3) { /* the others may be shorter */
            const lang *with = lang_regex(c->m->program->langs, exponents, sizeof exponents - 1, 0);
            with = with ? lang_and(c->m->program->langs, l, with) : NULL;
            return ok && with && lang_is_empty(with);
        }
    }
    return ok;
}

static int by_price(const void *a, const void *b)
{
    return by_cost(&((const priced *)a)->cost, &((const priced *)b)->cost);
}

void cheapest_values(machine *m, arrinfo *ai)
{
    const ir_node *n = &m->program->nodes[ai->a->items];
    uint32_t least = ai->a->min_items;
    if (n->n_objects || n->n_arrays || ai->a->n_prefix || ai->a->n_contains || least < 2 || least > MAX_CHEAPEST)
        return;
    doc_arena *arena = doc_arena_new(1u << 20);
    priced *values = pool_alloc(m->p, (2ull * least + 3) * sizeof *values);
    collecting c = {m, arena, ai, least, values};
    int all;
    ai->cheapest = values;
    if (arena == NULL || values == NULL || !collect_words(&c, n->string, 's', 2, &all) ||
        !collect_numbers(&c, n->number) || (n->admits_null && !collect(&c, 'o', "null", 4, 4)) ||
        (n->admits_true && !collect(&c, 'o', "true", 4, 4)) || (n->admits_false && !collect(&c, 'o', "false", 5, 5)))
        ai->n_cheapest = 0;
    if (ai->n_cheapest > 1)
        qsort(values, ai->n_cheapest, sizeof *values, by_price);
    doc_arena_free(arena);
}
