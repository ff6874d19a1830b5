/* schema_boolean.c: and, or, minus of meanings, and the keywords made of them: enum, const, $ref, allOf,
 * anyOf, oneOf, not, if/then/else, schemas that depend on a key. Strings and numbers are exact by closure
 * of regular languages; objects and arrays are lists of shapes that are multiplied out, up to
 * SCHEMA_MAX_SHAPES. oneOf takes away from a branch only what another branch may share with it. */
#include "schema.h"

#include <string.h>

enum { MAX_COMPARED = 64 };

typedef struct algebra {           /* of object shapes, or of array shapes */
    int (*both)(schema *s, any_shape a, any_shape b, any_shape *out);
    int (*exclude)(schema *s, any_shape a, any_shape b);
    int (*complement)(schema *s, any_shape a, shape_list *out);
    int (*within)(schema *s, any_shape a, any_shape b);
} algebra;

static const algebra of_objects = {object_and, objects_exclude, object_not, object_within};
static const algebra of_arrays = {array_and, arrays_exclude, array_not, array_within};

/* ---- Lists of shapes ----------------------------------------------------------------------------------- */

int shape_add(schema *s, shape_list *l, any_shape one) {
    if (!one || !pool_step(s->p, 1))
        return 0;
    if (l->n == l->cap) {
        uint32_t cap = l->cap ? 2 * l->cap : 2;
        any_shape *grown = pool_grow(s->p, l->at, l->n * sizeof *grown, cap * sizeof *grown);
        if (!grown)
            return 0;
        l->at = grown;
        l->cap = cap;
    }
    l->at[l->n++] = one;
    return 1;
}

/* A list that is shared (its capacity is its length) becomes one of its own. */
static int own_list(schema *s, shape_list *l) {
    if (l->cap > l->n)
        return 1;
    any_shape *own = pool_grow(s->p, l->at, l->n * sizeof *own, (l->n + 2) * sizeof *own);
    if (!own)
        return 0;
    l->at = own;
    l->cap = l->n + 2;
    return 1;
}

/* Add what is not in the list yet, and drop what it covers. Long lists are only looked at in part. */
static int add_new(schema *s, const algebra *g, shape_list *l, any_shape one) {
    uint32_t from = l->n > MAX_COMPARED ? l->n - MAX_COMPARED : 0, kept = from;
    for (uint32_t i = from; i < l->n; i++)
        if (g->within(s, one, l->at[i]))
            return 1;
    for (uint32_t i = from; i < l->n; i++) {
        if (!g->within(s, l->at[i], one))
            l->at[kept++] = l->at[i];
        else if (!own_list(s, l)) /* before the first is moved, or the end is written over */
            return 0;
    }
    l->n = kept;
    if (l->n >= SCHEMA_MAX_SHAPES) {
        (void)pool_fail(s->p, ENGINE_EUNSUPPORTED, "the alternatives multiply to more than %d", SCHEMA_MAX_SHAPES);
        return 0;
    }
    return pool_step(s->p, 1 + 8 * (l->n - from)) && shape_add(s, l, one);
}

static int is_any(const schema *s, const shape_list *l) {
    return l->n == 1 && (l->at[0] == s->any_object || l->at[0] == s->any_array);
}

static int list_and(schema *s, const algebra *g, const shape_list *a, const shape_list *b, shape_list *out) {
    *out = (shape_list){0};
    if (is_any(s, a) || is_any(s, b)) {
        *out = is_any(s, a) ? *b : *a;
        out->cap = out->n; /* shared: growing copies */
        return 1;
    }
    for (uint32_t i = 0; i < a->n; i++) {
        for (uint32_t j = 0; j < b->n; j++) {
            any_shape both;
            if (!g->both(s, a->at[i], b->at[j], &both) || (both && !add_new(s, g, out, both)))
                return 0;
        }
    }
    return 1;
}

static int list_or(schema *s, const algebra *g, const shape_list *a, const shape_list *b, shape_list *out) {
    *out = (shape_list){0};
    if (a->n == 0 || b->n == 0 || is_any(s, a) || is_any(s, b)) {
        *out = a->n == 0 || (b->n && is_any(s, b)) ? *b : *a;
        out->cap = out->n;
        return 1;
    }
    *out = *a;
    out->cap = out->n;
    for (uint32_t i = 0; i < b->n; i++)
        if (!add_new(s, g, out, b->at[i]))
            return 0;
    return 1;
}

