/* schema.h: what the files of the schema compiler share. Private to schema*.c.
 *
 * A *goal* is a set of values that something must be in: a conjunction of atoms (a subschema, a
 * constant, another goal, each plain or negated), interned, so equal conjunctions are one number;
 * goals become the program's nodes. A *meaning* is what a subschema or a goal admits, type by type:
 * languages for strings and numbers, lists of conjunctive shapes for objects and arrays. Meanings are
 * closed under and, or, not; members' and items' values stay goals, so recursion ends here.
 *
 * Functions return NULL (or 0) once the pool has failed, or, while probing (whether goals exclude one
 * another), where the answer would need a meaning that is still being made. */
#ifndef GAUGEBLOCK_CONSTRAIN_SCHEMA_H
#define GAUGEBLOCK_CONSTRAIN_SCHEMA_H
#include "ir.h"
#include "json_read.h"

enum {
    SCHEMA_MAX_GOALS = 50000,
    SCHEMA_MAX_SHAPES = 2000,      /* of one type in one meaning */
    SCHEMA_MAX_DEPTH = 1500,       /* of subschemas within one another without a value between them */
    SCHEMA_MAX_PIECES = 256,       /* that patternProperties cut the keys into */
};

enum { GOAL_NONE = IR_NODE_NONE, GOAL_ANY = IR_NODE_ANY };

/* ---- Keywords (schema_keywords.c) -------------------------------------------------------- */

typedef enum keyword_id {
    KW_NONE,
    KW_REF, KW_DYNAMIC_REF, KW_RECURSIVE_REF, KW_TYPE, KW_ENUM, KW_CONST,
    KW_MULTIPLE_OF, KW_MINIMUM, KW_MAXIMUM, KW_EXCLUSIVE_MINIMUM, KW_EXCLUSIVE_MAXIMUM,
    KW_MIN_LENGTH, KW_MAX_LENGTH, KW_PATTERN, KW_FORMAT,
    KW_ITEMS, KW_PREFIX_ITEMS, KW_ADDITIONAL_ITEMS, KW_CONTAINS, KW_MIN_CONTAINS, KW_MAX_CONTAINS,
    KW_MIN_ITEMS, KW_MAX_ITEMS, KW_UNIQUE_ITEMS, KW_UNEVALUATED_ITEMS,
    KW_PROPERTIES, KW_PATTERN_PROPERTIES, KW_ADDITIONAL_PROPERTIES, KW_PROPERTY_NAMES, KW_REQUIRED,
    KW_MIN_PROPERTIES, KW_MAX_PROPERTIES, KW_DEPENDENCIES, KW_DEPENDENT_REQUIRED, KW_DEPENDENT_SCHEMAS,
    KW_UNEVALUATED_PROPERTIES,
    KW_ALL_OF, KW_ANY_OF, KW_ONE_OF, KW_NOT, KW_IF, KW_THEN, KW_ELSE,
    KW_ID, KW_ID_OLD, KW_ANCHOR, KW_DYNAMIC_ANCHOR, KW_SCHEMA, KW_DEFINITIONS, KW_DEFS,
    KW_COUNT
} keyword_id;

enum { DRAFT_4 = 4, DRAFT_6 = 6, DRAFT_7 = 7, DRAFT_2019 = 8, DRAFT_2020 = 9 };

typedef struct resource {          /* a schema with an identity of its own; pointers start at it */
    const char *uri;               /* absolute where known, without fragment; "" for the root without $id */
    json_value *root;
    int draft, number;
    struct resource *next;
} resource;

typedef struct anchor {
    const resource *in;
    int dynamic;
    const char *name;
    uint32_t len;
    json_value *at;
    struct anchor *next;
} anchor;

/* ---- Meanings -------------------------------------------------------------------------------- */

typedef struct key_text {          /* interned: equal keys are one pointer */
    const char *text;
    uint32_t len, id;
    struct key_text *next;
} key_text;

typedef struct shape_key {
    const key_text *key;
    uint32_t value;                /* goal; GOAL_NONE: the key must not occur */
    uint8_t required;
} shape_key;

typedef struct shape_rest {
    const lang *keys;
    uint32_t value;                /* goal, never GOAL_NONE */
} shape_rest;

typedef struct shape_some {        /* some member with a key in `keys`, declared or not, has a value in `value` */
    const lang *keys;
    uint32_t value;
} shape_some;

