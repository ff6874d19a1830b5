/* grammar.c: what the readers of grammars share: the source with its lines and columns, the names of
 * rules, and the makers of expressions (cfg.h); and grammar_new(), which puts the parts together.
 *
 * Refused here: sources that are not UTF-8 or too long, groups nested too deep, counts too high. All
 * memory is the pool's. */
#include "grammar.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cfg.h"

enum { MAX_SOURCE = 1 << 24, COPIES_AS_RULE = 16384 };

/* ---- The source ------------------------------------------------------------------------------ */

/* The code point at text[at], well-formed UTF-8 only: *bytes is 0 where it is none. */
static uint32_t decode(const unsigned char *t, uint64_t left, uint32_t *bytes)
{
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    *bytes = 0;
    if (left == 0)
        return 0;
    uint32_t n = t[0] < 0x80 ? 1 : t[0] < 0xC2 ? 0 : t[0] < 0xE0 ? 2 : t[0] < 0xF0 ? 3 : t[0] < 0xF5 ? 4 : 0;
    if (n == 0 || n > left)
        return 0;
    uint32_t c = n == 1 ? t[0] : t[0] & (0x7Fu >> n);
    for (uint32_t i = 1; i < n; i++) {
        if ((t[i] & 0xC0) != 0x80)
            return 0;
        c = c << 6 | (t[i] & 0x3Fu);
    }
    if (c < least[n] || c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF))
        return 0;
    *bytes = n;
    return c;
}

uint32_t cfg_character(const cfg_source *s, uint64_t at, uint32_t *bytes)
{
    return decode((const unsigned char *)s->text + at, s->len - at, bytes);
}

engine_status cfg_refuse(cfg_source *s, engine_status status, uint64_t at, const char *format, ...)
{
    char why[384];
    uint64_t line = 1, column = 1;
    for (uint64_t i = 0; i < at && i < s->len; i++) {
        if (s->text[i] == '\n') {
            line++;
            column = 1;
        } else if (((unsigned char)s->text[i] & 0xC0) != 0x80) {
            column++;
        }
    }
    va_list args;
    va_start(args, format);
    (void)vsnprintf(why, sizeof why, format, args);
    va_end(args);
    return pool_fail(s->p, status, "%s grammar, line %llu, column %llu: %s", s->notation, (unsigned long long)line,
                     (unsigned long long)column, why);
}

engine_status cfg_locate(cfg_source *s, uint64_t at)
{
    engine_status status = s->p->status;
    char why[sizeof s->p->error];
    memcpy(why, s->p->error, sizeof why);
    s->p->status = ENGINE_OK;
    return cfg_refuse(s, status, at, "%s", why);
}

engine_status cfg_source_open(cfg_source *s, pool *p, const char *notation, const char *text, uint64_t len)
{
    *s = (cfg_source){.p = p, .notation = notation, .text = text, .len = len};
    if (len > MAX_SOURCE)
        return pool_fail(p, ENGINE_EUNSUPPORTED, "%s grammar: %llu bytes are more than the %d that are read", notation,
                         (unsigned long long)len, MAX_SOURCE);
    for (uint64_t at = 0; at < len;) {
        uint32_t bytes;
        (void)cfg_character(s, at, &bytes);
        if (bytes == 0)
            return cfg_refuse(s, ENGINE_EFORMAT, at, "the grammar is not UTF-8 here");
        at += bytes;
    }
    if (!pool_step(p, len))
        return p->status;
    return ENGINE_OK;
}

int cfg_hex(cfg_source *s, uint32_t n, uint32_t *code_point)
{
    uint32_t c = 0;
    if (n > s->len - s->at)
        return 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t h = (unsigned char)s->text[s->at + i], small = h | 32;
        uint32_t digit = h >= '0' && h <= '9' ? h - '0' : small >= 'a' && small <= 'f' ? small - 'a' + 10 : 16;
        if (digit == 16)
            return 0;
        c = c << 4 | digit;
    }
    if (c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF))
        return 0;
    s->at += n;
    *code_point = c;
    return 1;
}

