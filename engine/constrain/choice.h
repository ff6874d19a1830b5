/* choice.h: writing down the texts of an element that has finitely many (doc_ops.alternatives). Texts
 * live in the arena of the caller; a call returns 0 where there is no end to them, where they are more
 * or longer than is kept, or where memory is short. */
#ifndef GAUGEBLOCK_CONSTRAIN_CHOICE_H
#define GAUGEBLOCK_CONSTRAIN_CHOICE_H
#include "document.h"

#define CHOICE_TEXT_BYTES 4096u /* longest text kept */

typedef struct choice_writer {
    doc_arena *arena;
    doc_choice *out;
    uint32_t len;               /* of the text that is being written */
    uint32_t steps;             /* spent on numbers */
    char text[CHOICE_TEXT_BYTES + 16];
} choice_writer;

/* Keep the text written so far, then the n bytes of tail, as one of the alternatives. */
int choice_keep(choice_writer *w, const char *tail, uint32_t n);
/* The rest of every word of l from state, behind what is written; quoted: spelled as in a JSON string,
 * with the closing quote. What is written stays as it was. */
int choice_words(choice_writer *w, const lang *l, uint32_t state, int quoted);
/* Every value of a language of number texts, in its shortest spelling without an exponent. */
int choice_numbers(choice_writer *w, const lang *l);
/* UTF-8 text spelled as in a JSON string, without quotes. 0: too long. */
int choice_spell(choice_writer *w, const char *text, uint32_t len);

#endif
