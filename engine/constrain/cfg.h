/* cfg.h: context-free grammars inside: what the readers of notations make (expressions, rules), and
 * what the recogniser runs on (automata over bytes whose edges may call one another).
 *
 * All of it lives in the pool of the compilation and is immutable once cfg_build() has returned.
 * Expressions are trees of bounded depth; they refer to rules by number, so rules may recur freely. */
#ifndef GAUGEBLOCK_CONSTRAIN_CFG_H
#define GAUGEBLOCK_CONSTRAIN_CFG_H
#include "document.h"
#include "lang.h"

#define CFG_NONE UINT32_MAX
#define CFG_INFINITE UINT32_MAX
#define CFG_MAX_NESTING 200u       /* groups within groups in a source */
#define CFG_MAX_COUNT 65536u       /* of a repetition */
#define CFG_MAX_COST (1u << 24)    /* bytes of a rule's shortest text */

/* ---- Rules, as notations write them ------------------------------------------------------ */

typedef struct cfg_range {
    uint32_t lo, hi; /* code points */
} cfg_range;

/* A lang as it is laid out here: states from 0, its start. */
typedef struct cfg_language {
    uint32_t n_states;
    const uint32_t *first;   /* n_states + 1: edges of a state */
    const lang_edge *edges;
    const uint8_t *accepts;
} cfg_language;

enum { CFG_TEXT, CFG_SET, CFG_LANGUAGE, CFG_SEQUENCE, CFG_CHOICE, CFG_REPEAT, CFG_CALL };

typedef struct cfg_expr cfg_expr;
struct cfg_expr {
    uint8_t kind;
    uint8_t may_be_empty; /* as far as can be told before all rules are known */
    uint32_t n;          /* TEXT: bytes; SET: ranges; SEQUENCE, CHOICE: parts; CALL: the rule */
    uint32_t min, max;   /* REPEAT; max CFG_NONE: without bound */
    uint64_t size;       /* states that it comes to, roughly; saturates */
    union {
        const char *text;              /* UTF-8 */
        const cfg_range *ranges;       /* ascending, disjoint, without surrogates */
        const cfg_language *language;
        const cfg_expr *const *parts;
        const cfg_expr *part;
    };
};

/* A list of parts in the making. */
typedef struct cfg_list {
    const cfg_expr **parts;
    uint32_t n, room;
} cfg_list;

typedef struct cfg_rule {
    const char *name;
    uint32_t len;
    uint64_t at;             /* offset of the first mention, then of the definition */
    const cfg_expr *body;    /* NULL: undefined as yet */
    uint8_t whole;           /* never copied into its callers */
} cfg_rule;

/* A source that is being read, and the rules found in it. */
typedef struct cfg_source {
    pool *p;
    const char *notation;    /* "GBNF", "Lark": for refusals */
    const char *text;
    uint64_t len, at;
    uint32_t nesting;
    cfg_rule *rules;
    uint32_t n_rules, room;
    uint32_t *table;         /* name -> rule + 1, open addressing */
    uint32_t table_size;
} cfg_source;

