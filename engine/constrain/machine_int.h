/* machine_int.h: what the parts of the machine share: alternatives made ready to be read, positions,
 * and the calls between machine*.c.
 *
 * A position is a lexical state, a stack of frames (one per open container, immutable and shared),
 * and the threads of the element being read. A frame holds *items*: an alternative and how far it
 * has come. The value that is being read or awaited is described by a `want`: the nodes that some item
 * could use, each with links to the items that go on where the value turns out to be in that node. */
#ifndef GAUGEBLOCK_CONSTRAIN_MACHINE_INT_H
#define GAUGEBLOCK_CONSTRAIN_MACHINE_INT_H
#include "machine.h"

#define NONE UINT32_MAX
#define MAX_COUNTS 4             /* `contains` or `some` of one alternative */
#define MAX_FILL 512             /* members that a minimum may ask for beyond those required */

/* A way to read a member or item: by this node; counts: it is one more for `contains` or `some` number
 * counts - 1; 0: for none. */
typedef struct option {
    uint32_t node, counts;
} option;

/* Keys are held in byte order of their texts; `decl` and `rank` lead to declared order and back. */
typedef struct objinfo {
    const ir_object *o;
    const ir_key **key;          /* n_keys, in byte order */
    uint32_t *decl, *rank;       /* decl[sorted] = declared index; rank[declared] = sorted */
    uint32_t *bytes;             /* of the key spelled in JSON, without quotes; sorted */
    option *options;             /* of member i (sorted keys, then rests): those from first[i] to first[i + 1] */
    uint32_t *first;             /* NULL: one option each */
    uint64_t *usable, *required; /* bit sets in byte order: the value can exist; the key is required */
    const uint64_t *taken_none;  /* n_words zeros */
    uint32_t n_keys, n_rest, n_words, n_required;
    int simple;                  /* neither some nor implications, and minima that need no filling */
    uint32_t *own, needed;       /* simple: cost of each declared member, with quotes and colon; of all required ones */
    int summed;                  /* own and needed are known */
    int endless;                 /* some rest holds infinitely many keys */
} objinfo;

#define MAX_CHEAPEST 64

typedef struct priced {
    const struct seen *value;
    uint32_t cost;               /* bytes of its shortest text */
} priced;

typedef struct arrinfo {
    const ir_array *a;
    option *options;             /* of position i (prefix, then items) */
    uint32_t *first;
    uint32_t max;                /* effective maximum of items */
    uint64_t values;             /* unique: how many values the node of items has, LANG_INFINITE for no end */
    const priced *cheapest;      /* unique: values of the node of items, cheapest first, at least min_items */
    uint32_t n_cheapest;         /* 0: not known */
} arrinfo;

typedef struct nodeinfo {
    objinfo *objects;
    arrinfo *arrays;
    uint32_t n_objects, n_arrays;
    uint32_t cost, height;       /* of the shortest document; height: containers nested in it */
} nodeinfo;

typedef struct machine {
    const ir_program *program;
    pool *p;
    uint32_t flags;
    nodeinfo *nodes;
    const lang *canonical;       /* shortest texts of numbers; NULL unless some array is unique */
    uint32_t max_height;         /* of any node's shortest document */
    int search;                  /* plans are lower bounds for some alternative: endings are searched */
} machine;

/* Decoded text, or raw bytes, that only grows: shared by all positions that extend it. */
typedef struct text {
    const struct text *prev;
    uint32_t len;                /* with this byte */
    uint8_t byte;
} text;

/* Keys used so far, or items of a unique array in canonical form. */
typedef struct seen {
    const struct seen *prev;
    uint32_t n;                  /* with this one */
    uint32_t len;
    char kind;                   /* 'k' key, 's' string, 'n' number, 'o' all else */
    char bytes[];
} seen;

