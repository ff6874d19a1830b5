/* machine_equal.c: JSON values in a form whose bytes are equal where the values are (strings decoded,
 * numbers as reduced decimals, members by key), for arrays whose items must differ. Reads only JSON
 * that the machine has accepted. Memory is the arena's. Exponents beyond 10^17 saturate. */
#include "machine_int.h"

#include <stdlib.h>
#include <string.h>

int seen_has(const seen *list, char kind, const char *bytes, uint32_t len)
{
    for (const seen *k = list; k; k = k->prev)
        if (k->kind == kind && k->len == len && memcmp(k->bytes, bytes, len) == 0)
            return 1;
    return 0;
}

static uint32_t hash_of(const char *bytes, uint32_t len)
{
    uint32_t h = 2166136261u;
    for (uint32_t i = 0; i < len; i++)
        h = (h ^ (uint8_t)bytes[i]) * 16777619u;
    return h ^ h >> 15;
}

void seen_index_open(seen_index *x, const seen *list)
{
    uint32_t size = 64, n = list ? list->n : 0;
    *x = (seen_index){list, NULL, 0};
    if (n < 16)
        return;
    while (size < 2 * n)
        size *= 2;
    x->table = calloc(size, sizeof *x->table);
    x->mask = size - 1;
    for (const seen *k = x->table ? list : NULL; k; k = k->prev) {
        uint32_t i = hash_of(k->bytes, k->len) & x->mask;
        while (x->table[i])
            i = (i + 1) & x->mask;
        x->table[i] = k;
    }
}

int seen_index_has(const seen_index *x, char kind, const char *bytes, uint32_t len)
{
    if (x->table == NULL)
        return seen_has(x->list, kind, bytes, len);
    for (uint32_t i = hash_of(bytes, len) & x->mask; x->table[i]; i = (i + 1) & x->mask) {
        const seen *k = x->table[i];
        if (k->kind == kind && k->len == len && memcmp(k->bytes, bytes, len) == 0)
            return 1;
    }
    return 0;
}

void seen_index_close(seen_index *x)
{
    free(x->table);
}

/* ---- Numbers --------------------------------------------------------------------------------- */

static int64_t exponent_of(const char *s, uint32_t len)
{
    int64_t value = 0;
    int negative = len > 0 && s[0] == '-';
    for (uint32_t i = len > 0 && (s[0] == '-' || s[0] == '+'); i < len; i++)
        if (value < 100000000000000000)
            value = value * 10 + (s[i] - '0');
    return negative ? -value : value;
}

/* [-]digits"e"exponent without zeros at either end of the digits, or "0". out: len + 24 bytes. */
static uint32_t canonical_number(const char *s, uint32_t len, char *out)
{
    uint32_t at = 0, n = 0, first;
    int64_t exponent = 0;
    if (s[at] == '-')
        out[n++] = s[at++];
    first = n;
    for (int point = 0; at < len && s[at] != 'e' && s[at] != 'E'; at++) {
        if (s[at] == '.') {
            point = 1;
            continue;
        }
        exponent -= point;
        if (s[at] != '0' || n > first)
            out[n++] = s[at];
    }
    if (at < len)
        exponent += exponent_of(s + at + 1, len - at - 1);
    for (; n > first && out[n - 1] == '0'; n--)
        exponent++;
    if (n == first) {
        out[0] = '0';
        return 1;
    }
    char digits[24];
    uint32_t k = 0;
    uint64_t size = exponent < 0 ? (uint64_t)-exponent : (uint64_t)exponent;
    do
        digits[k++] = (char)('0' + size % 10);
    while ((size /= 10) > 0);
    out[n++] = 'e';
    if (exponent < 0)
        out[n++] = '-';
    while (k > 0)
        out[n++] = digits[--k];
    return n;
}

#define REACH 512    /* texts tried, and REACH_SEEN more for each item that the array has */
#define REACH_SEEN 4
#define REACH_LEN 400

typedef struct reach {
    uint32_t state, len, from; /* from: the text that it extends by `byte` */
    uint8_t byte;
} reach;

static void reach_text(const reach *all, uint32_t i, uint32_t base, char *out)
{
    for (; i > 0; i = all[i].from)
        out[base + all[i].len - 1] = (char)all[i].byte;
}

