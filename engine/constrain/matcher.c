/* matcher.c: a position in one document: advance, masks, what is forced, how it ends.
 *
 * Positions live in an arena of the matcher's own; when what is behind has grown to a multiple of what
 * is needed, the position is copied into a second one and the two change places, so a document of any
 * length takes bounded memory. Refuses, with the matcher unmoved, what the constraint does not allow.
 * engine_matcher_free() frees; constraint and tokens are borrowed. */
#include <stdlib.h>
#include <string.h>

#include "constraint.h"
#include "json_scan.h"
#include "mask.h"
#include "status.h"

#define COMPACT_BYTES (64u << 10)   /* let at least so much grow before copying */
#define WALK_BYTES (256ull << 20)
#define POINTER_BYTES 4096u         /* of a first buffer: it grows */
#define MAX_ALTERNATIVES 1024u
#define MAX_PLANS 256u              /* 4 MiB of an ending that is searched for */
#define MASK_EFFORT (1ull << 29)    /* of the steps of one mask, in units of the machine's */

struct engine_matcher {
    engine_constraint *constraint;
    engine_tokens *tokens;     /* NULL: bytes only */
    const doc_ops *ops;
    void *program;
    doc_arena *arena, *spare;
    const doc *at;
    uint64_t kept;             /* bytes of the arena after the last copy */
    int begun;
    json_scan scan;
    mask_walk walk;
};

static engine_status no_memory(char *err, size_t errlen)
{
    return gb_fail(err, errlen, ENGINE_ENOMEM, "out of memory: the positions of a constrained document");
}

/* Why an arena failed. */
static engine_status spent(const doc_arena *arena, char *err, size_t errlen)
{
    if (arena == NULL || doc_arena_failed(arena) != 2)
        return no_memory(err, errlen);
    return gb_fail(err, errlen, ENGINE_EUNSUPPORTED, "the grammar is so ambiguous here that reading on takes too "
                   "many steps: write it with fewer ways to read the same text");
}

static engine_status make(engine_matcher **out, engine_constraint *constraint, engine_tokens *tokens, char *err,
                          size_t errlen)
{
    engine_matcher *m = calloc(1, sizeof *m);
    if (m == NULL)
        return no_memory(err, errlen);
    m->constraint = constraint;
    m->tokens = tokens;
    m->ops = constraint->ops;
    m->program = constraint->program;
    m->arena = doc_arena_new(constraint->position_bytes);
    m->spare = doc_arena_new(constraint->position_bytes);
    m->walk = (mask_walk){.ops = m->ops, .program = m->program, .tokens = tokens, .constraint = constraint,
                          .arena = doc_arena_new(WALK_BYTES)};
    *out = m;
    if (m->arena != NULL && m->spare != NULL && m->walk.arena != NULL)
        return ENGINE_OK;
    engine_matcher_free(m);
    *out = NULL;
    return no_memory(err, errlen);
}

engine_status engine_matcher_new(engine_matcher **out, engine_constraint *constraint, engine_tokens *tokens,
                                 char *err, size_t errlen)
{
    if (out == NULL || constraint == NULL)
        return gb_fail(err, errlen, ENGINE_EINVAL, "out and constraint must not be NULL");
    *out = NULL;
    engine_status status = make(out, constraint, tokens, err, errlen);
    if (status != ENGINE_OK)
        return status;
    engine_matcher_reset(*out);
    if ((*out)->at != NULL)
        return ENGINE_OK;
    status = spent((*out)->arena, err, errlen);
    engine_matcher_free(*out);
    *out = NULL;
    return status;
}

void engine_matcher_free(engine_matcher *m)
{
    if (m == NULL)
        return;
    mask_walk_free(&m->walk);
    doc_arena_free(m->arena);
    doc_arena_free(m->spare);
    free(m);
}

/* The first position takes a few bytes of a chunk that a matcher in use has already. */
void engine_matcher_reset(engine_matcher *m)
{
    doc_arena_reset(m->arena, 0);
    m->at = m->ops->start(m->program, m->arena);
    m->kept = doc_arena_used(m->arena);
    m->begun = 0;
    memset(&m->scan, 0, sizeof m->scan);
}

