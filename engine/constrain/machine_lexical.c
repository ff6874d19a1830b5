/* machine_lexical.c: what masks may share between positions: which languages the string being read is
 * in, and after which remainders of it closing leads elsewhere (document.h). Owns nothing. */
#include "machine_int.h"

#include <string.h>

/* What is still to be read of a word, if it begins with the text. */
static void add_rest(const pos *at, const char *word, uint32_t len, const char **texts, uint32_t *lens, uint32_t cap,
                     uint32_t *n)
{
    if (!text_prefixes(at->text, word, len))
        return;
    uint32_t read = text_len(at->text);
    if (*n < cap) {
        texts[*n] = word + read;
        lens[*n] = len - read;
    }
    ++*n;
}

uint32_t machine_exceptions(const pos *at, const char **texts, uint32_t *lens, uint32_t cap)
{
    uint32_t n = 0;
    if (at->lex != LEX_KEY && !at->f->unique)
        return 0;
    for (uint32_t i = 0; at->lex == LEX_KEY && i < at->f->n; i++) {
        const objinfo *o = at->f->items[i].alt;
        for (uint32_t k = 0; k < o->n_keys; k++)
            add_rest(at, o->key[k]->text, o->key[k]->len, texts, lens, cap, &n);
    }
    for (const seen *k = at->f->seen; k; k = k->prev)
        if (k->kind == 'k' || k->kind == 's')
            add_rest(at, k->bytes, k->len, texts, lens, cap, &n);
    return n;
}

/* Add a language in a state; 0: there are too many. */
static int add_lang(doc_lexical *out, const lang *l, uint32_t state)
{
    for (uint32_t i = 0; i < out->n_langs; i++)
        if (out->langs[i] == l && out->states[i] == state)
            return 1;
    if (out->n_langs == DOC_LANGS)
        return 0;
    out->langs[out->n_langs] = l;
    out->states[out->n_langs++] = state;
    return 1;
}

/* Whether all words of l after `rest`, and after what it begins with, are more than n: then no n words
 * that are taken leave a prefix of theirs without a word. */
static int words_left(const lang *l, uint32_t state, const char *rest, uint32_t len, uint32_t n)
{
    uint32_t cp;
    for (uint32_t at = 0; state != LANG_DEAD; state = lang_step(l, state, cp)) {
        if (lang_count(l, state) <= n)
            return 0;
        if (at == len)
            return 1;
        at += utf8_read(rest + at, len - at, &cp);
    }
    return 1;
}

/* Whether no prefix of a declared or used word is without a word of the languages because of those. */
static int none_used_up(const pos *at, const doc_lexical *out)
{
    enum { CAP = 512 };
    const char *texts[CAP];
    uint32_t lens[CAP], n = NONE;
    for (uint32_t i = 0; i < out->n_langs; i++) {
        uint32_t min, max;
        if (lang_is_all(out->langs[i]) || (lang_is_length(out->langs[i], &min, &max) && max == LANG_NO_MAX))
            continue;
        if (n == NONE)
            n = machine_exceptions(at, texts, lens, CAP);
        if (n > CAP)
            return 0;
        for (uint32_t k = 0; k < n; k++)
            if (!words_left(out->langs[i], out->states[i], texts[k], lens[k], n))
                return 0;
    }
    return 1;
}

static int string_lexical(const pos *at, doc_lexical *out)
{
    const frame *f = at->f;
    int differ = at->lex == LEX_KEY || f->unique, declared = 0, all = 0;
    for (uint32_t i = 0; i < at->n; i++) {
        const thread *t = &at->t[i];
        declared |= t->lang == NULL;
        all |= t->lang != NULL && lang_is_all(t->lang);
        if (t->lang != NULL && !add_lang(out, t->lang, t->state))
            return 0;
    }
    if (differ && !none_used_up(at, out))
        return 0;
    /* The text of what lies inside an item of a unique array is compared when the item ends. */
    out->uniform = !differ ? 2 : 1;
    if (f->record && (at->lex == LEX_KEY || !f->unique || f->up->record))
        out->uniform = 0;
    out->covered = all || !declared;
    return out->uniform > 0 || out->covered;
}

void machine_lexical(const machine *m, const pos *at, doc_lexical *out)
{
    memset(out, 0, sizeof *out);
    if (at->lex == LEX_STRING || at->lex == LEX_KEY) {
        if (at->sub == SUB_PLAIN && string_lexical(at, out))
            out->kind = DOC_IN_STRING;
        return;
    }
    if ((m->flags & DOC_SPACE_FREE) && at->lex != LEX_NUMBER && at->lex != LEX_LITERAL)
        out->kind = DOC_IN_SPACE;
}