/* Breadth first over the texts that go on from here: bytes of the first that is not used; NONE: none. What
 * is not found in `room` texts is not there: a language of numbers that has another value has one near. */
static uint32_t reach_unused(const lang *l, reach *all, uint32_t room, const seen_index *used, char *word,
                             uint32_t base, char *canonical)
{
    uint32_t n = 1;
    for (uint32_t i = 0; i < n; i++) {
        if (lang_accepts(l, all[i].state)) {
            reach_text(all, i, base, word);
            uint32_t len = canonical_number(word, base + all[i].len, canonical);
            if (!seen_index_has(used, 'n', canonical, len))
                return all[i].len;
        }
        for (const char *b = "0123456789.eE+-"; *b && all[i].len < REACH_LEN; b++) {
            uint32_t to = n < room ? lang_step(l, all[i].state, (uint8_t)*b) : LANG_DEAD;
            if (to != LANG_DEAD)
                all[n++] = (reach){to, all[i].len + 1, i, (uint8_t)*b};
        }
    }
    return NONE;
}

uint32_t number_left(doc_arena *arena, const pos *p, const thread *t)
{
    if (p->f->seen == NULL)
        return lang_distance(t->lang, t->state);
    uint64_t mark = doc_arena_mark(arena);
    uint32_t from = p->w->raw_from, base = text_len(p->raw) - from, room = REACH + REACH_SEEN * p->f->seen->n;
    char *word = doc_arena_alloc(arena, (uint64_t)base + REACH_LEN);
    char *canonical = doc_arena_alloc(arena, (uint64_t)base + REACH_LEN + 24);
    reach *all = doc_arena_alloc(arena, room * sizeof *all);
    if (word == NULL || canonical == NULL || all == NULL)
        return NONE;
    text_copy(p->raw, from, word);
    all[0] = (reach){t->state, 0, 0, 0};
    seen_index used;
    seen_index_open(&used, p->f->seen);
    uint32_t left = reach_unused(t->lang, all, room, &used, word, base, canonical);
    seen_index_close(&used);
    doc_arena_reset(arena, mark);
    return left;
}

/* ---- Values ---------------------------------------------------------------------------------- */

typedef struct slice {
    char *at;
    uint32_t len, key_len;       /* of a member: how much of it is the key */
} slice;

typedef struct level {           /* an open container while its parts are collected */
    slice *parts;
    uint32_t n, room, key_len;
    char kind;
    char *key;
} level;

typedef struct reader {
    doc_arena *arena;
    const char *s;
    uint32_t at, len;
    int failed;
} reader;

static void *need(reader *r, uint64_t bytes)
{
    void *at = doc_arena_alloc(r->arena, bytes);
    r->failed |= at == NULL;
    return at;
}

/* The string at r->at, decoded, after its opening quote; past its closing one. */
static slice read_string(reader *r)
{
    uint32_t end = r->at;
    while (end < r->len && r->s[end] != '"')
        end += r->s[end] == '\\' ? 2 : 1;
    slice out = {need(r, (uint64_t)(end - r->at) + 4), 0, 0}; /* decoding never lengthens */
    character c = {SUB_PLAIN, 0, 0, 0};
    while (out.at && r->at < r->len && (r->s[r->at] != '"' || c.sub != SUB_PLAIN)) {
        int32_t cp = char_step(&c, (uint8_t)r->s[r->at++]);
        if (cp >= 0)
            out.len += utf8_write((uint32_t)cp, (uint8_t *)out.at + out.len);
    }
    r->at++;
    return out;
}

static slice read_number(reader *r)
{
    uint32_t from = r->at;
    while (r->at < r->len && strchr("0123456789.eE+-", r->s[r->at]))
        r->at++;
    slice out = {need(r, (uint64_t)(r->at - from) + 24), 0, 0};
    if (out.at)
        out.len = canonical_number(r->s + from, r->at - from, out.at);
    return out;
}

/* A part with a letter for its kind and its length before it, so that no two values look alike. */
static slice framed(reader *r, char kind, slice body)
{
    slice out = {need(r, (uint64_t)body.len + 5), body.len + 5, 0};
    if (out.at == NULL)
        return (slice){NULL, 0, 0};
    out.at[0] = kind;
    memcpy(out.at + 1, &body.len, 4);
    memcpy(out.at + 5, body.at, body.len);
    return out;
}

