/* schema_keywords.c: the table of keywords (form, drafts), and what types, strings, numbers, enum and const
 * mean. A keyword whose value has the wrong form is refused (ENGINE_EFORMAT); one that its draft does not
 * know is an annotation. Languages are remembered by the text of what made them. */
#include "schema.h"

#include <stdio.h>
#include <string.h>

/* Forms: b boolean, n number, c count, s string, S schema, L list of schemas, M map of schemas, R list of
 * strings, T type, E list, I schema or list of schemas, D map of schemas or lists of strings, m map of
 * lists of strings, x number (boolean in draft 4), a anything. */
typedef struct keyword_row {
    const char *name;
    keyword_id id;
    char form;
    uint8_t since, until;
} keyword_row;

static const keyword_row rows[] = { /* ascending by name */
    {"$anchor", KW_ANCHOR, 'a', DRAFT_2019, DRAFT_2020},
    {"$defs", KW_DEFS, 'M', DRAFT_4, DRAFT_2020},
    {"$dynamicAnchor", KW_DYNAMIC_ANCHOR, 'a', DRAFT_2020, DRAFT_2020},
    {"$dynamicRef", KW_DYNAMIC_REF, 's', DRAFT_2020, DRAFT_2020},
    {"$id", KW_ID, 'a', DRAFT_6, DRAFT_2020},
    {"$recursiveRef", KW_RECURSIVE_REF, 's', DRAFT_2019, DRAFT_2019},
    {"$ref", KW_REF, 's', DRAFT_4, DRAFT_2020},
    {"$schema", KW_SCHEMA, 'a', DRAFT_4, DRAFT_2020},
    {"additionalItems", KW_ADDITIONAL_ITEMS, 'S', DRAFT_4, DRAFT_2020},
    {"additionalProperties", KW_ADDITIONAL_PROPERTIES, 'S', DRAFT_4, DRAFT_2020},
    {"allOf", KW_ALL_OF, 'L', DRAFT_4, DRAFT_2020},
    {"anyOf", KW_ANY_OF, 'L', DRAFT_4, DRAFT_2020},
    {"const", KW_CONST, 'a', DRAFT_6, DRAFT_2020},
    {"contains", KW_CONTAINS, 'S', DRAFT_6, DRAFT_2020},
    {"definitions", KW_DEFINITIONS, 'M', DRAFT_4, DRAFT_2020},
    {"dependencies", KW_DEPENDENCIES, 'D', DRAFT_4, DRAFT_2020}, /* gone in 2019, but written still */
    {"dependentRequired", KW_DEPENDENT_REQUIRED, 'm', DRAFT_2019, DRAFT_2020},
    {"dependentSchemas", KW_DEPENDENT_SCHEMAS, 'M', DRAFT_2019, DRAFT_2020},
    {"else", KW_ELSE, 'S', DRAFT_7, DRAFT_2020},
    {"enum", KW_ENUM, 'E', DRAFT_4, DRAFT_2020},
    {"exclusiveMaximum", KW_EXCLUSIVE_MAXIMUM, 'x', DRAFT_4, DRAFT_2020},
    {"exclusiveMinimum", KW_EXCLUSIVE_MINIMUM, 'x', DRAFT_4, DRAFT_2020},
    {"format", KW_FORMAT, 's', DRAFT_4, DRAFT_2020},
    {"id", KW_ID_OLD, 'a', DRAFT_4, DRAFT_4},
    {"if", KW_IF, 'S', DRAFT_7, DRAFT_2020},
    {"items", KW_ITEMS, 'I', DRAFT_4, DRAFT_2020},
    {"maxContains", KW_MAX_CONTAINS, 'c', DRAFT_2019, DRAFT_2020},
    {"maxItems", KW_MAX_ITEMS, 'c', DRAFT_4, DRAFT_2020},
    {"maxLength", KW_MAX_LENGTH, 'c', DRAFT_4, DRAFT_2020},
    {"maxProperties", KW_MAX_PROPERTIES, 'c', DRAFT_4, DRAFT_2020},
    {"maximum", KW_MAXIMUM, 'n', DRAFT_4, DRAFT_2020},
    {"minContains", KW_MIN_CONTAINS, 'c', DRAFT_2019, DRAFT_2020},
    {"minItems", KW_MIN_ITEMS, 'c', DRAFT_4, DRAFT_2020},
    {"minLength", KW_MIN_LENGTH, 'c', DRAFT_4, DRAFT_2020},
    {"minProperties", KW_MIN_PROPERTIES, 'c', DRAFT_4, DRAFT_2020},
    {"minimum", KW_MINIMUM, 'n', DRAFT_4, DRAFT_2020},
    {"multipleOf", KW_MULTIPLE_OF, 'n', DRAFT_4, DRAFT_2020},
    {"not", KW_NOT, 'S', DRAFT_4, DRAFT_2020},
    {"oneOf", KW_ONE_OF, 'L', DRAFT_4, DRAFT_2020},
    {"pattern", KW_PATTERN, 's', DRAFT_4, DRAFT_2020},
    {"patternProperties", KW_PATTERN_PROPERTIES, 'M', DRAFT_4, DRAFT_2020},
    {"prefixItems", KW_PREFIX_ITEMS, 'L', DRAFT_2020, DRAFT_2020},
    {"properties", KW_PROPERTIES, 'M', DRAFT_4, DRAFT_2020},
    {"propertyNames", KW_PROPERTY_NAMES, 'S', DRAFT_6, DRAFT_2020},
    {"required", KW_REQUIRED, 'R', DRAFT_4, DRAFT_2020},
    {"then", KW_THEN, 'S', DRAFT_7, DRAFT_2020},
    {"type", KW_TYPE, 'T', DRAFT_4, DRAFT_2020},
    {"unevaluatedItems", KW_UNEVALUATED_ITEMS, 'S', DRAFT_2019, DRAFT_2020},
    {"unevaluatedProperties", KW_UNEVALUATED_PROPERTIES, 'S', DRAFT_2019, DRAFT_2020},
    {"uniqueItems", KW_UNIQUE_ITEMS, 'b', DRAFT_4, DRAFT_2020},
};
enum { N_ROWS = sizeof rows / sizeof *rows };

