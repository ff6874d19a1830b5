/* machine_lexical.c: what masks may share between positions: which languages the string being read is
 * in, and after which remainders of it closing leads elsewhere; and what follows by itself (document.h).
 * Owns nothing. */
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
        out->plain = (m->flags & DOC_PLAIN) != 0;
        return;
    }
    if ((m->flags & DOC_SPACE_FREE) && at->lex != LEX_NUMBER && at->lex != LEX_LITERAL)
        out->kind = DOC_IN_SPACE;
}

/* ---- What follows by itself -------------------------------------------------------------------- */

#define CLOSES UINT32_MAX /* in place of a code point: the string is closed */

/* Note one more way on; 0 where there is another already. */
static int only_way(uint32_t *found, int *any, uint32_t code_point)
{
    if (*any && *found != code_point)
        return 0;
    *found = code_point;
    *any = 1;
    return 1;
}

static int only_in_lang(const thread *t, uint32_t *found, int *any)
{
    lang_edge edges[2];
    uint32_t n = lang_edges(t->lang, t->state, edges, 2);
    if (lang_accepts(t->lang, t->state) && !only_way(found, any, CLOSES))
        return 0;
    return n == 0 || (n == 1 && edges[0].lo == edges[0].hi && only_way(found, any, edges[0].lo));
}

static int only_of_declared(const pos *at, const thread *t, uint32_t *found, int *any)
{
    const objinfo *o = at->f->items[t->owner].alt;
    const uint64_t *allowed = at->keys->allowed[t->owner];
    uint32_t len = text_len(at->text), code_point;
    for (uint32_t k = t->state; k < t->hi; k++) {
        if (!(allowed[k >> 6] >> (k & 63) & 1))
            continue;
        code_point = CLOSES;
        if (o->key[k]->len > len)
            (void)utf8_read(o->key[k]->text + len, o->key[k]->len - len, &code_point);
        if (!only_way(found, any, code_point))
            return 0;
    }
    return 1;
}

/* A character as it is spelled shortest. */
static uint32_t spell(uint32_t code_point, uint8_t out[DOC_ONLY])
{
    static const char values[] = "\"\\\b\f\n\r\t", names[] = "\"\\bfnrt", hex[] = "0123456789abcdef";
    const char *known = code_point > 0 && code_point < 0x80 ? strchr(values, (int)code_point) : NULL;
    if (code_point == CLOSES) {
        out[0] = '"';
        return 1;
    }
    if (known == NULL && code_point >= 0x20)
        return utf8_write(code_point, out);
    memcpy(out, "\\u00", 4);
    out[4] = (uint8_t)hex[code_point >> 4];
    out[5] = (uint8_t)hex[code_point & 15];
    if (known != NULL)
        out[1] = (uint8_t)names[known - values];
    return known != NULL ? 2 : 6;
}

/* The only one of these bytes that may follow. */
static uint32_t only_of(const machine *m, doc_arena *arena, const pos *at, const char *bytes, uint8_t out[DOC_ONLY])
{
    uint32_t n = 0;
    uint64_t mark = doc_arena_mark(arena);
    for (; *bytes != 0 && n < 2; bytes++) {
        if (machine_step(m, arena, at, (uint8_t)*bytes) != NULL)
            out[n++] = (uint8_t)*bytes;
        doc_arena_reset(arena, mark);
    }
    return n == 1;
}

/* Inside an escape or a UTF-8 sequence. Hexadecimal letters come in two cases, which are two ways. */
static uint32_t only_in_character(const machine *m, doc_arena *arena, const pos *at, uint8_t out[DOC_ONLY])
{
    char continuations[65];
    if (at->sub != SUB_UTF8)
        return only_of(m, arena, at, "\"\\/bfnrtu0123456789acdeABCDEF", out);
    for (int i = 0; i < 64; i++)
        continuations[i] = (char)(0x80 + i);
    continuations[64] = 0;
    return only_of(m, arena, at, continuations, out);
}

uint32_t machine_only(const machine *m, doc_arena *arena, const pos *at, uint8_t out[DOC_ONLY])
{
    uint32_t found = 0;
    int any = 0;
    if (at->lex == LEX_LITERAL)
        return only_of(m, arena, at, "aelrsu", out);
    if (at->lex == LEX_STRING || at->lex == LEX_KEY) {
        if (at->sub != SUB_PLAIN)
            return only_in_character(m, arena, at, out);
        for (uint32_t i = 0; i < at->n; i++)
            if (!(at->t[i].lang != NULL ? only_in_lang(&at->t[i], &found, &any)
                                        : only_of_declared(at, &at->t[i], &found, &any)))
                return 0;
        return any ? spell(found, out) : 0;
    }
    if (machine_accepting(at) || (at->lex != LEX_NUMBER && (m->flags & DOC_SPACE_FREE)))
        return 0;
    if (at->lex == LEX_NUMBER && (m->flags & DOC_SPACE_FREE) && only_of(m, arena, at, " ", out) == 1)
        return 0;
    return only_of(m, arena, at, "\"{}[],:tfn-0123456789.eE+", out);
}