static slice joined(reader *r, slice a, slice b)
{
    slice out = {need(r, (uint64_t)a.len + b.len + 1), a.len + b.len, a.len};
    if (out.at == NULL)
        return (slice){NULL, 0, 0};
    memcpy(out.at, a.at, a.len);
    memcpy(out.at + a.len, b.at, b.len);
    return out;
}

static void add_part(reader *r, level *top, slice part)
{
    if (top->n == top->room) {
        slice *grown = need(r, ((uint64_t)top->room * 2 + 4) * sizeof *grown);
        if (grown == NULL)
            return;
        if (top->n)
            memcpy(grown, top->parts, top->n * sizeof *grown);
        top->parts = grown;
        top->room = top->room * 2 + 4;
    }
    if (top->kind == '{')
        part = joined(r, (slice){top->key, top->key_len, 0}, part);
    top->parts[top->n++] = part;
}

static int by_key(const void *a, const void *b)
{
    const slice *x = a, *y = b;
    uint32_t n = x->key_len < y->key_len ? x->key_len : y->key_len;
    int order = memcmp(x->at, y->at, n);
    return order ? order : x->key_len < y->key_len ? -1 : x->key_len > y->key_len;
}

static slice closed(reader *r, level *top)
{
    uint64_t total = 0;
    if (top->kind == '{' && top->n > 1)
        qsort(top->parts, top->n, sizeof *top->parts, by_key);
    for (uint32_t i = 0; i < top->n; i++)
        total += top->parts[i].len;
    slice out = {need(r, total + 1), 0, 0};
    for (uint32_t i = 0; out.at && i < top->n; i++) {
        memcpy(out.at + out.len, top->parts[i].at, top->parts[i].len);
        out.len += top->parts[i].len;
    }
    return framed(r, top->kind, out);
}

/* One token: a value's kind in *kind with the value, or 0 where there is none (yet). */
static slice read_token(reader *r, level *stack, uint32_t *top, char *kind)
{
    char b = r->s[r->at];
    *kind = 0;
    if (b == '"') {
        r->at++;
        *kind = 's';
        return read_string(r);
    }
    if (b == '-' || (b >= '0' && b <= '9')) {
        *kind = 'n';
        return read_number(r);
    }
    r->at++;
    if (b == '{' || b == '[') {
        stack[++*top] = (level){.kind = b};
    } else if (b == '}' || b == ']') {
        *kind = 'o';
        return closed(r, &stack[(*top)--]);
    } else if (b == 't' || b == 'f' || b == 'n') {
        *kind = 'o';
        slice out = {(char *)(uintptr_t)(r->s + r->at - 1), b == 'f' ? 5 : 4, 0};
        r->at += out.len - 1;
        return out;
    }
    return (slice){NULL, 0, 0};
}

static const seen *seen_of(doc_arena *arena, const seen *prev, char kind, slice value)
{
    seen *k = doc_arena_alloc(arena, sizeof *k + value.len + 1);
    if (k == NULL)
        return NULL;
    k->prev = prev;
    k->n = prev ? prev->n + 1 : 1;
    k->len = value.len;
    k->kind = kind;
    memcpy(k->bytes, value.at, value.len);
    k->bytes[value.len] = 0;
    return k;
}

const seen *canonical_item(doc_arena *arena, const seen *prev, const char *raw, uint32_t len)
{
    reader r = {arena, raw, 0, len, 0};
    level *stack = need(&r, (MACHINE_MAX_NESTING + 2) * sizeof *stack);
    uint32_t top = 0;
    while (!r.failed && r.at < len) {
        char kind;
        slice value = read_token(&r, stack, &top, &kind);
        if (kind == 0 || r.failed)
            continue;
        if (top == 0)
            return seen_of(arena, prev, kind, value);
        level *in = &stack[top];
        if (in->kind == '{' && in->key == NULL) {
            slice key = framed(&r, 's', value);
            in->key = key.at;
            in->key_len = key.len;
            continue;
        }
        add_part(&r, in, kind == 'o' && (value.at[0] == '{' || value.at[0] == '[') ? value : framed(&r, kind, value));
        in->key = NULL;
    }
    return NULL;
}
