/* regex.h: a pattern as a tree, between the reader of ECMA-262 syntax (regex_parse.c) and the maker of
 * automata (regex.c), and sets of letters (charset.c). All of it lives in scratch. */
#ifndef GAUGEBLOCK_CONSTRAIN_REGEX_H
#define GAUGEBLOCK_CONSTRAIN_REGEX_H
#include "lang_impl.h"

#define REGEX_NO_MAX UINT32_MAX
#define REGEX_NONE UINT32_MAX

typedef struct range {
    uint32_t lo, hi;      /* letters, not code points */
} range;

/* Ascending, disjoint, not touching, once charset_finish has run. */
typedef struct charset {
    range *ranges;
    uint32_t n, cap;
} charset;

int charset_add(lang_set *s, charset *c, uint32_t lo, uint32_t hi);   /* letters; 0: failed */
/* Code points lo … hi, surrogates left out. */
int charset_add_points(lang_set *s, charset *c, uint32_t lo, uint32_t hi);
int charset_add_set(lang_set *s, charset *c, const charset *other);
int charset_finish(lang_set *s, charset *c);
int charset_negate(lang_set *s, charset *c);                          /* of a finished one */
/* Add what \d \w \s (lower case) or \D \W \S holds. */
int charset_add_class(lang_set *s, charset *c, char letter);
/* Add a Unicode property, the text between the braces of \p{…}; *known is 0 where there is none. (unicode.c) */
int charset_add_property(lang_set *s, charset *c, const char *name, uint64_t len, int *known);

typedef enum node_kind {
    NODE_EMPTY, NODE_SET, NODE_CAT, NODE_ALT, NODE_REPEAT, NODE_BEGIN, NODE_END, NODE_WORD, NODE_NOT_WORD, NODE_LOOK,
} node_kind;

typedef struct regex_node {
    uint8_t kind;
    uint8_t negative;     /* of a lookahead */
    uint8_t uses_begin;   /* ^, \b or \B within: what came before matters */
    uint8_t uses_word;
    uint32_t min, max;    /* of NODE_REPEAT */
    uint32_t a, b;        /* children of CAT and ALT; a: child of REPEAT and LOOK, set of NODE_SET */
} regex_node;

typedef struct regex {
    regex_node *nodes;
    uint32_t n_nodes, cap_nodes;
    charset *sets;
    uint32_t n_sets, cap_sets;
    uint32_t root;
    uint32_t n_looks;
    const char *text;     /* the pattern, for errors */
    uint64_t len;
} regex;

/* 0: refused, the pool tells why. */
int regex_parse(lang_set *s, regex *r, const char *pattern, uint64_t len);

#endif
