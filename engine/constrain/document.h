/* document.h: reading a document byte by byte under a constraint. What stands behind a compiled
 * constraint, whatever it was compiled from, is a table of these operations; masks (mask.c), endings
 * and the public calls know nothing else of it.
 *
 * A `doc` is a position in one document: which bytes may follow, whether it may end here, and how it
 * ends soonest. Positions are immutable values in an arena, so a walk over the vocabulary keeps one
 * per depth and steps back for nothing; arenas are reset between walks. A position that was reached
 * can always be completed: a byte after which no completion exists is not allowed. */
#ifndef GAUGEBLOCK_CONSTRAIN_DOCUMENT_H
#define GAUGEBLOCK_CONSTRAIN_DOCUMENT_H
#include "lang.h"

enum {
    DOC_ORDER_ANY = 1,      /* members in any order; else declared ones in declared order, others after them */
    DOC_SPACE_FREE = 2,     /* JSON white space between tokens; else none */
    DOC_PLAIN = 4,          /* strings have one spelling: escapes only where needed, the short ones where there
                             * are such, lower-case digits; else every spelling of JSON */
};

typedef struct doc doc;     /* opaque to all but the machine that made it */

typedef struct doc_arena doc_arena;  /* bump allocator of positions: reset frees all made since a mark */

/* What element a position stands in: what masks can share between positions. */
enum { DOC_IN_OTHER = 0, DOC_IN_STRING = 1, DOC_IN_SPACE = 2, DOC_IN_TEXT = 3 };

#define DOC_LANGS 8
#define DOC_ONLY 8

/* The alternatives of an element: the next value of a JSON document, its next key, or the whole text of a
 * document that is none. Values and keys are JSON texts; the end of the container is an alternative ("}",
 * "]"), and where an element has just ended, the others begin with the comma. */
enum { DOC_CHOICE_NONE = 0, DOC_CHOICE_VALUE = 1, DOC_CHOICE_KEY = 2, DOC_CHOICE_TEXT = 3 };

typedef struct doc_choice {
    int32_t kind;
    uint32_t n, cap;        /* texts written, and room for them */
    const char **texts;
    uint32_t *lens;
} doc_choice;

typedef struct doc_lexical {
    /* DOC_IN_STRING: the body of a JSON string, value or key, at a character boundary; with an escape or
     * a UTF-8 sequence half read it is DOC_IN_OTHER. DOC_IN_SPACE: between tokens where white space is
     * free: each white space byte leads to a position that allows what this one allows. DOC_IN_TEXT: all
     * the rest of the document is text of the languages, raw, at a character boundary; with a character
     * half read it is DOC_IN_OTHER. */
    int32_t kind;
    /* DOC_IN_STRING: up to the closing quote, what may follow is, decoded, the union of what langs[i]
     * accepts from states[i]; where `covered` is 0, exceptions may follow, too. Where there would be more
     * than DOC_LANGS, the kind is DOC_IN_OTHER. */
    uint32_t n_langs;
    const lang *langs[DOC_LANGS];
    uint32_t states[DOC_LANGS];
    int32_t covered;
    int32_t plain;   /* DOC_IN_STRING: characters have one spelling, see DOC_PLAIN */
    /* Whether the position after the quote is the same wherever the string is closed with the same ones of
     * the languages accepting. 2: it is. 1: it allows the same up to the end of the next string, save after
     * exceptions (see `exceptions`). 0: it may differ; then covered is 1. */
    int32_t uniform;
} doc_lexical;

