/* schema_array.c: the algebra of array shapes: from keywords, from a constant, and, complement. Counts of
 * `contains` are over all items here; schema_emit.c brings them into the program's form. What a
 * complement cannot say (uniqueItems; items behind a long prefix) is refused by name. See schema.h. */
#include "schema.h"

#include <string.h>

#define FAILED UINT32_MAX

enum { MAX_NOT_PREFIX = 4 };

static const array_shape *keep(schema *s, array_shape shape) {
    return pool_grow(s->p, &shape, sizeof shape, sizeof shape);
}

static int prefix_of(schema *s, const json_value *list, array_shape *out) {
    uint32_t *prefix = pool_alloc(s->p, ((uint64_t)list->n + 1) * sizeof *prefix);
    if (!prefix)
        return 0;
    for (uint32_t i = 0; i < list->n; i++)
        if ((prefix[i] = goal_of_schema(s, list->items[i], 0)) == FAILED)
            return 0;
    out->prefix = prefix;
    out->n_prefix = list->n;
    return 1;
}

static int contains_of(schema *s, const json_value *v, const json_value *const *kw, array_shape *out) {
    shape_contains *c = pool_alloc(s->p, sizeof *c);
    if (!c)
        return 0;
    *c = (shape_contains){goal_of_schema(s, kw[KW_CONTAINS], 0), 1, IR_NO_MAX, v};
    if (c->value == FAILED)
        return 0;
    if (kw[KW_MIN_CONTAINS])
        (void)schema_count(kw[KW_MIN_CONTAINS], &c->min);
    if (kw[KW_MAX_CONTAINS])
        (void)schema_count(kw[KW_MAX_CONTAINS], &c->max);
    if (c->min == 0 && c->max == IR_NO_MAX)
        return 1;
    out->contains = c;
    out->n_contains = 1;
    return 1;
}

const array_shape *array_of_schema(schema *s, const json_value *v, const json_value *const *kw) {
    array_shape a = {.items = GOAL_ANY, .max = IR_NO_MAX};
    const json_value *later = kw[KW_ITEMS];
    if (kw[KW_PREFIX_ITEMS]) {
        if (later && later->type == JSON_ARRAY) {
            schema_refuse(s, ENGINE_EFORMAT, v, "items", "it must be a schema beside prefixItems");
            return NULL;
        }
        if (!prefix_of(s, kw[KW_PREFIX_ITEMS], &a))
            return NULL;
    } else if (later && later->type == JSON_ARRAY) { /* before 2020-12; held there too where it is written so */
        if (!prefix_of(s, later, &a))
            return NULL;
        later = kw[KW_ADDITIONAL_ITEMS];
    }
    if (later && (a.items = goal_of_schema(s, later, 0)) == FAILED)
        return NULL;
    if (kw[KW_CONTAINS] && !contains_of(s, v, kw, &a))
        return NULL;
    if (kw[KW_MIN_ITEMS])
        (void)schema_count(kw[KW_MIN_ITEMS], &a.min);
    if (kw[KW_MAX_ITEMS])
        (void)schema_count(kw[KW_MAX_ITEMS], &a.max);
    if (kw[KW_UNIQUE_ITEMS] && kw[KW_UNIQUE_ITEMS]->type == JSON_TRUE && a.max > 1)
        a.unique = v;
    return array_within(s, s->any_array, &a) ? s->any_array : keep(s, a);
}

const array_shape *array_of_constant(schema *s, const json_value *v) {
    uint32_t *prefix = pool_alloc(s->p, ((uint64_t)v->n + 1) * sizeof *prefix);
    if (!prefix)
        return NULL;
    for (uint32_t i = 0; i < v->n; i++)
        if ((prefix[i] = goal_of_constant(s, v->items[i], 0)) == FAILED)
            return NULL;
    return keep(s, (array_shape){.prefix = prefix, .n_prefix = v->n, .items = GOAL_NONE, .min = v->n, .max = v->n});
}

static uint32_t position(const array_shape *a, uint32_t i) {
    return i < a->n_prefix ? a->prefix[i] : a->items;
}

int array_excluded(schema *s, const array_shape *a, uint32_t depth) {
    if (a->min > a->max)
        return 1;
    for (uint32_t i = 0; i < a->min && i <= a->n_prefix; i++) {
        uint32_t g = position(a, i);
        if (g == GOAL_NONE || (depth && goal_excluded(s, g, depth - 1)))
            return 1;
    }
    return 0;
}

int array_and(schema *s, any_shape x, any_shape y, any_shape *out) {
    const array_shape *a = x, *b = y;
    array_shape both = {.min = a->min > b->min ? a->min : b->min, .max = a->max < b->max ? a->max : b->max};
    *out = NULL;
    if (a == s->any_array || b == s->any_array) {
        *out = a == s->any_array ? b : a;
        return 1;
    }
    both.n_prefix = a->n_prefix > b->n_prefix ? a->n_prefix : b->n_prefix;
    uint32_t *prefix = pool_alloc(s->p, ((uint64_t)both.n_prefix + 1) * sizeof *prefix);
    shape_contains *contains = pool_alloc(s->p, (a->n_contains + b->n_contains + 1) * sizeof *contains);
    if (!prefix || !contains || !pool_step(s->p, both.n_prefix + 1))
        return 0;
    for (uint32_t i = 0; i < both.n_prefix; i++)
        if ((prefix[i] = goal_and(s, position(a, i), position(b, i))) == FAILED)
            return 0;
    both.items = goal_and(s, a->items, b->items);
    both.prefix = prefix;
    for (uint32_t i = 0; i < a->n_contains; i++)
        contains[i] = a->contains[i];
    both.n_contains = a->n_contains;
    for (uint32_t i = 0; i < b->n_contains; i++) {
        uint32_t j = 0;
        while (j < both.n_contains && (contains[j].value != b->contains[i].value || contains[j].min != b->contains[i].min ||
                                        contains[j].max != b->contains[i].max))
            j++;
        if (j == both.n_contains)
            contains[both.n_contains++] = b->contains[i];
    }
    both.contains = contains;
    both.unique = a->unique ? a->unique : b->unique;
    if (both.items == FAILED)
        return 0;
    if (!array_excluded(s, &both, 3))
        *out = keep(s, both);
    return s->p->status == ENGINE_OK;
}

