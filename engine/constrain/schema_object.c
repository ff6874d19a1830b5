/* schema_object.c: the algebra of object shapes: from keywords, from a constant, and, complement, and
 * whether two exclude one another. Keys that are declared nowhere in a shape are cut into disjoint
 * languages (patternProperties, additionalProperties, propertyNames), so that a conjunction is member by
 * member. See schema.h. */
#include "schema.h"

#define FAILED UINT32_MAX

/* A shape in the making. */
typedef struct maker {
    shape_key *keys;
    uint32_t n_keys, cap_keys;
    shape_rest *rest;
    uint32_t n_rest;
    shape_implies *implies;
    uint32_t n_implies, cap_implies;
} maker;

static int maker_key(schema *s, maker *m, shape_key k) {
    if (k.value == FAILED || !k.key)
        return 0;
    if (m->n_keys == m->cap_keys) {
        uint32_t cap = m->cap_keys ? 2 * m->cap_keys : 8;
        shape_key *grown = pool_grow(s->p, m->keys, m->n_keys * sizeof *grown, cap * sizeof *grown);
        if (!grown)
            return 0;
        m->keys = grown;
        m->cap_keys = cap;
    }
    m->keys[m->n_keys++] = k;
    return 1;
}

static int maker_implies(schema *s, maker *m, shape_implies i) {
    if (m->n_implies == m->cap_implies) {
        uint32_t cap = m->cap_implies ? 2 * m->cap_implies : 8;
        shape_implies *grown = pool_grow(s->p, m->implies, m->n_implies * sizeof *grown, cap * sizeof *grown);
        if (!grown)
            return 0;
        m->implies = grown;
        m->cap_implies = cap;
    }
    m->implies[m->n_implies++] = i;
    return 1;
}

static const object_shape *keep(schema *s, object_shape shape) {
    return pool_grow(s->p, &shape, sizeof shape, sizeof shape);
}

/* The goal of an undeclared key. */
static uint32_t rest_value(const object_shape *o, const key_text *key) {
    for (uint32_t i = 0; i < o->n_rest; i++)
        if (lang_is_all(o->rest[i].keys) || lang_holds(o->rest[i].keys, key->text, key->len))
            return o->rest[i].value;
    return GOAL_NONE;
}

static void mark_keys(schema *s, const shape_key *keys, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        s->mark[keys[i].key->id] = i + 1;
}

static void clear_marks(schema *s, const shape_key *keys, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        s->mark[keys[i].key->id] = 0;
}

/* ---- From keywords ----------------------------------------------------------------------------------- */

typedef struct piece {             /* keys that the same patterns match */
    const lang *keys;
    uint32_t value;
    int matched;                   /* by some pattern: additionalProperties does not count */
} piece;

typedef struct partition {
    piece pieces[SCHEMA_MAX_PIECES];
    uint32_t n;
} partition;

static int add_piece(schema *s, const json_value *v, partition *out, piece p) {
    if (!p.keys || p.value == FAILED)
        return 0;
    if (lang_is_empty(p.keys))
        return 1;
    for (uint32_t i = 0; i < out->n; i++) {
        if (out->pieces[i].value == p.value && out->pieces[i].matched == p.matched) {
            out->pieces[i].keys = lang_or(s->langs, out->pieces[i].keys, p.keys);
            return out->pieces[i].keys != NULL;
        }
    }
    if (out->n == SCHEMA_MAX_PIECES)
        return schema_refuse(s, ENGINE_EUNSUPPORTED, v, "patternProperties", "the patterns overlap in more than %d ways",
                             SCHEMA_MAX_PIECES);
    out->pieces[out->n++] = p;
    return 1;
}

/* Cut the pieces by one more language of keys, whose values must be in a goal. */
static int cut_pieces(schema *s, const json_value *v, partition *p, const lang *by, uint32_t value) {
    partition *was = pool_grow(s->p, p, sizeof *p, sizeof *p);
    if (!was || !by || value == FAILED)
        return 0;
    p->n = 0;
    for (uint32_t i = 0; i < was->n; i++) {
        piece in = was->pieces[i], out = was->pieces[i];
        in.keys = lang_and(s->langs, in.keys, by);
        in.value = goal_and(s, in.value, value);
        in.matched = 1;
        out.keys = lang_minus(s->langs, out.keys, by);
        if (!add_piece(s, v, p, in) || !add_piece(s, v, p, out))
            return 0;
    }
    return 1;
}

