/* schema_unevaluated.c: unevaluatedProperties and unevaluatedItems. A schema that has one is taken apart into
 * *outcomes*: what it admits where certain branches hold, and which keys and how many first items those
 * branches evaluate. Keys are a language, so "not evaluated" is its complement. Branches that may hold
 * together (anyOf) are taken in every combination, so what comes out is exact; too many are refused. */
#include "schema.h"

enum { MAX_OUTCOMES = 64 };

typedef struct outcome {
    const meaning *means;
    const lang *keys;              /* evaluated */
    uint32_t items;                /* the first ones evaluated; UINT32_MAX: all */
    int counted;                   /* `contains` evaluated items that are not the first */
} outcome;

typedef struct outcomes {
    outcome at[MAX_OUTCOMES];
    uint32_t n;
} outcomes;

static int collect(schema *s, const json_value *v, outcomes *out);

static int put(schema *s, const json_value *v, outcomes *out, outcome o) {
    if (!o.means || !o.keys)
        return 0;
    for (uint32_t i = 0; i < out->n; i++) {
        outcome *k = &out->at[i];
        if (k->keys == o.keys && k->items == o.items && k->counted == o.counted) {
            k->means = meaning_or(s, k->means, o.means);
            return k->means != NULL;
        }
    }
    if (out->n == MAX_OUTCOMES)
        return schema_refuse(s, ENGINE_EUNSUPPORTED, v, "unevaluatedProperties", "more than %d ways to be evaluated",
                             MAX_OUTCOMES);
    out->at[out->n++] = o;
    return 1;
}

static outcomes *fresh(schema *s) {
    return pool_alloc(s->p, sizeof(outcomes));
}

/* Both hold: meanings meet, what is evaluated adds up. */
static int join(schema *s, const json_value *v, const outcomes *a, const outcomes *b, outcomes *out) {
    for (uint32_t i = 0; i < a->n; i++) {
        for (uint32_t j = 0; j < b->n; j++) {
            const outcome *x = &a->at[i], *y = &b->at[j];
            outcome both = {meaning_and(s, x->means, y->means), lang_or(s->langs, x->keys, y->keys),
                            x->items > y->items ? x->items : y->items, x->counted | y->counted};
            if (!put(s, v, out, both))
                return 0;
        }
    }
    return 1;
}

/* The outcomes in a that are within m, or outside it. */
static int limit(schema *s, const json_value *v, const outcomes *a, const meaning *m, int outside, outcomes *out) {
    for (uint32_t i = 0; m && i < a->n; i++) {
        outcome one = a->at[i];
        one.means = outside ? meaning_minus(s, one.means, m) : meaning_and(s, one.means, m);
        if (!put(s, v, out, one))
            return 0;
    }
    return m != NULL;
}

/* *all joined with the outcomes of v. */
static int join_schema(schema *s, const json_value *v, outcomes **all) {
    outcomes *own = fresh(s), *both = fresh(s);
    if (!own || !both || !collect(s, v, own) || !join(s, v, *all, own, both))
        return 0;
    *all = both;
    return 1;
}

static int any_of(schema *s, const json_value *list, outcomes **all) {
    const meaning *any = s->nothing;
    for (uint32_t i = 0; i < list->n; i++) {
        outcomes *with = *all, *next = fresh(s);
        const meaning *m = schema_meaning(s, list->items[i]);
        any = m ? meaning_or(s, any, m) : NULL;
        if (!any || !next || !join_schema(s, list->items[i], &with) || !limit(s, list, *all, m, 1, next))
            return 0;
        for (uint32_t j = 0; j < with->n; j++)
            if (!put(s, list, next, with->at[j]))
                return 0;
        *all = next;
    }
    outcomes *next = fresh(s);
    if (!next || !limit(s, list, *all, any, 0, next))
        return 0;
    *all = next;
    return 1;
}

static int one_of(schema *s, const json_value *list, outcomes **all) {
    outcomes *next = fresh(s);
    for (uint32_t i = 0; next && i < list->n; i++) {
        outcomes *with = *all;
        if (!join_schema(s, list->items[i], &with))
            return 0;
        for (uint32_t j = 0; j < list->n; j++) {
            outcomes *left = fresh(s);
            if (j == i)
                continue;
            if (!left || !limit(s, list, with, schema_meaning(s, list->items[j]), 1, left))
                return 0;
            with = left;
        }
        for (uint32_t j = 0; j < with->n; j++)
            if (!put(s, list, next, with->at[j]))
                return 0;
    }
    *all = next;
    return next != NULL;
}

