/* lark.c: reads the commonly used part of Lark's notation into rules (cfg.h).
 *
 * Terminals (names in capitals, literals, regular expressions, ranges) are regular languages; in a rule
 * each of them may be followed by ignored text, and so may the beginning of the document. Inside a
 * terminal nothing is ignored. There is no lexer: what a text may be is the union over all ways to cut
 * it into terminals, so priorities and the preference of longer matches have nothing to decide and are
 * read over, like aliases and the prefixes ? and !. The document is the rule `start`. Refused with line
 * and column: what is malformed, names defined twice or never, rules inside terminals, templates, and
 * %declare, %override, %extend, and %import from elsewhere than common. All memory is the pool's. */
#include <string.h>

#include "lark.h"

typedef struct lark {
    cfg_source *s;
    lang_set *langs;
    uint32_t ignored;        /* the rule of what may stand between terminals */
    cfg_list ignores;
    int terminal;            /* a terminal is being read */
} lark;

static const cfg_expr *read_choice(lark *l, int nested);

static int peek(const cfg_source *s)
{
    return s->at < s->len ? (unsigned char)s->text[s->at] : -1;
}

static int peek_at(const cfg_source *s, uint64_t ahead)
{
    return ahead < s->len - s->at ? (unsigned char)s->text[s->at + ahead] : -1;
}

static int starts(const cfg_source *s, const char *text)
{
    uint64_t n = strlen(text);
    return s->len - s->at >= n && memcmp(s->text + s->at, text, n) == 0;
}

static const cfg_expr *refuse(cfg_source *s, engine_status status, uint64_t at, const char *why)
{
    (void)cfg_refuse(s, status, at, "%s", why);
    return NULL;
}

/* Skip blanks and comments (# and //); line ends too, where lines != 0. */
static void skip(cfg_source *s, int lines)
{
    for (; s->at < s->len; s->at++) {
        int c = peek(s);
        if (c == '#' || (c == '/' && peek_at(s, 1) == '/')) {
            while (s->at < s->len && peek(s) != '\n')
                s->at++;
            if (!lines || s->at == s->len)
                return;
        } else if (c != ' ' && c != '\t' && c != '\r' && c != '\f' && !(lines && c == '\n')) {
            return;
        }
    }
}

/* ---- Names -------------------------------------------------------------------------------------- */

static int name_byte(int c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* The length of the name at the cursor; *terminal tells its kind. 0: none, or the pool failed. */
static uint64_t read_name(cfg_source *s, int *terminal)
{
    uint64_t at = s->at, first = at;
    int small = 0, capital = 0;
    for (; name_byte(peek(s)); s->at++) {
        small |= peek(s) >= 'a' && peek(s) <= 'z';
        capital |= peek(s) >= 'A' && peek(s) <= 'Z';
    }
    while (first < s->at && s->text[first] == '_')
        first++;
    if (s->at > at && (small == capital || (s->text[first] >= '0' && s->text[first] <= '9'))) {
        (void)refuse(s, ENGINE_EFORMAT, at, "a name is all small letters (a rule) or all capitals (a terminal)");
        return 0;
    }
    *terminal = capital;
    return s->at - at;
}

/* Begin the definition of a name, once only. CFG_NONE: refused. */
static uint32_t define(cfg_source *s, uint64_t at, uint64_t len)
{
    uint32_t rule = cfg_rule_named(s, s->text + at, len, at);
    if (rule == CFG_NONE)
        return rule;
    if (s->rules[rule].body != NULL) {
        (void)cfg_refuse(s, ENGINE_EFORMAT, at, "%.*s is defined twice", (int)(len < 100 ? len : 100), s->text + at);
        return CFG_NONE;
    }
    return rule;
}

/* ---- Terminals ---------------------------------------------------------------------------------- */

/* A terminal in a rule: ignored text may follow it. */
static const cfg_expr *with_ignored(lark *l, const cfg_expr *terminal)
{
    cfg_list list = {0};
    if (l->terminal || terminal == NULL)
        return terminal;
    if (!cfg_list_add(l->s, &list, terminal) || !cfg_list_add(l->s, &list, cfg_call(l->s, l->ignored)))
        return NULL;
    return cfg_sequence(l->s, &list);
}

/* One character of a literal; 0 once refused. */
static int read_char(cfg_source *s, uint32_t *c)
{
    static const char names[] = "nrtf\\\"/", values[] = "\n\r\t\f\\\"/";
    uint64_t at = s->at;
    uint32_t bytes;
    *c = cfg_character(s, s->at, &bytes);
    s->at += bytes;
    if (*c != '\\')
        return 1;
    int escape = peek(s);
    const char *known = escape > 0 ? strchr(names, escape) : NULL;
    s->at++;
    if (known != NULL) {
        *c = (uint32_t)values[known - names];
        return 1;
    }
    if ((escape == 'x' || escape == 'u' || escape == 'U') && cfg_hex(s, escape == 'x' ? 2 : escape == 'u' ? 4 : 8, c))
        return 1;
    (void)refuse(s, ENGINE_EFORMAT, at,
                 "malformed escape: there are \\\\ \\\" \\n \\r \\t \\f \\xHH \\uHHHH \\UHHHHHHHH, of no surrogate");
    return 0;
}

/* "…": its characters, *n of them; NULL once refused. */
static uint32_t *read_literal(cfg_source *s, uint32_t *n)
{
    uint64_t opened = s->at++;
    uint32_t room = 16, *points = pool_alloc(s->p, room * sizeof *points);
    *n = 0;
    while (points != NULL && peek(s) != '"') {
        if (s->at >= s->len || peek(s) == '\n') {
            (void)refuse(s, ENGINE_EFORMAT, opened, "a literal that is not closed with \" on its line");
            return NULL;
        }
        if (*n == room) {
            points = pool_grow(s->p, points, room * sizeof *points, 2 * (uint64_t)room * sizeof *points);
            room *= 2;
        }
        if (points == NULL || !read_char(s, &points[(*n)++]))
            return NULL;
    }
    s->at++;
    return points;
}

/* Characters as an expression; the case of ASCII letters does not matter where fold != 0. */
static const cfg_expr *literal_of(cfg_source *s, const uint32_t *points, uint32_t n, int fold)
{
    cfg_list list = {0};
    char *bytes = pool_alloc(s->p, 4 * (uint64_t)n);
    uint64_t size = 0;
    if (bytes == NULL)
        return NULL;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t c = points[i], small = c | 32;
        cfg_range both[2] = {{c, c}, {c ^ 32, c ^ 32}};
        size += cfg_utf8(c, bytes + size);
        if (fold && c >= 0x80)
            return refuse(s, ENGINE_EUNSUPPORTED, s->at, "the flag i is held for ASCII only: write both cases");
        if (fold && !cfg_list_add(s, &list, cfg_set(s, both, small >= 'a' && small <= 'z' ? 2 : 1, 0)))
            return NULL;
    }
    return fold ? cfg_sequence(s, &list) : cfg_text(s, bytes, size);
}