enum { MEMO_PATTERN = 1, MEMO_PROPERTY = 2, MEMO_FORMAT = 3, MEMO_NUMBER = 4 };

static const keyword_row *row_of(const char *text, uint32_t len) {
    uint32_t lo = 0, hi = N_ROWS;
    while (lo < hi) {
        uint32_t mid = (lo + hi) / 2;
        size_t n = strlen(rows[mid].name);
        int order = memcmp(text, rows[mid].name, len < n ? len : n);
        if (order == 0 && len == n)
            return &rows[mid];
        if (order < 0 || (order == 0 && len < n))
            hi = mid;
        else
            lo = mid + 1;
    }
    return NULL;
}

int keyword_holds_schemas(const char *text, uint32_t len) {
    static const char forms[] = "SLMID";
    const keyword_row *row = row_of(text, len);
    const char *at = row ? strchr(forms, row->form) : NULL;
    return at ? (int)(at - forms) + 1 : 0;
}

int schema_draft(const json_value *v) {
    const resource *r = v->resource;
    return r ? r->draft : DRAFT_2020;
}

/* ---- Forms ---------------------------------------------------------------------------------------- */

int schema_count(const json_value *v, uint32_t *out) {
    char room[64], *digits = room;
    uint32_t n;
    int64_t exponent;
    int negative;
    if (v->type != JSON_NUMBER || v->n > sizeof room)
        return 0;
    (void)json_decimal(v, digits, &n, &exponent, &negative);
    if (negative || exponent < 0)
        return 0;
    uint64_t value = 0;
    for (uint32_t i = 0; i < n && value < UINT32_MAX; i++)
        value = value * 10 + (uint64_t)(digits[i] - '0');
    for (int64_t i = 0; n && i < exponent && value < UINT32_MAX; i++)
        value *= 10;
    *out = value < UINT32_MAX ? (uint32_t)value : UINT32_MAX - 1;
    return 1;
}

static int is_schema(const json_value *v) {
    return v->type == JSON_OBJECT || v->type == JSON_TRUE || v->type == JSON_FALSE;
}

static int all_items(const json_value *v, int (*holds)(const json_value *)) {
    if (v->type != JSON_ARRAY)
        return 0;
    for (uint32_t i = 0; i < v->n; i++)
        if (!holds(v->items[i]))
            return 0;
    return 1;
}

static int is_string(const json_value *v) {
    return v->type == JSON_STRING;
}

static int is_strings(const json_value *v) {
    return all_items(v, is_string);
}

static int is_schema_or_strings(const json_value *v) {
    return is_schema(v) || is_strings(v);
}