static int pattern_pieces(schema *s, const json_value *v, const json_value *patterns, partition *p) {
    for (uint32_t i = 0; patterns && i < patterns->n; i++) {
        const json_member *m = &patterns->members[i];
        const lang *by = schema_pattern(s, v, "patternProperties", m->key, m->len);
        if (!by || !cut_pieces(s, v, p, by, goal_of_schema(s, m->value, 0)))
            return 0;
    }
    return 1;
}

/* propertyNames: which keys may be. NULL: failed. */
static const lang *names_lang(schema *s, const json_value *names) {
    if (!names)
        return lang_all(s->langs);
    uint32_t g = goal_of_schema(s, names, 0);
    const meaning *m = g == FAILED ? NULL : goal_meaning(s, g);
    return m ? m->string : NULL;
}

static int rest_of_schema(schema *s, const json_value *v, const json_value *const *kw, const lang *names, maker *m) {
    partition *p = pool_alloc(s->p, sizeof *p);
    if (!p)
        return 0;
    p->pieces[0] = (piece){lang_all(s->langs), GOAL_ANY, 0};
    p->n = 1;
    if (!pattern_pieces(s, v, kw[KW_PATTERN_PROPERTIES], p))
        return 0;
    uint32_t more = kw[KW_ADDITIONAL_PROPERTIES] ? goal_of_schema(s, kw[KW_ADDITIONAL_PROPERTIES], 0) : GOAL_ANY;
    m->rest = pool_alloc(s->p, p->n * sizeof *m->rest);
    if (more == FAILED || !m->rest)
        return 0;
    for (uint32_t i = 0; i < p->n; i++) {
        uint32_t value = p->pieces[i].matched ? p->pieces[i].value : more;
        const lang *keys = lang_is_all(names) ? p->pieces[i].keys : lang_and(s->langs, p->pieces[i].keys, names);
        if (!keys)
            return 0;
        if (value != GOAL_NONE && !lang_is_empty(keys))
            m->rest[m->n_rest++] = (shape_rest){keys, value};
    }
    return 1;
}

/* What patternProperties and propertyNames say of a declared key, and-ed to value. */
static uint32_t declared_value(schema *s, const json_value *v, const json_value *patterns, const lang *names,
                               const json_member *key, uint32_t value) {
    if (!lang_is_all(names) && !lang_holds(names, key->key, key->len))
        return GOAL_NONE;
    for (uint32_t i = 0; patterns && i < patterns->n; i++) {
        const lang *by = schema_pattern(s, v, "patternProperties", patterns->members[i].key, patterns->members[i].len);
        if (!by || !pool_step(s->p, 1 + patterns->members[i].len / 16))
            return FAILED;
        if (lang_holds(by, key->key, key->len))
            value = goal_and(s, value, goal_of_schema(s, patterns->members[i].value, 0));
    }
    return value;
}

/* A key that is required or depended upon but not in properties: declared from here on. */
static int declare(schema *s, maker *m, const object_shape *rest, const key_text *key, int required) {
    if (!key)
        return 0;
    uint32_t at = s->mark[key->id];
    if (at) {
        m->keys[at - 1].required |= (uint8_t)required;
        return 1;
    }
    if (!maker_key(s, m, (shape_key){key, rest_value(rest, key), (uint8_t)required}))
        return 0;
    s->mark[key->id] = m->n_keys;
    return 1;
}

static int declare_required(schema *s, maker *m, const object_shape *rest, const json_value *required) {
    for (uint32_t i = 0; required && i < required->n; i++)
        if (!declare(s, m, rest, schema_key(s, required->items[i]->text, required->items[i]->n), 1))
            return 0;
    return 1;
}

static int declare_implied(schema *s, maker *m, const object_shape *rest, const json_value *map) {
    for (uint32_t i = 0; map && i < map->n; i++) {
        const json_member *member = &map->members[i];
        if (member->value->type != JSON_ARRAY || member->value->n == 0)
            continue;
        const key_text *if_key = schema_key(s, member->key, member->len);
        if (!declare(s, m, rest, if_key, 0))
            return 0;
        for (uint32_t j = 0; j < member->value->n; j++) {
            const json_value *name = member->value->items[j];
            const key_text *then_key = schema_key(s, name->text, name->n);
            if (!declare(s, m, rest, then_key, 0) || !maker_implies(s, m, (shape_implies){if_key, then_key}))
                return 0;
        }
    }
    return 1;
}