typedef struct shape_implies {
    const key_text *if_key, *then_key;   /* both among the keys */
} shape_implies;

typedef struct object_shape {
    const shape_key *keys;
    uint32_t n_keys;
    const shape_rest *rest;        /* disjoint languages; declared keys may be in them and do not count */
    uint32_t n_rest;
    const shape_some *some;
    uint32_t n_some;
    const shape_implies *implies;
    uint32_t n_implies;
    uint32_t min, max;
} object_shape;

typedef struct shape_contains {    /* between min and max items, wherever, are in `value` */
    uint32_t value, min, max;
    const json_value *origin;
} shape_contains;

typedef struct array_shape {
    const uint32_t *prefix;        /* goals */
    uint32_t n_prefix, items;
    const shape_contains *contains;
    uint32_t n_contains;
    uint32_t min, max;
    const json_value *unique;      /* the subschema that says uniqueItems, or NULL */
} array_shape;

typedef const void *any_shape;         /* an object_shape or an array_shape */

typedef struct shape_list {
    any_shape *at;
    uint32_t n, cap;
} shape_list;

typedef struct meaning {
    uint8_t null, yes, no;         /* admits null, true, false */
    const lang *number, *string;
    shape_list objects, arrays;
} meaning;

typedef struct cell {              /* what hangs on a json_value that is used as a schema or constant */
    const meaning *as_schema, *as_constant;
    uint32_t goal;                 /* 1 + the goal of the schema; 0: not known */
    uint8_t busy;
    const json_value *keywords[KW_COUNT];
    uint8_t gathered;
} cell;

typedef enum { ATOM_SCHEMA, ATOM_CONSTANT, ATOM_GOAL } atom_kind;

typedef struct atom {
    const json_value *value;       /* ATOM_SCHEMA, ATOM_CONSTANT */
    uint32_t goal;                 /* ATOM_GOAL */
    uint8_t kind;
} atom;

typedef struct goal {
    const uint32_t *atoms;         /* ascending; 2 * atom + negated */
    uint32_t n;
    uint64_t hash;
    const meaning *means;
    uint8_t busy, empty;           /* empty: proven */
    uint8_t probed;                /* depth to which emptiness was looked for in vain */
} goal;

typedef struct text_memo {
    const char *text;
    uint64_t len;
    int kind;
    const void *result;
    struct text_memo *next;
} text_memo;

enum { SCHEMA_BUCKETS = 1024 };

typedef struct schema {
    pool *p;
    lang_set *langs;
    uint32_t flags;
    json_value *root;
    resource *resources;           /* the last first; the root's is `main_resource` */
    resource *main_resource;
    anchor *anchors;
    text_memo *memos[SCHEMA_BUCKETS];
    key_text **key_table;
    uint32_t n_keys, key_buckets;
    uint32_t *mark;                /* by key id: 1 + index in the shape that is being looked at */
    uint32_t mark_cap;
    atom *atoms;
    uint32_t n_atoms, cap_atoms;
    uint32_t *atom_table;
    uint32_t atom_slots;
    goal *goals;
    uint32_t n_goals, cap_goals;
    uint32_t *goal_table;
    uint32_t goal_slots;
    const meaning *everything, *nothing;
    const object_shape *any_object;
    const array_shape *any_array;
    uint32_t depth, probing;
    const json_value **unique_at;  /* by node, once emitted: where uniqueItems stands */
    char *notes;
    uint32_t n_notes_bytes, cap_notes;
} schema;

/* ---- schema.c: goals, meanings of subschemas, text memo ---------------------------------------- */

