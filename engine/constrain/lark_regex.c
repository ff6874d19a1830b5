/* lark_regex.c: the regular expressions of Lark grammars, which are Python's, as lang_regex() takes
 * them: the flags s and i are written out, "." is all but a line feed, \U, (?P<name> and {,n} are
 * respelled; and the terminals of Lark's library "common".
 *
 * Refused with line and column: other flags, inline flags and comments, \A and \Z, and i together with
 * escapes that name characters. All memory is the pool's. */
#include <string.h>

#include "lark.h"

typedef struct writer {
    cfg_source *s;           /* s->at walks over the body */
    uint64_t end;            /* of the body */
    char *out;
    uint64_t n, room;
    int all, fold;           /* flags s and i */
    int in_class;
} writer;

static int put(writer *w, const char *bytes, uint64_t n)
{
    if (w->n + n > w->room) {
        uint64_t room = (w->n + n) * 2 + 64;
        w->out = pool_grow(w->s->p, w->out, w->n, room);
        if (w->out == NULL)
            return 0;
        w->room = room;
    }
    memcpy(w->out + w->n, bytes, n);
    w->n += n;
    return 1;
}

static int copy(writer *w, uint64_t n)
{
    int good = put(w, w->s->text + w->s->at, n);
    w->s->at += n;
    return good;
}

/* `text` in place of n bytes of the source. */
static int replace(writer *w, uint64_t n, const char *text)
{
    w->s->at += n;
    return put(w, text, strlen(text));
}

static int refuse(writer *w, const char *why)
{
    (void)cfg_refuse(w->s, ENGINE_EUNSUPPORTED, w->s->at, "%s", why);
    return 0;
}