static const object_shape *object_of_keywords(schema *s, const json_value *v, const json_value *const *kw) {
    maker m = {0};
    const json_value *properties = kw[KW_PROPERTIES];
    const lang *names = names_lang(s, kw[KW_PROPERTY_NAMES]);
    object_shape shape = {.max = IR_NO_MAX};
    if (!names || !rest_of_schema(s, v, kw, names, &m))
        return NULL;
    for (uint32_t i = 0; properties && i < properties->n; i++) {
        const json_member *p = &properties->members[i];
        const key_text *key = schema_key(s, p->key, p->len);
        uint32_t value = goal_of_schema(s, p->value, 0);
        value = value == FAILED ? FAILED : declared_value(s, v, kw[KW_PATTERN_PROPERTIES], names, p, value);
        if (!key || !maker_key(s, &m, (shape_key){key, value, 0}))
            return NULL;
    }
    shape.rest = m.rest;
    shape.n_rest = m.n_rest;
    mark_keys(s, m.keys, m.n_keys);
    int ok = declare_required(s, &m, &shape, kw[KW_REQUIRED]) &&
             declare_implied(s, &m, &shape, kw[KW_DEPENDENT_REQUIRED]) &&
             declare_implied(s, &m, &shape, kw[KW_DEPENDENCIES]);
    clear_marks(s, m.keys, m.n_keys);
    if (!ok || !pool_step(s->p, m.n_keys))
        return NULL;
    shape.keys = m.keys;
    shape.n_keys = m.n_keys;
    shape.implies = m.implies;
    shape.n_implies = m.n_implies;
    if (kw[KW_MIN_PROPERTIES])
        (void)schema_count(kw[KW_MIN_PROPERTIES], &shape.min);
    if (kw[KW_MAX_PROPERTIES])
        (void)schema_count(kw[KW_MAX_PROPERTIES], &shape.max);
    return keep(s, shape);
}

const object_shape *object_of_schema(schema *s, const json_value *v, const json_value *const *kw) {
    uint32_t k = KW_PROPERTIES;
    while (k < KW_UNEVALUATED_PROPERTIES && !kw[k])
        k++;
    return k < KW_UNEVALUATED_PROPERTIES ? object_of_keywords(s, v, kw) : s->any_object;
}

const object_shape *object_of_constant(schema *s, const json_value *v) {
    maker m = {0};
    for (uint32_t i = 0; i < v->n; i++) {
        const key_text *key = schema_key(s, v->members[i].key, v->members[i].len);
        if (!key || !maker_key(s, &m, (shape_key){key, goal_of_constant(s, v->members[i].value, 0), 1}))
            return NULL;
    }
    return keep(s, (object_shape){.keys = m.keys, .n_keys = m.n_keys, .max = IR_NO_MAX});
}

const object_shape *object_with_key(schema *s, const key_text *key, uint32_t value, int required) {
    shape_key *k = pool_alloc(s->p, sizeof *k);
    if (!k)
        return NULL;
    *k = (shape_key){key, value, (uint8_t)required};
    return keep(s, (object_shape){.keys = k, .n_keys = 1, .rest = s->any_object->rest, .n_rest = 1, .max = IR_NO_MAX});
}

/* ---- Conjunction --------------------------------------------------------------------------------------- */

/* All keys of a, then those of b alone, each with the values of both. */
static int and_keys(schema *s, const object_shape *a, const object_shape *b, maker *m) {
    m->keys = pool_alloc(s->p, (a->n_keys + b->n_keys) * sizeof *m->keys);
    if (!m->keys || !pool_step(s->p, a->n_keys + b->n_keys))
        return 0;
    mark_keys(s, b->keys, b->n_keys);
    for (uint32_t i = 0; i < a->n_keys; i++) {
        uint32_t at = s->mark[a->keys[i].key->id];
        shape_key k = a->keys[i];
        k.value = goal_and(s, k.value, at ? b->keys[at - 1].value : rest_value(b, k.key));
        k.required |= at && b->keys[at - 1].required;
        m->keys[m->n_keys++] = k;
    }
    clear_marks(s, b->keys, b->n_keys);
    mark_keys(s, a->keys, a->n_keys);
    for (uint32_t i = 0; i < b->n_keys; i++) {
        shape_key k = b->keys[i];
        if (s->mark[k.key->id])
            continue;
        k.value = goal_and(s, k.value, rest_value(a, k.key));
        m->keys[m->n_keys++] = k;
    }
    clear_marks(s, a->keys, a->n_keys);
    return s->p->status == ENGINE_OK;
}

