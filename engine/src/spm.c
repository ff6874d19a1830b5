/* spm.c: SentencePiece BPE of one stretch of plain text, with byte fallback.
 *
 * Spaces are spelled U+2581. Characters start alone, cut by their lead byte as in the reference
 * (so a broken one swallows what follows it), and neighbours whose joined spelling is a token
 * merge by that token's score (merge.c). Characters without a token become the tokens of their
 * bytes, or the unknown token where there are none. Owns and frees its own scratch. */
#include <stdlib.h>
#include <string.h>

#include "tokenizer.h"

typedef struct work {
    const engine_vocab *v;
    const tok_literal *literal;
    char *text; /* escaped */
    uint64_t text_len;
    tok_chain chain;
} work;

/* The token spelled by escaped bytes [at, at + len) that come from source bytes [from, to), or
 * TOK_NO_PIECE: there is none, or it is barred there. */
static uint32_t token_of(const work *w, uint32_t at, uint32_t len, uint64_t from, uint64_t to)
{
    if (len > w->v->longest)
        return TOK_NO_PIECE;
    uint32_t piece = tok_find(w->v, w->text + at, len);
    if (piece != TOK_NO_PIECE && (w->v->flags[piece] & TOK_BARRED) && tok_literal_hit(w->literal, from, to))
        return TOK_NO_PIECE;
    return piece;
}

/* A key that ascends as scores descend: the bits of a float, made to sort as an integer. */
static uint32_t key_of(float score)
{
    uint32_t bits;
    score += 0.0f; /* -0 equals 0 */
    memcpy(&bits, &score, sizeof bits);
    uint32_t ascending = bits >> 31 ? ~bits : bits | 0x80000000u;
    return ~ascending;
}

static int join(const void *self, const tok_symbol *a, const tok_symbol *b, uint64_t end, uint32_t *key,
                uint32_t *result)
{
    const work *w = self;
    uint32_t token = token_of(w, a->at, a->len + b->len, a->source, end);
    if (token == TOK_NO_PIECE)
        return 0;
    *key = key_of(w->v->scores[token]);
    *result = token;
    return 1;
}

/* Bytes of a character by its lead byte; 1 for a byte that is no lead. */
static uint64_t char_len(char lead)
{
    uint8_t b = (uint8_t)lead;
    return b < 0xC0 ? 1 : b < 0xE0 ? 2 : b < 0xF0 ? 3 : 4;
}

/* Write the escaped text. Returns 0 without memory. */
static int escape(work *w, const char *text, uint64_t begin, uint64_t end, int space_before)
{
    uint64_t spaces = space_before ? 1 : 0, n = 0;
    for (uint64_t i = begin; i < end; i++)
        spaces += text[i] == ' ';
    w->text = malloc(end - begin + 3 * spaces + 1);
    if (w->text == NULL)
        return 0;
    if (space_before) {
        memcpy(w->text, "\xE2\x96\x81", 3);
        n = 3;
    }
    for (uint64_t i = begin; i < end; i++) {
        if (text[i] == ' ') {
            memcpy(w->text + n, "\xE2\x96\x81", 3);
            n += 3;
        } else {
            w->text[n++] = text[i];
        }
    }
    w->text_len = n;
    return 1;
}

/* Cut the escaped text into characters; remember where in the source each one begins. Returns
 * their number, or 0 without memory. */
static uint64_t cut(work *w, const char *text, uint64_t begin, int space_before)
{
    uint64_t n = 0, count = 0;
    for (; n < w->text_len; n += char_len(w->text[n]))
        count++;
    if (!tok_chain_reserve(&w->chain, count))
        return 0;
    uint64_t source = begin, at = space_before ? 3 : 0; /* escaped offset of the source byte */
    n = 0;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t left = w->text_len - n, len = char_len(w->text[n]);
        while (at < n) {
            uint64_t width = text[source] == ' ' ? 3 : 1;
            if (at + width > n)
                break; /* a broken character has cut this space's U+2581 */
            at += width;
            source++;
        }
        w->chain.symbols[i] = (tok_symbol){.at = (uint32_t)n, .len = (uint32_t)(len < left ? len : left),
                                           .source = (uint32_t)source};
        n += len;
    }
    for (uint64_t i = 0; i < count; i++) {
        tok_symbol *s = &w->chain.symbols[i];
        uint64_t to = i + 1 < count ? w->chain.symbols[i + 1].source : w->chain.source_end;
        s->piece = token_of(w, s->at, s->len, s->source, to);
    }
    return count;
}

static void emit_all(const work *w, tok_sink *sink)
{
    for (int32_t i = 0; i >= 0; i = w->chain.symbols[i].next) {
        const tok_symbol *s = &w->chain.symbols[i];
        if (s->piece != TOK_NO_PIECE) {
            tok_emit(sink, (int32_t)s->piece);
            continue;
        }
        for (uint32_t k = 0; k < s->len; k++) {
            uint32_t id = w->v->letters[(uint8_t)w->text[s->at + k]];
            tok_emit(sink, id != TOK_NO_PIECE ? (int32_t)id : w->v->info.unk);
        }
    }
}

engine_status tok_spm(const engine_vocab *v, const char *text, uint64_t begin, uint64_t end, int space_before,
                      const tok_literal *literal, tok_sink *sink)
{
    work w = {.v = v, .literal = literal, .chain = {.join = join, .source_end = end}};
    w.chain.self = &w;
    engine_status status = ENGINE_ENOMEM;
    if (!escape(&w, text, begin, end, space_before))
        goto done;
    uint64_t count = cut(&w, text, begin, space_before);
    if (count == 0)
        goto done;
    tok_chain_merge(&w.chain, count);
    emit_all(&w, sink);
    status = ENGINE_OK;
done:
    free(w.text);
    tok_chain_free(&w.chain);
    return status;
}
