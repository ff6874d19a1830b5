/* tokenizer.c: from a whole text to ids: special tokens, the plain text between, BOS and EOS.
 *
 * Special tokens are found as llama.cpp finds them: longer ones claim their places before
 * shorter ones, equal lengths by id, each from left to right; user-defined tokens always, control and
 * unknown tokens only on request, and tokens that are barred there never inside a literal span.
 * Refused: spans out of order, unknown flags, texts too long. Frees all it takes. */
#include <stdlib.h>
#include <string.h>

#include "status.h"
#include "tokenizer.h"

enum { MAX_TEXT = 1 << 28 }; /* bytes; offsets of the escaped text must fit 32 bits */

void tok_emit(tok_sink *sink, int32_t id)
{
    if (sink->n < sink->cap)
        sink->out[sink->n] = id;
    sink->n++;
}

int tok_literal_hit(const tok_literal *literal, uint64_t begin, uint64_t end)
{
    uint64_t lo = 0, hi = literal->n; /* the first span that ends behind begin */
    while (lo < hi) {
        uint64_t mid = lo + (hi - lo) / 2;
        if (literal->span[mid].end > begin)
            hi = mid;
        else
            lo = mid + 1;
    }
    for (; lo < literal->n && literal->span[lo].begin < end; lo++)
        if (literal->span[lo].begin < literal->span[lo].end)
            return 1;
    return 0;
}

/* ---- Finding special tokens -------------------------------------------------------------------------- */

/* A place that a special token takes, with the white space that it swallows. */
typedef struct claim {
    uint64_t begin, end;
    int32_t id;
} claim;

typedef struct search {
    const engine_vocab *v;
    const char *text;
    uint64_t len;
    int special;
    const tok_literal *literal;
    uint64_t *heap; /* rank << 32 | position of the best match at each position */
    uint64_t n_heap, heap_cap;
    uint8_t *taken; /* [len] 1 where claimed */
    claim *claims;
    uint64_t n_claims, claims_cap;
} search;

static int allowed(const search *s, uint32_t id, uint64_t begin, uint64_t end)
{
    uint16_t flags = s->v->flags[id];
    if (!s->special && (flags & (TOK_CONTROL | TOK_UNKNOWN)))
        return 0;
    return !(flags & TOK_BARRED) || !tok_literal_hit(s->literal, begin, end);
}

/* Index into specials of the longest allowed one at pos that is shorter than limit, or -1. All
 * specials in [lo, hi) begin with the depth bytes that have matched; the shortest comes first. */
static int64_t longest_at(const search *s, uint64_t pos, uint64_t limit)
{
    const engine_vocab *v = s->v;
    uint8_t first = (uint8_t)s->text[pos];
    uint32_t lo = v->special_first[first], hi = v->special_first[first + 1];
    int64_t best = -1;
    for (uint64_t depth = 1; lo < hi && depth < limit; depth++) {
        uint64_t len;
        tok_text(v, v->specials[lo], &len);
        if (len == depth) {
            if (allowed(s, v->specials[lo], pos, pos + depth))
                best = lo;
            lo++;
        }
        if (pos + depth >= s->len)
            break;
        uint8_t byte = (uint8_t)s->text[pos + depth];
        for (int side = 0; side < 2; side++) { /* the first special whose next byte is >= byte, then > byte */
            uint32_t a = lo, b = hi;
            while (a < b) {
                uint32_t mid = a + (b - a) / 2;
                uint8_t at = (uint8_t)tok_text(v, v->specials[mid], &len)[depth];
                if (side == 0 ? at < byte : at <= byte)
                    a = mid + 1;
                else
                    b = mid;
            }
            *(side == 0 ? &lo : &hi) = a;
        }
    }
    return best;
}

static void sift_down(search *s, uint64_t i)
{
    uint64_t key = s->heap[i], child;
    while ((child = 2 * i + 1) < s->n_heap) {
        if (child + 1 < s->n_heap && s->heap[child + 1] < s->heap[child])
            child++;
        if (s->heap[child] >= key)
            break;
        s->heap[i] = s->heap[child];
        i = child;
    }
    s->heap[i] = key;
}