static int and_rest(schema *s, const object_shape *a, const object_shape *b, maker *m) {
    m->rest = pool_alloc(s->p, ((uint64_t)a->n_rest * b->n_rest + 1) * sizeof *m->rest);
    if (!m->rest)
        return 0;
    for (uint32_t i = 0; i < a->n_rest; i++) {
        for (uint32_t j = 0; j < b->n_rest; j++) {
            const lang *keys = lang_and(s->langs, a->rest[i].keys, b->rest[j].keys);
            uint32_t value = goal_and(s, a->rest[i].value, b->rest[j].value), k = 0;
            if (!keys || value == FAILED)
                return 0;
            if (lang_is_empty(keys) || value == GOAL_NONE)
                continue;
            while (k < m->n_rest && m->rest[k].value != value)
                k++;
            if (k < m->n_rest)
                keys = lang_or(s->langs, keys, m->rest[k].keys);
            m->n_rest += k == m->n_rest;
            m->rest[k] = (shape_rest){keys, value};
            if (!keys)
                return 0;
        }
    }
    return 1;
}

static int and_some(schema *s, const object_shape *a, const object_shape *b, object_shape *out) {
    shape_some *some = pool_alloc(s->p, (a->n_some + b->n_some + 1) * sizeof *some);
    uint32_t n = a->n_some;
    if (!some)
        return 0;
    for (uint32_t i = 0; i < n; i++)
        some[i] = a->some[i];
    for (uint32_t i = 0; i < b->n_some; i++) {
        uint32_t j = 0;
        while (j < n && (some[j].keys != b->some[i].keys || some[j].value != b->some[i].value))
            j++;
        if (j == n)
            some[n++] = b->some[i];
    }
    out->some = some;
    out->n_some = n;
    return 1;
}

static int and_implies(schema *s, const object_shape *a, const object_shape *b, object_shape *out) {
    shape_implies *implies = pool_alloc(s->p, (a->n_implies + b->n_implies + 1) * sizeof *implies);
    if (!implies)
        return 0;
    for (uint32_t i = 0; i < a->n_implies + b->n_implies; i++)
        implies[i] = i < a->n_implies ? a->implies[i] : b->implies[i - a->n_implies];
    out->implies = implies;
    out->n_implies = a->n_implies + b->n_implies;
    return 1;
}

int object_excluded(schema *s, const object_shape *a, uint32_t depth) {
    uint32_t required = 0;
    if (a->min > a->max)
        return 1;
    for (uint32_t i = 0; i < a->n_keys; i++) {
        if (!a->keys[i].required)
            continue;
        required++;
        if (a->keys[i].value == GOAL_NONE || (depth && goal_excluded(s, a->keys[i].value, depth - 1)))
            return 1;
    }
    return required > a->max || (a->min > a->n_keys && a->n_rest == 0);
}

int object_and(schema *s, any_shape x, any_shape y, any_shape *out) {
    const object_shape *a = x, *b = y;
    maker m = {0};
    object_shape both = {.min = a->min > b->min ? a->min : b->min, .max = a->max < b->max ? a->max : b->max};
    *out = NULL;
    if (a == s->any_object || b == s->any_object) {
        *out = a == s->any_object ? b : a;
        return 1;
    }
    if (!and_keys(s, a, b, &m) || !and_rest(s, a, b, &m) || !and_some(s, a, b, &both) || !and_implies(s, a, b, &both))
        return 0;
    both.keys = m.keys;
    both.n_keys = m.n_keys;
    both.rest = m.rest;
    both.n_rest = m.n_rest;
    if (!object_excluded(s, &both, 3))
        *out = keep(s, both);
    return s->p->status == ENGINE_OK;
}

