/* schema_emit.c: from goals to the nodes of a program. Every goal that the root reaches becomes a node; its
 * shapes become alternatives in the form that ir.h promises: `some` and `contains` speak of undeclared
 * members and later items only, dependent keys only where counts are free. Where a shape says more, it is
 * split into several; what would need too many is refused by name. */
#include "schema.h"

#include <string.h>

#define FAILED UINT32_MAX

enum { MAX_TOGETHER = 4, MAX_COUNTED_PREFIX = 6 };

typedef struct emitter {
    schema *s;
    uint32_t *node_of;             /* by goal: 1 + node */
    uint32_t cap_goals;
    uint32_t *goal_at;             /* by node */
    uint32_t n_nodes, cap_nodes;
    ir_object *objects;            /* of the node in the making */
    uint32_t n_objects, cap_objects;
    ir_array *arrays;
    uint32_t n_arrays, cap_arrays;
    const json_value **unique;     /* by node: where uniqueItems stands */
} emitter;

/* The node of a goal, put on the list of work when it is new. FAILED: failed. */
static uint32_t node_of(emitter *e, uint32_t g) {
    schema *s = e->s;
    if (g == FAILED || s->p->status != ENGINE_OK)
        return FAILED;
    if (g >= e->cap_goals) {
        uint32_t cap = 2 * s->n_goals;
        uint32_t *grown = pool_grow(s->p, e->node_of, e->cap_goals * sizeof *grown, cap * sizeof *grown);
        if (!grown)
            return FAILED;
        e->node_of = grown;
        e->cap_goals = cap;
    }
    if (e->node_of[g])
        return e->node_of[g] - 1;
    if (e->n_nodes == e->cap_nodes) {
        uint32_t cap = e->cap_nodes ? 2 * e->cap_nodes : 64;
        uint32_t *grown = pool_grow(s->p, e->goal_at, e->n_nodes * sizeof *grown, cap * sizeof *grown);
        const json_value **unique = pool_grow(s->p, e->unique, e->n_nodes * sizeof *unique, cap * sizeof *unique);
        if (!grown || !unique)
            return FAILED;
        e->goal_at = grown;
        e->unique = unique;
        e->cap_nodes = cap;
    }
    e->goal_at[e->n_nodes] = g;
    e->node_of[g] = e->n_nodes + 1;
    return e->n_nodes++;
}

/* ---- Objects ------------------------------------------------------------------------------------------- */

static int full(emitter *e, uint32_t n) {
    if (n >= SCHEMA_MAX_SHAPES)
        (void)pool_fail(e->s->p, ENGINE_EUNSUPPORTED, "enum, anyOf or oneOf: more than %d alternatives at one place",
                        SCHEMA_MAX_SHAPES);
    return n >= SCHEMA_MAX_SHAPES || !pool_step(e->s->p, 1);
}

/* Which keys stay: a forbidden one only where a rest language would let it in, or others depend on it. */
static int key_matters(const object_shape *o, const shape_key *k) {
    if (k->value != GOAL_NONE || k->required || o->n_implies)
        return 1;
    for (uint32_t i = 0; i < o->n_rest; i++)
        if (lang_is_all(o->rest[i].keys) || lang_holds(o->rest[i].keys, k->key->text, k->key->len))
            return 1;
    return 0;
}

static int put_keys(emitter *e, const object_shape *o, ir_object *out) {
    ir_key *keys = pool_alloc(e->s->p, (o->n_keys + 1) * sizeof *keys);
    if (!keys)
        return 0;
    for (uint32_t i = 0; i < o->n_keys; i++) {
        const shape_key *k = &o->keys[i];
        if (!key_matters(o, k))
            continue;
        e->s->mark[k->key->id] = out->n_keys + 1;
        keys[out->n_keys++] = (ir_key){k->key->text, k->key->len, node_of(e, k->value), k->required};
        if (keys[out->n_keys - 1].value == FAILED)
            return 0;
    }
    out->keys = keys;
    return 1;
}