/* What is left of the shapes in l outside b. */
static int take_away(schema *s, const algebra *g, shape_list *l, any_shape b) {
    shape_list left = {0}, outside = {0};
    int made = 0;
    for (uint32_t i = 0; i < l->n; i++) {
        if (g->exclude(s, l->at[i], b)) {
            if (!add_new(s, g, &left, l->at[i]))
                return 0;
            continue;
        }
        if (!made && !g->complement(s, b, &outside))
            return 0;
        made = 1;
        for (uint32_t j = 0; j < outside.n; j++) {
            any_shape both;
            if (!g->both(s, l->at[i], outside.at[j], &both) || (both && !add_new(s, g, &left, both)))
                return 0;
        }
    }
    *l = left;
    return s->p->status == ENGINE_OK;
}

static int list_minus(schema *s, const algebra *g, const shape_list *a, const shape_list *b, shape_list *out) {
    *out = is_any(s, b) ? (shape_list){0} : *a;
    out->cap = out->n;
    for (uint32_t i = 0; i < b->n && out->n; i++)
        if (!take_away(s, g, out, b->at[i]))
            return 0;
    return 1;
}

/* ---- Meanings --------------------------------------------------------------------------------------------- */

static const meaning *keep(schema *s, meaning m) {
    return m.number && m.string ? pool_grow(s->p, &m, sizeof m, sizeof m) : NULL;
}

const meaning *meaning_and(schema *s, const meaning *a, const meaning *b) {
    meaning m = {.null = a->null & b->null, .yes = a->yes & b->yes, .no = a->no & b->no};
    if (a == b || b == s->everything)
        return a;
    if (a == s->everything)
        return b;
    m.number = lang_and(s->langs, a->number, b->number);
    m.string = lang_and(s->langs, a->string, b->string);
    if (!list_and(s, &of_objects, &a->objects, &b->objects, &m.objects) ||
        !list_and(s, &of_arrays, &a->arrays, &b->arrays, &m.arrays))
        return NULL;
    return keep(s, m);
}

const meaning *meaning_or(schema *s, const meaning *a, const meaning *b) {
    meaning m = {.null = a->null | b->null, .yes = a->yes | b->yes, .no = a->no | b->no};
    if (a == b || b == s->nothing)
        return a;
    if (a == s->nothing)
        return b;
    m.number = lang_or(s->langs, a->number, b->number);
    m.string = lang_or(s->langs, a->string, b->string);
    if (!list_or(s, &of_objects, &a->objects, &b->objects, &m.objects) ||
        !list_or(s, &of_arrays, &a->arrays, &b->arrays, &m.arrays))
        return NULL;
    return keep(s, m);
}

const meaning *meaning_minus(schema *s, const meaning *a, const meaning *b) {
    meaning m = {.null = a->null & !b->null, .yes = a->yes & !b->yes, .no = a->no & !b->no};
    const lang *others = number_not(s, b->number);
    m.number = others ? lang_and(s->langs, a->number, others) : NULL;
    m.string = lang_minus(s->langs, a->string, b->string);
    if (!list_minus(s, &of_objects, &a->objects, &b->objects, &m.objects) ||
        !list_minus(s, &of_arrays, &a->arrays, &b->arrays, &m.arrays))
        return NULL;
    return keep(s, m);
}

/* ---- Keywords ----------------------------------------------------------------------------------------------- */

static const meaning *and_schema(schema *s, const meaning *m, const json_value *v) {
    const meaning *other = v ? schema_meaning(s, v) : NULL;
    return other ? meaning_and(s, m, other) : NULL;
}

static const meaning *minus_schema(schema *s, const meaning *m, const json_value *v) {
    const meaning *other = schema_meaning(s, v);
    return other ? meaning_minus(s, m, other) : NULL;
}

static const meaning *all_of(schema *s, const meaning *m, const json_value *list) {
    for (uint32_t i = 0; m && i < list->n; i++)
        m = and_schema(s, m, list->items[i]);
    return m;
}

static const meaning *any_of(schema *s, const meaning *m, const json_value *list) {
    const meaning *any = s->nothing;
    for (uint32_t i = 0; any && i < list->n; i++) {
        const meaning *one = schema_meaning(s, list->items[i]);
        any = one ? meaning_or(s, any, one) : NULL;
    }
    return any ? meaning_and(s, m, any) : NULL;
}

typedef struct tally {             /* scalars that exactly one branch admits, and that several do */
    meaning once, more;
} tally;