typedef struct item {
    const void *alt;             /* objinfo or arrinfo, as the frame's kind says */
    uint32_t want;               /* entry of the frame's want that this value is read for */
    uint32_t count;              /* members or items, with the one being read for objects */
    uint32_t next;               /* declared order: first declared index that may still come */
    uint32_t missing;            /* required keys not seen */
    uint32_t needed;             /* what they cost; where the alternative is summed */
    uint32_t counted[MAX_COUNTS]; /* for some, contains: saturated where nothing depends on more */
    uint64_t bits;               /* keys seen, sorted; up to 64 */
    const uint64_t *words;       /* the same beyond 64 */
} item;

enum { FRAME_ROOT, FRAME_OBJECT, FRAME_ARRAY };

typedef struct frame {
    const struct frame *up;
    const struct want *want;     /* what this container is read for; its frame is `up` */
    const seen *seen;
    const text *key;             /* object: of the member being read */
    uint32_t index;              /* array: of the item being read, or next */
    uint16_t kind, depth;
    uint8_t unique, record;      /* this array is unique; this or an outer one is */
    uint32_t n;
    item items[];
} frame;

typedef struct link {
    uint32_t item, counts;
} link;

typedef struct entry {
    uint32_t node, n_links;
    link *links;
    uint32_t after;              /* lazily: bytes to the end of the document once this value is complete */
    uint32_t whole;              /* with `after`: at least these with the value, where unique arrays price that */
} entry;

typedef struct want {
    const frame *frame;
    uint32_t n;
    uint32_t raw_from;           /* unique array: length of the raw text where the item being read began */
    uint8_t has_after;
    entry entries[];
} want;

/* Which declared keys may come next, for each item of a frame: made where a key opens. */
typedef struct keyset {
    const uint64_t **allowed;    /* per item: bits in byte order */
} keyset;

/* A way that a string, key or number is read. Keys: declared ones (rest == NONE) are the sorted range
 * lo … hi that the text so far begins; others are in a rest language. */
typedef struct thread {
    const lang *lang;            /* NULL: declared keys */
    uint32_t state, hi;          /* state of lang, or lo */
    uint32_t owner, rest;        /* entry of the want; or item of the frame, and which rest */
} thread;

enum { LEX_VALUE, LEX_FIRST_ITEM, LEX_STRING, LEX_NUMBER, LEX_LITERAL, LEX_FIRST_KEY, LEX_NEXT_KEY, LEX_KEY,
       LEX_COLON, LEX_AFTER };

typedef struct pos {
    uint8_t lex;
    uint8_t sub, left;           /* string: what of a character was read (machine_text.c); literal: progress */
    uint8_t plain;               /* string whose threads are all unconstrained */
    uint32_t part;
    const frame *f;
    const want *w;
    const text *text;            /* decoded: keys, and strings and numbers that are items of a unique array */
    const text *raw;             /* inside unique arrays: all but white space since the outermost item began */
    const keyset *keys;
    uint32_t distance;           /* cached; NONE: not known */
    uint32_t n;
    thread t[];
} pos;

/* ---- machine_text.c: characters inside strings, and decoded text ---------------------------- */

enum { SUB_PLAIN, SUB_ESCAPE, SUB_HEX, SUB_HIGH, SUB_HIGH_ESCAPE, SUB_LOW, SUB_UTF8 };

/* Code points that can still come of a half read character, and the bytes that each takes. */
typedef struct points {
    uint32_t lo, hi, bytes;
} points;

#define MAX_POINTS 12

typedef struct character {
    uint8_t sub, left;
    uint32_t part;
    uint32_t plain;   /* 1: one spelling each (DOC_PLAIN) */
} character;

enum { CHAR_BAD = -2, CHAR_PART = -1 };

static inline character char_at(const machine *m, const pos *at)
{
    return (character){at->sub, at->left, at->part, (m->flags & DOC_PLAIN) != 0};
}