/* Rest languages, each cut so that it is within or without the keys of every `some`. */
static int put_rest(emitter *e, const object_shape *o, ir_object *out) {
    schema *s = e->s;
    ir_rest *rest = pool_alloc(s->p, ((uint64_t)o->n_rest << o->n_some) * sizeof *rest + 16);
    uint32_t n = 0;
    for (uint32_t i = 0; rest && i < o->n_rest; i++) {
        uint32_t from = n;
        rest[n++] = (ir_rest){o->rest[i].keys, node_of(e, o->rest[i].value)};
        if (rest[from].value == FAILED)
            return 0;
        for (uint32_t j = 0; j < o->n_some; j++) {
            for (uint32_t k = from, end = n; k < end; k++) {
                const lang *in = lang_and(s->langs, rest[k].keys, o->some[j].keys);
                const lang *not_in = lang_minus(s->langs, rest[k].keys, o->some[j].keys);
                if (!in || !not_in)
                    return 0;
                if (lang_is_empty(in) || lang_is_empty(not_in))
                    continue;
                rest[n] = rest[k];
                rest[n++].keys = not_in;
                rest[k].keys = in;
            }
        }
    }
    out->rest = rest;
    out->n_rest = n;
    return rest != NULL;
}

static int put_some(emitter *e, const object_shape *o, ir_object *out) {
    ir_some *some = pool_alloc(e->s->p, (o->n_some + 1) * sizeof *some);
    if (!some)
        return 0;
    for (uint32_t i = 0; i < o->n_some; i++) {
        some[i] = (ir_some){o->some[i].keys, node_of(e, o->some[i].value), IR_NODE_ANY, 1, IR_NO_MAX};
        if (some[i].value == FAILED)
            return 0;
    }
    out->some = some;
    out->n_some = o->n_some;
    return 1;
}

static int put_implies(emitter *e, const object_shape *o, ir_object *out) {
    ir_implies *implies = pool_alloc(e->s->p, (o->n_implies + 1) * sizeof *implies);
    if (!implies)
        return 0;
    for (uint32_t i = 0; i < o->n_implies; i++)
        implies[out->n_implies++] =
            (ir_implies){e->s->mark[o->implies[i].if_key->id] - 1, e->s->mark[o->implies[i].then_key->id] - 1};
    out->implies = implies;
    return 1;
}

static int put_object(emitter *e, const object_shape *o) {
    schema *s = e->s;
    if (full(e, e->n_objects))
        return 0;
    if (e->n_objects == e->cap_objects) {
        uint32_t cap = e->cap_objects ? 2 * e->cap_objects : 4;
        ir_object *grown = pool_grow(s->p, e->objects, e->n_objects * sizeof *grown, cap * sizeof *grown);
        if (!grown)
            return 0;
        e->objects = grown;
        e->cap_objects = cap;
    }
    ir_object *out = &e->objects[e->n_objects++];
    *out = (ir_object){.min_members = o->min, .max_members = o->max};
    int ok = put_keys(e, o, out) && put_implies(e, o, out) && put_rest(e, o, out) && put_some(e, o, out);
    for (uint32_t i = 0; i < o->n_keys; i++)
        s->mark[o->keys[i].key->id] = 0;
    return ok;
}

static shape_key *copy_keys(schema *s, const object_shape *o) {
    return pool_grow(s->p, o->keys, o->n_keys * sizeof *o->keys, (o->n_keys + 1) * sizeof *o->keys);
}

static uint32_t find_key(const object_shape *o, const key_text *key) {
    for (uint32_t i = 0; i < o->n_keys; i++)
        if (o->keys[i].key == key)
            return i;
    return FAILED;
}

static int split_together(emitter *e, const object_shape *o);

/* Dependent keys: settle those that are decided, then split where counts are bounded. */
static int split_implies(emitter *e, object_shape o) {
    schema *s = e->s;
    if (!o.n_implies || (o.min == 0 && o.max == IR_NO_MAX))
        return split_together(e, &o);
    shape_implies first = o.implies[0];
    uint32_t from = find_key(&o, first.if_key), to = find_key(&o, first.then_key);
    o.implies++;
    o.n_implies--;
    if (from == FAILED || to == FAILED)
        return split_implies(e, o);
    object_shape with = o;
    shape_key *keys = copy_keys(s, &o);
    if (!keys || full(e, e->n_objects))
        return 0;
    keys[to].required = 1;
    with.keys = keys;
    if (keys[to].value != GOAL_NONE && !split_implies(e, with))
        return 0;
    if (o.keys[from].required)
        return 1;
    keys = copy_keys(s, &o);
    if (!keys)
        return 0;
    keys[from].value = GOAL_NONE;
    o.keys = keys;
    return split_implies(e, o);
}