/* A literal, or a range of characters: "a", "a"i, "a".."z". */
static const cfg_expr *read_string(lark *l)
{
    cfg_source *s = l->s;
    uint64_t opened = s->at;
    uint32_t n, m, *points = read_literal(s, &n);
    if (points == NULL)
        return NULL;
    int fold = peek(s) == 'i' && !name_byte(peek_at(s, 1));
    s->at += (uint64_t)fold;
    uint64_t behind = s->at;
    skip(s, 0);
    if (!starts(s, "..")) {
        s->at = behind;
        return literal_of(s, points, n, fold);
    }
    s->at += 2;
    skip(s, 0);
    if (peek(s) != '"')
        return refuse(s, ENGINE_EFORMAT, s->at, "a range ends with a literal of one character: \"a\"..\"z\"");
    uint32_t *last = read_literal(s, &m);
    if (last == NULL)
        return NULL;
    if (n != 1 || m != 1 || fold || last[0] < points[0])
        return refuse(s, ENGINE_EFORMAT, opened, "a range goes from one character up to one character: \"a\"..\"z\"");
    cfg_range range = {points[0], last[0]};
    return cfg_set(s, &range, 1, 0);
}

/* ---- Expressions -------------------------------------------------------------------------------- */

static const cfg_expr *read_group(lark *l, int close)
{
    cfg_source *s = l->s;
    uint64_t opened = s->at++;
    if (++s->nesting > CFG_MAX_NESTING)
        return refuse(s, ENGINE_EUNSUPPORTED, opened, "groups are nested too deep: name the inner ones as rules");
    skip(s, 1);
    const cfg_expr *inner = read_choice(l, 1);
    if (inner == NULL)
        return NULL;
    if (peek(s) != close)
        return refuse(s, ENGINE_EFORMAT, s->at < s->len ? s->at : opened,
                      close == ')' ? "a group is not closed with )" : "an optional part is not closed with ]");
    s->at++;
    s->nesting--;
    return close == ']' ? cfg_repeat(s, inner, 0, 1, opened) : inner;
}

static const cfg_expr *read_mention(lark *l)
{
    cfg_source *s = l->s;
    uint64_t at = s->at;
    int terminal = 0;
    uint64_t len = read_name(s, &terminal);
    if (len == 0)
        return NULL;
    if (peek(s) == '{')
        return refuse(s, ENGINE_EUNSUPPORTED, at, "templates are not held: write the rule out");
    if (l->terminal && !terminal)
        return refuse(s, ENGINE_EFORMAT, at, "a rule inside a terminal: terminals are made of terminals");
    const cfg_expr *call = cfg_call(s, cfg_rule_named(s, s->text + at, len, at));
    return terminal ? with_ignored(l, call) : call;
}