/* One byte of a string body: CHAR_BAD, CHAR_PART with the character in *c, or the code point. */
int32_t char_step(character *c, uint8_t byte);
uint32_t char_points(const character *c, points out[MAX_POINTS]);
uint32_t char_bytes(uint32_t code_point);          /* fewest bytes that spell it in a JSON string */
uint32_t utf8_write(uint32_t code_point, uint8_t out[4]);
uint32_t utf8_read(const char *at, uint32_t len, uint32_t *code_point);  /* bytes taken; valid UTF-8 */
uint32_t body_bytes(const char *s, uint32_t len);  /* of the text spelled in JSON */
/* Whether state goes on with some code point of the set; the fewest bytes to acceptance through it. */
int lang_lives(const lang *l, uint32_t state, const points *set, uint32_t n);
uint32_t lang_shortest(const lang *l, uint32_t state, const points *set, uint32_t n);

const text *text_add(doc_arena *arena, const text *prev, uint8_t byte);
uint32_t text_len(const text *t);
void text_copy(const text *t, uint32_t from, char *out); /* the bytes from there on, no NUL */
/* Whether t is the first text_len(t) bytes of s. */
int text_prefixes(const text *t, const char *s, uint32_t len);

/* ---- machine_equal.c: equality of JSON values ------------------------------------------------ */

/* JSON text as a value to compare: strings decoded, decimals reduced, members sorted; appended to `prev`.
 * NULL: out of memory. */
const seen *canonical_item(doc_arena *arena, const seen *prev, const char *raw, uint32_t len);
int seen_has(const seen *list, char kind, const char *bytes, uint32_t len);
/* A list to look up many texts in: by hash, where it is long. No memory: the list is walked. */
typedef struct seen_index {
    const seen *list;
    const seen **table;          /* open addressing; NULL: few */
    uint32_t mask;
} seen_index;
void seen_index_open(seen_index *x, const seen *list);
int seen_index_has(const seen_index *x, char kind, const char *bytes, uint32_t len);
void seen_index_close(seen_index *x);
/* Fewest bytes after which the number that p reads is one that its array does not have; NONE: there is none. */
uint32_t number_left(doc_arena *arena, const pos *p, const thread *t);

/* ---- machine_plan.c: what completes an item ------------------------------------------------- */

typedef struct plan {
    uint32_t cost, height;       /* cost NONE: cannot be completed */
} plan;

typedef struct situation {
    const seen *seen;
    const char *word;            /* also taken; may be NULL */
    uint32_t word_len;
    uint32_t minus;              /* one key of this rest, not known yet, is taken as well; NONE */
    uint32_t at_least;           /* members or items that must still come */
    uint32_t depth;              /* of the container */
} situation;

static inline const uint64_t *item_bits(const item *it, const objinfo *o)
{
    return o->n_words > 1 ? it->words : &it->bits;
}

uint32_t add_cost(uint32_t a, uint32_t b);         /* saturating below NONE; NONE is absorbing */
/* The plan of an object that needs its required members and no others, in O(1): without the sets of members
 * taken. 0: it is not that simple. Its height is left out. */
int plan_summed(const machine *m, const item *it, const situation *s, plan *out);
plan plan_object(const machine *m, const item *it, const situation *s);
plan plan_array(const machine *m, const item *it, const situation *s);
/* Whether some completion exists; the same as cost != NONE, cheaper. */
int item_lives(const machine *m, const item *it, int kind, const situation *s);
uint32_t option_cost(const machine *m, const option *o, uint32_t depth);
uint32_t options_of(const option *options, const uint32_t *first, uint32_t i, const option **out);
int node_fits(const machine *m, uint32_t node, uint32_t depth);
typedef struct spelled {
    char *word;                  /* to be freed */
    uint32_t len;
} spelled;

/* Costs of the first n words of l from state, after `prefix`, that are no key of o and not seen: fewest
 * bytes first. How many there are, at most n. first receives the first n_first of them, to be freed. */
uint32_t cheapest_words(const lang *l, uint32_t state, const char *prefix, uint32_t prefix_len, const objinfo *o,
                        const situation *s, uint32_t n, uint32_t *costs, uint32_t n_first, spelled *first);