static const lang *declared_words(schema *s, const object_shape *o) {
    const char **texts = pool_alloc(s->p, (o->n_keys + 1) * sizeof *texts);
    uint64_t *lens = pool_alloc(s->p, (o->n_keys + 1) * sizeof *lens);
    if (!texts || !lens)
        return NULL;
    for (uint32_t i = 0; i < o->n_keys; i++) {
        texts[i] = o->keys[i].key->text;
        lens[i] = o->keys[i].key->len;
    }
    return o->n_keys ? lang_words_of(s->langs, texts, lens, o->n_keys) : lang_empty(s->langs);
}

/* `some` number i is met by a declared key: a shape for each key that can. */
static int some_by_key(emitter *e, const object_shape *o, uint32_t at, int (*then)(emitter *, object_shape, uint32_t)) {
    schema *s = e->s;
    const shape_some *some = &o->some[at];
    for (uint32_t i = 0; i < o->n_keys; i++) {
        if (!lang_holds(some->keys, o->keys[i].key->text, o->keys[i].key->len))
            continue;
        uint32_t value = goal_and(s, o->keys[i].value, some->value);
        if (value == FAILED)
            return 0;
        if (value == GOAL_NONE)
            continue;
        object_shape with = *o;
        shape_key *keys = copy_keys(s, o);
        shape_some *left = pool_grow(s->p, o->some, o->n_some * sizeof *left, o->n_some * sizeof *left);
        if (!keys || !left)
            return 0;
        keys[i].value = value;
        keys[i].required = 1;
        memmove(left + at, left + at + 1, (o->n_some - at - 1) * sizeof *left);
        with.keys = keys;
        with.some = left;
        with.n_some--;
        if (full(e, e->n_objects) || !then(e, with, at))
            return 0;
    }
    return 1;
}

/* From `some` number `at` on: split each over declared keys and rest languages. */
static int split_some(emitter *e, object_shape o, uint32_t at) {
    schema *s = e->s;
    if (at == o.n_some)
        return split_implies(e, o);
    shape_some some = o.some[at];
    const lang *declared = declared_words(s, &o);
    if (!declared || !some_by_key(e, &o, at, split_some))
        return 0;
    for (uint32_t i = 0; i < o.n_rest; i++) {
        const lang *keys = lang_and(s->langs, some.keys, o.rest[i].keys);
        keys = keys ? lang_minus(s->langs, keys, declared) : NULL;
        uint32_t value = goal_and(s, o.rest[i].value, some.value);
        if (!keys || value == FAILED)
            return 0;
        if (lang_is_empty(keys) || value == GOAL_NONE)
            continue;
        object_shape with = o;
        shape_some *list = pool_grow(s->p, o.some, o.n_some * sizeof *list, o.n_some * sizeof *list);
        if (!list)
            return 0;
        list[at] = (shape_some){keys, value};
        with.some = list;
        if (full(e, e->n_objects) || !split_some(e, with, at + 1))
            return 0;
    }
    return 1;
}

/* One member may serve two `some`: a shape of its own for each such pair. */
static int split_together(emitter *e, const object_shape *o) {
    schema *s = e->s;
    if (o->n_some > MAX_TOGETHER) {
        (void)pool_fail(s->p, ENGINE_EUNSUPPORTED, "more than %d conditions on undeclared members at once", MAX_TOGETHER);
        return 0;
    }
    for (uint32_t i = 0; i < o->n_some; i++) {
        for (uint32_t j = i + 1; j < o->n_some; j++) {
            const lang *keys = lang_and(s->langs, o->some[i].keys, o->some[j].keys);
            uint32_t value = goal_and(s, o->some[i].value, o->some[j].value);
            if (!keys || value == FAILED)
                return 0;
            if (lang_is_empty(keys) || value == GOAL_NONE)
                continue;
            object_shape with = *o;
            shape_some *list = pool_grow(s->p, o->some, o->n_some * sizeof *list, o->n_some * sizeof *list);
            if (!list)
                return 0;
            list[i] = (shape_some){keys, value};
            memmove(list + j, list + j + 1, (o->n_some - j - 1) * sizeof *list);
            with.some = list;
            with.n_some--;
            if (!split_together(e, &with))
                return 0;
        }
    }
    return put_object(e, o);
}