static int conditional(schema *s, const json_value *v, const json_value *const *kw, outcomes **all) {
    outcomes *yes = *all, *no = fresh(s);
    if (!no || !limit(s, v, *all, schema_meaning(s, kw[KW_IF]), 1, no) || !join_schema(s, kw[KW_IF], &yes))
        return 0;
    if ((kw[KW_THEN] && !join_schema(s, kw[KW_THEN], &yes)) || (kw[KW_ELSE] && !join_schema(s, kw[KW_ELSE], &no)))
        return 0;
    outcomes *next = fresh(s);
    if (!next)
        return 0;
    for (uint32_t i = 0; i < yes->n + no->n; i++)
        if (!put(s, v, next, i < yes->n ? yes->at[i] : no->at[i - yes->n]))
            return 0;
    *all = next;
    return 1;
}

static int dependent(schema *s, const json_member *m, outcomes **all) {
    meaning has = *s->nothing;
    const key_text *key = schema_key(s, m->key, m->len);
    has.objects = (shape_list){0};
    if (!key || !shape_add(s, &has.objects, object_with_key(s, key, GOAL_ANY, 1)))
        return 0;
    outcomes *with = fresh(s), *without = fresh(s);
    if (!with || !without || !limit(s, m->value, *all, &has, 0, with) || !limit(s, m->value, *all, &has, 1, without) ||
        !join_schema(s, m->value, &with))
        return 0;
    for (uint32_t i = 0; i < with->n; i++)
        if (!put(s, m->value, without, with->at[i]))
            return 0;
    *all = without;
    return 1;
}

/* Keys that properties, patternProperties and their like evaluate. */
static const lang *own_keys(schema *s, const json_value *v, const json_value *const *kw) {
    const lang *keys = lang_empty(s->langs);
    if (kw[KW_ADDITIONAL_PROPERTIES] || kw[KW_UNEVALUATED_PROPERTIES])
        return lang_all(s->langs);
    for (uint32_t i = 0; keys && kw[KW_PROPERTIES] && i < kw[KW_PROPERTIES]->n; i++) {
        uint64_t len = kw[KW_PROPERTIES]->members[i].len;
        const lang *one = lang_words_of(s->langs, &kw[KW_PROPERTIES]->members[i].key, &len, 1);
        keys = one ? lang_or(s->langs, keys, one) : NULL;
    }
    for (uint32_t i = 0; keys && kw[KW_PATTERN_PROPERTIES] && i < kw[KW_PATTERN_PROPERTIES]->n; i++) {
        const json_member *m = &kw[KW_PATTERN_PROPERTIES]->members[i];
        const lang *one = schema_pattern(s, v, "patternProperties", m->key, m->len);
        keys = one ? lang_or(s->langs, keys, one) : NULL;
    }
    return keys;
}

static uint32_t own_items(const json_value *const *kw) {
    const json_value *items = kw[KW_ITEMS];
    if (kw[KW_UNEVALUATED_ITEMS] || (items && items->type != JSON_ARRAY) || (items && kw[KW_ADDITIONAL_ITEMS]))
        return UINT32_MAX;
    return items ? items->n : kw[KW_PREFIX_ITEMS] ? kw[KW_PREFIX_ITEMS]->n : 0;
}

/* The outcomes of the applicators of a schema object; base is all that the others say. */
static int branches(schema *s, const json_value *v, const json_value *const *kw, const meaning *base, outcomes **out) {
    outcomes *all = fresh(s);
    const json_value *maps[] = {kw[KW_DEPENDENT_SCHEMAS], kw[KW_DEPENDENCIES]};
    if (!all || !put(s, v, all, (outcome){base, lang_empty(s->langs), 0, kw[KW_CONTAINS] && schema_draft(v) >= DRAFT_2020}))
        return 0;
    const json_value *target = kw[KW_REF] ? schema_resolve(s, v, kw[KW_REF]) : NULL;
    if (kw[KW_REF] && (!target || !join_schema(s, target, &all)))
        return 0;
    for (uint32_t i = 0; kw[KW_ALL_OF] && i < kw[KW_ALL_OF]->n; i++)
        if (!join_schema(s, kw[KW_ALL_OF]->items[i], &all))
            return 0;
    for (uint32_t i = 0; i < 2; i++)
        for (uint32_t j = 0; maps[i] && j < maps[i]->n; j++)
            if (maps[i]->members[j].value->type != JSON_ARRAY && !dependent(s, &maps[i]->members[j], &all))
                return 0;
    if ((kw[KW_ANY_OF] && !any_of(s, kw[KW_ANY_OF], &all)) || (kw[KW_ONE_OF] && !one_of(s, kw[KW_ONE_OF], &all)) ||
        (kw[KW_IF] && !conditional(s, v, kw, &all)))
        return 0;
    *out = all;
    return 1;
}