static int is_map(const json_value *v, int (*holds)(const json_value *)) {
    if (v->type != JSON_OBJECT)
        return 0;
    for (uint32_t i = 0; i < v->n; i++)
        if (!holds(v->members[i].value))
            return 0;
    return 1;
}

static const char *const type_names[] = {"null", "boolean", "number", "integer", "string", "array", "object"};
enum { T_NULL = 1, T_BOOLEAN = 2, T_NUMBER = 4, T_INTEGER = 8, T_STRING = 16, T_ARRAY = 32, T_OBJECT = 64 };

static int type_bit(const json_value *v) {
    for (int i = 0; v->type == JSON_STRING && i < 7; i++)
        if (strlen(type_names[i]) == v->n && memcmp(type_names[i], v->text, v->n) == 0)
            return 1 << i;
    return 0;
}

/* NULL: the form is right; else what was expected. */
static const char *wrong_form(const json_value *v, char form, int draft) {
    uint32_t count;
    int boolean = v->type == JSON_TRUE || v->type == JSON_FALSE;
    switch (form) {
    case 'b': return boolean ? NULL : "a boolean";
    case 'n': return v->type == JSON_NUMBER ? NULL : "a number";
    case 'x': return (draft == DRAFT_4 ? boolean : v->type == JSON_NUMBER) ? NULL
                     : draft == DRAFT_4 ? "a boolean (a number from draft 6 on)" : "a number (a boolean in draft 4 only)";
    case 'c': return schema_count(v, &count) ? NULL : "a non-negative integer";
    case 's': return v->type == JSON_STRING ? NULL : "a string";
    case 'S': return is_schema(v) ? NULL : "a schema";
    case 'L': return all_items(v, is_schema) && v->n ? NULL : "an array of schemas that is not empty";
    case 'M': return is_map(v, is_schema) ? NULL : "an object of schemas";
    case 'R': return is_strings(v) ? NULL : "an array of strings";
    case 'T': return type_bit(v) || all_items(v, type_bit) ? NULL : "a type or an array of types (null, boolean, number, "
                     "integer, string, array, object)";
    case 'E': return v->type == JSON_ARRAY ? NULL : "an array";
    case 'I': return is_schema(v) || all_items(v, is_schema) ? NULL : "a schema, or an array of schemas";
    case 'D': return is_map(v, is_schema_or_strings) ? NULL : "an object of schemas or arrays of strings";
    case 'm': return is_map(v, is_strings) ? NULL : "an object of arrays of strings";
    default: return NULL;
    }
}

const json_value *const *schema_gather(schema *s, const json_value *v) {
    cell *c = schema_cell(s, v);
    if (!c)
        return NULL;
    if (c->gathered)
        return c->keywords;
    if (v->type != JSON_OBJECT) {
        if (v->type != JSON_TRUE && v->type != JSON_FALSE)
            schema_refuse(s, ENGINE_EFORMAT, v, NULL, "a schema must be an object or a boolean");
        c->gathered = 1;
        return is_schema(v) ? c->keywords : NULL;
    }
    int draft = schema_draft(v), lone_ref = draft <= DRAFT_7 && json_get(v, "$ref") != NULL;
    for (uint32_t i = 0; i < v->n; i++) {
        const keyword_row *row = row_of(v->members[i].key, v->members[i].len);
        if (!row || draft < row->since || draft > row->until || (lone_ref && row->id != KW_REF) || row->form == 'a') {
            if (row && row->id == KW_CONST && draft >= DRAFT_6 && !lone_ref)
                c->keywords[KW_CONST] = v->members[i].value;
            continue;
        }
        if (row->id == KW_DEFS || row->id == KW_DEFINITIONS)
            continue;
        const char *wanted = wrong_form(v->members[i].value, row->form, draft);
        if (wanted) {
            schema_refuse(s, ENGINE_EFORMAT, v, row->name, "its value must be %s", wanted);
            return NULL;
        }
        c->keywords[row->id] = v->members[i].value;
    }
    c->gathered = 1;
    return c->keywords;
}

/* ---- Strings --------------------------------------------------------------------------------------- */

static const lang *string_format(schema *s, const json_value *v, const json_value *name) {
    int known = 0;
    const lang *l = schema_recall(s, MEMO_FORMAT, name->text, name->n);
    if (l)
        return l;
    l = lang_format(s->langs, name->text, name->n, &known);
    if (!l && s->p->status == ENGINE_OK) {
        char note[160];
        (void)snprintf(note, sizeof note, "the format \"%.100s\" is not known: an annotation", name->text);
        schema_note(s, v, "format", note);
        return lang_all(s->langs);
    }
    schema_remember(s, MEMO_FORMAT, name->text, name->n, l);
    return l;
}