int cfg_count(cfg_source *s, uint32_t *count)
{
    uint64_t begin = s->at;
    *count = 0;
    for (; s->at < s->len && s->text[s->at] >= '0' && s->text[s->at] <= '9'; s->at++)
        *count = *count > CFG_MAX_COUNT ? *count : *count * 10 + (uint32_t)(s->text[s->at] - '0');
    return s->at > begin;
}

int cfg_continues(cfg_source *s, void (*skip)(cfg_source *s, int lines))
{
    uint64_t at = s->at;
    skip(s, 1);
    if (s->at < s->len && s->text[s->at] == '|')
        return 1;
    s->at = at;
    return 0;
}

/* ---- Names of rules -------------------------------------------------------------------------- */

static uint32_t name_hash(const char *name, uint64_t len)
{
    uint32_t h = 2166136261u;
    for (uint64_t i = 0; i < len; i++)
        h = (h ^ (unsigned char)name[i]) * 16777619u;
    return h;
}

/* Where in the table the name stands, or would. */
static uint32_t name_slot(const cfg_source *s, const char *name, uint64_t len)
{
    uint32_t at = name_hash(name, len) & (s->table_size - 1);
    for (; s->table[at] != 0; at = (at + 1) & (s->table_size - 1)) {
        const cfg_rule *r = &s->rules[s->table[at] - 1];
        if (r->len == len && memcmp(r->name, name, len) == 0)
            break;
    }
    return at;
}

uint32_t cfg_rule_find(const cfg_source *s, const char *name, uint64_t len)
{
    if (s->table_size == 0)
        return CFG_NONE;
    uint32_t found = s->table[name_slot(s, name, len)];
    return found == 0 ? CFG_NONE : found - 1;
}

/* Room for one more rule, in list and table. */
static int make_room(cfg_source *s)
{
    if (s->n_rules < s->room)
        return 1;
    uint32_t room = s->room == 0 ? 64 : s->room * 2;
    cfg_rule *rules = pool_grow(s->p, s->rules, s->n_rules * sizeof *rules, room * sizeof *rules);
    uint32_t *table = pool_alloc(s->p, (uint64_t)room * 2 * sizeof *table);
    if (rules == NULL || table == NULL)
        return 0;
    s->rules = rules;
    s->room = room;
    s->table = table;
    s->table_size = room * 2;
    for (uint32_t i = 0; i < s->n_rules; i++)
        if (rules[i].len > 0)
            table[name_slot(s, rules[i].name, rules[i].len)] = i + 1;
    return 1;
}

/* A rule without a name is found by its number only. */
static uint32_t add_rule(cfg_source *s, const char *name, uint32_t len, uint64_t at)
{
    if (!make_room(s) || !pool_step(s->p, 1))
        return CFG_NONE;
    if (len > 0)
        s->table[name_slot(s, name, len)] = s->n_rules + 1;
    s->rules[s->n_rules] = (cfg_rule){.name = name, .len = len, .at = at};
    return s->n_rules++;
}

uint32_t cfg_rule_named(cfg_source *s, const char *name, uint64_t len, uint64_t at)
{
    uint32_t known = cfg_rule_find(s, name, len);
    return known != CFG_NONE ? known : add_rule(s, name, (uint32_t)len, at);
}

/* ---- Expressions ----------------------------------------------------------------------------- */

static uint64_t size_sum(uint64_t a, uint64_t b)
{
    return a + b < (uint64_t)1 << 40 ? a + b : (uint64_t)1 << 40;
}

static cfg_expr *new_expr(cfg_source *s, uint8_t kind, uint32_t n, uint64_t size)
{
    cfg_expr *e = pool_alloc(s->p, sizeof *e);
    if (e != NULL && !pool_step(s->p, 1))
        return NULL;
    if (e != NULL)
        *e = (cfg_expr){.kind = kind, .n = n, .size = size};
    return e;
}

