/* json_read.c: the strict JSON reader (json_read.h). Recursive by container, bounded by JSON_MAX_DEPTH;
 * the first failure sticks in the pool with its byte offset. Children are gathered on one stack and
 * copied out when their container closes. Duplicate keys are found by hashing from nine members on. */
#include "json_read.h"

#include <stdio.h>
#include <string.h>

typedef struct reader {
    pool *p;
    const unsigned char *at, *end, *begin;
    json_member *stack;
    uint32_t n_stack, cap_stack;
} reader;

static json_value *read_value(reader *r, uint32_t depth);

static void *refuse(reader *r, const char *what) {
    (void)pool_fail(r->p, ENGINE_EFORMAT, "JSON: %s at byte %llu", what, (unsigned long long)(r->at - r->begin));
    return NULL;
}

static void skip_space(reader *r) {
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\t' || *r->at == '\n' || *r->at == '\r'))
        r->at++;
}

static int hex4(reader *r, uint32_t *out) {
    uint32_t v = 0;
    if (r->end - r->at < 4)
        return 0;
    for (int i = 0; i < 4; i++) {
        unsigned char c = *r->at++;
        uint32_t d = c >= '0' && c <= '9' ? c - 48u : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10u : 16u;
        if (d > 15)
            return 0;
        v = v << 4 | d;
    }
    *out = v;
    return 1;
}

static uint32_t put_utf8(char *out, uint32_t c) {
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (char)(0xC0 | c >> 6);
        out[1] = (char)(0x80 | (c & 63));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (char)(0xE0 | c >> 12);
        out[1] = (char)(0x80 | (c >> 6 & 63));
        out[2] = (char)(0x80 | (c & 63));
        return 3;
    }
    out[0] = (char)(0xF0 | c >> 18);
    out[1] = (char)(0x80 | (c >> 12 & 63));
    out[2] = (char)(0x80 | (c >> 6 & 63));
    out[3] = (char)(0x80 | (c & 63));
    return 4;
}

/* \uXXXX, after the u; a pair of surrogates is one code point. 0: refused. */
static int read_unicode_escape(reader *r, uint32_t *code) {
    uint32_t low;
    if (!hex4(r, code))
        return 0;
    if (*code < 0xD800 || *code > 0xDFFF)
        return 1;
    if (*code > 0xDBFF || r->end - r->at < 6 || r->at[0] != '\\' || r->at[1] != 'u')
        return 0;
    r->at += 2;
    if (!hex4(r, &low) || low < 0xDC00 || low > 0xDFFF)
        return 0;
    *code = 0x10000 + ((*code - 0xD800) << 10) + (low - 0xDC00);
    return 1;
}

/* Bytes of the well-formed UTF-8 sequence at s, 0 where there is none. */
static uint32_t utf8_length(const unsigned char *s, const unsigned char *end) {
    uint32_t n = s[0] < 0x80 ? 1 : s[0] >= 0xC2 && s[0] < 0xE0 ? 2 : s[0] >= 0xE0 && s[0] < 0xF0 ? 3
                 : s[0] >= 0xF0 && s[0] < 0xF5 ? 4 : 0;
    if (n == 0 || (uint64_t)(end - s) < n)
        return 0;
    for (uint32_t i = 1; i < n; i++)
        if ((s[i] & 0xC0) != 0x80)
            return 0;
    if ((s[0] == 0xE0 && s[1] < 0xA0) || (s[0] == 0xED && s[1] > 0x9F) || (s[0] == 0xF0 && s[1] < 0x90) ||
        (s[0] == 0xF4 && s[1] > 0x8F))
        return 0;
    return n;
}

static int read_escape(reader *r, char *out, uint32_t *n) {
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    if (r->at == r->end)
        return 0;
    unsigned char c = *r->at++;
    if (c == 'u') {
        uint32_t code;
        if (!read_unicode_escape(r, &code))
            return 0;
        *n += put_utf8(out + *n, code);
        return 1;
    }
    const char *hit = c ? strchr(from, c) : NULL;
    if (!hit)
        return 0;
    out[(*n)++] = to[hit - from];
    return 1;
}

