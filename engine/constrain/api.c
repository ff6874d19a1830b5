/* api.c: from a source to a compiled constraint: one row per kind. Compilation has one pool, so what it
 * may take is bounded and one call frees it; refusals keep the compiler's text. The caller frees with
 * engine_constraint_free(), after the last matcher. */
#include <stdlib.h>
#include <string.h>

#include "constraint.h"
#include "ir.h"
#include "status.h"
#include "utf8_part.h"

#define MAX_BYTES (512ull << 20)
#define MAX_STEPS (100ull * 1000 * 1000)
#define MAX_SOURCE (64ull << 20)
#define POSITION_BYTES (256ull << 20) /* what a matcher's positions may take */

/* What every kind's compiler sees. */
typedef struct compilation {
    engine_constraint *made;
    pool *p;
    const char *source;
    uint64_t len;
    const engine_constraint_options *options;
} compilation;

/* ---- A choice: a JSON array of strings ------------------------------------------------- */

typedef struct reader {
    compilation *c;
    const char *at, *end;
} reader;

static engine_status choice_error(reader *r, const char *what)
{
    return pool_fail(r->c->p, ENGINE_EFORMAT, "choice: %s at byte %llu of the JSON array of strings", what,
                     (unsigned long long)(r->at - r->c->source));
}

static void skip_space(reader *r)
{
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\t' || *r->at == '\n' || *r->at == '\r'))
        r->at++;
}

static int take(reader *r, char byte)
{
    skip_space(r);
    if (r->at == r->end || *r->at != byte)
        return 0;
    r->at++;
    return 1;
}

/* Four hexadecimal digits; UINT32_MAX where they are none. */
static uint32_t read_hex(reader *r)
{
    uint32_t value = 0;
    if (r->end - r->at < 4)
        return UINT32_MAX;
    for (int i = 0; i < 4; i++) {
        char d = *r->at++;
        uint32_t digit = d >= '0' && d <= '9'   ? (uint32_t)(d - '0')
                         : d >= 'a' && d <= 'f' ? (uint32_t)(d - 'a' + 10)
                         : d >= 'A' && d <= 'F' ? (uint32_t)(d - 'A' + 10)
                                                : UINT32_MAX;
        if (digit == UINT32_MAX)
            return UINT32_MAX;
        value = value << 4 | digit;
    }
    return value;
}

/* The code point of the escape after a backslash; UINT32_MAX where it is none. */
static uint32_t read_escape(reader *r)
{
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    if (r->at == r->end)
        return UINT32_MAX;
    char name = *r->at++;
    const char *known = name ? strchr(names, name) : NULL;
    if (known != NULL)
        return (uint8_t)values[known - names];
    uint32_t c = name == 'u' ? read_hex(r) : UINT32_MAX;
    if (c < 0xd800 || c > 0xdfff)
        return c;
    if (c > 0xdbff || r->end - r->at < 6 || r->at[0] != '\\' || r->at[1] != 'u')
        return UINT32_MAX;
    r->at += 2;
    uint32_t low = read_hex(r);
    if (low < 0xdc00 || low > 0xdfff)
        return UINT32_MAX;
    return 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
}

/* A raw code point: its bytes are copied. 0 where they are no UTF-8. */
static int read_raw(reader *r, uint8_t *out, uint64_t *n)
{
    utf8_part part = {0, 0, 0};
    uint32_t lo, hi;
    do {
        uint8_t byte = r->at < r->end ? (uint8_t)*r->at : 0;
        if (byte < 0x20 || !utf8_read(&part, byte))
            return 0;
        utf8_range(&part, &lo, &hi);
        if (lo > hi || (lo >= 0xd800 && hi <= 0xdfff))
            return 0;
        out[(*n)++] = byte;
        r->at++;
    } while (part.left > 0);
    return 1;
}

/* One string, decoded into memory of the pool. */
static engine_status read_string(reader *r, const char **text, uint64_t *len)
{
    if (!take(r, '"'))
        return choice_error(r, "a string is missing");
    const char *close = r->at; /* decoded text is never longer than its spelling */
    while (close < r->end && *close != '"')
        close += *close == '\\' ? 2 : 1;
    if (close >= r->end)
        return choice_error(r, "a string does not end");
    uint8_t *out = pool_alloc(r->c->p, (uint64_t)(close - r->at) + 4);
    uint64_t n = 0;
    while (out != NULL && r->at < close)
        if (*r->at == '\\') {
            r->at++;
            uint32_t c = read_escape(r);
            if (c == UINT32_MAX)
                return choice_error(r, "an escape is malformed");
            n += utf8_write(c, out + n);
        } else if (!read_raw(r, out, &n)) {
            return choice_error(r, "text is not UTF-8, or holds a control character");
        }
    r->at = close + 1;
    *text = (const char *)out;
    *len = n;
    return r->c->p->status;
}

