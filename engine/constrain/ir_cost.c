/* ir_cost.c: what the shortest document of every node costs, and the removal of what has none. Costs are
 * found as Knuth generalised Dijkstra: the least solution of the equations between nodes, here by passes in
 * alternating order until nothing changes. Of documents that are equally short the flattest counts, so
 * `height` is known too. Keys of a document are distinct and so are the items of a unique array: where
 * several must be invented, their lengths are counted out of the languages. */
#include <string.h>

#include "ir.h"

enum { MAX_STATES = 20000, MAX_MEMBERS = 100000, MAX_ITEMS = 1000000, MAX_SOME = 8, LONGEST = 6, MAX_WORD = 64 };

typedef struct price {             /* bytes and nesting of a shortest document */
    uint64_t bytes;                /* IR_INFINITE: none */
    uint32_t height;
} price;

typedef struct supply {            /* how many things there are at a price each */
    price at;
    uint64_t n;
} supply;

typedef struct costing {
    pool *p;
    ir_program *program;
    supply *supplies;              /* scratch of one alternative */
    uint32_t n_supplies, cap_supplies;
} costing;

static const price no_price = {IR_INFINITE, 0};

static int less(price a, price b) {
    return a.bytes != b.bytes ? a.bytes < b.bytes : a.height < b.height;
}

static price add(price a, price b) {
    uint64_t bytes = a.bytes >= IR_INFINITE || b.bytes >= IR_INFINITE ? IR_INFINITE : a.bytes + b.bytes;
    if (a.bytes < IR_INFINITE && b.bytes < IR_INFINITE && bytes >= IR_INFINITE)
        bytes = IR_INFINITE - 1; /* finite, saturated */
    return (price){bytes, a.height > b.height ? a.height : b.height};
}

static price times(price a, uint64_t n) {
    if (n == 0)
        return (price){0, 0};
    if (a.bytes >= IR_INFINITE)
        return no_price;
    uint64_t bytes = a.bytes && n > (IR_INFINITE - 1) / a.bytes ? IR_INFINITE - 1 : a.bytes * n;
    return (price){bytes, a.height};
}

static price node_price(const costing *c, uint32_t node) {
    return (price){c->program->nodes[node].cost, c->program->nodes[node].height};
}

static price plus(price a, uint64_t bytes) {
    return add(a, (price){bytes, 0});
}

/* ---- Words by their length in bytes ------------------------------------------------------------------- */

/* Bytes of a code point in a JSON string, written in the shortest way. */
static uint32_t letter_bytes(uint32_t c) {
    if (c < 0x20)
        return c == 8 || c == 9 || c == 10 || c == 12 || c == 13 ? 2 : 6;
    if (c < 0x80)
        return c == '"' || c == '\\' ? 2 : 1;
    return c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
}

static uint32_t text_bytes(const char *text, uint32_t len) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < len; i++)
        n += (unsigned char)text[i] < 0x80 ? letter_bytes((unsigned char)text[i]) : 1;
    return n;
}

static uint64_t overlap(uint32_t lo, uint32_t hi, uint32_t from, uint32_t to) {
    lo = lo > from ? lo : from;
    hi = hi < to ? hi : to;
    return lo <= hi ? (uint64_t)hi - lo + 1 : 0;
}

/* How many code points of an edge take 1 … LONGEST bytes. */
static void edge_letters(lang_edge e, uint64_t n[LONGEST + 1]) {
    memset(n, 0, (LONGEST + 1) * sizeof *n);
    for (uint32_t c = e.lo; c < 0x80 && c <= e.hi; c++)
        n[letter_bytes(c)]++;
    n[2] += overlap(e.lo, e.hi, 0x80, 0x7FF);
    n[3] += overlap(e.lo, e.hi, 0x800, 0xD7FF) + overlap(e.lo, e.hi, 0xE000, 0xFFFF);
    n[4] += overlap(e.lo, e.hi, 0x10000, 0x10FFFF);
}