typedef struct doc_ops {
    /* The empty document. NULL: out of memory. */
    const doc *(*start)(void *program, doc_arena *arena);
    /* One byte further; NULL where the byte is not allowed (arena->failed tells lack of memory apart). */
    const doc *(*step)(void *program, doc_arena *arena, const doc *at, uint8_t byte);
    /* The bytes that may follow, as a set of 256 bits. */
    void (*allowed)(void *program, const doc *at, uint64_t set[4]);
    int (*accepting)(void *program, const doc *at);
    /* Deep copy into another arena, for positions that outlive a walk. */
    const doc *(*keep)(void *program, doc_arena *to, const doc *at);
    /* Fewest bytes that complete the document: 0 iff accepting. UINT32_MAX-saturated. Where searching for them
     * takes too long, those of the ending that ending() gives. */
    uint32_t (*distance)(void *program, const doc *at);
    /* Write the next byte of one shortest completion (the least byte, where several serve). */
    int (*closing)(void *program, const doc *at, uint8_t *byte);
    /* JSON pointer of the value that is being read (its first byte was), else of the innermost container
     * between values, UTF-8 NUL-terminated; its length. What does not fit into cap is not written: only the
     * length counts. What is not JSON gives "". */
    uint32_t (*pointer)(void *program, const doc *at, char *out, uint32_t cap);
    void (*lexical)(void *program, const doc *at, doc_lexical *out);
    /* Exceptions of the uniform string being read: decoded remainders (the rest of a declared key, or of
     * one that was used) after which closing leads elsewhere, or is refused. How many; at most cap are
     * written; texts live as long as `at`. */
    uint32_t (*exceptions)(void *program, const doc *at, const char **texts, uint32_t *lens, uint32_t cap);
    void (*free)(void *program);
    /* The bytes of the only way on, one character or token of JSON at most; how many. 0: there are several
     * ways, or the document may end. Spelling a character of a string with an escape that it does not need
     * is no other way. NULL: a byte is the only way where `allowed` has no other. */
    uint32_t (*only)(void *program, doc_arena *arena, const doc *at, uint8_t out[DOC_ONLY]);
    /* The first bytes of the ending that closing() walks, at most cap: what takes a search is so searched
     * for once. 0: closing() does as well. NULL: not offered. */
    uint32_t (*ending)(void *program, const doc *at, uint8_t *out, uint32_t cap);
    /* The texts of the element that begins here, in the arena; 1: out->kind and the texts are set, twice the
     * same one and impossible ones perhaps among them. 0: no element begins here, it has endlessly many
     * texts or more than out->cap, or no memory is left. NULL: never. */
    int (*alternatives)(void *program, doc_arena *arena, const doc *at, doc_choice *out);
    /* Whether every text of at most len bytes of these classes (byte_class of tokens.h) may be read from here;
     * 0: not for sure. NULL: never known. */
    int (*reads)(void *program, const doc *at, uint64_t classes, uint32_t len);
} doc_ops;

/* The one byte of a set of 256 bits; 0: there are none or several. */
static inline int doc_one_byte(const uint64_t set[4], uint8_t *byte)
{
    int found = -1;
    for (int i = 0; i < 4; i++) {
        if (set[i] == 0)
            continue;
        if (found >= 0 || (set[i] & (set[i] - 1)) != 0)
            return 0;
        found = i * 64 + __builtin_ctzll(set[i]);
    }
    *byte = (uint8_t)found;
    return found >= 0;
}

doc_arena *doc_arena_new(uint64_t max_bytes);
void doc_arena_free(doc_arena *arena);
void *doc_arena_alloc(doc_arena *arena, uint64_t bytes);   /* not zeroed; NULL once failed */
uint64_t doc_arena_mark(const doc_arena *arena);
void doc_arena_reset(doc_arena *arena, uint64_t mark);
/* 1: memory was short; 2: the effort was spent. */
int doc_arena_failed(const doc_arena *arena);
/* Effort that may be spent on positions from now on, in units of the machine's; without end at first. */
void doc_arena_allow(doc_arena *arena, uint64_t effort);
/* 0: there is not so much left; the arena has failed. */
int doc_arena_spend(doc_arena *arena, uint64_t effort);
uint64_t doc_arena_used(const doc_arena *arena);           /* bytes handed out, roughly */

#endif