engine_status engine_matcher_fork(engine_matcher **out, const engine_matcher *from, char *err, size_t errlen)
{
    if (out == NULL || from == NULL)
        return gb_fail(err, errlen, ENGINE_EINVAL, "out and matcher must not be NULL");
    *out = NULL;
    engine_status status = make(out, from->constraint, from->tokens, err, errlen);
    if (status != ENGINE_OK)
        return status;
    engine_matcher *m = *out;
    m->at = m->ops->keep(m->program, m->arena, from->at);
    m->kept = doc_arena_used(m->arena);
    m->begun = from->begun;
    m->scan = from->scan;
    if (m->at != NULL)
        return ENGINE_OK;
    engine_matcher_free(m);
    *out = NULL;
    return no_memory(err, errlen);
}

engine_status engine_matcher_mask(engine_matcher *m, uint32_t *mask, uint64_t words, char *err, size_t errlen)
{
    if (m->tokens == NULL)
        return gb_fail(err, errlen, ENGINE_EINVAL, "the matcher was made without tokens: it has no masks");
    if (mask == NULL || words != ((uint64_t)m->tokens->n + 31) / 32)
        return gb_fail(err, errlen, ENGINE_EINVAL, "a mask of %llu words; the %ld tokens need %llu",
                       (unsigned long long)words, (long)m->tokens->n,
                       ((unsigned long long)m->tokens->n + 31) / 32);
    doc_arena_allow(m->walk.arena, MASK_EFFORT);
    engine_status status = mask_fill(&m->walk, m->at, mask) ? ENGINE_OK : spent(m->walk.arena, err, errlen);
    doc_arena_allow(m->walk.arena, UINT64_MAX);
    return status;
}

/* ---- Advancing -------------------------------------------------------------------------------- */

/* Copy the position away from what lies behind it, once that is worth it. */
static void compact(engine_matcher *m)
{
    if (doc_arena_used(m->arena) < m->kept * 4 + COMPACT_BYTES)
        return;
    doc_arena_reset(m->spare, 0);
    const doc *at = m->ops->keep(m->program, m->spare, m->at);
    if (at == NULL)
        return; /* no memory for it now: try again later */
    doc_arena *old = m->arena;
    m->arena = m->spare;
    m->spare = old;
    m->at = at;
    m->kept = doc_arena_used(m->arena);
}

static int is_space(uint8_t byte)
{
    return byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r';
}

static engine_status advance(engine_matcher *m, const uint8_t *bytes, uint64_t len, char *err, size_t errlen)
{
    uint64_t mark = doc_arena_mark(m->arena);
    const doc *at = m->at;
    for (uint64_t i = 0; i < len; i++) {
        const doc *next = m->ops->step(m->program, m->arena, at, bytes[i]);
        if (next == NULL) {
            engine_status status = doc_arena_failed(m->arena) ? spent(m->arena, err, errlen) : ENGINE_OK;
            doc_arena_reset(m->arena, mark);
            doc_arena_allow(m->arena, UINT64_MAX);
            if (status != ENGINE_OK)
                return status;
            return gb_fail(err, errlen, ENGINE_EINVAL, "byte 0x%02x at offset %llu is not allowed by the constraint",
                           bytes[i], (unsigned long long)i);
        }
        at = next;
    }
    m->at = at;
    for (uint64_t i = 0; i < len; i++) {
        m->begun |= !is_space(bytes[i]);
        if (m->constraint->is_json)
            (void)json_scan_read(&m->scan, bytes[i]);
    }
    compact(m);
    return ENGINE_OK;
}

engine_status engine_matcher_commit(engine_matcher *m, int32_t token, char *err, size_t errlen)
{
    const engine_tokens *t = m->tokens;
    if (t == NULL)
        return gb_fail(err, errlen, ENGINE_EINVAL, "the matcher was made without tokens: commit bytes");
    if (token < 0 || token >= t->n)
        return gb_fail(err, errlen, ENGINE_EINVAL, "token %ld is none: ids run from 0 to %ld", (long)token,
                       (long)t->n - 1);
    if (t->is_end[token]) {
        if (m->ops->accepting(m->program, m->at))
            return ENGINE_OK;
        return gb_fail(err, errlen, ENGINE_EINVAL, "end token %ld at offset 0: the document may not end here",
                       (long)token);
    }
    uint64_t first = t->offsets[token], len = t->offsets[token + 1] - first;
    if (len == 0)
        return gb_fail(err, errlen, ENGINE_EINVAL, "token %ld has no bytes and ends nothing: it is never allowed",
                       (long)token);
    return advance(m, t->bytes + first, len, err, errlen);
}