/* Values of a node as JSON values, saturating. */
uint64_t node_values(const machine *m, uint32_t node);
/* Find ai->cheapest, where items are strings, numbers and literals and not too many are asked for. */
void cheapest_values(machine *m, arrinfo *ai);

/* ---- machine_key.c -------------------------------------------------------------------------- */

/* A key opens: the position after its quote; NULL where no item can take one more member. */
const pos *key_open(const machine *m, doc_arena *arena, const pos *at);
const pos *key_step(const machine *m, doc_arena *arena, const pos *at, uint8_t byte);
/* Whether an item of the frame may take one more member. */
int key_possible(const machine *m, const frame *f);
/* Whether some word of l goes on from state, after the text, with a code point of the set (NULL: any or
 * none), that is neither a key of o (may be NULL) nor seen. */
int word_lives(const lang *l, uint32_t state, const text *prefix, const points *set, uint32_t n_set, const objinfo *o,
               const seen *used);
/* Whether a word is a key of o (may be NULL); its sorted index. */
int word_declared(const objinfo *o, const char *word, uint32_t len, uint32_t *index);
void item_take(const objinfo *o, item *it, uint32_t member, uint64_t *words);
/* The same for all but the set of members taken. */
void item_count_member(const objinfo *o, item *it, uint32_t member);
/* Declared keys lo … hi of an item that may come: whether there are. */
int any_allowed(const uint64_t *allowed, uint32_t lo, uint32_t hi);
/* Of the sorted keys lo … hi, which agree up to byte `at`: the first that goes on with a code point of at
 * least cp. */
uint32_t key_first_from(const objinfo *o, uint32_t at, uint32_t cp, uint32_t lo, uint32_t hi);

/* ---- machine_read.c ------------------------------------------------------------------------- */

pos *pos_new(doc_arena *arena, uint8_t lex, const frame *f, const want *w, uint32_t n);
const pos *machine_start(const machine *m, doc_arena *arena);
const pos *machine_step(const machine *m, doc_arena *arena, const pos *at, uint8_t byte);
/* What item i's next value may be, members[i] telling which member or position it is for; NONE: item i
 * goes on no further. NULL where nothing is possible (or memory is short). */
const want *want_new(const machine *m, doc_arena *arena, const frame *f, const uint32_t *members);
/* The item once a value that counts so has been read. */
void item_count(const frame *f, item *it, uint32_t counts);
/* Whether a value read for entry e must not equal an earlier item: its arrays are all unique. */
int must_differ(const want *w, uint32_t e);
int item_complete(const item *it, uint32_t kind);
int json_space(const machine *m, uint8_t byte);

/* ---- machine_close.c ------------------------------------------------------------------------ */

uint32_t machine_distance(const machine *m, const pos *at);
int machine_closing(const machine *m, const pos *at, uint8_t *byte);
/* The ending, where it takes a search; else 0. At most cap bytes are written, their number returned. */
uint32_t machine_ending(const machine *m, const pos *at, uint8_t *out, uint32_t cap);
uint32_t machine_pointer(const pos *at, char *out, uint32_t cap);
int machine_accepting(const pos *at);

/* ---- machine_choice.c ------------------------------------------------------------------------ */

/* See doc_ops.alternatives. */
int machine_alternatives(const machine *m, doc_arena *arena, const pos *at, doc_choice *out);

/* ---- machine_keep.c, machine_lexical.c ------------------------------------------------------- */

const pos *machine_keep(const machine *m, doc_arena *to, const pos *at);
void machine_lexical(const machine *m, const pos *at, doc_lexical *out);
uint32_t machine_only(const machine *m, doc_arena *arena, const pos *at, uint8_t out[DOC_ONLY]);
uint32_t machine_exceptions(const pos *at, const char **texts, uint32_t *lens, uint32_t cap);

#endif
