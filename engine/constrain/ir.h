/* ir.h: what a JSON Schema compiles to: nodes, each the set of JSON values that it admits.
 *
 * A node is a union over the JSON types. Arrays and objects are lists of alternatives, each of
 * them conjunctive: an alternative that is in the list can always be completed (compilation prunes
 * what is empty), so a reader that keeps at least one alternative alive can never be stuck. Nodes
 * refer to one another by number, also in cycles. `cost` is the number of bytes of the node's
 * shortest document, found once for all by Knuth's generalisation of Dijkstra's algorithm.
 *
 * schema.c makes programs, machine.c reads documents with them; hand-made programs are ordinary in
 * tests. Immutable after compilation; memory belongs to the pool. */
#ifndef GAUGEBLOCK_CONSTRAIN_IR_H
#define GAUGEBLOCK_CONSTRAIN_IR_H
#include "lang.h"

#define IR_NO_MAX UINT32_MAX
#define IR_INFINITE UINT32_MAX   /* cost of what has no finite document */
#define IR_MAX_COST (1u << 22)   /* bytes of the shortest document of any part of a schema */

enum { IR_NODE_NONE = 0, IR_NODE_ANY = 1 };    /* the first two nodes of every program: false, true */

/* A declared member. Its value must be in `value`; node IR_NODE_NONE: the key must not occur. */
typedef struct ir_key {
    const char *text;       /* decoded UTF-8 */
    uint32_t len;
    uint32_t value;         /* node */
    uint8_t required;
} ir_key;

/* Members with other keys: those in `keys` have values in `value`. The languages of one alternative
 * are disjoint from each other; declared keys are never members of them, whatever a language says.
 * A key in none of them must not occur. */
typedef struct ir_rest {
    const lang *keys;
    uint32_t value;
} ir_rest;

/* At least `min` members whose key is in `keys` have a value in `value`. Each rest language of the
 * alternative is a subset of `keys` or disjoint from it (the compiler splits them), and declared keys are
 * never in `keys`. `value` is a subset of the value of every rest within `keys`, and max
 * is IR_NO_MAX. A member counts for at most one `some`, whichever serves: where one member may satisfy two,
 * another alternative says so. */
typedef struct ir_some {
    const lang *keys;
    uint32_t value;         /* values that count */
    uint32_t other;         /* values that do not: the complement; used where max is bounded */
    uint32_t min, max;
} ir_some;

/* Where key `if_key` (index into keys) occurs, key `then_key` is required. From the compiler only in objects
 * with min_members 0 and no max_members: else it makes alternatives. */
typedef struct ir_implies {
    uint32_t if_key, then_key;
} ir_implies;

typedef struct ir_object {
    const ir_key *keys;     /* in declared order */
    uint32_t n_keys;
    const ir_rest *rest;
    uint32_t n_rest;
    const ir_some *some;
    uint32_t n_some;
    const ir_implies *implies;
    uint32_t n_implies;
    uint32_t min_members, max_members;   /* keys are distinct: a document never repeats one */
    uint32_t cost, height;
} ir_object;

/* Between min and max items after the prefix are in `value`, a subset of the array's `items`. With a max,
 * `other` is the rest of `items`: every later item is read as one of the two, which are disjoint. Without
 * one (IR_NO_MAX) an item in `value` need not count. Where an array has several, none has a max, and an
 * item counts for at most one of them. (Items of the prefix never count: where they may, the compiler makes
 * alternatives.) */
typedef struct ir_contains {
    uint32_t value, other;  /* nodes */
    uint32_t min, max;
} ir_contains;

typedef struct ir_array {
    const uint32_t *prefix; /* nodes of the first items */
    uint32_t n_prefix;
    uint32_t items;         /* node of the later ones; IR_NODE_NONE: there are none */
    const ir_contains *contains;
    uint32_t n_contains;
    uint32_t min_items, max_items;
    uint8_t unique;         /* no two items are equal as JSON values (1 equals 1.0, order of members aside) */
    uint32_t cost, height;
} ir_array;

typedef struct ir_node {
    uint8_t admits_null, admits_true, admits_false;
    const lang *number;     /* texts of numbers; lang_is_empty: none */
    const lang *string;     /* decoded strings */
    const ir_object *objects;
    uint32_t n_objects;
    const ir_array *arrays;
    uint32_t n_arrays;
    uint32_t cost;          /* IR_INFINITE: empty; a live alternative needs no such node */
    uint32_t height;        /* nesting of the shortest document, the flattest of those: 0 for a scalar */
} ir_node;

typedef struct ir_program {
    ir_node *nodes;
    uint32_t n_nodes;
    uint32_t root;
    lang_set *langs;
    const char *notes;      /* JSON array: [{"pointer": …, "keyword": …, "note": …}], what was taken as annotation */
} ir_program;

enum {
    IR_FORMAT_ASSERT = 1,   /* known formats constrain; else all are annotations */
    IR_PLAIN = 2,           /* integers, and numbers of which there are finitely many, have one spelling: no
                             * exponent, no needless zero; else every spelling of JSON */
};

/* Compile a schema (UTF-8 JSON text; drafts 4 to 2020-12). What cannot be held exactly is
 * ENGINE_EUNSUPPORTED, the text naming JSON pointer and keyword; a malformed schema is
 * ENGINE_EFORMAT; one that admits nothing is ENGINE_EUNSUPPORTED as well. */
engine_status ir_compile_schema(pool *p, const char *text, uint64_t len, uint32_t flags, ir_program **out);

/* Costs of all nodes and pruning of empty alternatives, for programs however made; part of
 * ir_compile_schema. (ir_cost.c) */
engine_status ir_finish(pool *p, ir_program *program);

/* Whether arrays with `unique` and such items can be held exactly: any item can be told apart from the
 * earlier ones before it ends. (ir_cost.c) */
int ir_unique_holdable(const ir_program *program, const ir_array *array);

/* For tests and debugging: the program as JSON text, stable. */
char *ir_dump(pool *p, const ir_program *program);

#endif