engine_status engine_matcher_commit_bytes(engine_matcher *m, const char *bytes, uint64_t len, char *err,
                                          size_t errlen)
{
    if (bytes == NULL && len > 0)
        return gb_fail(err, errlen, ENGINE_EINVAL, "bytes are NULL");
    return advance(m, (const uint8_t *)bytes, len, err, errlen);
}

int engine_matcher_accepting(const engine_matcher *m)
{
    return m->ops->accepting(m->program, m->at);
}

int engine_matcher_begun(const engine_matcher *m)
{
    return m->begun;
}

/* ---- What follows by itself ------------------------------------------------------------------- */

/* The only byte that may follow; 0: there are several, or the document may end. */
static uint32_t only_byte(const engine_matcher *m, const doc *at, uint8_t *byte)
{
    uint64_t set[4];
    if (m->ops->accepting(m->program, at))
        return 0;
    m->ops->allowed(m->program, at, set);
    return (uint32_t)doc_one_byte(set, byte);
}

engine_status engine_matcher_forced(engine_matcher *m, char *out, uint64_t cap, uint64_t *len, char *err,
                                    size_t errlen)
{
    if (len == NULL || (out == NULL && cap > 0))
        return gb_fail(err, errlen, ENGINE_EINVAL, "out and len must not be NULL");
    doc_arena *arena = m->walk.arena;
    const doc *at = m->at;
    uint8_t bytes[DOC_ONLY];
    doc_arena_reset(arena, 0);
    for (*len = 0; *len + DOC_ONLY <= cap;) {
        uint32_t n = m->ops->only != NULL ? m->ops->only(m->program, arena, at, bytes) : only_byte(m, at, bytes);
        for (uint32_t i = 0; i < n && at != NULL; i++)
            at = m->ops->step(m->program, arena, at, bytes[i]);
        if (at == NULL)
            return doc_arena_failed(arena) ? spent(arena, err, errlen)
                                           : gb_fail(err, errlen, ENGINE_EINVAL, "internal: a forced byte is refused");
        if (n == 0)
            break;
        memcpy(out + *len, bytes, n);
        *len += n;
    }
    return ENGINE_OK;
}

/* Bytes of an ending that are known already. */
typedef struct planned {
    uint8_t bytes[16384];
    uint32_t n, at, times;   /* times: how often bytes were planned */
} planned;

/* A JSON array of strings that grows; what goes beyond cap is counted only. */
typedef struct list {
    char *out;
    uint64_t cap, len;
    uint32_t n;
} list;

static void put(list *l, char byte)
{
    if (l->len < l->cap)
        l->out[l->len] = byte;
    l->len++;
}

static void put_string(list *l, const char *text, uint32_t len)
{
    static const char hex[] = "0123456789abcdef";
    if (l->n++ > 0)
        put(l, ',');
    put(l, '"');
    for (uint32_t i = 0; i < len; i++) {
        uint8_t byte = (uint8_t)text[i];
        if (byte == '"' || byte == '\\') {
            put(l, '\\');
            put(l, (char)byte);
        } else if (byte < 0x20) {
            for (const char *s = "\\u00"; *s; s++)
                put(l, *s);
            put(l, hex[byte >> 4]);
            put(l, hex[byte & 15]);
        } else {
            put(l, (char)byte);
        }
    }
    put(l, '"');
}

/* JSON pointers of the values that an ending fills, one after the other in a buffer that grows. */
typedef struct naming {
    list filled;
    char *buffer;
    uint32_t room;
} naming;