int cfg_list_add(cfg_source *s, cfg_list *list, const cfg_expr *part)
{
    if (part == NULL)
        return 0;
    if (list->n == list->room) {
        uint32_t room = list->room == 0 ? 4 : list->room * 2;
        const cfg_expr **parts = pool_grow(s->p, list->parts, list->n * sizeof *parts, room * sizeof *parts);
        if (parts == NULL)
            return 0;
        list->parts = parts;
        list->room = room;
    }
    list->parts[list->n++] = part;
    return 1;
}

uint32_t cfg_utf8(uint32_t c, char out[4])
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    uint32_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (uint32_t i = n - 1; i > 0; i--, c >>= 6)
        out[i] = (char)(0x80 | (c & 0x3F));
    out[0] = (char)(n == 2 ? 0xC0 | c : n == 3 ? 0xE0 | c : 0xF0 | c);
    return n;
}

const cfg_expr *cfg_text(cfg_source *s, const char *bytes, uint64_t len)
{
    char *copy = pool_alloc(s->p, len);
    cfg_expr *e = new_expr(s, CFG_TEXT, (uint32_t)len, len);
    if (copy == NULL || e == NULL)
        return NULL;
    if (len > 0)
        memcpy(copy, bytes, len);
    e->text = copy;
    e->may_be_empty = len == 0;
    return e;
}

static int by_lo(const void *a, const void *b)
{
    const cfg_range *x = a, *y = b;
    return x->lo < y->lo ? -1 : x->lo > y->lo;
}

/* Ranges to disjoint ascending ones; their number. */
static uint32_t join_ranges(cfg_range *r, uint32_t n)
{
    uint32_t kept = 0;
    if (n > 1)
        qsort(r, n, sizeof *r, by_lo);
    for (uint32_t i = 0; i < n; i++) {
        if (kept > 0 && r[i].lo <= r[kept - 1].hi + 1)
            r[kept - 1].hi = r[i].hi > r[kept - 1].hi ? r[i].hi : r[kept - 1].hi;
        else
            r[kept++] = r[i];
    }
    return kept;
}

static uint32_t put_range(cfg_range *out, uint32_t n, uint32_t lo, uint32_t hi)
{
    if (lo > hi)
        return n;
    if (lo < 0xD800 && hi > 0xDFFF) {
        out[n++] = (cfg_range){lo, 0xD7FF};
        out[n++] = (cfg_range){0xE000, hi};
        return n;
    }
    lo = lo >= 0xD800 && lo <= 0xDFFF ? 0xE000 : lo;
    hi = hi >= 0xD800 && hi <= 0xDFFF ? 0xD7FF : hi;
    if (lo <= hi)
        out[n++] = (cfg_range){lo, hi};
    return n;
}

const cfg_expr *cfg_set(cfg_source *s, cfg_range *ranges, uint32_t n, int negated)
{
    if (!pool_step(s->p, (uint64_t)n * 4 + 1))
        return NULL;
    n = join_ranges(ranges, n);
    cfg_range *out = pool_alloc(s->p, ((uint64_t)n + 2) * sizeof *out);
    cfg_expr *e = new_expr(s, CFG_SET, 0, 0);
    if (out == NULL || e == NULL)
        return NULL;
    uint32_t next = 0;
    for (uint32_t i = 0; i < n; i++) {
        e->n = negated ? (ranges[i].lo > next ? put_range(out, e->n, next, ranges[i].lo - 1) : e->n)
                       : put_range(out, e->n, ranges[i].lo, ranges[i].hi);
        next = ranges[i].hi + 1;
    }
    if (negated)
        e->n = put_range(out, e->n, next, 0x10FFFF);
    for (uint32_t i = 0; i < e->n; i++)
        e->size += out[i].hi < 0x80 ? 1 : 4;
    e->ranges = out;
    return e;
}

/* Number the states of a lang as they are met: numbers in table, by state. */
typedef struct numbering {
    uint32_t *states, *table; /* table: number + 1 */
    uint32_t n, room;         /* table: room * 2 */
} numbering;