/* The strings that a pattern matches somewhere. */
static const lang *string_pattern(schema *s, const char *text, uint64_t len) {
    const lang *l = schema_recall(s, MEMO_PATTERN, text, len);
    if (!l) {
        l = lang_regex(s->langs, text, len, 1);
        if (l)
            schema_remember(s, MEMO_PATTERN, text, len, l);
    }
    return l;
}

const lang *schema_pattern(schema *s, const json_value *v, const char *name, const char *text, uint64_t len) {
    const lang *l = string_pattern(s, text, len);
    if (!l)
        schema_locate(s, v, name);
    return l;
}

static const lang *string_lang(schema *s, const json_value *v, const json_value *const *kw) {
    uint32_t min = 0, max = LANG_NO_MAX;
    const lang *l = lang_all(s->langs);
    if (kw[KW_MIN_LENGTH])
        (void)schema_count(kw[KW_MIN_LENGTH], &min);
    if (kw[KW_MAX_LENGTH])
        (void)schema_count(kw[KW_MAX_LENGTH], &max);
    if (min > max)
        return lang_empty(s->langs);
    if (min || max != LANG_NO_MAX) {
        l = lang_length(s->langs, min, max);
        if (!l)
            schema_locate(s, v, kw[KW_MIN_LENGTH] ? "minLength" : "maxLength");
    }
    if (l && kw[KW_FORMAT] && (s->flags & IR_FORMAT_ASSERT)) {
        const lang *f = string_format(s, v, kw[KW_FORMAT]);
        l = f ? lang_and(s->langs, l, f) : NULL;
        if (!l)
            schema_locate(s, v, "format");
    }
    if (l && kw[KW_PATTERN]) {
        const lang *f = schema_pattern(s, v, "pattern", kw[KW_PATTERN]->text, kw[KW_PATTERN]->n);
        l = f ? lang_and(s->langs, l, f) : NULL;
        if (!l)
            schema_locate(s, v, "pattern");
    }
    return l;
}

/* ---- Numbers ----------------------------------------------------------------------------------------- */

static const lang *plain_regex(schema *s, const char *pattern) {
    const lang *l = schema_recall(s, MEMO_PATTERN + 100, pattern, strlen(pattern));
    if (!l) {
        l = lang_regex(s->langs, pattern, strlen(pattern), 0);
        if (l)
            schema_remember(s, MEMO_PATTERN + 100, pattern, strlen(pattern), l);
    }
    return l;
}

/* Languages of numbers leave out some texts with an exponent, so a complement is taken among the texts
 * without one: it may be too small, never too large. */
const lang *number_not(schema *s, const lang *l) {
    if (lang_is_empty(l))
        return lang_number_all(s->langs);
    if (l == lang_number_all(s->langs))
        return lang_empty(s->langs);
    const lang *plain = plain_regex(s, "-?(?:0|[1-9][0-9]*)(?:\\.[0-9]+)?");
    return plain ? lang_minus(s->langs, plain, l) : NULL;
}

static int bound(schema *s, const json_value *v, lang_decimal *room, const lang_decimal **out) {
    if (!v)
        return 1;
    *out = room;
    return lang_decimal_parse(s->p, v->text, v->n, room);
}

/* One call of lang_numbers: the bounds are inclusive, or exclusive. */
static const lang *number_range(schema *s, const json_value *min, const json_value *max, int min_open, int max_open,
                                const json_value *multiple, int integer) {
    lang_decimal room[3];
    lang_range range = {.min_exclusive = min_open, .max_exclusive = max_open, .integer = integer};
    char key[512];
    int n = snprintf(key, sizeof key, "%.*s|%.*s|%.*s|%d%d%d", min ? (int)min->n : 0, min ? min->text : "",
                     max ? (int)max->n : 0, max ? max->text : "", multiple ? (int)multiple->n : 0,
                     multiple ? multiple->text : "", min_open, max_open, integer);
    int fits = n < (int)sizeof key;
    const lang *l = fits ? schema_recall(s, MEMO_NUMBER, key, (uint64_t)n) : NULL;
    if (l)
        return l;
    if (!bound(s, min, &room[0], &range.min) || !bound(s, max, &room[1], &range.max) ||
        !bound(s, multiple, &room[2], &range.multiple_of)) {
        (void)pool_fail(s->p, ENGINE_EUNSUPPORTED, "a number with such an exponent is not held");
        return NULL;
    }
    l = lang_numbers(s->langs, &range);
    char *kept = l && fits ? pool_grow(s->p, key, (uint64_t)n, (uint64_t)n) : NULL;
    if (kept)
        schema_remember(s, MEMO_NUMBER, kept, (uint64_t)n, l);
    return l;
}