/* Whether two goals have nothing in common; scalars are compared without making a goal of the two. */
static int goals_exclude(schema *s, uint32_t a, uint32_t b, uint32_t depth) {
    if (a == GOAL_NONE || b == GOAL_NONE)
        return 1;
    if (a != b && a != GOAL_ANY && b != GOAL_ANY && depth) {
        s->probing++;
        const meaning *x = goal_meaning(s, a), *y = x ? goal_meaning(s, b) : NULL;
        s->probing--;
        if (y && !(x->objects.n && y->objects.n) && !(x->arrays.n && y->arrays.n)) {
            if ((x->null & y->null) || (x->yes & y->yes) || (x->no & y->no) || !pool_step(s->p, 2))
                return 0;
            const lang *number = lang_and(s->langs, x->number, y->number);
            const lang *string = lang_and(s->langs, x->string, y->string);
            return number && string && lang_is_empty(number) && lang_is_empty(string);
        }
    }
    uint32_t both = goal_and(s, a, b);
    return both == GOAL_NONE || (depth && goal_excluded(s, both, depth - 1));
}

/* Whether a required key of a cannot have a value that both admit. */
static int excluded_by_keys(schema *s, const object_shape *a, const object_shape *b, uint32_t depth) {
    uint32_t n = 0, *pairs = pool_alloc(s->p, (2 * (uint64_t)a->n_keys + 1) * sizeof *pairs);
    if (!pairs)
        return 0;
    mark_keys(s, b->keys, b->n_keys);
    for (uint32_t i = 0; i < a->n_keys; i++) {
        uint32_t at = s->mark[a->keys[i].key->id];
        if (a->keys[i].required || (at && b->keys[at - 1].required)) {
            pairs[n++] = a->keys[i].value;
            pairs[n++] = at ? b->keys[at - 1].value : rest_value(b, a->keys[i].key);
        }
    }
    clear_marks(s, b->keys, b->n_keys);
    for (uint32_t i = 0; i < n; i += 2)
        if (goals_exclude(s, pairs[i], pairs[i + 1], depth))
            return 1;
    return 0;
}

int objects_exclude(schema *s, any_shape x, any_shape y) {
    const object_shape *a = x, *b = y;
    uint32_t min = a->min > b->min ? a->min : b->min, max = a->max < b->max ? a->max : b->max;
    return min > max || excluded_by_keys(s, a, b, 3) || excluded_by_keys(s, b, a, 3);
}

/* ---- Complement ----------------------------------------------------------------------------------------- */

/* A key that is required in a: absent, or with another value, is one shape. */
static int not_keys(schema *s, const object_shape *a, shape_list *out) {
    for (uint32_t i = 0; i < a->n_keys; i++) {
        const shape_key *k = &a->keys[i];
        if (!k->required && k->value == GOAL_ANY)
            continue;
        if (!shape_add(s, out, object_with_key(s, k->key, goal_not(s, k->value), !k->required)))
            return 0;
    }
    return 1;
}

static const lang *declared_lang(schema *s, const object_shape *a) {
    const char **texts = pool_alloc(s->p, (a->n_keys + 1) * sizeof *texts);
    uint64_t *lens = pool_alloc(s->p, (a->n_keys + 1) * sizeof *lens);
    if (!texts || !lens)
        return NULL;
    for (uint32_t i = 0; i < a->n_keys; i++) {
        texts[i] = a->keys[i].key->text;
        lens[i] = a->keys[i].key->len;
    }
    return a->n_keys ? lang_words_of(s->langs, texts, lens, a->n_keys) : lang_empty(s->langs);
}

/* Some member with a key in keys has a value in value. */
static int add_some(schema *s, shape_list *out, const lang *keys, uint32_t value) {
    if (!keys || value == FAILED)
        return 0;
    if (lang_is_empty(keys) || value == GOAL_NONE)
        return 1;
    shape_some *some = pool_alloc(s->p, sizeof *some);
    if (!some)
        return 0;
    *some = (shape_some){keys, value};
    object_shape shape = *s->any_object;
    shape.some = some;
    shape.n_some = 1;
    return shape_add(s, out, keep(s, shape));
}

static int not_rest(schema *s, const object_shape *a, shape_list *out) {
    if (a->n_rest == 1 && a->rest[0].value == GOAL_ANY && lang_is_all(a->rest[0].keys))
        return 1;
    const lang *open = declared_lang(s, a);
    const lang *declared = open;
    for (uint32_t i = 0; i < a->n_rest && open; i++) {
        const lang *keys = declared ? lang_minus(s->langs, a->rest[i].keys, declared) : NULL;
        if (!add_some(s, out, keys, goal_not(s, a->rest[i].value)))
            return 0;
        open = lang_or(s->langs, open, a->rest[i].keys);
    }
    return open && add_some(s, out, lang_not(s->langs, open), GOAL_ANY);
}