/* ---- Arrays ---------------------------------------------------------------------------------------------- */

static int put_array(emitter *e, const array_shape *a, const ir_contains *contains, uint32_t n_contains) {
    schema *s = e->s;
    if (a->min > a->max)
        return 1;
    if (full(e, e->n_arrays))
        return 0;
    if (e->n_arrays == e->cap_arrays) {
        uint32_t cap = e->cap_arrays ? 2 * e->cap_arrays : 4;
        ir_array *grown = pool_grow(s->p, e->arrays, e->n_arrays * sizeof *grown, cap * sizeof *grown);
        if (!grown)
            return 0;
        e->arrays = grown;
        e->cap_arrays = cap;
    }
    uint32_t *prefix = pool_alloc(s->p, (a->n_prefix + 1) * sizeof *prefix);
    if (!prefix)
        return 0;
    for (uint32_t i = 0; i < a->n_prefix; i++)
        if ((prefix[i] = node_of(e, a->prefix[i])) == FAILED)
            return 0;
    uint32_t items = node_of(e, a->items);
    e->arrays[e->n_arrays++] = (ir_array){.prefix = prefix, .n_prefix = a->n_prefix, .items = items, .contains = contains,
                                          .n_contains = n_contains, .min_items = a->min, .max_items = a->max,
                                          .unique = a->unique && a->max > 1};
    return items != FAILED;
}

/* Put an array whose later items are counted: between min and max of them are in value. */
static int put_counted(emitter *e, array_shape a, uint32_t value, uint32_t min, uint32_t max) {
    schema *s = e->s;
    ir_contains *c = pool_alloc(s->p, sizeof *c);
    uint32_t in = goal_and(s, a.items, value), out = max == IR_NO_MAX ? a.items : goal_and(s, a.items, goal_not(s, value));
    if (!c || in == FAILED || out == FAILED)
        return 0;
    if (max == 0) {
        a.items = out;
        return put_array(e, &a, NULL, 0);
    }
    if (min == 0 && max == IR_NO_MAX)
        return put_array(e, &a, NULL, 0);
    *c = (ir_contains){node_of(e, in), node_of(e, out), min, max};
    return c->value != FAILED && c->other != FAILED && put_array(e, &a, c, 1);
}

/* One count that involves the prefix: a shape for each length up to it, and each choice of what counts. */
static int count_prefix(emitter *e, const array_shape *a, const shape_contains *c, uint32_t length, int longer) {
    schema *s = e->s;
    uint32_t other = goal_not(s, c->value);
    for (uint32_t choice = 0; choice < 1u << length; choice++) {
        array_shape one = *a;
        uint32_t *prefix = pool_alloc(s->p, (length + 1) * sizeof *prefix), counted = 0, none = 0;
        if (!prefix || other == FAILED)
            return 0;
        for (uint32_t i = 0; i < length; i++) {
            prefix[i] = goal_and(s, a->prefix[i], choice >> i & 1 ? c->value : other);
            counted += choice >> i & 1;
            none |= prefix[i] == GOAL_NONE;
        }
        uint32_t min = c->min > counted ? c->min - counted : 0;
        if (none || counted > c->max || (!longer && min))
            continue;
        one.prefix = prefix;
        one.n_prefix = length;
        one.min = one.min > length ? one.min : length;
        if (!longer) {
            one.max = one.max < length ? one.max : length;
            one.items = GOAL_NONE;
        }
        if (!put_counted(e, one, c->value, longer ? min : 0, c->max == IR_NO_MAX ? IR_NO_MAX : c->max - counted))
            return 0;
    }
    return 1;
}