static uint64_t sum(uint64_t a, uint64_t b) {
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static uint64_t product(uint64_t a, uint64_t b) {
    return a && b > UINT64_MAX / a ? UINT64_MAX : a * b;
}

typedef struct automaton {         /* the states of a language, renumbered from its start */
    const lang *of;
    uint32_t *state, *number;      /* by place; 1 + place, by state */
    uint32_t n, cap_state, cap_number;
    lang_edge *edges;              /* of the states one after another; `to` is a place */
    uint32_t *first, n_edges, cap_edges;
} automaton;

static int place(costing *c, automaton *a, uint32_t state, uint32_t *out) {
    if (state > 16u * MAX_STATES || a->n == MAX_STATES)
        return pool_fail(c->p, ENGINE_EUNSUPPORTED, "minProperties, or uniqueItems with minItems, over a language of "
                         "more than %d states", MAX_STATES) == ENGINE_OK;
    if (state >= a->cap_number) {
        uint32_t cap = 2 * state + 64;
        uint32_t *grown = pool_grow(c->p, a->number, a->cap_number * sizeof *grown, cap * sizeof *grown);
        if (!grown)
            return 0;
        a->number = grown;
        a->cap_number = cap;
    }
    if (!a->number[state]) {
        if (a->n == a->cap_state) {
            uint32_t cap = a->cap_state ? 2 * a->cap_state : 64;
            uint32_t *grown = pool_grow(c->p, a->state, a->n * sizeof *grown, cap * sizeof *grown);
            if (!grown)
                return 0;
            a->state = grown;
            a->cap_state = cap;
        }
        a->state[a->n] = state;
        a->number[state] = ++a->n;
    }
    *out = a->number[state] - 1;
    return 1;
}

/* Edges of the state at a place, appended. */
static int explore_state(costing *c, automaton *a, uint32_t at) {
    uint32_t n = lang_edges(a->of, a->state[at], NULL, 0);
    if (!a->edges || a->n_edges + n > a->cap_edges) {
        uint32_t cap = 2 * (a->cap_edges + n) + 64;
        lang_edge *grown = pool_grow(c->p, a->edges, a->n_edges * sizeof *grown, cap * sizeof *grown);
        if (!grown)
            return 0;
        a->edges = grown;
        a->cap_edges = cap;
    }
    lang_edge *edges = a->edges + a->n_edges;
    (void)lang_edges(a->of, a->state[at], edges, n);
    for (uint32_t i = 0; i < n; i++)
        if (!place(c, a, edges[i].to, &edges[i].to))
            return 0;
    a->n_edges += n;
    return pool_step(c->p, n + 1);
}

static int explore(costing *c, automaton *a) {
    uint32_t start, cap = 0;
    if (!place(c, a, lang_start(a->of), &start))
        return 0;
    for (uint32_t i = 0; i < a->n; i++) {
        if (i + 1 >= cap) {
            uint32_t more = 2 * cap + 64;
            uint32_t *grown = pool_grow(c->p, a->first, cap * sizeof *grown, more * sizeof *grown);
            if (!grown)
                return 0;
            a->first = grown;
            cap = more;
        }
        if (!explore_state(c, a, i))
            return 0;
        a->first[i + 1] = a->n_edges;
    }
    return 1;
}

/* Spread the words of `bytes` bytes from every state over its edges. */
static int spread(costing *c, const automaton *a, uint64_t *const *ring, uint32_t bytes) {
    for (uint32_t i = 0; i < a->n; i++) {
        uint64_t here = ring[bytes % (LONGEST + 1)][i];
        if (!here)
            continue;
        if (!pool_step(c->p, a->first[i + 1] - a->first[i]))
            return 0;
        for (uint32_t j = a->first[i]; j < a->first[i + 1]; j++) {
            uint64_t letters[LONGEST + 1];
            edge_letters(a->edges[j], letters);
            for (uint32_t k = 1; k <= LONGEST; k++) {
                uint64_t *there = &ring[(bytes + k) % (LONGEST + 1)][a->edges[j].to];
                *there = sum(*there, product(here, letters[k]));
            }
        }
    }
    return 1;
}

static int offer(costing *c, price at, uint64_t n) {
    if (at.bytes >= IR_INFINITE || n == 0)
        return 1;
    if (c->n_supplies == c->cap_supplies) {
        uint32_t cap = c->cap_supplies ? 2 * c->cap_supplies : 64;
        supply *grown = pool_grow(c->p, c->supplies, c->n_supplies * sizeof *grown, cap * sizeof *grown);
        if (!grown)
            return 0;
        c->supplies = grown;
        c->cap_supplies = cap;
    }
    c->supplies[c->n_supplies++] = (supply){at, n};
    return 1;
}

/* Offer the shortest `need` words of a language, each for its bytes more than base; words of used[] bytes are
 * taken already. */
static int offer_words(costing *c, const lang *l, price base, uint64_t need, const uint64_t *used, uint32_t n_used) {
    automaton a = {.of = l};
    uint64_t *ring[LONGEST + 1], got = 0;
    uint32_t idle = 0;
    if (lang_is_empty(l) || base.bytes >= IR_INFINITE)
        return 1;
    if (!explore(c, &a))
        return 0;
    for (uint32_t i = 0; i <= LONGEST; i++)
        if (!(ring[i] = pool_alloc(c->p, a.n * sizeof **ring)))
            return 0;
    ring[0][0] = 1;
    for (uint32_t bytes = 0; got < need && idle <= LONGEST; bytes++) {
        uint64_t *here = ring[bytes % (LONGEST + 1)], words = 0, any = 0, taken = 0;
        for (uint32_t i = 0; i < a.n; i++) {
            any |= here[i];
            words = sum(words, lang_accepts(l, a.state[i]) ? here[i] : 0);
        }
        for (uint32_t i = 0; i < n_used; i++)
            taken += used[i] == bytes;
        idle = any ? 0 : idle + 1;
        words = words > taken ? words - taken : 0;
        if (!offer(c, plus(base, bytes), words < need ? words : need) || !spread(c, &a, ring, bytes))
            return 0;
        got = sum(got, words);
        memset(here, 0, a.n * sizeof *here);
    }
    return 1;
}

/* The price of the cheapest n things on offer. */
static price buy(costing *c, uint64_t n) {
    price total = {0, 0};
    while (n) {
        supply *best = NULL;
        for (uint32_t i = 0; i < c->n_supplies; i++)
            if (c->supplies[i].n && (!best || less(c->supplies[i].at, best->at)))
                best = &c->supplies[i];
        if (!best)
            return no_price;
        uint64_t take = best->n < n ? best->n : n;
        total = add(total, times(best->at, take));
        best->n -= take;
        n -= take;
    }
    return total;
}

/* ---- Objects -------------------------------------------------------------------------------------------- */

static price member_price(const costing *c, const ir_key *k) {
    return plus(node_price(c, k->value), text_bytes(k->text, k->len) + 3u);
}

/* Words of the `some`s: where their languages meet, the words must differ. Each order of choosing is tried;
 * in each the next takes its shortest word that is left, counted as the languages without earlier words. */
static uint64_t some_words(costing *c, const ir_object *o, uint32_t *order, uint32_t n, uint64_t *lengths) {
    lang_set *langs = c->program->langs;
    const lang *taken = lang_empty(langs);
    uint64_t total = 0;
    for (uint32_t i = 0; i < n; i++) {
        const lang *left = lang_minus(langs, o->some[order[i]].keys, taken);
        if (!left || lang_is_empty(left))
            return IR_INFINITE;
        uint32_t state = lang_start(left), bytes = lang_distance(left, state);
        lengths[order[i]] = bytes;
        total += bytes;
        if (i + 1 == n)
            break;
        char word[4 * MAX_WORD];
        uint64_t len = 0;
        while (!lang_accepts(left, state) && len + 4 < sizeof word) { /* one shortest word, letter by letter */
            lang_edge edges[64];
            uint32_t m = lang_edges(left, state, edges, 64), at = lang_distance(left, state), moved = 0;
            for (uint32_t j = 0; j < m && j < 64 && !moved; j++) {
                for (uint32_t ch = edges[j].lo; ch <= edges[j].hi && ch < 0x80 && !moved; ch++) {
                    if (letter_bytes(ch) + lang_distance(left, edges[j].to) == at) {
                        word[len++] = (char)ch;
                        state = edges[j].to;
                        moved = 1;
                    }
                }
            }
            if (!moved)
                return total; /* beyond ASCII: words as long as these abound */
        }
        const char *text = word;
        const lang *one = lang_words_of(langs, &text, &len, 1);
        taken = one ? lang_or(langs, taken, one) : NULL;
        if (!taken)
            return IR_INFINITE;
    }
    return total;
}

static uint64_t best_words(costing *c, const ir_object *o, uint32_t *order, uint32_t n, uint32_t fixed, uint64_t *lengths) {
    uint64_t best = IR_INFINITE, tried[MAX_SOME];
    if (fixed == n) {
        best = some_words(c, o, order, n, lengths);
        return best;
    }
    for (uint32_t i = fixed; i < n; i++) {
        uint32_t was = order[fixed];
        order[fixed] = order[i];
        order[i] = was;
        uint64_t total = best_words(c, o, order, n, fixed + 1, tried);
        if (total < best) {
            best = total;
            memcpy(lengths, tried, n * sizeof *tried);
        }
        was = order[fixed];
        order[fixed] = order[i];
        order[i] = was;
    }
    return best;
}

/* Members that the `some`s ask for: their price with keys, colons and quotes. */
static price some_price(costing *c, const ir_object *o, uint64_t *lengths, uint32_t *n) {
    uint32_t order[MAX_SOME];
    price total = {0, 0};
    *n = 0;
    for (uint32_t i = 0; i < o->n_some; i++) {
        price value = node_price(c, o->some[i].value);
        if (o->some[i].min == 0)
            continue;
        if (o->some[i].min > 1 || o->n_some > MAX_SOME) {
            (void)pool_fail(c->p, ENGINE_EUNSUPPORTED, "a `some` of more than one member, or more than %d", MAX_SOME);
            return no_price;
        }
        if (value.bytes >= IR_INFINITE)
            return no_price;
        order[(*n)++] = i;
        total = plus(add(total, value), 3);
    }
    if (*n == 0)
        return total;
    uint64_t words = *n == 1 ? some_words(c, o, order, 1, lengths) : best_words(c, o, order, *n, 0, lengths);
    return words >= IR_INFINITE ? no_price : plus(total, words);
}

/* Members beyond those that must be, to reach min_members. */
static price extra_price(costing *c, const ir_object *o, uint64_t need, const uint64_t *lengths) {
    c->n_supplies = 0;
    for (uint32_t i = 0; i < o->n_keys; i++)
        if (!o->keys[i].required && !offer(c, member_price(c, &o->keys[i]), 1))
            return no_price;
    for (uint32_t i = 0; i < o->n_rest; i++) {
        lang_set *langs = c->program->langs;
        const char **texts = pool_alloc(c->p, (o->n_keys + 1) * sizeof *texts);
        uint64_t *lens = pool_alloc(c->p, (o->n_keys + 1) * sizeof *lens), used[MAX_SOME];
        uint32_t n_used = 0;
        if (!texts || !lens)
            return no_price;
        for (uint32_t j = 0; j < o->n_keys; j++) {
            texts[j] = o->keys[j].text;
            lens[j] = o->keys[j].len;
        }
        const lang *keys = o->rest[i].keys, *declared = o->n_keys ? lang_words_of(langs, texts, lens, o->n_keys) : NULL;
        keys = o->n_keys ? declared ? lang_minus(langs, keys, declared) : NULL : keys;
        for (uint32_t j = 0; keys && j < o->n_some && j < MAX_SOME; j++) {
            const lang *in = lang_and(langs, keys, o->some[j].keys);
            if (in && !lang_is_empty(in))
                used[n_used++] = lengths[j];
        }
        if (!keys || !offer_words(c, keys, plus(node_price(c, o->rest[i].value), 3), need, used, n_used))
            return no_price;
    }
    return buy(c, need);
}

static price object_price(costing *c, const ir_object *o) {
    uint64_t lengths[MAX_SOME] = {0}, members = 0;
    uint32_t somes;
    price total = {2, 0};
    for (uint32_t i = 0; i < o->n_keys; i++) {
        if (!o->keys[i].required)
            continue;
        total = add(total, member_price(c, &o->keys[i]));
        members++;
    }
    if (total.bytes >= IR_INFINITE)
        return no_price;
    total = add(total, some_price(c, o, lengths, &somes));
    members += somes;
    if (total.bytes < IR_INFINITE && o->min_members > members) {
        total = add(total, extra_price(c, o, o->min_members - members, lengths));
        members = o->min_members;
    }
    if (total.bytes >= IR_INFINITE || members > o->max_members)
        return no_price;
    total.height++;
    return plus(total, members ? members - 1 : 0);
}

/* ---- Arrays ------------------------------------------------------------------------------------------------ */

/* Numbers with distinct values: one text for each, without zeros at the end of a fraction. */
static const lang *distinct_numbers(costing *c, const lang *number) {
    static const char pattern[] = "0|-?(?:[1-9][0-9]*(?:\\.[0-9]*[1-9])?|0\\.[0-9]*[1-9])";
    const lang *one = lang_regex(c->program->langs, pattern, sizeof pattern - 1, 0);
    return one ? lang_and(c->program->langs, number, one) : NULL;
}

static int offer_values(costing *c, const ir_node *node, uint64_t need) {
    const lang *numbers = distinct_numbers(c, node->number);
    if (!numbers || !offer(c, (price){4, 0}, (uint64_t)node->admits_null + node->admits_true) ||
        !offer(c, (price){5, 0}, node->admits_false) || !offer_words(c, numbers, (price){0, 0}, need, NULL, 0) ||
        !offer_words(c, node->string, (price){2, 0}, need, NULL, 0))
        return 0;
    for (uint32_t i = 0; i < node->n_objects; i++)
        if (!offer(c, (price){node->objects[i].cost, node->objects[i].height}, 1))
            return 0;
    for (uint32_t i = 0; i < node->n_arrays; i++)
        if (!offer(c, (price){node->arrays[i].cost, node->arrays[i].height}, 1))
            return 0;
    return 1;
}

/* n later items of which each `contains` counts its least. */
static price later_price(costing *c, const ir_array *a, uint64_t n) {
    price total = {0, 0}, items = node_price(c, a->items);
    uint64_t counted = 0, free = 0;
    for (uint32_t i = 0; i < a->n_contains; i++) {
        price value = node_price(c, a->contains[i].value);
        total = add(total, times(value, a->contains[i].min));
        counted += a->contains[i].min;
        if (a->contains[i].max == IR_NO_MAX)
            continue;
        items = node_price(c, a->contains[i].other);
        free = a->contains[i].max - a->contains[i].min;
        if (n > counted && less(value, items)) {
            uint64_t more = n - counted < free ? n - counted : free;
            total = add(total, times(value, more));
            counted += more;
        }
    }
    return n > counted ? add(total, times(items, n - counted)) : total;
}

static price array_price(costing *c, const ir_array *a) {
    uint64_t counted = 0, length = a->min_items;
    price total = {2, 0};
    for (uint32_t i = 0; i < a->n_contains; i++) {
        counted += a->contains[i].min;
        if (a->contains[i].min > a->contains[i].max)
            return no_price;
    }
    if (counted && length < a->n_prefix + counted)
        length = a->n_prefix + counted;
    if (length > a->max_items)
        return no_price;
    if (length > MAX_ITEMS) {
        (void)pool_fail(c->p, ENGINE_EUNSUPPORTED, "minItems: more than %d items at least", MAX_ITEMS);
        return no_price;
    }
    const ir_node *items = &c->program->nodes[a->items];
    int scalars = !items->n_objects && !items->n_arrays; /* others are not held: ir_unique_holdable says so */
    if (a->unique && length > 1 && !a->n_prefix && !a->n_contains && scalars) {
        c->n_supplies = 0;
        if (!offer_values(c, &c->program->nodes[a->items], length))
            return no_price;
        total = add(total, buy(c, length));
    } else {
        for (uint32_t i = 0; i < a->n_prefix && i < length; i++)
            total = add(total, node_price(c, a->prefix[i]));
        if (length > a->n_prefix)
            total = add(total, later_price(c, a, length - a->n_prefix));
    }
    if (total.bytes >= IR_INFINITE)
        return no_price;
    total.height++;
    return plus(total, length ? length - 1 : 0);
}

/* ---- Nodes --------------------------------------------------------------------------------------------------- */

static int improve(price *best, price p) {
    if (!less(p, *best))
        return 0;
    *best = p;
    return 1;
}

static price scalar_price(const ir_node *n) {
    price best = no_price;
    if (n->admits_null || n->admits_true)
        (void)improve(&best, (price){4, 0});
    if (n->admits_false)
        (void)improve(&best, (price){5, 0});
    if (!lang_is_empty(n->number))
        (void)improve(&best, (price){lang_distance(n->number, lang_start(n->number)), 0});
    if (!lang_is_empty(n->string))
        (void)improve(&best, plus((price){lang_distance(n->string, lang_start(n->string)), 0}, 2));
    return best;
}

/* 1: the node became cheaper. */
static int price_node(costing *c, uint32_t index) {
    ir_node *n = &c->program->nodes[index];
    price best = {n->cost, n->height};
    int changed = n->cost == IR_INFINITE && improve(&best, scalar_price(n));
    for (uint32_t i = 0; i < n->n_objects && pool_step(c->p, 1 + n->objects[i].n_keys / 16); i++) {
        ir_object *o = (ir_object *)&n->objects[i]; /* ours while we make the program */
        price p = object_price(c, o);
        o->cost = (uint32_t)p.bytes;
        o->height = p.height;
        changed |= improve(&best, p);
    }
    for (uint32_t i = 0; i < n->n_arrays && pool_step(c->p, 1); i++) {
        ir_array *a = (ir_array *)&n->arrays[i];
        price p = array_price(c, a);
        a->cost = (uint32_t)p.bytes;
        a->height = p.height;
        changed |= improve(&best, p);
    }
    n->cost = (uint32_t)best.bytes;
    n->height = best.height;
    return changed;
}

/* ---- Pruning --------------------------------------------------------------------------------------------------- */

static int is_empty(const costing *c, uint32_t node) {
    return c->program->nodes[node].cost == IR_INFINITE;
}

/* What follows from required and forbidden keys by dependence. */
static void settle_implies(ir_object *o) {
    ir_key *keys = (ir_key *)o->keys;
    for (int changed = o->n_implies != 0; changed;) {
        changed = 0;
        for (uint32_t i = 0; i < o->n_implies; i++) {
            ir_key *from = &keys[o->implies[i].if_key], *to = &keys[o->implies[i].then_key];
            if (from->required && !to->required)
                changed = to->required = 1;
            if (to->value == IR_NODE_NONE && from->value != IR_NODE_NONE) {
                from->value = IR_NODE_NONE;
                changed = 1;
            }
        }
    }
}

static void prune_object(const costing *c, ir_object *o) {
    ir_key *keys = (ir_key *)o->keys;
    ir_rest *rest = (ir_rest *)o->rest;
    uint32_t n = 0;
    for (uint32_t i = 0; i < o->n_keys; i++)
        if (is_empty(c, keys[i].value))
            keys[i].value = IR_NODE_NONE;
    for (uint32_t i = 0; i < o->n_rest; i++)
        if (!is_empty(c, rest[i].value))
            rest[n++] = rest[i];
    o->n_rest = n;
    settle_implies(o);
}

/* How many values of a node differ; LANG_INFINITE where it has containers, which can grow for ever. */
static uint64_t distinct_values(costing *c, const ir_node *n) {
    const lang *numbers = distinct_numbers(c, n->number);
    uint64_t count = (uint64_t)n->admits_null + n->admits_true + n->admits_false;
    if (!numbers || n->n_objects || n->n_arrays)
        return LANG_INFINITE;
    if (!lang_is_empty(numbers))
        count = sum(count, lang_count(numbers, lang_start(numbers)));
    if (!lang_is_empty(n->string))
        count = sum(count, lang_count(n->string, lang_start(n->string)));
    return count;
}

/* A unique array ends where the values of its items do. */
static void bound_unique(costing *c, ir_array *a) {
    if (!a->unique || a->n_prefix || a->items == IR_NODE_NONE)
        return;
    uint64_t values = distinct_values(c, &c->program->nodes[a->items]);
    if (values < a->max_items)
        a->max_items = (uint32_t)values;
}

static void prune_array(costing *c, ir_array *a) {
    ir_contains *contains = (ir_contains *)a->contains;
    for (uint32_t i = 0; i < a->n_prefix; i++)
        if (is_empty(c, a->prefix[i]) && i < a->max_items)
            a->max_items = i;
    if (is_empty(c, a->items) && a->max_items > a->n_prefix)
        a->max_items = a->n_prefix;
    for (uint32_t i = 0; i < a->n_contains; i++) {
        if (is_empty(c, contains[i].other))
            contains[i].other = IR_NODE_NONE;
        if (is_empty(c, contains[i].value))
            contains[i].value = IR_NODE_NONE;
        if (contains[i].max != IR_NO_MAX && contains[i].other == IR_NODE_NONE && a->max_items > a->n_prefix + contains[i].max)
            a->max_items = a->n_prefix + contains[i].max;
    }
    bound_unique(c, a);
    if (a->max_items <= a->n_prefix) {
        a->n_prefix = a->max_items;
        a->items = IR_NODE_NONE;
        a->n_contains = 0;
    }
}

static int prune_node(costing *c, ir_node *n) {
    ir_object *objects = pool_alloc(c->p, (n->n_objects + 1) * sizeof *objects);
    ir_array *arrays = pool_alloc(c->p, (n->n_arrays + 1) * sizeof *arrays);
    uint32_t n_objects = 0, n_arrays = 0;
    if (!objects || !arrays)
        return 0;
    for (uint32_t i = 0; i < n->n_objects; i++) {
        if (n->objects[i].cost == IR_INFINITE)
            continue;
        objects[n_objects] = n->objects[i];
        prune_object(c, &objects[n_objects++]);
    }
    for (uint32_t i = 0; i < n->n_arrays; i++) {
        if (n->arrays[i].cost == IR_INFINITE)
            continue;
        arrays[n_arrays] = n->arrays[i];
        prune_array(c, &arrays[n_arrays++]);
    }
    n->objects = objects;
    n->n_objects = n_objects;
    n->arrays = arrays;
    n->n_arrays = n_arrays;
    return 1;
}

/* Hand-made programs may be constant: what is changed later is copied. */
static const void *copy(costing *c, const void *from, uint64_t n, uint64_t size) {
    return pool_grow(c->p, from, n * size, (n + 1) * size);
}

static int copy_alternatives(costing *c, ir_node *n) {
    ir_object *objects = (ir_object *)(n->objects = copy(c, n->objects, n->n_objects, sizeof *objects));
    ir_array *arrays = (ir_array *)(n->arrays = copy(c, n->arrays, n->n_arrays, sizeof *arrays));
    for (uint32_t i = 0; objects && i < n->n_objects; i++) {
        objects[i].keys = copy(c, objects[i].keys, objects[i].n_keys, sizeof *objects[i].keys);
        objects[i].rest = copy(c, objects[i].rest, objects[i].n_rest, sizeof *objects[i].rest);
    }
    for (uint32_t i = 0; arrays && i < n->n_arrays; i++)
        arrays[i].contains = copy(c, arrays[i].contains, arrays[i].n_contains, sizeof *arrays[i].contains);
    return c->p->status == ENGINE_OK;
}

/* Keys that required ones imply are required; counts are within what is held. */
static int prepare_node(costing *c, ir_node *n) {
    n->cost = IR_INFINITE;
    n->height = 0;
    if (!copy_alternatives(c, n))
        return 0;
    for (uint32_t i = 0; i < n->n_objects; i++) {
        settle_implies((ir_object *)&n->objects[i]);
        if (n->objects[i].min_members > MAX_MEMBERS)
            return pool_fail(c->p, ENGINE_EUNSUPPORTED, "minProperties above %d", MAX_MEMBERS) == ENGINE_OK;
    }
    return 1;
}

engine_status ir_finish(pool *p, ir_program *program) {
    costing c = {.p = p, .program = program};
    uint32_t n = program->n_nodes;
    for (uint32_t i = 0; i < n; i++)
        if (!prepare_node(&c, &program->nodes[i]))
            return p->status;
    for (int changed = 1, forward = 0; changed && p->status == ENGINE_OK; forward = !forward) {
        changed = 0;
        for (uint32_t i = 0; i < n; i++)
            changed |= price_node(&c, forward ? i : n - 1 - i);
    }
    for (uint32_t i = 0; p->status == ENGINE_OK && i < n; i++)
        (void)prune_node(&c, &program->nodes[i]);
    return p->status;
}

/* Scalars without end, whatever else the node admits. */
static int is_endless(const ir_node *n) {
    return n->n_objects || n->n_arrays ||
           (!lang_is_empty(n->string) && lang_count(n->string, lang_start(n->string)) == LANG_INFINITE);
}

/* Whether a value of the node that equals an earlier item can always go on to differ before it ends: scalars
 * are compared as they are read; a container only when it closes, so it must be able to grow for ever. */
static int can_differ(const ir_program *program, uint32_t node) {
    const ir_node *n = &program->nodes[node];
    for (uint32_t i = 0; i < n->n_objects; i++) {
        const ir_object *o = &n->objects[i];
        int endless = 0;
        for (uint32_t j = 0; j < o->n_rest; j++)
            endless |= lang_count(o->rest[j].keys, lang_start(o->rest[j].keys)) == LANG_INFINITE;
        if (!endless || o->max_members != IR_NO_MAX)
            return 0;
    }
    for (uint32_t i = 0; i < n->n_arrays; i++)
        if (n->arrays[i].max_items != IR_NO_MAX || n->arrays[i].items == IR_NODE_NONE || n->arrays[i].unique)
            return 0;
    return 1;
}

/* Whether each item of the prefix is one literal, and no two the same. */
static int is_literal_prefix(const ir_program *program, const ir_array *array) {
    int used = 0;
    for (uint32_t i = 0; i < array->n_prefix; i++) {
        const ir_node *n = &program->nodes[array->prefix[i]];
        int one = n->admits_null | n->admits_true << 1 | n->admits_false << 2;
        if (one == 0 || (one & (one - 1)) || (one & used) || n->n_objects || n->n_arrays || !lang_is_empty(n->number) ||
            !lang_is_empty(n->string))
            return 0;
        used |= one;
    }
    return array->n_prefix > 0;
}

int ir_unique_holdable(const ir_program *program, const ir_array *array) {
    const ir_node *items = &program->nodes[array->items];
    if (array->max_items <= 1)
        return 1;
    if (!array->n_contains && array->min_items <= array->n_prefix && is_literal_prefix(program, array))
        return array->items == IR_NODE_NONE || (is_endless(items) && can_differ(program, array->items));
    if (array->n_contains || (array->min_items > 1 && (array->n_prefix || items->n_objects || items->n_arrays)))
        return 0;
    for (uint32_t i = 0; i < array->n_prefix; i++)
        if (!can_differ(program, array->prefix[i]) || !is_endless(&program->nodes[array->prefix[i]]))
            return 0;
    if (array->n_prefix && array->items != IR_NODE_NONE && !is_endless(items))
        return 0; /* they could use one another's values up */
    return can_differ(program, array->items);
}