/* The string after its opening quote, decoded. NULL: refused. */
static char *read_string(reader *r, uint32_t *len) {
    const unsigned char *scan = r->at;
    while (scan < r->end && *scan != '"')
        scan += *scan == '\\' && r->end - scan > 1 ? 2 : 1;
    if (scan >= r->end)
        return refuse(r, "a string has no end");
    char *out = pool_alloc(r->p, (uint64_t)(scan - r->at) + 1); /* decoding never lengthens */
    uint32_t n = 0;
    if (!out)
        return NULL;
    while (*r->at != '"') {
        if (*r->at == '\\') {
            r->at++;
            if (!read_escape(r, out, &n))
                return refuse(r, "a malformed escape, or a lone surrogate,");
            continue;
        }
        uint32_t bytes = *r->at < 0x20 ? 0 : utf8_length(r->at, scan);
        if (bytes == 0)
            return refuse(r, "a control character or malformed UTF-8 in a string");
        memcpy(out + n, r->at, bytes);
        n += bytes;
        r->at += bytes;
    }
    r->at++;
    *len = n;
    return out;
}

static int read_digits(reader *r) {
    const unsigned char *from = r->at;
    while (r->at < r->end && *r->at >= '0' && *r->at <= '9')
        r->at++;
    return r->at > from;
}

static int read_number(reader *r, json_value *v) {
    const unsigned char *from = r->at;
    int ok;
    if (*r->at == '-')
        r->at++;
    if (r->at < r->end && *r->at == '0') {
        r->at++;
        ok = 1;
    } else {
        ok = read_digits(r);
    }
    if (ok && r->at < r->end && *r->at == '.') {
        r->at++;
        ok = read_digits(r);
    }
    if (ok && r->at < r->end && (*r->at | 32) == 'e') {
        r->at++;
        if (r->at < r->end && (*r->at == '+' || *r->at == '-'))
            r->at++;
        ok = read_digits(r);
    }
    if (!ok)
        return refuse(r, "a malformed number") != NULL;
    uint64_t n = (uint64_t)(r->at - from);
    char *text = pool_alloc(r->p, n + 1);
    if (!text)
        return 0;
    memcpy(text, from, n);
    v->type = JSON_NUMBER;
    v->text = text;
    v->n = (uint32_t)n;
    return 1;
}

static int push(reader *r, json_member m) {
    if (r->n_stack == r->cap_stack) {
        uint32_t cap = r->cap_stack ? 2 * r->cap_stack : 64;
        json_member *grown = pool_grow(r->p, r->stack, r->n_stack * sizeof *grown, cap * sizeof *grown);
        if (!grown)
            return 0;
        r->stack = grown;
        r->cap_stack = cap;
    }
    r->stack[r->n_stack++] = m;
    return 1;
}

static int same_key(const json_member *a, const json_member *b) {
    return a->len == b->len && memcmp(a->key, b->key, a->len) == 0;
}

/* Index of a repeated key among the members, or n. */
static uint32_t repeated_key(pool *p, const json_member *m, uint32_t n) {
    if (n <= 8) {
        for (uint32_t i = 1; i < n; i++)
            for (uint32_t j = 0; j < i; j++)
                if (same_key(&m[i], &m[j]))
                    return i;
        return n;
    }
    uint64_t size = 16;
    while (size < 2 * (uint64_t)n)
        size *= 2;
    uint32_t *table = pool_alloc(p, size * sizeof *table);
    for (uint32_t i = 0; table && i < n; i++) {
        uint64_t h = 1469598103934665603u;
        for (uint32_t j = 0; j < m[i].len; j++)
            h = (h ^ (unsigned char)m[i].key[j]) * 1099511628211u;
        uint64_t slot = (h ^ h >> 32) & (size - 1);
        for (; table[slot]; slot = (slot + 1) & (size - 1))
            if (same_key(&m[table[slot] - 1], &m[i]))
                return i;
        table[slot] = i + 1;
    }
    return n;
}

static int close_object(reader *r, json_value *v, uint32_t base) {
    uint32_t n = r->n_stack - base;
    json_member *members = pool_alloc(r->p, (uint64_t)n * sizeof *members);
    if (!members)
        return 0;
    memcpy(members, r->stack + base, n * sizeof *members);
    r->n_stack = base;
    uint32_t twice = repeated_key(r->p, members, n);
    if (twice < n) {
        (void)pool_fail(r->p, ENGINE_EFORMAT, "JSON: the key \"%.100s\" is repeated in the object at byte %u",
                        members[twice].key, v->offset);
        return 0;
    }
    for (uint32_t i = 0; i < n; i++) {
        members[i].value->parent = v;
        members[i].value->slot = i;
    }
    v->members = members;
    v->n = n;
    return 1;
}