/* What a sequence is made of; NULL with the pool good where none begins here. */
static const cfg_expr *read_atom(lark *l)
{
    cfg_source *s = l->s;
    int c = peek(s);
    if (c == '"')
        return with_ignored(l, read_string(l));
    if (c == '/')
        return with_ignored(l, lark_regex(s, l->langs));
    if (c == '(' || c == '[')
        return read_group(l, c == '(' ? ')' : ']');
    if (c == '<' || c == '%' || c == '@' || c == '&')
        return refuse(s, ENGINE_EUNSUPPORTED, s->at, "tokens, nested grammars and operators of other tools are not held");
    return name_byte(c) ? read_mention(l) : NULL;
}

/* ?, *, +, ~n or ~n..m behind an atom, if there is one; *done: there was none. */
static const cfg_expr *read_repeat(lark *l, const cfg_expr *atom, int nested, int *done)
{
    cfg_source *s = l->s;
    uint64_t at = s->at;
    int c = peek(s);
    *done = 0;
    if (c == '?' || c == '*' || c == '+') {
        s->at++;
        return cfg_repeat(s, atom, c == '+', c == '?' ? 1 : CFG_NONE, at);
    }
    *done = c != '~';
    if (*done)
        return atom;
    s->at++;
    skip(s, nested);
    uint32_t least = 0, most = 0;
    int good = cfg_count(s, &least);
    skip(s, nested);
    most = least;
    if (good && starts(s, "..")) {
        s->at += 2;
        skip(s, nested);
        good = cfg_count(s, &most);
    }
    if (!good)
        return refuse(s, ENGINE_EFORMAT, at, "a repetition is ~n or ~n..m");
    return cfg_repeat(s, atom, least, most, at);
}

/* One alternative, with its alias. */
static const cfg_expr *read_sequence(lark *l, int nested)
{
    cfg_source *s = l->s;
    cfg_list list = {0};
    int terminal, done = 0;
    for (const cfg_expr *atom; (atom = read_atom(l)) != NULL; skip(s, nested)) {
        for (skip(s, nested); atom != NULL && (atom = read_repeat(l, atom, nested, &done)) != NULL && !done;)
            skip(s, nested);
        if (!cfg_list_add(s, &list, atom))
            return NULL;
    }
    if (s->p->status != ENGINE_OK)
        return NULL;
    if (starts(s, "->")) {
        s->at += 2;
        skip(s, nested);
        if (read_name(s, &terminal) == 0)
            return refuse(s, ENGINE_EFORMAT, s->at, "-> takes a name");
        skip(s, nested);
    }
    return cfg_sequence(s, &list);
}

static const cfg_expr *read_choice(lark *l, int nested)
{
    cfg_source *s = l->s;
    cfg_list list = {0};
    do {
        if (list.n > 0) {
            s->at++;
            skip(s, 1);
        }
        if (!cfg_list_add(s, &list, read_sequence(l, nested)))
            return NULL;
    } while (peek(s) == '|' || (!nested && cfg_continues(s, skip)));
    return cfg_choice(s, &list);
}

/* ---- Lines -------------------------------------------------------------------------------------- */

static int end_of_line(cfg_source *s)
{
    skip(s, 0);
    if (s->at < s->len && peek(s) != '\n')
        return refuse(s, ENGINE_EFORMAT, s->at, "neither the end of the line nor what may stand here") != NULL;
    skip(s, 1);
    return 1;
}

/* name: …, with its prefixes and its priority. */
static int read_definition(lark *l)
{
    cfg_source *s = l->s;
    while (peek(s) == '?' || peek(s) == '!')
        s->at++;
    uint64_t at = s->at, len = read_name(s, &l->terminal);
    if (len == 0)
        return refuse(s, ENGINE_EFORMAT, at, "a definition is expected: name: ...") != NULL;
    if (peek(s) == '{' || peek(s) == '[')
        return refuse(s, ENGINE_EUNSUPPORTED, s->at, "templates and attributes of rules are not held") != NULL;
    skip(s, 0);
    if (peek(s) == '.') {
        uint32_t priority;
        s->at++;
        s->at += peek(s) == '-' || peek(s) == '+';
        if (!cfg_count(s, &priority))
            return refuse(s, ENGINE_EFORMAT, s->at, "a priority is a number: name.2: ...") != NULL;
        skip(s, 0);
    }
    if (peek(s) != ':')
        return refuse(s, ENGINE_EFORMAT, s->at, "a colon is expected after the name that is defined") != NULL;
    s->at++;
    uint32_t rule = define(s, at, len);
    if (rule == CFG_NONE)
        return 0;
    skip(s, 0);
    const cfg_expr *body = read_choice(l, 0);
    if (body == NULL)
        return 0;
    s->rules[rule].body = body;
    s->rules[rule].at = at;
    return end_of_line(s);
}