static int add_tallies(schema *s, const tally *a, const tally *b, tally *out) {
    const lang *number = lang_and(s->langs, a->once.number, b->once.number);
    const lang *string = lang_and(s->langs, a->once.string, b->once.string);
    uint8_t null = a->once.null & b->once.null, yes = a->once.yes & b->once.yes, no = a->once.no & b->once.no;
    if (!number || !string)
        return 0;
    out->more = (meaning){.null = a->more.null | b->more.null | null, .yes = a->more.yes | b->more.yes | yes,
                          .no = a->more.no | b->more.no | no,
                          .number = lang_or(s->langs, lang_or(s->langs, a->more.number, b->more.number), number),
                          .string = lang_or(s->langs, lang_or(s->langs, a->more.string, b->more.string), string)};
    out->once = (meaning){.null = (a->once.null | b->once.null) & !out->more.null,
                          .yes = (a->once.yes | b->once.yes) & !out->more.yes,
                          .no = (a->once.no | b->once.no) & !out->more.no,
                          .number = lang_or(s->langs, a->once.number, b->once.number),
                          .string = lang_or(s->langs, a->once.string, b->once.string)};
    if (!out->more.number || !out->more.string || !out->once.number || !out->once.string)
        return 0;
    if (!lang_is_empty(out->more.number)) {
        const lang *others = number_not(s, out->more.number);
        out->once.number = others ? lang_and(s->langs, out->once.number, others) : NULL;
    }
    out->once.string = lang_minus(s->langs, out->once.string, out->more.string);
    return out->once.number && out->once.string && pool_step(s->p, 1);
}

/* The tally of n branches, by halves. */
static int tally_of(schema *s, const meaning *const *whole, uint32_t n, tally *out) {
    tally left, right;
    if (n == 1) {
        *out = (tally){*whole[0], *s->nothing};
        out->once.objects = out->once.arrays = (shape_list){0};
        return 1;
    }
    return tally_of(s, whole, n / 2, &left) && tally_of(s, whole + n / 2, n - n / 2, &right) &&
           add_tallies(s, &left, &right, out);
}

/* Objects and arrays of branch i outside the other branches, added to out. */
static int one_alone(schema *s, const meaning *m, const meaning *const *whole, uint32_t n, uint32_t i, meaning *out) {
    shape_list objects, arrays;
    if (!list_and(s, &of_objects, &m->objects, &whole[i]->objects, &objects) ||
        !list_and(s, &of_arrays, &m->arrays, &whole[i]->arrays, &arrays))
        return 0;
    for (uint32_t j = 0; j < n && (objects.n || arrays.n); j++) {
        if (j == i)
            continue;
        if (!pool_step(s->p, 1) || !list_minus(s, &of_objects, &objects, &whole[j]->objects, &objects) ||
            !list_minus(s, &of_arrays, &arrays, &whole[j]->arrays, &arrays))
            return 0;
    }
    for (uint32_t j = 0; j < objects.n; j++)
        if (!add_new(s, &of_objects, &out->objects, objects.at[j]))
            return 0;
    for (uint32_t j = 0; j < arrays.n; j++)
        if (!add_new(s, &of_arrays, &out->arrays, arrays.at[j]))
            return 0;
    return 1;
}

static const meaning *one_of(schema *s, const meaning *m, const json_value *list) {
    const meaning **whole = pool_alloc(s->p, list->n * sizeof *whole);
    tally scalars;
    if (!whole)
        return NULL;
    for (uint32_t i = 0; i < list->n; i++)
        if (!(whole[i] = schema_meaning(s, list->items[i])))
            return NULL;
    if (!tally_of(s, whole, list->n, &scalars))
        return NULL;
    meaning one = scalars.once;
    one.null &= m->null;
    one.yes &= m->yes;
    one.no &= m->no;
    one.number = lang_and(s->langs, one.number, m->number);
    one.string = lang_and(s->langs, one.string, m->string);
    for (uint32_t i = 0; i < list->n; i++)
        if (!one_alone(s, m, whole, list->n, i, &one))
            return NULL;
    return keep(s, one);
}

static const meaning *conditional(schema *s, const meaning *m, const json_value *const *kw) {
    if (!kw[KW_THEN] && !kw[KW_ELSE])
        return m;
    const meaning *yes = and_schema(s, m, kw[KW_IF]);
    const meaning *no = yes ? minus_schema(s, m, kw[KW_IF]) : NULL;
    if (no && kw[KW_THEN])
        yes = and_schema(s, yes, kw[KW_THEN]);
    if (no && kw[KW_ELSE])
        no = and_schema(s, no, kw[KW_ELSE]);
    return yes && no ? meaning_or(s, yes, no) : NULL;
}