static int close_array(reader *r, json_value *v, uint32_t base) {
    uint32_t n = r->n_stack - base;
    json_value **items = pool_alloc(r->p, (uint64_t)n * sizeof *items);
    if (!items)
        return 0;
    for (uint32_t i = 0; i < n; i++) {
        items[i] = r->stack[base + i].value;
        items[i]->parent = v;
        items[i]->slot = i;
    }
    r->n_stack = base;
    v->items = items;
    v->n = n;
    return 1;
}

/* One child of a container: a key before it in objects. */
static int read_child(reader *r, int object, uint32_t depth) {
    json_member m = {0};
    skip_space(r);
    if (object) {
        if (r->at == r->end || *r->at != '"')
            return refuse(r, "a key was expected") != NULL;
        r->at++;
        m.key = read_string(r, &m.len);
        if (!m.key)
            return 0;
        skip_space(r);
        if (r->at == r->end || *r->at != ':')
            return refuse(r, "':' was expected") != NULL;
        r->at++;
    }
    m.value = read_value(r, depth + 1);
    return m.value != NULL && push(r, m);
}

static int read_container(reader *r, json_value *v, uint32_t depth) {
    int object = *r->at == '{';
    unsigned char closing = object ? '}' : ']';
    uint32_t base = r->n_stack;
    if (depth >= JSON_MAX_DEPTH)
        return refuse(r, "nesting deeper than 512") != NULL;
    v->type = object ? JSON_OBJECT : JSON_ARRAY;
    r->at++;
    skip_space(r);
    if (r->at < r->end && *r->at == closing) {
        r->at++;
        return 1;
    }
    for (;;) {
        if (!read_child(r, object, depth))
            return 0;
        skip_space(r);
        if (r->at < r->end && *r->at == closing)
            break;
        if (r->at == r->end || *r->at != ',')
            return refuse(r, "',' or the end of a container was expected") != NULL;
        r->at++;
    }
    r->at++;
    return object ? close_object(r, v, base) : close_array(r, v, base);
}

static int read_word(reader *r, json_value *v) {
    static const struct { const char *word; uint32_t len; uint8_t type; } words[] = {
        {"null", 4, JSON_NULL}, {"true", 4, JSON_TRUE}, {"false", 5, JSON_FALSE}};
    for (size_t i = 0; i < 3; i++) {
        if ((uint64_t)(r->end - r->at) >= words[i].len && memcmp(r->at, words[i].word, words[i].len) == 0) {
            r->at += words[i].len;
            v->type = words[i].type;
            return 1;
        }
    }
    return refuse(r, "a value was expected") != NULL;
}

static json_value *read_value(reader *r, uint32_t depth) {
    json_value *v = pool_alloc(r->p, sizeof *v);
    int ok;
    skip_space(r);
    if (!v || !pool_step(r->p, 1))
        return NULL;
    if (r->at == r->end)
        return refuse(r, "a value was expected");
    v->fresh = 1;
    v->offset = (uint32_t)(r->at - r->begin);
    if (*r->at == '{' || *r->at == '[') {
        ok = read_container(r, v, depth);
    } else if (*r->at == '"') {
        r->at++;
        v->type = JSON_STRING;
        v->text = read_string(r, &v->n);
        ok = v->text != NULL;
    } else if (*r->at == '-' || (*r->at >= '0' && *r->at <= '9')) {
        ok = read_number(r, v);
    } else {
        ok = read_word(r, v);
    }
    return ok ? v : NULL;
}

json_value *json_read(pool *p, const char *text, uint64_t len) {
    reader r = {.p = p, .at = (const unsigned char *)text, .begin = (const unsigned char *)text};
    if (len > UINT32_MAX / 2) {
        (void)pool_fail(p, ENGINE_EUNSUPPORTED, "JSON: a text of %llu bytes; at most %u are read",
                        (unsigned long long)len, UINT32_MAX / 2);
        return NULL;
    }
    r.end = r.begin + len;
    json_value *v = read_value(&r, 0);
    if (!v)
        return NULL;
    skip_space(&r);
    return r.at == r.end ? v : refuse(&r, "more than one value:");
}

