/* bpe.c: byte-level BPE of one stretch of plain text.
 *
 * Every byte of a word starts as its letter's piece and merges by rank (merge.c). Spellings that
 * are no token fall back to the tokens of their ASCII letters and are dropped without one, as
 * in the reference; with a vocabulary that has all 256 letters and a token for every merge
 * neither can happen, and any bytes come back exactly. Owns and frees its own scratch. */
#include <stdlib.h>

#include "tokenizer.h"

typedef struct work {
    const engine_vocab *v;
    const char *text;
    const tok_literal *literal;
    tok_sink *sink;
    tok_chain chain;
    char *spelling; /* letters of a word, for the look-up of whole words */
    uint64_t spelling_cap;
} work;

/* A token that must not come out of [begin, end)? */
static int barred(const work *w, uint32_t piece, uint64_t begin, uint64_t end)
{
    return piece < (uint32_t)w->v->info.size && (w->v->flags[piece] & TOK_BARRED)
        && tok_literal_hit(w->literal, begin, end);
}

static int join(const void *self, const tok_symbol *a, const tok_symbol *b, uint64_t end, uint32_t *key,
                uint32_t *result)
{
    const work *w = self;
    const tok_merge *m = tok_merge_of(w->v, a->piece, b->piece);
    if (m == NULL || barred(w, m->result, a->source, end))
        return 0;
    *key = m->rank;
    *result = m->result;
    return 1;
}

/* The tokens of a spelling's ASCII letters, one by one. */
static void emit_fallback(work *w, const tok_symbol *s)
{
    for (uint64_t i = 0; i < s->len; i++) {
        char letter[2];
        int n = tok_byte_letter((uint8_t)w->text[s->source + i], letter);
        for (int k = 0; k < n; k++) {
            int32_t id = w->v->ascii[(uint8_t)letter[k]];
            if (id >= 0 && !barred(w, (uint32_t)id, s->source, s->source + s->len))
                tok_emit(w->sink, id);
        }
    }
}

/* 1 where the whole word is a token and was emitted, 0 where not. */
static int emit_whole(work *w, uint64_t begin, uint64_t end)
{
    uint64_t n = 0;
    for (uint64_t i = begin; i < end; i++) {
        if (n + 2 > w->spelling_cap)
            return 0; /* longer than any token */
        n += (uint64_t)tok_byte_letter((uint8_t)w->text[i], w->spelling + n);
    }
    uint32_t piece = tok_find(w->v, w->spelling, n);
    if (piece >= (uint32_t)w->v->info.size || barred(w, piece, begin, end))
        return 0;
    tok_emit(w->sink, (int32_t)piece);
    return 1;
}

static int one_word(work *w, uint64_t begin, uint64_t end)
{
    if (w->v->ignore_merges && emit_whole(w, begin, end))
        return 1;
    uint64_t n = end - begin;
    if (!tok_chain_reserve(&w->chain, n))
        return 0;
    for (uint64_t i = 0; i < n; i++)
        w->chain.symbols[i] = (tok_symbol){.source = (uint32_t)(begin + i), .len = 1,
                                           .piece = w->v->letters[(uint8_t)w->text[begin + i]]};
    w->chain.source_end = end;
    tok_chain_merge(&w->chain, n);
    for (int32_t i = 0; i >= 0; i = w->chain.symbols[i].next) {
        const tok_symbol *s = &w->chain.symbols[i];
        if (s->piece < (uint32_t)w->v->info.size)
            tok_emit(w->sink, (int32_t)s->piece);
        else
            emit_fallback(w, s);
    }
    return 1;
}

engine_status tok_bpe(const engine_vocab *v, const char *text, uint64_t begin, uint64_t end,
                      const tok_literal *literal, tok_sink *sink)
{
    work w = {.v = v, .text = text, .literal = literal, .sink = sink, .chain = {.join = join}};
    w.chain.self = &w;
    engine_status status = ENGINE_OK;
    if (v->ignore_merges) {
        w.spelling_cap = v->longest + 2;
        w.spelling = malloc(w.spelling_cap);
        if (w.spelling == NULL)
            return ENGINE_ENOMEM;
    }
    tok_words words = {v->pre, text, begin, end, begin};
    uint64_t from, to;
    while (status == ENGINE_OK && tok_next_word(&words, &from, &to))
        status = one_word(&w, from, to) ? ENGINE_OK : ENGINE_ENOMEM;
    free(w.spelling);
    tok_chain_free(&w.chain);
    return status;
}
