/* api.c: from a source to a compiled constraint: one row per kind. Compilation has one pool, so what it
 * may take is bounded and one call frees it; refusals keep the compiler's text. The caller frees with
 * engine_constraint_free(), after the last matcher. */
#include <stdlib.h>
#include <string.h>

#include "constraint.h"
#include "grammar.h"
#include "ir.h"
#include "json_read.h"
#include "machine.h"
#include "status.h"

#define MAX_BYTES (448ull << 20) /* with what the process has besides, below 512 MiB */
#define MAX_STEPS (100ull * 1000 * 1000)
#define SCHEMA_STEPS (50ull * 1000 * 1000) /* of a schema: they cost more, about 10 ns each */
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

static engine_status compile_language(compilation *c, const lang *language)
{
    if (c->p->status != ENGINE_OK)
        return c->p->status;
    return lang_doc_new(c->p, language, &c->made->ops, &c->made->program);
}

static engine_status compile_choice(compilation *c)
{
    const json_value *list = json_read(c->p, c->source, c->len);
    if (list == NULL)
        return c->p->status;
    if (list->type != JSON_ARRAY || list->n == 0)
        return pool_fail(c->p, ENGINE_EFORMAT, "a choice is a JSON array of at least one string");
    const char **texts = pool_alloc(c->p, list->n * sizeof *texts);
    uint64_t *lens = pool_alloc(c->p, list->n * sizeof *lens);
    for (uint32_t i = 0; texts && lens && i < list->n; i++) {
        if (list->items[i]->type != JSON_STRING)
            return pool_fail(c->p, ENGINE_EFORMAT, "a choice is a JSON array of strings: item %u at byte %u is none", i,
                             list->items[i]->offset);
        texts[i] = list->items[i]->text;
        lens[i] = list->items[i]->n;
    }
    if (c->p->status != ENGINE_OK)
        return c->p->status;
    return compile_language(c, lang_words_of(lang_set_new(c->p), texts, lens, list->n));
}

static engine_status compile_regex(compilation *c)
{
    return compile_language(c, lang_regex(lang_set_new(c->p), c->source, c->len, 0));
}

static engine_status compile_schema_text(compilation *c, const char *text, uint64_t len)
{
    ir_program *program = NULL;
    uint32_t flags = (c->options->order_any ? DOC_ORDER_ANY : 0) | (c->options->space_free ? DOC_SPACE_FREE : 0) |
                     (c->options->plain ? DOC_PLAIN : 0);
    uint32_t ir_flags = (c->options->formats_assert ? IR_FORMAT_ASSERT : 0) | (c->options->plain ? IR_PLAIN : 0);
    char err[512] = "";
    if (ir_compile_schema(c->p, text, len, ir_flags, &program) != ENGINE_OK)
        return c->p->status;
    c->made->notes = program->notes != NULL ? program->notes : "[]";
    engine_status status = machine_new(program, c->p, flags, &c->made->ops, &c->made->program, err, sizeof err);
    return status == ENGINE_OK ? status : pool_fail(c->p, status, "%s", err);
}

static engine_status compile_schema(compilation *c)
{
    return compile_schema_text(c, c->source, c->len);
}

static engine_status compile_json(compilation *c)
{
    static const char any[] = "true", object[] = "{\"type\":\"object\"}";
    if (c->len == 0)
        return compile_schema_text(c, any, sizeof any - 1);
    if (c->len == 6 && memcmp(c->source, "object", 6) == 0)
        return compile_schema_text(c, object, sizeof object - 1);
    return pool_fail(c->p, ENGINE_EFORMAT, "the source of a json constraint is \"\" or \"object\"");
}

static engine_status compile_gbnf(compilation *c)
{
    return grammar_new(c->p, ENGINE_CONSTRAINT_GBNF, c->source, c->len, &c->made->ops, &c->made->program);
}

static engine_status compile_lark(compilation *c)
{
    return grammar_new(c->p, ENGINE_CONSTRAINT_LARK, c->source, c->len, &c->made->ops, &c->made->program);
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
    if (made == NULL || pthread_mutex_init(&made->lock, NULL) != 0) {
        free(made);
        return gb_fail(err, errlen, ENGINE_ENOMEM, "out of memory: a constraint");
    }
    if (options == NULL)
        options = &defaults;
    pool_init(&made->memory, options->max_bytes ? options->max_bytes : MAX_BYTES,
              kind == ENGINE_CONSTRAINT_JSON_SCHEMA ? SCHEMA_STEPS : MAX_STEPS);
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
    while (constraint->masks != NULL) {
        constraint_masks *next = constraint->masks->next;
        mask_cache_free(constraint->masks->cache);
        free(constraint->masks);
        constraint->masks = next;
    }
    (void)pthread_mutex_destroy(&constraint->lock);
    pool_free(&constraint->memory);
    free(constraint);
}

const char *engine_constraint_notes(const engine_constraint *constraint)
{
    return constraint->notes;
}

uint64_t engine_constraint_bytes(const engine_constraint *constraint)
{
    return sizeof *constraint + constraint->memory.bytes;
}

static constraint_masks *find_masks(const engine_constraint *constraint, uint64_t tokens)
{
    constraint_masks *m = constraint->masks;
    while (m != NULL && m->tokens != tokens)
        m = m->next;
    return m;
}

mask_cache *constraint_mask_cache(engine_constraint *constraint, const engine_tokens *tokens)
{
    (void)pthread_mutex_lock(&constraint->lock);
    constraint_masks *m = find_masks(constraint, tokens->id);
    if (m == NULL) {
        m = calloc(1, sizeof *m);
        if (m != NULL && mask_cache_new(&m->cache, tokens)) {
            m->tokens = tokens->id;
            m->next = constraint->masks;
            constraint->masks = m;
        } else {
            free(m);
            m = NULL;
        }
    }
    (void)pthread_mutex_unlock(&constraint->lock);
    return m != NULL ? m->cache : NULL;
}