/* Fail by name; the text is preceded by keyword and pointer. Always 0. */
int schema_refuse(schema *s, engine_status status, const json_value *at, const char *keyword, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* Put keyword and pointer before the text of a failure of a lower layer that happened just now. */
void schema_locate(schema *s, const json_value *at, const char *keyword);
void schema_note(schema *s, const json_value *at, const char *keyword, const char *note);
const void *schema_recall(schema *s, int kind, const char *text, uint64_t len);
void schema_remember(schema *s, int kind, const char *text, uint64_t len, const void *result);

const key_text *schema_key(schema *s, const char *text, uint32_t len);
cell *schema_cell(schema *s, const json_value *v);
uint32_t goal_of_schema(schema *s, const json_value *v, int negated);   /* UINT32_MAX: failed */
uint32_t goal_of_constant(schema *s, const json_value *v, int negated);
uint32_t goal_and(schema *s, uint32_t a, uint32_t b);
uint32_t goal_not(schema *s, uint32_t a);
int goal_within(const schema *s, uint32_t a, uint32_t b);               /* 1: a is seen to be a subset of b */
const meaning *goal_meaning(schema *s, uint32_t g);
/* 1: proven to admit nothing, looking so many levels of required members and items deep. 0: not proven. */
int goal_excluded(schema *s, uint32_t g, uint32_t depth);
const meaning *schema_meaning(schema *s, const json_value *v);

/* ---- schema_ref.c ------------------------------------------------------------------------------ */

int schema_index(schema *s, json_value *v, resource *in);               /* identities of v and what is in it */
json_value *schema_resolve(schema *s, const json_value *holder, const json_value *ref);
/* Whether $dynamicRef or $recursiveRef with this text can mean only what $ref with it would. */
int schema_is_static(const schema *s, const json_value *ref);

/* ---- schema_keywords.c -------------------------------------------------------------------------- */

/* What a keyword holds: 1 a schema, 2 a list of schemas, 3 a map, 4 a schema or a list, 5 a map of schemas or
 * lists of strings; 0 none. */
int keyword_holds_schemas(const char *text, uint32_t len);
/* The keywords of a schema object that count in its draft, by keyword; checked for form. NULL: refused. */
const json_value *const *schema_gather(schema *s, const json_value *v);
int schema_count(const json_value *v, uint32_t *out);                   /* non-negative integer, saturated */
int schema_draft(const json_value *v);
/* Types, strings and numbers of a schema; objects and arrays are admitted whole where `type` does. */
const meaning *schema_scalars(schema *s, const json_value *v, const json_value *const *kw);
/* The strings that a pattern matches somewhere; failures name the keyword. */
const lang *schema_pattern(schema *s, const json_value *v, const char *name, const char *text, uint64_t len);
const meaning *schema_enum(schema *s, const json_value *const *values, uint32_t n);
const lang *number_not(schema *s, const lang *l);

/* ---- schema_object.c, schema_array.c ------------------------------------------------------------- */

const object_shape *object_of_schema(schema *s, const json_value *v, const json_value *const *kw);
const object_shape *object_of_constant(schema *s, const json_value *v);
/* 0: failed. *out NULL: empty. */
int object_and(schema *s, any_shape a, any_shape b, any_shape *out);
int objects_exclude(schema *s, any_shape a, any_shape b);            /* 1: proven to have nothing in common */
int object_excluded(schema *s, const object_shape *a, uint32_t depth);
int object_not(schema *s, any_shape a, shape_list *out);         /* the complement among objects; 0: failed */
int object_within(schema *s, any_shape a, any_shape b);              /* 1: a is seen to be a subset of b */
const object_shape *object_with_key(schema *s, const key_text *key, uint32_t value, int required);

const array_shape *array_of_schema(schema *s, const json_value *v, const json_value *const *kw);
const array_shape *array_of_constant(schema *s, const json_value *v);
int array_and(schema *s, any_shape a, any_shape b, any_shape *out);
int arrays_exclude(schema *s, any_shape a, any_shape b);
int array_excluded(schema *s, const array_shape *a, uint32_t depth);
int array_not(schema *s, any_shape a, shape_list *out);
int array_within(schema *s, any_shape a, any_shape b);

/* ---- schema_boolean.c ------------------------------------------------------------------------------ */

int shape_add(schema *s, shape_list *l, any_shape one);          /* 0: failed, also where one is NULL */
const meaning *meaning_and(schema *s, const meaning *a, const meaning *b);
const meaning *meaning_or(schema *s, const meaning *a, const meaning *b);
const meaning *meaning_minus(schema *s, const meaning *a, const meaning *b);
/* allOf, anyOf, oneOf, not, if, dependentSchemas, $ref, enum, const of a schema, and-ed to base. */
const meaning *schema_combine(schema *s, const json_value *v, const json_value *const *kw, const meaning *base);

/* ---- schema_unevaluated.c ---------------------------------------------------------------------------- */

/* base, and unevaluatedProperties and unevaluatedItems of v. */
const meaning *schema_unevaluated(schema *s, const json_value *v, const json_value *const *kw, const meaning *base);

/* ---- schema_emit.c ----------------------------------------------------------------------------------- */

int schema_emit(schema *s, uint32_t root, ir_program *out);

#endif
