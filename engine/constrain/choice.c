/* choice.c: the texts of an element with finitely many alternatives, out of languages: words by walking
 * their automata, numbers by walking only spellings that no other spelling of the same value has.
 * Refuses (0) what has no end or is more than the caller asked for. Owns nothing: texts lie in the
 * caller's arena. */
#include "choice.h"
#include "utf8_part.h"

#include <string.h>

#define NUMBER_BYTES 64u        /* longest number written down */
#define NUMBER_STEPS 200000u    /* states looked at for the numbers of one element */

int choice_keep(choice_writer *w, const char *tail, uint32_t n)
{
    doc_choice *out = w->out;
    if (out->n == out->cap || w->len > CHOICE_TEXT_BYTES)
        return 0;
    char *text = doc_arena_alloc(w->arena, (uint64_t)w->len + n + 1);
    if (text == NULL)
        return 0;
    memcpy(text, w->text, w->len);
    memcpy(text + w->len, tail, n);
    out->texts[out->n] = text;
    out->lens[out->n++] = w->len + n;
    return 1;
}

static void put(choice_writer *w, char byte)
{
    w->text[w->len++] = byte;
}

static void put_escaped(choice_writer *w, uint32_t cp)
{
    static const char hex[] = "0123456789abcdef", letters[] = "btn\0fr";
    put(w, '\\');
    if (cp >= 8 && cp <= 13 && letters[cp - 8]) {
        put(w, letters[cp - 8]);
        return;
    }
    for (const char *s = "u00"; *s; s++)
        put(w, *s);
    put(w, hex[cp >> 4]);
    put(w, hex[cp & 15]);
}

/* Append a code point; 0 where the text becomes too long. Room for one is always left. */
static int put_point(choice_writer *w, uint32_t cp, int quoted)
{
    if (w->len > CHOICE_TEXT_BYTES)
        return 0;
    if (quoted && cp < 0x20) {
        put_escaped(w, cp);
        return 1;
    }
    if (quoted && (cp == '"' || cp == '\\'))
        put(w, '\\');
    uint8_t bytes[4];
    uint32_t n = utf8_write(cp, bytes);
    for (uint32_t i = 0; i < n; i++)
        put(w, (char)bytes[i]);
    return 1;
}

int choice_spell(choice_writer *w, const char *text, uint32_t len)
{
    for (uint32_t i = 0; i < len; i++) {
        uint8_t byte = (uint8_t)text[i];
        if (w->len > CHOICE_TEXT_BYTES)
            return 0;
        if (byte < 0x20) {
            put_escaped(w, byte);
            continue;
        }
        if (byte == '"' || byte == '\\')
            put(w, '\\');
        put(w, (char)byte);
    }
    return 1;
}

/* Depth is bounded by the length of a text: each step down writes a byte at least. */
static int walk_words(choice_writer *w, const lang *l, uint32_t state, int quoted)
{
    if (lang_accepts(l, state) && !choice_keep(w, "\"", (uint32_t)quoted))
        return 0;
    uint32_t n = lang_edges(l, state, NULL, 0), len = w->len;
    lang_edge *edges = doc_arena_alloc(w->arena, n * sizeof *edges + 1);
    if (edges == NULL)
        return 0;
    (void)lang_edges(l, state, edges, n);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t cp = edges[i].lo; cp <= edges[i].hi; cp++) {
            if (!put_point(w, cp, quoted) || !walk_words(w, l, edges[i].to, quoted))
                return 0;
            w->len = len;
        }
    return 1;
}

int choice_words(choice_writer *w, const lang *l, uint32_t state, int quoted)
{
    return lang_count(l, state) <= w->out->cap - w->out->n && walk_words(w, l, state, quoted);
}

/* ---- Numbers ------------------------------------------------------------------------------------ */

/* How far a number is: nothing, a sign, a zero, digits, a point, a fraction that ends in 0 or not. */
enum { NUM_START, NUM_SIGN, NUM_ZERO, NUM_DIGITS, NUM_POINT, NUM_TAIL, NUM_FRACTION, NUM_DEAD };

static int number_phase(int phase, char c)
{
    int digit = c >= '0' && c <= '9';
    switch (phase) {
    case NUM_START:
        if (c == '-')
            return NUM_SIGN;
        /* fall through */
    case NUM_SIGN:
        return c == '0' ? NUM_ZERO : digit ? NUM_DIGITS : NUM_DEAD;
    case NUM_DIGITS:
        if (digit)
            return NUM_DIGITS;
        /* fall through */
    case NUM_ZERO:
        return c == '.' ? NUM_POINT : NUM_DEAD;
    default:
        return !digit ? NUM_DEAD : c == '0' ? NUM_TAIL : NUM_FRACTION;
    }
}

/* "-0" is 0, and a fraction that ends in 0 is a longer spelling. */
static int number_shortest(const choice_writer *w, uint32_t from, int phase)
{
    int negative = w->text[from] == '-';
    return phase == NUM_DIGITS || phase == NUM_FRACTION || (phase == NUM_ZERO && !negative);
}

/* A fraction may go on with zeros for ever; only such a tail ends without a word. */
static int walk_numbers(choice_writer *w, const lang *l, uint32_t state, uint32_t from, int phase)
{
    static const char letters[] = "-.0123456789";
    uint32_t len = w->len;
    if (++w->steps > NUMBER_STEPS)
        return 0;
    if (len - from > NUMBER_BYTES)
        return phase == NUM_TAIL;
    if (lang_accepts(l, state) && number_shortest(w, from, phase) && !choice_keep(w, "", 0))
        return 0;
    for (const char *c = letters; *c; c++) {
        int next = number_phase(phase, *c);
        uint32_t to = next == NUM_DEAD ? LANG_DEAD : lang_step(l, state, (uint8_t)*c);
        if (to == LANG_DEAD)
            continue;
        put(w, *c);
        if (!walk_numbers(w, l, to, from, next))
            return 0;
        w->len = len;
    }
    return 1;
}

int choice_numbers(choice_writer *w, const lang *l)
{
    return lang_is_empty(l) || walk_numbers(w, l, lang_start(l), w->len, NUM_START);
}