static int numbering_grow(cfg_source *s, numbering *m)
{
    uint32_t room = m->room == 0 ? 16 : m->room * 2;
    uint32_t *states = pool_grow(s->p, m->states, m->n * sizeof *states, room * sizeof *states);
    uint32_t *table = pool_alloc(s->p, (uint64_t)room * 2 * sizeof *table);
    if (states == NULL || table == NULL)
        return 0;
    for (uint32_t i = 0; i < m->n; i++) {
        uint32_t at = states[i] * 2654435761u & (room * 2 - 1);
        while (table[at] != 0)
            at = (at + 1) & (room * 2 - 1);
        table[at] = i + 1;
    }
    *m = (numbering){states, table, m->n, room};
    return 1;
}

static uint32_t number_of(cfg_source *s, numbering *m, uint32_t state)
{
    if (m->n == m->room && !numbering_grow(s, m))
        return CFG_NONE;
    uint32_t mask = m->room * 2 - 1, at = state * 2654435761u & mask;
    for (; m->table[at] != 0; at = (at + 1) & mask)
        if (m->states[m->table[at] - 1] == state)
            return m->table[at] - 1;
    m->states[m->n] = state;
    m->table[at] = m->n + 1;
    return m->n++;
}

typedef struct layout {
    numbering names;
    uint32_t *first;
    lang_edge *edges;
    uint8_t *accepts;
    uint32_t n_edges, room_edges, room_states;
} layout;

static int layout_room(cfg_source *s, layout *w, uint32_t state, uint32_t edges)
{
    if (state + 2 > w->room_states) {
        uint32_t room = (state + 2) * 2;
        w->first = pool_grow(s->p, w->first, w->room_states * sizeof *w->first, room * sizeof *w->first);
        w->accepts = pool_grow(s->p, w->accepts, w->room_states, room);
        w->room_states = room;
    }
    if (w->n_edges + edges > w->room_edges) {
        uint32_t room = (w->n_edges + edges) * 2;
        w->edges = pool_grow(s->p, w->edges, w->n_edges * sizeof *w->edges, room * sizeof *w->edges);
        w->room_edges = room;
    }
    return pool_step(s->p, (uint64_t)edges + 1);
}

const cfg_expr *cfg_lang(cfg_source *s, const lang *language)
{
    layout w = {0};
    cfg_language *out = pool_alloc(s->p, sizeof *out);
    cfg_expr *e = new_expr(s, CFG_LANGUAGE, 0, 0);
    if (language == NULL || out == NULL || e == NULL)
        return NULL;
    if (lang_start(language) != LANG_DEAD && number_of(s, &w.names, lang_start(language)) == CFG_NONE)
        return NULL;
    for (uint32_t i = 0; i < w.names.n; i++) {
        uint32_t state = w.names.states[i], n = lang_edges(language, state, NULL, 0);
        if (!layout_room(s, &w, i, n))
            return NULL;
        w.first[i] = w.n_edges;
        w.accepts[i] = lang_accepts(language, state) != 0;
        if (n > 0)
            (void)lang_edges(language, state, w.edges + w.n_edges, n);
        for (uint32_t k = 0; k < n; k++, w.n_edges++) {
            lang_edge *edge = &w.edges[w.n_edges];
            edge->to = number_of(s, &w.names, edge->to);
            if (edge->to == CFG_NONE)
                return NULL;
            e->size += edge->hi < 0x80 ? 1 : 4;
        }
        w.first[i + 1] = w.n_edges;
    }
    *out = (cfg_language){w.names.n, w.first, w.edges, w.accepts};
    e->language = out;
    e->may_be_empty = out->n_states > 0 && out->accepts[0];
    return e;
}

