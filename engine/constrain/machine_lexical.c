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

/* Whether a word that goes on with `rest` is in one of the languages. */
static int in_langs(const doc_lexical *out, const char *rest, uint32_t len)
{
    for (uint32_t i = 0; i < out->n_langs; i++) {
        uint32_t state = out->states[i], cp;
        if (lang_is_all(out->langs[i]))
            return 1;
        for (uint32_t at = 0; at < len && state != LANG_DEAD; state = lang_step(out->langs[i], state, cp))
            at += utf8_read(rest + at, len - at, &cp);
        if (state != LANG_DEAD && lang_accepts(out->langs[i], state))
            return 1;
    }
    return 0;
}

/* Declared keys that may come lie in the languages of the other ones: else these do not say all. */
static int declared_within(const pos *at, const doc_lexical *out)
{
    uint32_t len = text_len(at->text);
    for (uint32_t i = 0; i < at->n; i++) {
        const thread *t = &at->t[i];
        const objinfo *o = at->f->items[t->owner].alt;
        const uint64_t *allowed = t->lang ? NULL : at->keys->allowed[t->owner];
        for (uint32_t k = t->state; allowed && k < t->hi; k++)
            if ((allowed[k >> 6] >> (k & 63) & 1) && !in_langs(out, o->key[k]->text + len, o->key[k]->len - len))
                return 0;
    }
    return 1;
}

static int string_lexical(const pos *at, doc_lexical *out)
{
    int differ = at->lex == LEX_KEY || at->f->unique;
    for (uint32_t i = 0; i < at->n; i++) {
        const thread *t = &at->t[i];
        if (t->lang == NULL)
            continue;
        if (!add_lang(out, t->lang, t->state))
            return 0;
        if (differ && lang_count(t->lang, t->state) != LANG_INFINITE)
            return 0; /* words that are used up are missing in it */
    }
    if (out->n_langs == 0 || (at->lex == LEX_KEY && !declared_within(at, out)))
        return 0;
    out->uniform = out->n_langs == 1;
    return 1;
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
