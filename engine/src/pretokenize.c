/* pretokenize.c: splits text into words before byte-level BPE merges inside each.
 *
 * Owns the decoding of UTF-8, the character classes, and the word rules of the pre-tokenizers
 * gpt-2, smollm, qwen2 and llama-bpe, written as direct scans of their regular expressions.
 * Refuses nothing: bytes that are not UTF-8 are symbols of one byte. Allocates nothing. */
#include "tokenizer.h"
#include "unicode_tables.h"

static int class_of(uint32_t code)
{
    uint32_t lo = 0, hi = sizeof gb_unicode_ranges / sizeof gb_unicode_ranges[0];
    while (hi - lo > 1) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (gb_unicode_ranges[mid] >> 2 <= code)
            lo = mid;
        else
            hi = mid;
    }
    return (int)(gb_unicode_ranges[lo] & 3);
}

uint32_t tok_decode(const char *text, uint64_t pos, uint64_t end, uint64_t *next)
{
    const unsigned char *s = (const unsigned char *)text;
    uint32_t lead = s[pos];
    *next = pos + 1;
    if (lead < 0x80)
        return lead;
    uint64_t extra = lead >= 0xF8 ? 0 : lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : lead >= 0xC0 ? 1 : 0;
    if (extra == 0 || end - pos <= extra)
        return 0xFFFD;
    uint32_t code = lead & (0x3F >> extra);
    for (uint64_t i = 1; i <= extra; i++) {
        if ((s[pos + i] & 0xC0) != 0x80)
            return 0xFFFD;
        code = code << 6 | (s[pos + i] & 0x3F);
    }
    if (code > 0x10FFFF)
        return 0xFFFD;
    *next = pos + 1 + extra;
    return code;
}

/* ---- The shape of a word ------------------------------------------------------------------------ */

/* One character: code, class (-1 past the end), and where the next one begins. */
typedef struct look {
    uint32_t code;
    int kind;
    uint64_t next;
} look;

static look look_at(const char *text, uint64_t pos, uint64_t end)
{
    look at = {0, -1, end};
    if (pos < end) {
        at.code = tok_decode(text, pos, end, &at.next);
        at.kind = class_of(at.code);
    }
    return at;
}

static uint64_t run_of(const char *text, uint64_t pos, uint64_t end, int kind)
{
    for (look at = look_at(text, pos, end); at.kind == kind; at = look_at(text, pos, end))
        pos = at.next;
    return pos;
}

/* End of 's 't 'm 'd 're 've 'll at pos, or pos where there is none. */
static uint64_t contraction(const char *text, uint64_t pos, uint64_t end, int any_case)
{
    if (text[pos] != '\'')
        return pos;
    unsigned char c[2] = {0, 0};
    for (uint64_t i = 0; i < 2 && pos + 1 + i < end; i++) {
        c[i] = (unsigned char)text[pos + 1 + i];
        if (any_case && c[i] >= 'A' && c[i] <= 'Z')
            c[i] = (unsigned char)(c[i] - 'A' + 'a');
    }
    if (c[0] == 's' || c[0] == 't' || c[0] == 'm' || c[0] == 'd')
        return pos + 2;
    if ((c[0] == 'r' && c[1] == 'e') || (c[0] == 'v' && c[1] == 'e') || (c[0] == 'l' && c[1] == 'l'))
        return pos + 3;
    return pos;
}

/* \s+(?!\S)|\s+ : a run of white space leaves its last character to the word behind it. */
static uint64_t spaces(const char *text, uint64_t pos, uint64_t end)
{
    uint64_t first = pos, last = pos;
    look at = look_at(text, pos, end);
    while (at.kind == GB_CLASS_SPACE) {
        last = pos;
        pos = at.next;
        at = look_at(text, pos, end);
    }
    return at.kind >= 0 && last > first ? last : pos;
}

/* gpt-2: 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ */
static uint64_t word_gpt2(const char *text, uint64_t pos, uint64_t end)
{
    uint64_t stop = contraction(text, pos, end, 0);
    if (stop > pos)
        return stop;
    look at = look_at(text, pos, end);
    look body = at.code == ' ' ? look_at(text, at.next, end) : at;
    if (body.kind >= 0 && body.kind != GB_CLASS_SPACE)
        return run_of(text, body.next, end, body.kind);
    stop = spaces(text, pos, end);
    return stop > pos ? stop : at.next;
}

/* End of \s*[\r\n]+ at pos (behind the last line break of the run of white space), or pos. */
static uint64_t line_breaks(const char *text, uint64_t pos, uint64_t end)
{
    uint64_t stop = pos;
    for (look at = look_at(text, pos, end); at.kind == GB_CLASS_SPACE; at = look_at(text, pos, end)) {
        pos = at.next;
        if (at.code == '\r' || at.code == '\n')
            stop = pos;
    }
    return stop;
}

/* qwen2, llama-bpe: (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,digits}
 *                   | ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+ */
static uint64_t word_llama(const char *text, uint64_t pos, uint64_t end, int digits)
{
    uint64_t stop = contraction(text, pos, end, 1);
    if (stop > pos)
        return stop;
    look at = look_at(text, pos, end);
    look next = look_at(text, at.next, end);
    if (at.kind == GB_CLASS_LETTER)
        return run_of(text, at.next, end, GB_CLASS_LETTER);
    if (at.kind == GB_CLASS_NUMBER) {
        for (int i = 1; i < digits && next.kind == GB_CLASS_NUMBER; i++) {
            at = next;
            next = look_at(text, at.next, end);
        }
        return at.next;
    }
    if (at.code != '\r' && at.code != '\n' && next.kind == GB_CLASS_LETTER)
        return run_of(text, next.next, end, GB_CLASS_LETTER);
    look body = at.code == ' ' ? next : at;
    if (body.kind == GB_CLASS_OTHER) {
        stop = run_of(text, body.next, end, GB_CLASS_OTHER);
        while (stop < end && (text[stop] == '\r' || text[stop] == '\n'))
            stop++;
        return stop;
    }
    stop = line_breaks(text, pos, end);
    return stop > pos ? stop : spaces(text, pos, end);
}

/* ---- Iteration ------------------------------------------------------------------------------------ */

/* smollm cuts at every \p{N} first; gpt-2's rule then sees each stretch alone, so that its look
 * ahead stops at the stretch's end. */
static uint64_t word_smollm(tok_words *w)
{
    look at = look_at(w->text, w->pos, w->end);
    if (at.kind == GB_CLASS_NUMBER)
        return at.next;
    if (w->part_end <= w->pos) {
        w->part_end = w->pos;
        while (at.kind >= 0 && at.kind != GB_CLASS_NUMBER) {
            w->part_end = at.next;
            at = look_at(w->text, w->part_end, w->end);
        }
    }
    return word_gpt2(w->text, w->pos, w->part_end);
}

int tok_next_word(tok_words *w, uint64_t *begin, uint64_t *word_end)
{
    if (w->pos >= w->end)
        return 0;
    uint64_t stop;
    switch (w->pre) {
    case TOK_PRE_SMOLLM: stop = word_smollm(w); break;
    case TOK_PRE_QWEN2: stop = word_llama(w->text, w->pos, w->end, 1); break;
    case TOK_PRE_LLAMA_BPE: stop = word_llama(w->text, w->pos, w->end, 3); break;
    default: stop = word_gpt2(w->text, w->pos, w->end); break;
    }
    *begin = w->pos;
    *word_end = stop;
    w->pos = stop;
    return 1;
}