static const cfg_expr *parts_of(cfg_source *s, const cfg_list *list, uint8_t kind)
{
    if (list->n == 1)
        return list->parts[0];
    cfg_expr *e = new_expr(s, kind, list->n, 1);
    if (e == NULL)
        return NULL;
    e->may_be_empty = kind == CFG_SEQUENCE;
    for (uint32_t i = 0; i < list->n; i++) {
        e->size = size_sum(e->size, list->parts[i]->size);
        if (list->parts[i]->may_be_empty != e->may_be_empty)
            e->may_be_empty = kind == CFG_CHOICE;
    }
    e->parts = list->parts;
    return e;
}

const cfg_expr *cfg_sequence(cfg_source *s, const cfg_list *list)
{
    return list->n == 0 ? cfg_text(s, "", 0) : parts_of(s, list, CFG_SEQUENCE);
}

const cfg_expr *cfg_choice(cfg_source *s, const cfg_list *list)
{
    return parts_of(s, list, CFG_CHOICE);
}

const cfg_expr *cfg_call(cfg_source *s, uint32_t rule)
{
    cfg_expr *e = rule == CFG_NONE ? NULL : new_expr(s, CFG_CALL, rule, 1);
    if (e != NULL)
        e->may_be_empty = 1;
    return e;
}

/* A call of a new rule, which is never copied, in place of its body. */
static const cfg_expr *as_rule(cfg_source *s, const cfg_expr *body, uint64_t at)
{
    uint32_t rule = add_rule(s, "", 0, at);
    if (rule == CFG_NONE)
        return NULL;
    s->rules[rule].body = body;
    s->rules[rule].whole = 1;
    return cfg_call(s, rule);
}

/* Many copies of something large become calls of one rule; so do copies of what may be empty, since a
 * call tells an empty copy from none (cfg_nfa.c). */
const cfg_expr *cfg_repeat(cfg_source *s, const cfg_expr *part, uint32_t min, uint32_t max, uint64_t at)
{
    if (part == NULL)
        return NULL;
    uint32_t most = max == CFG_NONE ? min + 1 : max;
    if (min > CFG_MAX_COUNT || most > CFG_MAX_COUNT + 1) {
        (void)cfg_refuse(s, ENGINE_EUNSUPPORTED, at, "a repetition counts to %u at most", CFG_MAX_COUNT);
        return NULL;
    }
    if (max < min) {
        (void)cfg_refuse(s, ENGINE_EFORMAT, at, "a repetition of at least %u and at most %u is empty", min, max);
        return NULL;
    }
    if (part->kind != CFG_CALL &&
        ((part->size > 1 && part->size * most > COPIES_AS_RULE) || (part->may_be_empty && most > 4)))
        part = as_rule(s, part, at);
    cfg_expr *e = new_expr(s, CFG_REPEAT, 0, 0);
    if (part == NULL || e == NULL)
        return NULL;
    e->part = part;
    e->min = min;
    e->max = max;
    e->may_be_empty = min == 0 || part->may_be_empty;
    e->size = size_sum(part->size * most, most);
    return e;
}

/* ---- Together -------------------------------------------------------------------------------- */

engine_status grammar_new(pool *p, int kind, const char *source, uint64_t len, const doc_ops **ops, void **machine)
{
    cfg_source s;
    const cfg_expr *document = NULL;
    uint64_t at = 0;
    cfg *out = NULL;
    int gbnf = kind == ENGINE_CONSTRAINT_GBNF;
    *ops = NULL;
    *machine = NULL;
    if (!gbnf && kind != ENGINE_CONSTRAINT_LARK)
        return pool_fail(p, ENGINE_EINVAL, "grammar kind %d is neither GBNF nor Lark", kind);
    if (cfg_source_open(&s, p, gbnf ? "GBNF" : "Lark", source, len) != ENGINE_OK)
        return p->status;
    if ((gbnf ? gbnf_read(&s, &document, &at) : lark_read(&s, &document, &at)) != ENGINE_OK)
        return p->status;
    if (cfg_build(&s, document, at, &out) != ENGINE_OK)
        return p->status;
    *ops = &cfg_ops;
    *machine = out;
    return ENGINE_OK;
}