static int collect(schema *s, const json_value *v, outcomes *out) {
    const meaning *m = schema_meaning(s, v);
    if (!m || v->type != JSON_OBJECT)
        return m && put(s, v, out, (outcome){m, lang_empty(s->langs), 0, 0});
    const json_value *const *kw = schema_gather(s, v);
    const lang *keys = kw ? own_keys(s, v, kw) : NULL;
    outcomes *all;
    if (!keys || s->depth >= SCHEMA_MAX_DEPTH)
        return 0;
    s->depth++;
    int ok = branches(s, v, kw, m, &all);
    s->depth--;
    for (uint32_t i = 0; ok && i < all->n; i++) {
        outcome one = all->at[i];
        uint32_t items = own_items(kw);
        one.keys = lang_or(s->langs, one.keys, keys);
        one.items = one.items > items ? one.items : items;
        ok = put(s, v, out, one);
    }
    return ok;
}

/* Objects whose keys outside a language have values in a goal; other types are free. */
static const meaning *rest_in(schema *s, const lang *keys, uint32_t value) {
    meaning m = *s->everything;
    object_shape *shape = pool_alloc(s->p, sizeof *shape);
    shape_rest *rest = pool_alloc(s->p, 2 * sizeof *rest);
    const lang *others = lang_not(s->langs, keys);
    m.objects = (shape_list){0};
    if (!shape || !rest || !others || value == UINT32_MAX)
        return NULL;
    *shape = (object_shape){.rest = rest, .max = IR_NO_MAX};
    if (!lang_is_empty(keys))
        rest[shape->n_rest++] = (shape_rest){keys, GOAL_ANY};
    if (!lang_is_empty(others) && value != GOAL_NONE)
        rest[shape->n_rest++] = (shape_rest){others, value};
    return shape_add(s, &m.objects, shape) ? pool_grow(s->p, &m, sizeof m, sizeof m) : NULL;
}

static const meaning *items_in(schema *s, uint32_t first, uint32_t value) {
    meaning m = *s->everything;
    array_shape *shape = pool_alloc(s->p, sizeof *shape);
    uint32_t *prefix = pool_alloc(s->p, ((uint64_t)first + 1) * sizeof *prefix);
    m.arrays = (shape_list){0};
    if (!shape || !prefix || value == UINT32_MAX)
        return NULL;
    for (uint32_t i = 0; i < first; i++)
        prefix[i] = GOAL_ANY;
    *shape = (array_shape){.prefix = prefix, .n_prefix = first, .items = value, .max = IR_NO_MAX};
    return shape_add(s, &m.arrays, shape) ? pool_grow(s->p, &m, sizeof m, sizeof m) : NULL;
}

const meaning *schema_unevaluated(schema *s, const json_value *v, const json_value *const *kw, const meaning *base) {
    const json_value *members = kw[KW_UNEVALUATED_PROPERTIES], *items = kw[KW_UNEVALUATED_ITEMS];
    const meaning *any = s->nothing;
    const json_value *own[KW_COUNT];
    outcomes *all;
    for (uint32_t i = 0; i < KW_COUNT; i++)
        own[i] = i == KW_UNEVALUATED_PROPERTIES || i == KW_UNEVALUATED_ITEMS ? NULL : kw[i];
    const lang *keys = own_keys(s, v, own);
    if (!keys || !branches(s, v, own, base, &all))
        return NULL;
    for (uint32_t i = 0; any && i < all->n; i++) {
        const meaning *m = all->at[i].means;
        const lang *known = lang_or(s->langs, keys, all->at[i].keys);
        uint32_t first = own_items(own);
        first = first > all->at[i].items ? first : all->at[i].items;
        if (members && m && known) {
            const meaning *rest = rest_in(s, known, goal_of_schema(s, members, 0));
            m = rest ? meaning_and(s, m, rest) : NULL;
        }
        if (items && m && first != UINT32_MAX) {
            if (all->at[i].counted && m->arrays.n) {
                schema_refuse(s, ENGINE_EUNSUPPORTED, v, "unevaluatedItems", "beside contains: not held");
                return NULL;
            }
            const meaning *rest = items_in(s, first, goal_of_schema(s, items, 0));
            m = rest ? meaning_and(s, m, rest) : NULL;
        }
        any = m && known ? meaning_or(s, any, m) : NULL;
    }
    return any;
}