/* 0: out of memory. */
static int list_pointer(engine_matcher *m, const doc *at, naming *names)
{
    uint32_t len = m->ops->pointer(m->program, at, names->buffer, names->room);
    if (len >= names->room) {
        char *grown = len < UINT32_MAX / 2 ? realloc(names->buffer, len + 1) : NULL;
        if (grown == NULL)
            return 0;
        names->buffer = grown;
        names->room = len + 1;
        (void)m->ops->pointer(m->program, at, grown, names->room);
    }
    put_string(&names->filled, names->buffer, len);
    return 1;
}

/* The next byte of the ending; what is searched for comes many bytes at a time. */
static int next_closing(const engine_matcher *m, const doc *at, planned *plan, uint8_t *byte)
{
    if (plan->at == plan->n && m->ops->ending) {
        plan->n = m->ops->ending(m->program, at, plan->bytes, sizeof plan->bytes);
        plan->at = 0;
        plan->times += plan->n > 0;
    }
    if (plan->at == plan->n)
        return m->ops->closing(m->program, at, byte);
    *byte = plan->bytes[plan->at++];
    return 1;
}

/* Write the completion; names NULL: not wanted. The walk's arena holds two positions at a time: it
 * is reset by copying to and fro between it and the spare one. */
static engine_status complete(engine_matcher *m, char *out, uint64_t cap, uint64_t *len, naming *names, char *err,
                              size_t errlen)
{
    json_scan scan = m->scan;
    doc_arena *arena = m->walk.arena, *other = m->spare;
    const doc *at = m->at;
    uint64_t kept = 0;
    uint8_t byte;
    planned plan = {.n = 0, .at = 0, .times = 0};
    doc_arena_reset(arena, 0);
    *len = 0;
    int more = next_closing(m, at, &plan, &byte);
    if (names != NULL && json_scan_half_read(&scan, more ? byte : -1) && !list_pointer(m, at, names))
        return no_memory(err, errlen);
    for (; more; more = next_closing(m, at, &plan, &byte)) {
        at = m->ops->step(m->program, arena, at, byte);
        if (at == NULL)
            return doc_arena_failed(arena) ? spent(arena, err, errlen)
                                           : gb_fail(err, errlen, ENGINE_EINVAL, "internal: a closing byte is refused");
        if (json_scan_read(&scan, byte) && names != NULL && !list_pointer(m, at, names))
            return no_memory(err, errlen);
        if (plan.times > MAX_PLANS)
            return gb_fail(err, errlen, ENGINE_EINVAL, "internal: no ending was found in %llu bytes",
                           (unsigned long long)*len);
        if (*len < cap)
            out[*len] = (char)byte;
        ++*len;
        if (doc_arena_used(arena) > 4 * kept + (1u << 20)) {
            doc_arena_reset(other, 0);
            at = m->ops->keep(m->program, other, at);
            if (at == NULL)
                return no_memory(err, errlen);
            doc_arena *swap = arena;
            arena = other;
            other = swap;
            kept = doc_arena_used(arena);
        }
    }
    if (!m->ops->accepting(m->program, at))
        return gb_fail(err, errlen, ENGINE_EINVAL, "internal: a position without an ending");
    if (*len > cap)
        return gb_fail(err, errlen, ENGINE_EINVAL, "the completion has %llu bytes, more than the %llu of out",
                       (unsigned long long)*len, (unsigned long long)cap);
    return ENGINE_OK;
}

engine_status engine_matcher_close(engine_matcher *m, char *out, uint64_t cap, uint64_t *len, char *filled,
                                   uint64_t filled_cap, uint64_t *filled_len, char *err, size_t errlen)
{
    if (len == NULL || (out == NULL && cap > 0) || (filled != NULL && filled_len == NULL))
        return gb_fail(err, errlen, ENGINE_EINVAL, "out, len and filled_len must not be NULL");
    naming names = {{filled, filled_cap, 0, 0}, filled != NULL ? malloc(POINTER_BYTES) : NULL, POINTER_BYTES};
    if (filled != NULL && names.buffer == NULL)
        return no_memory(err, errlen);
    if (filled != NULL)
        put(&names.filled, '[');
    naming *wanted = filled != NULL && m->constraint->is_json ? &names : NULL;
    engine_status status = complete(m, out, cap, len, wanted, err, errlen);
    free(names.buffer);
    if (filled == NULL)
        return status;
    put(&names.filled, ']');
    *filled_len = names.filled.len;
    if (status == ENGINE_OK && names.filled.len > filled_cap)
        return gb_fail(err, errlen, ENGINE_EINVAL, "the list of filled values has %llu bytes, more than the %llu given",
                       (unsigned long long)names.filled.len, (unsigned long long)filled_cap);
    return status;
}