int arrays_exclude(schema *s, any_shape a, any_shape b) {
    any_shape both;
    return array_and(s, a, b, &both) && !both;
}

/* ---- Complement ------------------------------------------------------------------------------------- */

static int add(schema *s, shape_list *l, array_shape one) {
    return shape_add(s, l, keep(s, one));
}

/* Item i exists and is outside its goal. */
static int not_prefix(schema *s, const array_shape *a, shape_list *out) {
    for (uint32_t i = 0; i < a->n_prefix; i++) {
        if (a->prefix[i] == GOAL_ANY)
            continue;
        array_shape shape = *s->any_array;
        uint32_t *prefix = pool_alloc(s->p, (i + 1) * sizeof *prefix);
        if (!prefix || !pool_step(s->p, i + 1))
            return 0;
        for (uint32_t j = 0; j < i; j++)
            prefix[j] = GOAL_ANY;
        prefix[i] = goal_not(s, a->prefix[i]);
        shape.prefix = prefix;
        shape.n_prefix = shape.min = i + 1;
        if (prefix[i] == FAILED || !add(s, out, shape))
            return 0;
    }
    return 1;
}

/* Some item after the prefix is outside `items`. Counting is over all items, so each choice of which items
 * of the prefix are outside is a shape of its own. */
static int not_items(schema *s, const json_value *at, const array_shape *a, shape_list *out) {
    array_shape shape = *s->any_array;
    uint32_t outside = goal_not(s, a->items);
    if (outside == FAILED || outside == GOAL_NONE)
        return outside == GOAL_NONE;
    if (outside == GOAL_ANY) { /* closed: longer is outside */
        shape.min = a->n_prefix + 1;
        return add(s, out, shape);
    }
    if (a->n_prefix > MAX_NOT_PREFIX)
        return schema_refuse(s, ENGINE_EUNSUPPORTED, at, "not", "items behind a prefix of more than %d", MAX_NOT_PREFIX);
    for (uint32_t choice = 0; choice < 1u << a->n_prefix; choice++) {
        uint32_t *prefix = pool_alloc(s->p, (a->n_prefix + 1) * sizeof *prefix);
        shape_contains *c = pool_alloc(s->p, sizeof *c);
        if (!prefix || !c)
            return 0;
        *c = (shape_contains){outside, 1, IR_NO_MAX, at};
        for (uint32_t i = 0; i < a->n_prefix; i++) {
            prefix[i] = choice >> i & 1 ? outside : a->items;
            c->min += choice >> i & 1;
        }
        shape.prefix = prefix;
        shape.n_prefix = a->n_prefix;
        shape.contains = c;
        shape.n_contains = 1;
        shape.min = a->n_prefix + 1;
        if (!add(s, out, shape))
            return 0;
    }
    return 1;
}

static int not_contains(schema *s, const array_shape *a, shape_list *out) {
    for (uint32_t i = 0; i < a->n_contains; i++) {
        for (int few = 0; few < 2; few++) {
            const shape_contains *c = &a->contains[i];
            array_shape shape = *s->any_array;
            shape_contains *other = pool_alloc(s->p, sizeof *other);
            if (few ? c->min == 0 : c->max == IR_NO_MAX)
                continue;
            if (!other)
                return 0;
            *other = few ? (shape_contains){c->value, 0, c->min - 1, c->origin}
                         : (shape_contains){c->value, c->max + 1, IR_NO_MAX, c->origin};
            shape.contains = other;
            shape.n_contains = 1;
            if (!add(s, out, shape))
                return 0;
        }
    }
    return 1;
}

int array_not(schema *s, any_shape x, shape_list *out) {
    const array_shape *a = x;
    array_shape few = *s->any_array, many = *s->any_array;
    if (a->unique)
        return schema_refuse(s, ENGINE_EUNSUPPORTED, a->unique, "uniqueItems", "it is negated (by not, oneOf, if): not held");
    if (!not_prefix(s, a, out) || !not_items(s, s->root, a, out) || !not_contains(s, a, out))
        return 0;
    few.max = a->min - 1;
    many.min = a->max + 1;
    return (a->min == 0 || add(s, out, few)) && (a->max == IR_NO_MAX || add(s, out, many));
}

int array_within(schema *s, any_shape x, any_shape y) {
    const array_shape *a = x, *b = y;
    uint32_t n = a->n_prefix > b->n_prefix ? a->n_prefix : b->n_prefix;
    if (a == b)
        return 1;
    if (a->min < b->min || a->max > b->max || (b->unique && !a->unique) || !goal_within(s, a->items, b->items))
        return 0;
    for (uint32_t i = 0; i < n; i++)
        if (!goal_within(s, position(a, i), position(b, i)))
            return 0;
    for (uint32_t i = 0; i < b->n_contains; i++) {
        uint32_t j = 0;
        while (j < a->n_contains && (a->contains[j].value != b->contains[i].value ||
                                     a->contains[j].min < b->contains[i].min || a->contains[j].max > b->contains[i].max))
            j++;
        if (j == a->n_contains)
            return 0;
    }
    return 1;
}