static int is_positive(const json_value *v) {
    if (v->text[0] == '-')
        return 0;
    for (uint32_t i = 0; i < v->n && (v->text[i] | 32) != 'e'; i++)
        if (v->text[i] >= '1' && v->text[i] <= '9')
            return 1;
    return 0;
}

static const lang *number_bounds(schema *s, const json_value *v, const json_value *const *kw, int integer) {
    const json_value *min = kw[KW_MINIMUM], *max = kw[KW_MAXIMUM], *multiple = kw[KW_MULTIPLE_OF];
    const json_value *over = kw[KW_EXCLUSIVE_MINIMUM], *under = kw[KW_EXCLUSIVE_MAXIMUM];
    int old = schema_draft(v) == DRAFT_4;
    if (multiple && !is_positive(multiple)) {
        schema_refuse(s, ENGINE_EFORMAT, v, "multipleOf", "its value must be above 0");
        return NULL;
    }
    if (old)
        return number_range(s, min, max, over && over->type == JSON_TRUE, under && under->type == JSON_TRUE, multiple,
                            integer);
    const lang *l = number_range(s, min ? min : over, max ? max : under, !min && over, !max && under, multiple, integer);
    if (l && ((min && over) || (max && under))) {
        const lang *more = number_range(s, min ? over : NULL, max ? under : NULL, 1, 1, NULL, 0);
        l = more ? lang_and(s->langs, l, more) : NULL;
    }
    return l;
}

static const lang *number_lang(schema *s, const json_value *v, const json_value *const *kw, int types) {
    int integer = !(types & T_NUMBER), bounded = 0;
    static const keyword_id bounds[] = {KW_MINIMUM, KW_MAXIMUM, KW_EXCLUSIVE_MINIMUM, KW_EXCLUSIVE_MAXIMUM, KW_MULTIPLE_OF};
    for (size_t i = 0; i < 5; i++)
        bounded |= kw[bounds[i]] != NULL;
    if (!bounded && !integer)
        return lang_number_all(s->langs);
    const lang *l = number_bounds(s, v, kw, integer);
    if (l && integer && schema_draft(v) == DRAFT_4) { /* 1.0 is no integer there */
        const lang *plain = plain_regex(s, "-?(?:0|[1-9][0-9]*)");
        l = plain ? lang_and(s->langs, l, plain) : NULL;
    }
    if (!l)
        schema_locate(s, v, kw[KW_MULTIPLE_OF] ? "multipleOf" : kw[KW_MINIMUM] ? "minimum" : kw[KW_MAXIMUM] ? "maximum"
                      : kw[KW_EXCLUSIVE_MINIMUM] ? "exclusiveMinimum" : kw[KW_EXCLUSIVE_MAXIMUM] ? "exclusiveMaximum" : "type");
    return l;
}

/* ---- Types, enum, const --------------------------------------------------------------------------------- */

static int types_of(const json_value *const *kw) {
    const json_value *type = kw[KW_TYPE];
    int types = 0;
    if (!type)
        return 127 & ~T_INTEGER;
    if (type->type == JSON_STRING)
        return type_bit(type);
    for (uint32_t i = 0; i < type->n; i++)
        types |= type_bit(type->items[i]);
    return types;
}

const meaning *schema_scalars(schema *s, const json_value *v, const json_value *const *kw) {
    int types = types_of(kw);
    meaning *m = pool_alloc(s->p, sizeof *m);
    if (!m)
        return NULL;
    *m = *s->nothing;
    m->null = (types & T_NULL) != 0;
    m->yes = m->no = (types & T_BOOLEAN) != 0;
    if (types & (T_NUMBER | T_INTEGER))
        m->number = number_lang(s, v, kw, types);
    if (types & T_STRING)
        m->string = string_lang(s, v, kw);
    if (types & T_OBJECT)
        m->objects = s->everything->objects;
    if (types & T_ARRAY)
        m->arrays = s->everything->arrays;
    return m->number && m->string ? m : NULL;
}