engine_status engine_matcher_pointer(engine_matcher *m, char *out, uint64_t cap, uint64_t *len, char *err,
                                     size_t errlen)
{
    if (len == NULL || out == NULL || cap < 1)
        return gb_fail(err, errlen, ENGINE_EINVAL, "out and len must not be NULL");
    uint32_t room = cap < UINT32_MAX ? (uint32_t)cap : UINT32_MAX;
    *len = m->ops->pointer(m->program, m->at, out, room);
    if (*len >= cap)
        return gb_fail(err, errlen, ENGINE_EINVAL, "the pointer has %llu bytes, more than out holds",
                       (unsigned long long)*len);
    return ENGINE_OK;
}

/* ---- Alternatives --------------------------------------------------------------------------------- */

/* Whether the text can come and end here: what an operation names may turn out to be impossible. */
static int possible(engine_matcher *m, int32_t kind, const char *text, uint32_t len)
{
    doc_arena *arena = m->spare;
    const doc *at = m->at;
    doc_arena_reset(arena, 0);
    for (uint32_t i = 0; i < len && at != NULL; i++)
        at = m->ops->step(m->program, arena, at, (uint8_t)text[i]);
    if (at == NULL || (kind == DOC_CHOICE_TEXT && !m->ops->accepting(m->program, at)))
        return 0;
    if (kind != DOC_CHOICE_VALUE || text[len - 1] < '0' || text[len - 1] > '9')
        return 1;
    return m->ops->accepting(m->program, at) || m->ops->step(m->program, arena, at, ',') != NULL ||
           m->ops->step(m->program, arena, at, ']') != NULL || m->ops->step(m->program, arena, at, '}') != NULL;
}

/* 0: no memory. */
static int put_alternatives(engine_matcher *m, const doc_choice *found, list *out)
{
    static const char *const kinds[] = {"none", "value", "key", "text"};
    const char *parts[3] = {"{\"kind\":\"", kinds[found->kind], "\",\"texts\":["};
    for (int i = 0; i < 3; i++)
        for (const char *s = parts[i]; *s; s++)
            put(out, *s);
    for (uint32_t i = 0; i < found->n; i++) {
        if (possible(m, found->kind, found->texts[i], found->lens[i]))
            put_string(out, found->texts[i], found->lens[i]);
        else if (doc_arena_failed(m->spare))
            return 0;
    }
    put(out, ']');
    put(out, '}');
    return 1;
}

engine_status engine_matcher_alternatives(engine_matcher *m, char *out, uint64_t cap, uint64_t *len, char *err,
                                          size_t errlen)
{
    if (len == NULL || (out == NULL && cap > 0))
        return gb_fail(err, errlen, ENGINE_EINVAL, "out and len must not be NULL");
    doc_arena *arena = m->walk.arena;
    const char *texts[MAX_ALTERNATIVES];
    uint32_t lens[MAX_ALTERNATIVES];
    doc_choice found = {DOC_CHOICE_NONE, 0, MAX_ALTERNATIVES, texts, lens};
    list written = {out, cap, 0, 0};
    doc_arena_reset(arena, 0);
    if (m->ops->alternatives == NULL || !m->ops->alternatives(m->program, arena, m->at, &found)) {
        if (doc_arena_failed(arena))
            return no_memory(err, errlen);
        found.kind = DOC_CHOICE_NONE;
        found.n = 0;
    }
    if (!put_alternatives(m, &found, &written))
        return no_memory(err, errlen);
    *len = written.len;
    if (written.len > cap)
        return gb_fail(err, errlen, ENGINE_EINVAL, "the list of alternatives has %llu bytes, more than out holds",
                       (unsigned long long)written.len);
    return ENGINE_OK;
}