/* How many strings there can be at most: one more than commas. */
static uint64_t most_strings(const compilation *c)
{
    uint64_t n = 1;
    for (uint64_t i = 0; i < c->len; i++)
        n += c->source[i] == ',';
    return n;
}

static engine_status compile_language(compilation *c, const lang *language)
{
    if (c->p->status != ENGINE_OK)
        return c->p->status;
    return lang_doc_new(c->p, language, &c->made->ops, &c->made->program);
}

static engine_status compile_choice(compilation *c)
{
    reader r = {c, c->source, c->source + c->len};
    uint64_t room = most_strings(c), n = 0;
    const char **texts = pool_alloc(c->p, room * sizeof *texts);
    uint64_t *lens = pool_alloc(c->p, room * sizeof *lens);
    if (texts == NULL || lens == NULL)
        return c->p->status;
    if (!take(&r, '['))
        return choice_error(&r, "'[' is missing");
    do {
        if (read_string(&r, &texts[n], &lens[n]) != ENGINE_OK)
            return c->p->status;
        n++;
    } while (take(&r, ','));
    if (!take(&r, ']'))
        return choice_error(&r, "',' or ']' is missing");
    skip_space(&r);
    if (r.at != r.end)
        return choice_error(&r, "something follows");
    return compile_language(c, lang_words_of(lang_set_new(c->p), texts, lens, n));
}

/* ---- The other kinds ------------------------------------------------------------------------ */

static engine_status compile_regex(compilation *c)
{
    return compile_language(c, lang_regex(lang_set_new(c->p), c->source, c->len, 0));
}

static engine_status refuse_kind(compilation *c, const char *kind)
{
    return pool_fail(c->p, ENGINE_EUNSUPPORTED, "constraints of kind %s are not in this build", kind);
}

static engine_status compile_schema(compilation *c)
{
    return refuse_kind(c, "json_schema");
}

static engine_status compile_json(compilation *c)
{
    return refuse_kind(c, "json");
}

static engine_status compile_gbnf(compilation *c)
{
    return refuse_kind(c, "gbnf");
}

static engine_status compile_lark(compilation *c)
{
    return refuse_kind(c, "lark");
}

static engine_status dispatch(compilation *c, int32_t kind)
{
    static engine_status (*const compilers[])(compilation *) = {
        [ENGINE_CONSTRAINT_JSON_SCHEMA] = compile_schema, [ENGINE_CONSTRAINT_JSON] = compile_json,
        [ENGINE_CONSTRAINT_REGEX] = compile_regex,        [ENGINE_CONSTRAINT_CHOICE] = compile_choice,
        [ENGINE_CONSTRAINT_GBNF] = compile_gbnf,          [ENGINE_CONSTRAINT_LARK] = compile_lark,
    };
    if (kind < 1 || kind >= (int32_t)(sizeof compilers / sizeof compilers[0]))
        return pool_fail(c->p, ENGINE_EINVAL, "constraint kind %ld is none of ENGINE_CONSTRAINT_*", (long)kind);
    if (c->len > MAX_SOURCE)
        return pool_fail(c->p, ENGINE_EUNSUPPORTED, "a source of %llu bytes; at most %llu are compiled",
                         (unsigned long long)c->len, MAX_SOURCE);
    c->made->is_json = kind == ENGINE_CONSTRAINT_JSON_SCHEMA || kind == ENGINE_CONSTRAINT_JSON;
    return compilers[kind](c);
}

engine_status engine_constraint_compile(engine_constraint **out, int32_t kind, const char *source, uint64_t len,
                                        const engine_constraint_options *options, char *err, size_t errlen)
{
    static const engine_constraint_options defaults = {.formats_assert = 1};
    if (out == NULL || (source == NULL && len > 0))
        return gb_fail(err, errlen, ENGINE_EINVAL, "out and source must not be NULL");
    *out = NULL;
    engine_constraint *made = calloc(1, sizeof *made);
    if (made == NULL)
        return gb_fail(err, errlen, ENGINE_ENOMEM, "out of memory: a constraint");
    if (options == NULL)
        options = &defaults;
    pool_init(&made->memory, options->max_bytes ? options->max_bytes : MAX_BYTES, MAX_STEPS);
    made->notes = "[]";
    made->position_bytes = POSITION_BYTES;
    compilation c = {made, &made->memory, source ? source : "", len, options};
    engine_status status = dispatch(&c, kind);
    if (status != ENGINE_OK) {
        (void)gb_fail(err, errlen, status, "%s", made->memory.error);
        engine_constraint_free(made);
        return status;
    }
    *out = made;
    return ENGINE_OK;
}

void engine_constraint_free(engine_constraint *constraint)
{
    if (constraint == NULL)
        return;
    if (constraint->program != NULL)
        constraint->ops->free(constraint->program);
    pool_free(&constraint->memory);
    free(constraint);
}

const char *engine_constraint_notes(const engine_constraint *constraint)
{
    return constraint->notes;
}
