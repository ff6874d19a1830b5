/* gbnf.c: reads llama.cpp's GBNF notation into rules (cfg.h).
 *
 * A rule is `name ::= alternatives` and ends with its line, unless the line stops after "|" or inside a
 * group, or the next one begins with "|". The document is the rule `root`. Refused with line and
 * column: what is malformed, rules defined twice or never, empty classes, and matches of tokens (<…>,
 * !<…>), which are no text. All memory is the pool's. */
#include <string.h>

#include "cfg.h"

static const cfg_expr *read_choice(cfg_source *s, int nested);

static int peek(const cfg_source *s)
{
    return s->at < s->len ? (unsigned char)s->text[s->at] : -1;
}

static int name_byte(int c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

/* Skip blanks and comments; line ends too, where lines != 0. */
static void skip(cfg_source *s, int lines)
{
    for (; s->at < s->len; s->at++) {
        int c = peek(s);
        if (c == '#') {
            while (s->at < s->len && peek(s) != '\n' && peek(s) != '\r')
                s->at++;
            if (!lines || s->at == s->len)
                return;
        } else if (c != ' ' && c != '\t' && !(lines && (c == '\n' || c == '\r'))) {
            return;
        }
    }
}

static const cfg_expr *refuse(cfg_source *s, uint64_t at, const char *why)
{
    (void)cfg_refuse(s, ENGINE_EFORMAT, at, "%s", why);
    return NULL;
}

/* One character of a literal or class; 0 once refused. */
static int read_char(cfg_source *s, uint32_t *c)
{
    uint64_t at = s->at;
    uint32_t bytes;
    *c = cfg_character(s, s->at, &bytes);
    s->at += bytes;
    if (bytes == 0) {
        (void)refuse(s, at, "the grammar ends inside a literal or class");
        return 0;
    }
    if (*c != '\\')
        return 1;
    int escape = peek(s);
    s->at++;
    switch (escape) {
    case 'x': case 'u': case 'U':
        if (cfg_hex(s, escape == 'x' ? 2 : escape == 'u' ? 4 : 8, c))
            return 1;
        (void)refuse(s, at, "\\x takes 2 hexadecimal digits, \\u 4 and \\U 8, of a character that is no surrogate");
        return 0;
    case 't': *c = '\t'; return 1;
    case 'r': *c = '\r'; return 1;
    case 'n': *c = '\n'; return 1;
    case '\\': case '"': case '[': case ']': *c = (uint32_t)escape; return 1;
    default:
        (void)refuse(s, at, "unknown escape: there are \\\\ \\\" \\[ \\] \\t \\r \\n \\xHH \\uHHHH \\UHHHHHHHH");
        return 0;
    }
}

static const cfg_expr *read_literal(cfg_source *s)
{
    uint64_t opened = s->at++, room = 0, n = 0;
    char *bytes = NULL;
    while (peek(s) != '"') {
        uint32_t c;
        if (s->at >= s->len)
            return refuse(s, opened, "a literal that is not closed with \"");
        if (!read_char(s, &c))
            return NULL;
        if (n + 4 > room) {
            room = room * 2 + 32;
            bytes = pool_grow(s->p, bytes, n, room);
            if (bytes == NULL)
                return NULL;
        }
        n += cfg_utf8(c, bytes + n);
    }
    s->at++;
    return cfg_text(s, bytes, n);
}

/* [a-z…] or [^…]: a "-" is a range unless it stands first or last. */
static const cfg_expr *read_class(cfg_source *s)
{
    uint64_t opened = s->at++;
    cfg_range *ranges = NULL;
    uint32_t n = 0, room = 0;
    int negated = peek(s) == '^';
    s->at += (uint64_t)negated;
    while (peek(s) != ']') {
        cfg_range r;
        uint64_t at = s->at;
        if (s->at >= s->len)
            return refuse(s, opened, "a class that is not closed with ]");
        if (!read_char(s, &r.lo))
            return NULL;
        r.hi = r.lo;
        if (peek(s) == '-' && s->at + 1 < s->len && s->text[s->at + 1] != ']') {
            s->at++;
            if (!read_char(s, &r.hi))
                return NULL;
            if (r.hi < r.lo)
                return refuse(s, at, "a range that ends before it begins");
        }
        if (n == room) {
            room = room * 2 + 8;
            ranges = pool_grow(s->p, ranges, n * sizeof *ranges, room * sizeof *ranges);
            if (ranges == NULL)
                return NULL;
        }
        ranges[n++] = r;
    }
    s->at++;
    if (n == 0)
        return refuse(s, opened, "an empty class: name at least one character, or write . for any");
    return cfg_set(s, ranges, n, negated);
}

/* {m}, {m,} or {m,n}. */
static const cfg_expr *read_counts(cfg_source *s, const cfg_expr *part, int nested)
{
    uint64_t opened = s->at++;
    uint32_t min, max;
    skip(s, nested);
    if (!cfg_count(s, &min))
        return refuse(s, opened, "a repetition is {m}, {m,} or {m,n}: a number is missing");
    max = min;
    skip(s, nested);
    if (peek(s) == ',') {
        s->at++;
        skip(s, nested);
        if (!cfg_count(s, &max))
            max = CFG_NONE;
        skip(s, nested);
    }
    if (peek(s) != '}')
        return refuse(s, opened, "a repetition is {m}, {m,} or {m,n}: it is not closed with }");
    s->at++;
    return cfg_repeat(s, part, min, max, opened);
}

static const cfg_expr *read_group(cfg_source *s)
{
    uint64_t opened = s->at++;
    if (++s->nesting > CFG_MAX_NESTING) {
        (void)cfg_refuse(s, ENGINE_EUNSUPPORTED, opened, "groups are nested deeper than %u: name the inner ones as rules",
                         CFG_MAX_NESTING);
        return NULL;
    }
    skip(s, 1);
    const cfg_expr *inner = read_choice(s, 1);
    if (inner == NULL)
        return NULL;
    if (peek(s) != ')')
        return refuse(s, s->at < s->len ? s->at : opened, "a group is not closed with )");
    s->at++;
    s->nesting--;
    return inner;
}

/* What a sequence is made of; NULL with the pool good where none begins here. */
static const cfg_expr *read_atom(cfg_source *s)
{
    uint64_t at = s->at;
    int c = peek(s);
    if (c == '"')
        return read_literal(s);
    if (c == '[')
        return read_class(s);
    if (c == '(')
        return read_group(s);
    if (c == '.') {
        s->at++;
        return cfg_set(s, NULL, 0, 1);
    }
    if (c == '<' || c == '!') {
        (void)cfg_refuse(s, ENGINE_EUNSUPPORTED, at, "matches of tokens (<...>, !<...>) are not held: write the text");
        return NULL;
    }
    if (!name_byte(c))
        return NULL;
    while (name_byte(peek(s)))
        s->at++;
    return cfg_call(s, cfg_rule_named(s, s->text + at, s->at - at, at));
}

/* One alternative: atoms, each with its repetitions. */
static const cfg_expr *read_sequence(cfg_source *s, int nested)
{
    cfg_list list = {0};
    for (;;) {
        const cfg_expr *atom = read_atom(s);
        if (s->p->status != ENGINE_OK)
            return NULL;
        if (atom == NULL)
            break;
        skip(s, nested);
        for (int c; (c = peek(s)) == '*' || c == '+' || c == '?' || c == '{'; skip(s, nested)) {
            uint64_t at = s->at;
            if (c == '{') {
                atom = read_counts(s, atom, nested);
            } else {
                s->at++;
                atom = cfg_repeat(s, atom, c == '+', c == '?' ? 1 : CFG_NONE, at);
            }
            if (atom == NULL)
                return NULL;
        }
        if (!cfg_list_add(s, &list, atom))
            return NULL;
    }
    int c = peek(s);
    if (c == '*' || c == '+' || c == '?' || c == '{')
        return refuse(s, s->at, "nothing stands before this repetition");
    return cfg_sequence(s, &list);
}

static const cfg_expr *read_choice(cfg_source *s, int nested)
{
    cfg_list list = {0};
    do {
        if (list.n > 0) {
            s->at++;
            skip(s, 1);
        }
        const cfg_expr *one = read_sequence(s, nested);
        if (!cfg_list_add(s, &list, one))
            return NULL;
    } while (peek(s) == '|' || (!nested && cfg_continues(s, skip)));
    return cfg_choice(s, &list);
}

static int read_rule(cfg_source *s)
{
    uint64_t at = s->at;
    while (name_byte(peek(s)))
        s->at++;
    if (s->at == at)
        return refuse(s, at, "a rule is expected: name ::= ...") != NULL;
    uint32_t rule = cfg_rule_named(s, s->text + at, s->at - at, at);
    if (rule == CFG_NONE)
        return 0;
    skip(s, 0);
    if (s->len - s->at < 3 || memcmp(s->text + s->at, "::=", 3) != 0)
        return refuse(s, s->at, "::= is expected after the name of a rule") != NULL;
    if (s->rules[rule].body != NULL) {
        (void)cfg_refuse(s, ENGINE_EFORMAT, at, "rule %.*s is defined twice",
                         (int)(s->rules[rule].len < 100 ? s->rules[rule].len : 100), s->rules[rule].name);
        return 0;
    }
    s->at += 3;
    skip(s, 1);
    const cfg_expr *body = read_choice(s, 0);
    if (body == NULL)
        return 0;
    s->rules[rule].body = body;
    s->rules[rule].at = at;
    if (s->at < s->len && peek(s) != '\n' && peek(s) != '\r')
        return refuse(s, s->at, "neither the end of the rule nor what a rule is made of") != NULL;
    skip(s, 1);
    return 1;
}

engine_status gbnf_read(cfg_source *s, const cfg_expr **document, uint64_t *at)
{
    skip(s, 1);
    while (s->at < s->len)
        if (!read_rule(s))
            return s->p->status;
    uint32_t root = cfg_rule_find(s, "root", 4);
    if (root == CFG_NONE || s->rules[root].body == NULL)
        return cfg_refuse(s, ENGINE_EFORMAT, s->len, "there is no rule root, which is the whole text");
    *document = cfg_call(s, root);
    *at = s->rules[root].at;
    return s->p->status;
}