static int split_counted(emitter *e, const array_shape *a, const shape_contains *c) {
    if (a->n_prefix == 0)
        return put_counted(e, *a, c->value, c->min, c->max);
    if (a->n_prefix > MAX_COUNTED_PREFIX)
        return schema_refuse(e->s, ENGINE_EUNSUPPORTED, c->origin, "contains", "counting in a prefix of more than %d items",
                             MAX_COUNTED_PREFIX);
    for (uint32_t length = a->min; length < a->n_prefix; length++)
        if (!count_prefix(e, a, c, length, 0))
            return 0;
    return count_prefix(e, a, c, a->n_prefix, 1);
}

/* Several counts: held where each asks for one item at least and none is bounded above, without a prefix. */
static int split_several(emitter *e, const array_shape *a) {
    schema *s = e->s;
    ir_contains *out = pool_alloc(s->p, a->n_contains * sizeof *out);
    for (uint32_t i = 0; i < a->n_contains; i++)
        if (a->contains[i].min != 1 || a->contains[i].max != IR_NO_MAX || a->n_prefix || a->n_contains > MAX_TOGETHER)
            return schema_refuse(s, ENGINE_EUNSUPPORTED, a->contains[i].origin, "contains",
                                 "several counts at once, with bounds or a prefix");
    for (uint32_t i = 0; i < a->n_contains; i++) {
        for (uint32_t j = i + 1; j < a->n_contains; j++) {
            array_shape with = *a;
            shape_contains *list = pool_grow(s->p, a->contains, a->n_contains * sizeof *list, a->n_contains * sizeof *list);
            if (!list)
                return 0;
            list[i].value = goal_and(s, list[i].value, list[j].value);
            memmove(list + j, list + j + 1, (a->n_contains - j - 1) * sizeof *list);
            with.contains = list;
            with.n_contains--;
            int ok = list[i].value == GOAL_NONE || with.n_contains == 1 ? 1 : split_several(e, &with);
            if (list[i].value != GOAL_NONE && with.n_contains == 1)
                ok = split_counted(e, &with, list);
            if (!ok)
                return 0;
        }
    }
    for (uint32_t i = 0; out && i < a->n_contains; i++)
        out[i] = (ir_contains){node_of(e, goal_and(s, a->items, a->contains[i].value)), node_of(e, a->items), 1, IR_NO_MAX};
    return out && put_array(e, a, out, a->n_contains);
}

/* null, true and false that a goal admits, as bits 1, 2 and 4, where it admits nothing else; else 0. */
static int literals_of(schema *s, uint32_t g) {
    const meaning *m = goal_meaning(s, g);
    if (!m || !lang_is_empty(m->number) || !lang_is_empty(m->string) || m->objects.n || m->arrays.n)
        return 0;
    return m->null | m->yes << 1 | m->no << 2;
}

static int is_literal_tuple(schema *s, const array_shape *a) {
    for (uint32_t i = 0; i < a->n_prefix; i++)
        if (!literals_of(s, a->prefix[i]))
            return 0;
    return a->unique && a->n_prefix > 0 && s->p->status == ENGINE_OK;
}

/* A prefix of literals that must differ: a shape for each choice of them, from item i on; `used` stand before.
 * Where none is left the array ends. */
static int split_literals(emitter *e, array_shape a, uint32_t i, int used) {
    static const uint8_t types[3] = {JSON_NULL, JSON_TRUE, JSON_FALSE};
    schema *s = e->s;
    int free = i < a.n_prefix ? literals_of(s, a.prefix[i]) & ~used : 0;
    if (i == a.n_prefix || !free) {
        a.max = i < a.n_prefix && a.max > i ? i : a.max;
        a.unique = a.max > i ? a.unique : NULL;
        return put_array(e, &a, NULL, 0);
    }
    for (int k = 0; k < 3; k++) {
        array_shape one = a;
        uint32_t *prefix = pool_grow(s->p, a.prefix, a.n_prefix * sizeof *prefix, (a.n_prefix + 1) * sizeof *prefix);
        json_value *literal = pool_alloc(s->p, sizeof *literal);
        if (!prefix || !literal)
            return 0;
        literal->type = types[k];
        prefix[i] = goal_of_constant(s, literal, 0);
        one.prefix = prefix;
        if (free >> k & 1 && (prefix[i] == FAILED || !split_literals(e, one, i + 1, used | 1 << k)))
            return 0;
    }
    return 1;
}