/* The pattern of the plain texts of a number's value, appended to out; bytes written, 0: not held. */
static uint32_t number_pattern(const json_value *v, char *out, uint32_t cap) {
    char digits[400];
    uint32_t n, at = 0;
    int64_t exponent;
    int negative;
    if (v->n > sizeof digits || !json_decimal(v, digits, &n, &exponent, &negative))
        return 0;
    if (exponent > 400 || exponent < -400 || cap < 1400)
        return 0;
    if (n == 0)
        return (uint32_t)snprintf(out, cap, "-?0(?:\\.0+)?");
    if (negative)
        out[at++] = '-';
    int64_t whole = (int64_t)n + exponent; /* digits before the point */
    for (int64_t i = 0; i < whole; i++)
        out[at++] = i < (int64_t)n ? digits[i] : '0';
    if (whole <= 0)
        out[at++] = '0';
    if (exponent >= 0)
        return at + (uint32_t)snprintf(out + at, cap - at, "(?:\\.0+)?");
    out[at++] = '\\';
    out[at++] = '.';
    for (int64_t i = whole; i < 0; i++)
        out[at++] = '0';
    for (int64_t i = whole > 0 ? whole : 0; i < (int64_t)n; i++)
        out[at++] = digits[i];
    return at + (uint32_t)snprintf(out + at, cap - at, "0*");
}

static const lang *enum_numbers(schema *s, const json_value *const *values, uint32_t n) {
    uint64_t cap = 2048, used = 0;
    char *text = pool_alloc(s->p, cap);
    for (uint32_t i = 0; text && i < n; i++) {
        if (values[i]->type != JSON_NUMBER)
            continue;
        if (cap - used < 1500) {
            text = pool_grow(s->p, text, used, 4 * cap);
            cap *= 4;
        }
        if (!text)
            return NULL;
        if (used)
            text[used++] = '|';
        uint32_t wrote = number_pattern(values[i], text + used, 1400);
        if (!wrote) {
            schema_refuse(s, ENGINE_EUNSUPPORTED, values[i], NULL, "a number with so many digits is not held");
            return NULL;
        }
        used += wrote;
    }
    return !text ? NULL : used ? lang_regex(s->langs, text, used, 0) : lang_empty(s->langs);
}

static const lang *enum_strings(schema *s, const json_value *const *values, uint32_t n) {
    const char **texts = pool_alloc(s->p, n * sizeof *texts);
    uint64_t *lens = pool_alloc(s->p, n * sizeof *lens), count = 0;
    if (!texts || !lens)
        return NULL;
    for (uint32_t i = 0; i < n; i++) {
        if (values[i]->type == JSON_STRING) {
            texts[count] = values[i]->text;
            lens[count++] = values[i]->n;
        }
    }
    return count ? lang_words_of(s->langs, texts, lens, count) : lang_empty(s->langs);
}

static int enum_containers(schema *s, const json_value *const *values, uint32_t n, meaning *m) {
    for (uint32_t i = 0; i < n; i++) {
        if (values[i]->type == JSON_OBJECT && !shape_add(s, &m->objects, object_of_constant(s, values[i])))
            return 0;
        if (values[i]->type == JSON_ARRAY && !shape_add(s, &m->arrays, array_of_constant(s, values[i])))
            return 0;
    }
    return 1;
}

const meaning *schema_enum(schema *s, const json_value *const *values, uint32_t n) {
    meaning *m = pool_alloc(s->p, sizeof *m);
    uint32_t kinds = 0;
    if (!m || !pool_step(s->p, n))
        return NULL;
    *m = *s->nothing;
    for (uint32_t i = 0; i < n; i++)
        kinds |= 1u << values[i]->type;
    m->null = (kinds & 1u << JSON_NULL) != 0;
    m->yes = (kinds & 1u << JSON_TRUE) != 0;
    m->no = (kinds & 1u << JSON_FALSE) != 0;
    if (kinds & 1u << JSON_NUMBER)
        m->number = enum_numbers(s, values, n);
    if (kinds & 1u << JSON_STRING)
        m->string = enum_strings(s, values, n);
    if (!m->number || !m->string)
        return NULL;
    if ((kinds & (1u << JSON_OBJECT | 1u << JSON_ARRAY)) && !enum_containers(s, values, n, m))
        return NULL;
    return m;
}