/* ---- Looking at values ------------------------------------------------------------------ */

json_value *json_get_len(const json_value *v, const char *key, uint64_t len) {
    if (!v || v->type != JSON_OBJECT)
        return NULL;
    for (uint32_t i = 0; i < v->n; i++)
        if (v->members[i].len == len && memcmp(v->members[i].key, key, len) == 0)
            return v->members[i].value;
    return NULL;
}

json_value *json_get(const json_value *v, const char *key) {
    return json_get_len(v, key, strlen(key));
}

void json_pointer_of(const json_value *v, char *out, size_t cap) {
    const json_value *path[JSON_MAX_DEPTH + 1];
    size_t n = 0, at = 0;
    for (; v && v->parent && n <= JSON_MAX_DEPTH; v = v->parent)
        path[n++] = v;
    while (n-- > 0 && at + 1 < cap) {
        const json_value *parent = path[n]->parent;
        out[at++] = '/';
        if (parent->type == JSON_ARRAY) {
            int wrote = snprintf(out + at, cap - at, "%u", path[n]->slot);
            at = at + (size_t)wrote < cap ? at + (size_t)wrote : cap - 1;
            continue;
        }
        const json_member *m = &parent->members[path[n]->slot];
        for (uint32_t i = 0; i < m->len && at + 2 < cap; i++) {
            if (m->key[i] == '~' || m->key[i] == '/') {
                out[at++] = '~';
                out[at++] = m->key[i] == '~' ? '0' : '1';
            } else {
                out[at++] = m->key[i] ? m->key[i] : ' ';
            }
        }
    }
    while (at > 0 && at + 4 > cap && ((unsigned char)out[at - 1] & 0x80)) /* no character is cut */
        at--;
    if (cap)
        out[at] = '\0';
}

int json_decimal(const json_value *v, char *digits, uint32_t *n_digits, int64_t *exponent, int *negative) {
    const char *s = v->text, *end = v->text + v->n;
    int64_t scale = 0, written = 0;
    uint32_t n = 0;
    int after_point = 0, minus = 0;
    *negative = *s == '-';
    for (s += *negative; s < end && (*s | 32) != 'e'; s++) {
        if (*s == '.') {
            after_point = 1;
            continue;
        }
        scale -= after_point;
        if (n || *s != '0')
            digits[n++] = *s;
    }
    if (s < end) {
        s++;
        minus = *s == '-';
        for (s += *s == '-' || *s == '+'; s < end; s++)
            written = written > INT32_MAX ? written : written * 10 + (*s - '0');
    }
    scale += minus ? -written : written;
    for (; n && digits[n - 1] == '0'; n--)
        scale++;
    *n_digits = n;
    *exponent = n ? scale : 0;
    *negative = n ? *negative : 0;
    return n == 0 || (scale < INT32_MAX && scale > -INT32_MAX);
}

static int equal_numbers(const json_value *a, const json_value *b) {
    char room[2][512];
    uint32_t n[2];
    int64_t e[2];
    int negative[2];
    if (a->n == b->n && memcmp(a->text, b->text, a->n) == 0)
        return 1;
    if (a->n > sizeof room[0] || b->n > sizeof room[1])
        return 0; /* numbers of such length are refused before they are compared */
    (void)json_decimal(a, room[0], &n[0], &e[0], &negative[0]);
    (void)json_decimal(b, room[1], &n[1], &e[1], &negative[1]);
    return n[0] == n[1] && e[0] == e[1] && negative[0] == negative[1] && memcmp(room[0], room[1], n[0]) == 0;
}

int json_equal(const json_value *a, const json_value *b) {
    if (a == b)
        return 1;
    if (a->type != b->type)
        return 0;
    if (a->type == JSON_NUMBER)
        return equal_numbers(a, b);
    if (a->type < JSON_NUMBER)
        return 1;
    if (a->n != b->n)
        return 0;
    if (a->type == JSON_STRING)
        return memcmp(a->text, b->text, a->n) == 0;
    for (uint32_t i = 0; i < a->n; i++) {
        const json_value *x = a->type == JSON_ARRAY ? a->items[i] : a->members[i].value;
        const json_value *y = a->type == JSON_ARRAY ? b->items[i]
                              : json_get_len(b, a->members[i].key, a->members[i].len);
        if (!y || !json_equal(x, y))
            return 0;
    }
    return 1;
}