static int emit_array(emitter *e, const array_shape *given) {
    schema *s = e->s;
    array_shape a = *given;
    uint32_t *prefix = pool_grow(s->p, a.prefix, a.n_prefix * sizeof *prefix, (a.n_prefix + 1) * sizeof *prefix);
    shape_contains *contains = pool_alloc(s->p, (a.n_contains + 1) * sizeof *contains);
    if (!prefix || !contains)
        return 0;
    a.n_contains = 0;
    a.prefix = prefix;
    for (uint32_t i = 0; i < given->n_contains; i++) {
        const shape_contains *c = &given->contains[i];
        if (c->value == GOAL_ANY) { /* counts all */
            a.min = a.min > c->min ? a.min : c->min;
            a.max = a.max < c->max ? a.max : c->max;
        } else if (c->max == 0) {
            for (uint32_t j = 0; j < a.n_prefix; j++)
                prefix[j] = goal_and(s, prefix[j], goal_not(s, c->value));
            a.items = goal_and(s, a.items, goal_not(s, c->value));
        }
        if (c->value != GOAL_ANY && (c->min || (c->max && c->max != IR_NO_MAX)))
            contains[a.n_contains++] = *c;
        if (c->min > c->max)
            return 1;
    }
    a.contains = contains;
    if (a.n_contains == 0)
        return is_literal_tuple(s, &a) ? split_literals(e, a, 0, 0) : put_array(e, &a, NULL, 0);
    return a.n_contains == 1 ? split_counted(e, &a, contains) : split_several(e, &a);
}

/* ---- Nodes -------------------------------------------------------------------------------------------------- */

static int emit_node(emitter *e, uint32_t node, ir_node *out) {
    schema *s = e->s;
    const meaning *m = goal_meaning(s, e->goal_at[node]);
    if (!m)
        return 0;
    *out = (ir_node){.admits_null = m->null, .admits_true = m->yes, .admits_false = m->no, .number = m->number,
                     .string = m->string};
    e->objects = NULL;
    e->arrays = NULL;
    e->n_objects = e->cap_objects = e->n_arrays = e->cap_arrays = 0;
    for (uint32_t i = 0; i < m->objects.n; i++)
        if (!split_some(e, *(const object_shape *)m->objects.at[i], 0))
            return 0;
    for (uint32_t i = 0; i < m->arrays.n; i++) {
        const array_shape *a = m->arrays.at[i];
        if (a->unique)
            e->unique[node] = a->unique;
        if (!emit_array(e, a))
            return 0;
    }
    out->objects = e->objects;
    out->n_objects = e->n_objects;
    out->arrays = e->arrays;
    out->n_arrays = e->n_arrays;
    return 1;
}

int schema_emit(schema *s, uint32_t root, ir_program *out) {
    emitter *e = pool_alloc(s->p, sizeof *e);
    uint32_t cap = 0;
    if (!e)
        return 0;
    e->s = s;
    if (node_of(e, GOAL_NONE) != IR_NODE_NONE || node_of(e, GOAL_ANY) != IR_NODE_ANY)
        return 0;
    out->root = node_of(e, root);
    for (uint32_t i = 0; i < e->n_nodes; i++) {
        if (i == cap) {
            uint32_t more = e->cap_nodes;
            ir_node *grown = pool_grow(s->p, out->nodes, cap * sizeof *grown, more * sizeof *grown);
            if (!grown)
                return 0;
            out->nodes = grown;
            cap = more;
        }
        if (!emit_node(e, i, &out->nodes[i])) {
            atom a = s->goals[e->goal_at[i]].n ? s->atoms[s->goals[e->goal_at[i]].atoms[0] / 2] : (atom){0};
            schema_locate(s, a.value ? a.value : s->root, NULL);
            return 0;
        }
    }
    out->n_nodes = e->n_nodes;
    out->langs = s->langs;
    s->unique_at = e->unique;
    return s->p->status == ENGINE_OK;
}