/* Where the key occurs the schema counts. */
static const meaning *dependent(schema *s, const meaning *m, const json_member *member) {
    const key_text *key = schema_key(s, member->key, member->len);
    meaning lacks = *s->everything, has = *s->nothing;
    lacks.objects = (shape_list){0};
    if (!key || !shape_add(s, &lacks.objects, object_with_key(s, key, GOAL_NONE, 0)) ||
        !shape_add(s, &has.objects, object_with_key(s, key, GOAL_ANY, 1)))
        return NULL;
    const meaning *without = meaning_and(s, m, &lacks), *with = meaning_and(s, m, &has);
    with = with ? and_schema(s, with, member->value) : NULL;
    return without && with ? meaning_or(s, without, with) : NULL;
}

static const meaning *dependents(schema *s, const meaning *m, const json_value *map) {
    for (uint32_t i = 0; m && i < map->n; i++)
        if (map->members[i].value->type != JSON_ARRAY && map->members[i].value->type != JSON_TRUE)
            m = dependent(s, m, &map->members[i]);
    return m;
}

static const meaning *refer(schema *s, const meaning *m, const json_value *v, const json_value *ref) {
    const json_value *target = schema_resolve(s, v, ref);
    return target ? and_schema(s, m, target) : NULL;
}

static const meaning *apply(schema *s, const meaning *m, const json_value *v, const json_value *const *kw, keyword_id k) {
    const json_value *const *values = (const json_value *const *)kw[k]->items;
    switch (k) {
    case KW_ENUM: {
        const meaning *e = schema_enum(s, values, kw[k]->n);
        return e ? meaning_and(s, m, e) : NULL;
    }
    case KW_CONST: {
        const meaning *e = schema_enum(s, &kw[k], 1);
        return e ? meaning_and(s, m, e) : NULL;
    }
    case KW_REF: return refer(s, m, v, kw[k]);
    case KW_ALL_OF: return all_of(s, m, kw[k]);
    case KW_ANY_OF: return any_of(s, m, kw[k]);
    case KW_ONE_OF: return one_of(s, m, kw[k]);
    case KW_NOT: return minus_schema(s, m, kw[k]);
    case KW_IF: return conditional(s, m, kw);
    default: return dependents(s, m, kw[k]);
    }
}

/* A dynamic reference where only one target can be meant is a plain one. */
static int settle_dynamic(schema *s, const json_value *v, const json_value *const *kw, const json_value **ref) {
    const json_value *dynamic = kw[KW_DYNAMIC_REF] ? kw[KW_DYNAMIC_REF] : kw[KW_RECURSIVE_REF];
    *ref = dynamic;
    if (!dynamic || schema_is_static(s, dynamic))
        return 1;
    return schema_refuse(s, ENGINE_EUNSUPPORTED, v, kw[KW_DYNAMIC_REF] ? "$dynamicRef" : "$recursiveRef",
                         "several targets by the way it is reached: not held");
}

const meaning *schema_combine(schema *s, const json_value *v, const json_value *const *kw, const meaning *base) {
    static const struct { keyword_id k; const char *name; } rows[] = {
        {KW_ENUM, "enum"}, {KW_CONST, "const"}, {KW_REF, "$ref"}, {KW_ALL_OF, "allOf"}, {KW_ANY_OF, "anyOf"},
        {KW_NOT, "not"}, {KW_DEPENDENT_SCHEMAS, "dependentSchemas"}, {KW_DEPENDENCIES, "dependencies"}, {KW_IF, "if"},
        {KW_ONE_OF, "oneOf"}};
    const json_value *dynamic;
    if (!settle_dynamic(s, v, kw, &dynamic))
        return NULL;
    if (dynamic)
        base = refer(s, base, v, dynamic);
    for (size_t i = 0; base && i < sizeof rows / sizeof *rows; i++) {
        if (!kw[rows[i].k])
            continue;
        base = apply(s, base, v, kw, rows[i].k);
        if (!base)
            schema_locate(s, v, rows[i].name);
    }
    if (base && (kw[KW_UNEVALUATED_PROPERTIES] || kw[KW_UNEVALUATED_ITEMS])) {
        base = schema_unevaluated(s, v, kw, base);
        if (!base)
            schema_locate(s, v, kw[KW_UNEVALUATED_PROPERTIES] ? "unevaluatedProperties" : "unevaluatedItems");
    }
    return base;
}