static int read_ignore(lark *l)
{
    l->terminal = 1;
    skip(l->s, 0);
    return cfg_list_add(l->s, &l->ignores, read_choice(l, 0)) && end_of_line(l->s);
}

/* One name of common, known here by another if `as` is not 0 long. */
static int import_one(lark *l, uint64_t at, uint64_t len, uint64_t as, uint64_t as_len)
{
    cfg_source *s = l->s;
    const cfg_expr *body = lark_common(s, l->langs, s->text + at, len);
    if (body == NULL && s->p->status == ENGINE_OK)
        (void)cfg_refuse(s, ENGINE_EUNSUPPORTED, at, "common.%.*s is not known", (int)(len < 100 ? len : 100), s->text + at);
    uint32_t rule = body == NULL ? CFG_NONE : define(s, as_len > 0 ? as : at, as_len > 0 ? as_len : len);
    if (rule == CFG_NONE)
        return 0;
    s->rules[rule].body = body;
    return 1;
}

/* common.NAME, common.NAME -> NAME or common (NAME, NAME). */
static int read_import(lark *l)
{
    cfg_source *s = l->s;
    int terminal = 1, listed = 0;
    skip(s, 0);
    if (!starts(s, "common") || name_byte(peek_at(s, 6)))
        return refuse(s, ENGINE_EUNSUPPORTED, s->at, "only %import common.NAME is held: write other grammars out") != NULL;
    s->at += 6;
    listed = peek(s) != '.';
    skip(s, 0);
    if (peek(s) != (listed ? '(' : '.'))
        return refuse(s, ENGINE_EFORMAT, s->at, "%import common takes .NAME or (NAME, NAME)") != NULL;
    do {
        s->at++;
        skip(s, listed);
        uint64_t at = s->at, len = read_name(s, &terminal), as = 0, as_len = 0;
        if (len == 0 || !terminal)
            return refuse(s, ENGINE_EFORMAT, at, "the name of a terminal of common is expected") != NULL;
        skip(s, listed);
        if (!listed && starts(s, "->")) {
            s->at += 2;
            skip(s, 0);
            as = s->at;
            as_len = read_name(s, &terminal);
            if (as_len == 0 || !terminal)
                return refuse(s, ENGINE_EFORMAT, as, "-> takes the name of a terminal") != NULL;
        }
        if (!import_one(l, at, len, as, as_len))
            return 0;
    } while (listed && peek(s) == ',');
    if (listed && peek(s) != ')')
        return refuse(s, ENGINE_EFORMAT, s->at, "the list of %import is not closed with )") != NULL;
    s->at += (uint64_t)listed;
    return end_of_line(s);
}

static int read_line(lark *l)
{
    cfg_source *s = l->s;
    if (peek(s) != '%')
        return read_definition(l);
    uint64_t at = s->at;
    if (starts(s, "%ignore")) {
        s->at += 7;
        return read_ignore(l);
    }
    if (starts(s, "%import")) {
        s->at += 7;
        return read_import(l);
    }
    return refuse(s, ENGINE_EUNSUPPORTED, at, "of the statements with % only %ignore and %import are held") != NULL;
}

engine_status lark_read(cfg_source *s, const cfg_expr **document, uint64_t *at)
{
    lark l = {.s = s, .langs = lang_set_new(s->p)};
    cfg_list parts = {0};
    l.ignored = cfg_rule_named(s, "%ignore", 7, 0);
    if (l.langs == NULL || l.ignored == CFG_NONE)
        return s->p->status;
    for (skip(s, 1); s->at < s->len;)
        if (!read_line(&l))
            return s->p->status;
    uint32_t start = cfg_rule_find(s, "start", 5);
    if (start == CFG_NONE || s->rules[start].body == NULL)
        return cfg_refuse(s, ENGINE_EFORMAT, s->len, "there is no rule start, which is the whole text");
    const cfg_expr *ignored =
        l.ignores.n == 0 ? cfg_text(s, "", 0) : cfg_repeat(s, cfg_choice(s, &l.ignores), 0, CFG_NONE, 0);
    if (ignored == NULL)
        return s->p->status;
    s->rules[l.ignored].body = ignored;
    *at = s->rules[start].at;
    if (!cfg_list_add(s, &parts, cfg_call(s, l.ignored)) || !cfg_list_add(s, &parts, cfg_call(s, start)))
        return s->p->status;
    *document = cfg_sequence(s, &parts);
    return s->p->status;
}