/* Room for one more element, growing by half. */
static void *grown(void *array, uint64_t n, uint64_t *cap, size_t size)
{
    if (n < *cap)
        return array;
    uint64_t more = *cap + *cap / 2 + 64;
    void *bigger = realloc(array, more * size);
    if (bigger != NULL)
        *cap = more;
    return bigger;
}

/* Collect the longest match at every position. */
static engine_status collect(search *s)
{
    for (uint64_t pos = 0; pos < s->len; pos++) {
        uint8_t first = (uint8_t)s->text[pos];
        if (s->v->special_first[first] == s->v->special_first[first + 1])
            continue;
        int64_t index = longest_at(s, pos, UINT64_MAX);
        if (index < 0)
            continue;
        uint64_t *heap = grown(s->heap, s->n_heap, &s->heap_cap, sizeof *heap);
        if (heap == NULL)
            return ENGINE_ENOMEM;
        s->heap = heap;
        s->heap[s->n_heap++] = (uint64_t)s->v->special_rank[index] << 32 | pos;
    }
    for (uint64_t i = s->n_heap / 2; i-- > 0;)
        sift_down(s, i);
    return ENGINE_OK;
}

static int is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static engine_status take(search *s, uint32_t id, uint64_t begin, uint64_t end)
{
    claim *claims = grown(s->claims, s->n_claims, &s->claims_cap, sizeof *claims);
    if (claims == NULL)
        return ENGINE_ENOMEM;
    s->claims = claims;
    if (s->v->flags[id] & TOK_LSTRIP)
        while (begin > 0 && !s->taken[begin - 1] && is_blank(s->text[begin - 1]))
            begin--;
    if (s->v->flags[id] & TOK_RSTRIP)
        while (end < s->len && !s->taken[end] && is_blank(s->text[end]))
            end++;
    memset(s->taken + begin, 1, end - begin);
    claims[s->n_claims++] = (claim){begin, end, (int32_t)id};
    return ENGINE_OK;
}

static int by_begin(const void *a, const void *b)
{
    uint64_t x = ((const claim *)a)->begin, y = ((const claim *)b)->begin;
    return (x > y) - (x < y);
}

/* Take places in the order of rank, then position. A match that is no longer free gives way to
 * the next shorter one at its position. Earlier claims are at least as long as the match, so
 * one that overlaps it covers one of its ends. */
static engine_status find_specials(search *s)
{
    engine_status status = collect(s);
    if (status != ENGINE_OK || s->n_heap == 0)
        return status;
    s->taken = calloc(s->len, 1);
    if (s->taken == NULL)
        return ENGINE_ENOMEM;
    while (s->n_heap > 0) {
        uint64_t pos = s->heap[0] & UINT32_MAX, len;
        uint32_t id = s->v->specials[s->v->special_at_rank[s->heap[0] >> 32]];
        int64_t shorter = -1;
        tok_text(s->v, id, &len);
        if (!s->taken[pos] && !s->taken[pos + len - 1]) {
            status = take(s, id, pos, pos + len);
            if (status != ENGINE_OK)
                return status;
        } else if (!s->taken[pos]) {
            shorter = longest_at(s, pos, len);
        }
        if (shorter >= 0)
            s->heap[0] = (uint64_t)s->v->special_rank[shorter] << 32 | pos;
        else
            s->heap[0] = s->heap[--s->n_heap];
        if (s->n_heap > 0)
            sift_down(s, 0);
    }
    qsort(s->claims, s->n_claims, sizeof *s->claims, by_begin);
    return ENGINE_OK;
}

/* ---- The whole text ------------------------------------------------------------------------------------ */

static engine_status plain(const search *s, uint64_t begin, uint64_t end, int after_special, tok_sink *sink)
{
    if (begin >= end)
        return ENGINE_OK;
    if (s->v->model == TOK_MODEL_BPE)
        return tok_bpe(s->v, s->text, begin, end, s->literal, sink);
    return tok_spm(s->v, s->text, begin, end, after_special && s->v->info.add_space_prefix, s->literal, sink);
}