/* No member with a key in keys has a value in value: the complement of a `some`. */
static const object_shape *no_member(schema *s, const shape_some *some) {
    object_shape shape = {.max = IR_NO_MAX};
    shape_rest *rest = pool_alloc(s->p, 2 * sizeof *rest);
    const lang *others = lang_not(s->langs, some->keys);
    uint32_t value = goal_not(s, some->value);
    if (!rest || !others || value == FAILED)
        return NULL;
    if (value != GOAL_NONE)
        rest[shape.n_rest++] = (shape_rest){some->keys, value};
    if (!lang_is_empty(others))
        rest[shape.n_rest++] = (shape_rest){others, GOAL_ANY};
    shape.rest = rest;
    return keep(s, shape);
}

static int not_implies(schema *s, const object_shape *a, shape_list *out) {
    for (uint32_t i = 0; i < a->n_implies; i++) {
        any_shape both, has = object_with_key(s, a->implies[i].if_key, GOAL_ANY, 1);
        any_shape lacks = object_with_key(s, a->implies[i].then_key, GOAL_NONE, 0);
        if (!has || !lacks || !object_and(s, has, lacks, &both) || (both && !shape_add(s, out, both)))
            return 0;
    }
    return 1;
}

static int not_count(schema *s, const object_shape *a, shape_list *out) {
    object_shape few = *s->any_object, many = *s->any_object;
    few.max = a->min - 1;
    many.min = a->max + 1;
    if (a->min > 0 && !shape_add(s, out, keep(s, few)))
        return 0;
    return a->max == IR_NO_MAX || shape_add(s, out, keep(s, many));
}

int object_not(schema *s, any_shape x, shape_list *out) {
    const object_shape *a = x;
    if (!not_keys(s, a, out) || !not_rest(s, a, out) || !not_implies(s, a, out) || !not_count(s, a, out))
        return 0;
    for (uint32_t i = 0; i < a->n_some; i++)
        if (!shape_add(s, out, no_member(s, &a->some[i])))
            return 0;
    return 1;
}

static int within_rest(schema *s, const object_shape *a, const object_shape *b) {
    if (b->n_rest == 1 && b->rest[0].value == GOAL_ANY && lang_is_all(b->rest[0].keys))
        return 1;
    if (a->n_rest != b->n_rest)
        return 0;
    for (uint32_t i = 0; i < a->n_rest; i++)
        if (a->rest[i].keys != b->rest[i].keys || !goal_within(s, a->rest[i].value, b->rest[i].value))
            return 0;
    return 1;
}

static int within_keys(schema *s, const object_shape *a, const object_shape *b) {
    int ok = 1;
    mark_keys(s, a->keys, a->n_keys);
    for (uint32_t i = 0; ok && i < b->n_keys; i++) {
        uint32_t at = s->mark[b->keys[i].key->id];
        uint32_t value = at ? a->keys[at - 1].value : rest_value(a, b->keys[i].key);
        ok = goal_within(s, value, b->keys[i].value) && (!b->keys[i].required || (at && a->keys[at - 1].required));
    }
    clear_marks(s, a->keys, a->n_keys);
    mark_keys(s, b->keys, b->n_keys);
    for (uint32_t i = 0; ok && i < a->n_keys; i++)
        if (!s->mark[a->keys[i].key->id])
            ok = goal_within(s, a->keys[i].value, rest_value(b, a->keys[i].key));
    clear_marks(s, b->keys, b->n_keys);
    return ok;
}

int object_within(schema *s, any_shape x, any_shape y) {
    const object_shape *a = x, *b = y;
    if (a == b)
        return 1;
    if (a->min < b->min || a->max > b->max || !within_rest(s, a, b))
        return 0;
    for (uint32_t i = 0; i < b->n_some; i++) {
        uint32_t j = 0;
        while (j < a->n_some && (a->some[j].keys != b->some[i].keys || a->some[j].value != b->some[i].value))
            j++;
        if (j == a->n_some)
            return 0;
    }
    for (uint32_t i = 0; i < b->n_implies; i++) {
        uint32_t j = 0;
        while (j < a->n_implies && (a->implies[j].if_key != b->implies[i].if_key || a->implies[j].then_key != b->implies[i].then_key))
            j++;
        if (j == a->n_implies)
            return 0;
    }
    return pool_step(s->p, (a->n_keys + b->n_keys) / 8) && within_keys(s, a, b);
}