/* Refuses what is not UTF-8. */
engine_status cfg_source_open(cfg_source *s, pool *p, const char *notation, const char *text, uint64_t len);
/* Fail the pool, naming line and column of offset `at`. */
engine_status cfg_refuse(cfg_source *s, engine_status status, uint64_t at, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* The pool has failed for what stands at offset `at`: add line and column to what it says. */
engine_status cfg_locate(cfg_source *s, uint64_t at);
/* The code point at `at` and how many bytes it takes; 0 bytes at the end. */
uint32_t cfg_character(const cfg_source *s, uint64_t at, uint32_t *bytes);
/* n hexadecimal digits at s->at, which moves; 0 where they are not there or name no character. */
int cfg_hex(cfg_source *s, uint32_t n, uint32_t *code_point);
/* The digits at s->at, which moves; 0 where there are none. Stops counting above CFG_MAX_COUNT. */
int cfg_count(cfg_source *s, uint32_t *count);
/* Where the next line that is not blank begins with "|", what is being defined goes on there: s->at moves.
 * skip(s, 1) passes over blanks, comments and line ends. */
int cfg_continues(cfg_source *s, void (*skip)(cfg_source *s, int lines));
/* The number of a rule by name, new where it was not mentioned before; CFG_NONE once the pool failed. */
uint32_t cfg_rule_named(cfg_source *s, const char *name, uint64_t len, uint64_t at);
/* Nothing where no such rule was mentioned: CFG_NONE. */
uint32_t cfg_rule_find(const cfg_source *s, const char *name, uint64_t len);

/* Makers return NULL once the pool has failed, and take NULL for what could not be made. */
int cfg_list_add(cfg_source *s, cfg_list *list, const cfg_expr *part);
const cfg_expr *cfg_text(cfg_source *s, const char *bytes, uint64_t len);
const cfg_expr *cfg_set(cfg_source *s, cfg_range *ranges, uint32_t n, int negated); /* sorts ranges */
const cfg_expr *cfg_lang(cfg_source *s, const lang *language);
const cfg_expr *cfg_sequence(cfg_source *s, const cfg_list *list);   /* empty: the empty text */
const cfg_expr *cfg_choice(cfg_source *s, const cfg_list *list);
const cfg_expr *cfg_repeat(cfg_source *s, const cfg_expr *part, uint32_t min, uint32_t max, uint64_t at);
const cfg_expr *cfg_call(cfg_source *s, uint32_t rule);
uint32_t cfg_utf8(uint32_t code_point, char out[4]);                 /* its length */

/* ---- Automata, as the recogniser reads them ------------------------------------------------ */

typedef struct cfg_edge {
    uint8_t lo, hi;          /* bytes */
    uint32_t to;
} cfg_edge;

typedef struct cfg_return {
    uint32_t start;          /* first state of the rule that is called */
    uint32_t to;             /* where its end leads */
} cfg_return;

typedef struct cfg_state {
    uint64_t set[4];         /* bytes that have an edge */
    uint32_t edges, n_edges; /* sorted by lo; overlapping where an automaton was not made deterministic */
    uint32_t calls, n_calls;
    uint32_t distance;       /* fewest bytes to the end of the rule; never infinite */
    uint32_t next;           /* single: bytes of the classes (tokens.h) in `runs` all lead there */
    uint64_t runs;
    uint8_t end;             /* the rule may end here */
    uint8_t tail;            /* end, nothing else follows, and the rule is not the document */
    uint8_t single;          /* no two edges overlap */
    uint8_t document;        /* belongs to the rule that is the whole document */
} cfg_state;

/* Where a rule was called from: when the rule ends, reading goes on at `state` with stack `node`. */
typedef struct cfg_link {
    const struct cfg_link *next;
    const struct cfg_node *node;
    uint32_t state;
} cfg_link;

/* A call: one node for all calls of a rule at one place of the document. Calls of which one ends another
 * right away are left out (tail calls), and calls that go on alike are one, so that lists, and operators
 * written without precedence, take no room. */
typedef struct cfg_node {
    const cfg_link *links;
    const struct doc_arena *arena; /* where it lives; NULL: in the program */
    uint32_t at;                   /* bytes read when it was made */
    uint32_t distance;             /* fewest bytes from the end of the call to the end of the document */
} cfg_node;

/* A state of some rule's automaton, and the call that it works for. */
typedef struct cfg_item {
    const cfg_node *node;
    uint32_t state;
} cfg_item;

struct doc {
    uint32_t at;             /* bytes read, from 1 */
    uint32_t distance;
    uint32_t narrow;         /* 1: only a shortest ending is known, for lack of effort */
    uint32_t n;
    uint32_t n_kernel;       /* 0: more than a few, or the start of the document, or narrow */
    /* First the items whose states have edges; behind them the kernel, from which closing made them: a
     * step that arrives at the same kernel arrives at the same position. */
    cfg_item items[];
};

typedef struct cfg {
    const cfg_state *states;
    const cfg_edge *edges;
    const cfg_return *calls;
    uint32_t n_states;
    uint32_t start;
    cfg_node bottom;         /* below the document: no links, distance 0 */
} cfg;

/* Automata of all rules that `document` reaches; prunes what can never end. */
engine_status cfg_build(cfg_source *s, const cfg_expr *document, uint64_t at, cfg **out);
extern const doc_ops cfg_ops;
const doc *cfg_keep(void *program, doc_arena *to, const doc *at); /* (cfg_keep.c) */

engine_status gbnf_read(cfg_source *s, const cfg_expr **document, uint64_t *at);
engine_status lark_read(cfg_source *s, const cfg_expr **document, uint64_t *at);

#endif