static engine_status tokenize(search *s, uint32_t flags, tok_sink *sink)
{
    const engine_vocab_info *info = &s->v->info;
    engine_status status = find_specials(s);
    if (status == ENGINE_OK && (flags & ENGINE_TOKENIZE_BOS_EOS) && info->add_bos)
        tok_emit(sink, info->bos);
    uint64_t pos = 0;
    int after_special = 1; /* the beginning counts as one */
    for (uint64_t i = 0; i < s->n_claims && status == ENGINE_OK; i++) {
        status = plain(s, pos, s->claims[i].begin, after_special, sink);
        tok_emit(sink, s->claims[i].id);
        pos = s->claims[i].end;
        after_special = 1;
    }
    if (status == ENGINE_OK)
        status = plain(s, pos, s->len, after_special, sink);
    if (status == ENGINE_OK && (flags & ENGINE_TOKENIZE_BOS_EOS) && info->add_eos)
        tok_emit(sink, info->eos);
    return status;
}

static engine_status check_arguments(const char *text, uint64_t len, uint32_t flags, const engine_span *literal,
                                     uint64_t n_literal, char *err, size_t errlen)
{
    if (flags & ~(uint32_t)(ENGINE_TOKENIZE_SPECIAL | ENGINE_TOKENIZE_BOS_EOS))
        return gb_fail(err, errlen, ENGINE_EINVAL, "unknown tokenize flags 0x%x", (unsigned)flags);
    if (len > MAX_TEXT)
        return gb_fail(err, errlen, ENGINE_EINVAL, "a text of %llu bytes; at most %d are tokenised at once",
                       (unsigned long long)len, MAX_TEXT);
    if ((text == NULL && len > 0) || (literal == NULL && n_literal > 0))
        return gb_fail(err, errlen, ENGINE_EINVAL, "text or literal spans are NULL but not empty");
    for (uint64_t i = 0; i < n_literal; i++)
        if (literal[i].begin > literal[i].end || literal[i].end > len
            || (i > 0 && literal[i].begin < literal[i - 1].end))
            return gb_fail(err, errlen, ENGINE_EINVAL,
                           "literal span %llu [%llu, %llu) is reversed, out of order, or beyond the %llu bytes of text",
                           (unsigned long long)i, (unsigned long long)literal[i].begin,
                           (unsigned long long)literal[i].end, (unsigned long long)len);
    return ENGINE_OK;
}

engine_status engine_tokenize(const engine_vocab *vocab, const char *text, uint64_t len, uint32_t flags,
                              const engine_span *literal, uint64_t n_literal,
                              int32_t *out, uint64_t cap, uint64_t *n_out, char *err, size_t errlen)
{
    if (vocab == NULL || n_out == NULL || (out == NULL && cap > 0))
        return gb_fail(err, errlen, ENGINE_EINVAL, "vocab, n_out or out is NULL");
    *n_out = 0;
    engine_status status = check_arguments(text, len, flags, literal, n_literal, err, errlen);
    if (status != ENGINE_OK)
        return status;
    tok_literal spans = {literal, n_literal};
    tok_sink sink = {out, cap, 0};
    search s = {.v = vocab, .text = text, .len = len, .special = (flags & ENGINE_TOKENIZE_SPECIAL) != 0,
                .literal = &spans};
    status = tokenize(&s, flags, &sink);
    free(s.heap);
    free(s.taken);
    free(s.claims);
    if (status != ENGINE_OK)
        return gb_fail(err, errlen, status, "out of memory while tokenising %llu bytes", (unsigned long long)len);
    *n_out = sink.n;
    if (sink.n > cap)
        return gb_fail(err, errlen, ENGINE_EINVAL, "the text has %llu tokens; there is room for %llu",
                       (unsigned long long)sink.n, (unsigned long long)cap);
    return ENGINE_OK;
}