static int letter(int c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static int peek(const writer *w, uint64_t ahead)
{
    return ahead < w->end - w->s->at ? (unsigned char)w->s->text[w->s->at + ahead] : -1;
}

/* A backslash and what belongs to it. */
static int put_escape(writer *w)
{
    int c = peek(w, 1);
    if (!w->in_class && (c == 'A' || c == 'Z' || c == 'z'))
        return refuse(w, "\\A and \\Z are not held: a terminal is matched whole anyway");
    if (w->fold && c > 0 && strchr("xucpPU0", c) != NULL)
        return refuse(w, "the flag i does not go with escapes that name a character: write both cases");
    if (c == '/' || c == '"') {
        w->s->at++;
        return copy(w, 1);
    }
    if (c == 'U') {
        char code[4];
        uint32_t point;
        w->s->at += 2;
        if (w->end - w->s->at < 8 || !cfg_hex(w->s, 8, &point))
            return refuse(w, "\\U takes 8 hexadecimal digits of a character that is no surrogate");
        return (point >= 0x80 || put(w, "\\", 1)) && put(w, code, cfg_utf8(point, code));
    }
    return copy(w, c < 0 ? 1 : 2);
}

/* A letter, where case does not matter: outside a class as a class, inside both, ranges too. */
static int put_folded(writer *w)
{
    char other[4], lo = (char)peek(w, 0), hi = (char)peek(w, 2);
    if (!w->in_class) {
        char both[4] = {'[', lo, (char)(lo ^ 32), ']'};
        w->s->at++;
        return put(w, both, sizeof both);
    }
    if (peek(w, 1) != '-' || peek(w, 2) < 0 || hi == ']') {
        other[0] = (char)(lo ^ 32);
        return put(w, other, 1) && copy(w, 1);
    }
    if (!letter(hi) || ((lo ^ hi) & 32) != 0)
        return refuse(w, "the flag i takes ranges from a letter to a letter of the same case");
    other[0] = (char)(lo ^ 32);
    other[1] = '-';
    other[2] = (char)(hi ^ 32);
    return put(w, other, 3) && copy(w, 3);
}

static int put_group(writer *w)
{
    int c = peek(w, 2);
    if (c == 'P' && peek(w, 3) == '<')
        return replace(w, 4, "(?<");
    if (c >= 0 && strchr(":=!<", c) != NULL)
        return copy(w, 3);
    return refuse(w, "of groups that begin with (? only (?: (?= (?! and (?P<name> are known");
}

/* {,n} is {0,n}; any other brace is copied. */
static int put_brace(writer *w)
{
    uint64_t i = 2;
    while (peek(w, i) >= '0' && peek(w, i) <= '9')
        i++;
    if (peek(w, 1) == ',' && i > 2 && peek(w, i) == '}')
        return replace(w, 2, "{0,");
    return copy(w, 1);
}

static int put_next(writer *w)
{
    int c = peek(w, 0);
    if (c == '\\')
        return put_escape(w);
    if (w->fold && letter(c))
        return put_folded(w);
    if (w->in_class) {
        w->in_class = c != ']';
        return copy(w, 1);
    }
    if (c == '[') {
        w->in_class = 1;
        if (!copy(w, 1) || (peek(w, 0) == '^' && !copy(w, 1)))
            return 0;
        return peek(w, 0) == ']' ? replace(w, 1, "\\]") : 1;
    }
    if (c == '.')
        return replace(w, 1, w->all ? "[\\s\\S]" : "[^\\n]");
    if (c == '(' && peek(w, 1) == '?')
        return put_group(w);
    return c == '{' ? put_brace(w) : copy(w, 1);
}

/* Where the body ends, its flags behind it; 0 once refused. */
static int find_end(writer *w)
{
    cfg_source *s = w->s;
    uint64_t at = s->at + 1;
    while (at < s->len && s->text[at] != '/')
        at += s->text[at] == '\\' ? 2 : 1;
    if (at >= s->len)
        return refuse(w, "a regular expression that is not closed with /");
    w->end = at++;
    for (; at < s->len && letter((unsigned char)s->text[at]); at++) {
        char flag = s->text[at];
        w->all |= flag == 's';
        w->fold |= flag == 'i';
        s->at = flag == 's' || flag == 'i' || flag == 'u' ? s->at : at;
        if (s->at == at)
            return refuse(w, "of the flags of regular expressions only i, s and u are held");
    }
    return 1;
}

const cfg_expr *lark_regex(cfg_source *s, lang_set *langs)
{
    writer w = {.s = s};
    uint64_t begin = s->at;
    if (!find_end(&w))
        return NULL;
    for (s->at = begin + 1; s->at < w.end;)
        if (!pool_step(s->p, 1) || !put_next(&w))
            return NULL;
    const lang *language = lang_regex(langs, w.out, w.n, 0);
    if (language == NULL) {
        (void)cfg_locate(s, begin);
        return NULL;
    }
    s->at = w.end + 1;
    while (s->at < s->len && letter((unsigned char)s->text[s->at]))
        s->at++;
    return cfg_lang(s, language);
}

#define DIGITS "[0-9]+"
#define EXPONENT "[eE][+-]?" DIGITS
#define DECIMALS "(" DIGITS "\\.[0-9]*|\\." DIGITS ")"
#define FLOATS "(" DIGITS EXPONENT "|" DECIMALS "(" EXPONENT ")?)"

static const struct {
    const char *name, *pattern;
} COMMON[] = {
    {"DIGIT", "[0-9]"},
    {"HEXDIGIT", "[0-9A-Fa-f]"},
    {"INT", DIGITS},
    {"SIGNED_INT", "[+-]?" DIGITS},
    {"DECIMAL", DECIMALS},
    {"FLOAT", FLOATS},
    {"SIGNED_FLOAT", "[+-]?" FLOATS},
    {"NUMBER", FLOATS "|" DIGITS},
    {"SIGNED_NUMBER", "[+-]?(" FLOATS "|" DIGITS ")"},
    {"ESCAPED_STRING", "\"([^\"\\\\\\n]|\\\\[^\\n])*\""},
    {"LCASE_LETTER", "[a-z]"},
    {"UCASE_LETTER", "[A-Z]"},
    {"LETTER", "[A-Za-z]"},
    {"WORD", "[A-Za-z]+"},
    {"CNAME", "[A-Za-z_][A-Za-z0-9_]*"},
    {"WS_INLINE", "[ \\t]+"},
    {"WS", "[ \\t\\f\\r\\n]+"},
    {"CR", "\\r"},
    {"LF", "\\n"},
    {"NEWLINE", "(\\r?\\n)+"},
    {"SH_COMMENT", "#[^\\n]*"},
    {"CPP_COMMENT", "//[^\\n]*"},
    {"C_COMMENT", "/\\*([^*]|\\*+[^*/])*\\*+/"},
    {"SQL_COMMENT", "--[^\\n]*"},
};

const cfg_expr *lark_common(cfg_source *s, lang_set *langs, const char *name, uint64_t len)
{
    for (size_t i = 0; i < sizeof COMMON / sizeof *COMMON; i++)
        if (strlen(COMMON[i].name) == len && memcmp(COMMON[i].name, name, len) == 0)
            return cfg_lang(s, lang_regex(langs, COMMON[i].pattern, strlen(COMMON[i].pattern), 0));
    return NULL;
}
