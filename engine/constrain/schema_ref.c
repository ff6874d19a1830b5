/* schema_ref.c: identities within a schema document and references to them: $id (id in draft 4), $anchor,
 * JSON pointers, resolved against base URIs as RFC 3986 says. What is not in the document is refused by
 * name: nothing is ever fetched. Subschemas are indexed where keywords put them, and elsewhere when a
 * pointer leads there; so a "$id" in an enum names nothing. */
#include "schema.h"

#include <string.h>

enum { MEMO_REFERENCE = 1000 };

/* ---- URIs ----------------------------------------------------------------------------------------- */

typedef struct uri {               /* parts of a reference; NULL: absent */
    const char *scheme, *authority, *path, *query;
    size_t n_scheme, n_authority, n_path, n_query;
} uri;

static uri split_uri(const char *text, size_t len) {
    uri u = {0};
    size_t at = 0, i = 0;
    while (i < len && text[i] != ':' && text[i] != '/' && text[i] != '?')
        i++;
    if (i > 0 && i < len && text[i] == ':') {
        u.scheme = text;
        u.n_scheme = i;
        at = i + 1;
    }
    if (len - at >= 2 && text[at] == '/' && text[at + 1] == '/') {
        u.authority = text + at + 2;
        for (at += 2; at < len && text[at] != '/' && text[at] != '?'; at++)
            u.n_authority++;
    }
    u.path = text + at;
    while (at < len && text[at] != '?')
        at++;
    u.n_path = (size_t)(text + at - u.path);
    if (at < len) {
        u.query = text + at + 1;
        u.n_query = len - at - 1;
    }
    return u;
}

/* Remove "." and ".." segments in place (RFC 3986, 5.2.4); the new length. */
static size_t remove_dots(char *path, size_t n) {
    size_t out = 0, i = 0;
    while (i < n) {
        size_t end = i + (path[i] == '/');
        while (end < n && path[end] != '/')
            end++;
        const char *segment = path + i + (path[i] == '/');
        size_t len = (size_t)(path + end - segment);
        int dots = len == 1 && segment[0] == '.' ? 1 : len == 2 && segment[0] == '.' && segment[1] == '.' ? 2 : 0;
        if (dots == 2)
            while (out > 0 && path[--out] != '/') {
            }
        if (!dots) {
            memmove(path + out, path + i, end - i);
            out += end - i;
        } else if (end == n) {
            path[out++] = '/';
        }
        i = end;
    }
    return out;
}

static char *append(char *at, const char *text, size_t n) {
    if (n)
        memcpy(at, text, n);
    return at + n;
}

/* The path of a reference merged with that of its base. */
static char *merge_path(char *at, const uri *base, const uri *ref) {
    char *from = at;
    if (ref->n_path && ref->path[0] == '/') {
        at = append(at, ref->path, ref->n_path);
    } else if (!ref->n_path) {
        return append(at, base->path, base->n_path);
    } else {
        size_t keep = base->n_path;
        while (keep && base->path[keep - 1] != '/')
            keep--;
        if (base->authority && !base->n_path)
            *at++ = '/';
        at = append(at, base->path, keep);
        at = append(at, ref->path, ref->n_path);
    }
    return from + remove_dots(from, (size_t)(at - from));
}

/* Resolve a reference without fragment against a base; NUL-terminated, in the pool. */
static const char *resolve_uri(schema *s, const char *base_text, const char *text, size_t len) {
    uri base = split_uri(base_text, strlen(base_text)), ref = split_uri(text, len);
    char *out = pool_alloc(s->p, strlen(base_text) + len + 16), *at = out;
    if (!out)
        return NULL;
    if (ref.scheme) { /* absolute */
        at = append(at, text, len);
        *at = '\0';
        return out;
    }
    if (base.scheme) {
        at = append(at, base.scheme, base.n_scheme);
        *at++ = ':';
    }
    const uri *host = ref.authority ? &ref : &base;
    if (host->authority) {
        at = append(at, "//", 2);
        at = append(at, host->authority, host->n_authority);
    }
    if (ref.authority) {
        char *path = at;
        at = append(at, ref.path, ref.n_path);
        at = path + remove_dots(path, (size_t)(at - path));
    } else {
        at = merge_path(at, &base, &ref);
    }
    const uri *query = ref.query || ref.n_path || ref.authority ? &ref : &base;
    if (query->query) {
        *at++ = '?';
        at = append(at, query->query, query->n_query);
    }
    *at = '\0';
    return out;
}

/* ---- Index ------------------------------------------------------------------------------------------- */

static int draft_of(schema *s, const json_value *v, int otherwise) {
    static const struct { const char *part; int draft; } drafts[] = {
        {"draft-04/", DRAFT_4}, {"draft-06/", DRAFT_6}, {"draft-07/", DRAFT_7},
        {"/2019-09/", DRAFT_2019}, {"/2020-12/", DRAFT_2020}}; /* the hyperschemas of a draft are that draft */
    const json_value *name = json_get(v, "$schema");
    if (!name || name->type != JSON_STRING)
        return otherwise;
    for (size_t i = 0; i < sizeof drafts / sizeof *drafts; i++)
        if (strstr(name->text, "json-schema.org/") && strstr(name->text, drafts[i].part))
            return drafts[i].draft;
    for (int old = 0; old < 4; old++) {
        char part[] = "json-schema.org/draft-00/";
        part[sizeof part - 3] = (char)('0' + old);
        if (strstr(name->text, part))
            return schema_refuse(s, ENGINE_EUNSUPPORTED, v, "$schema", "draft %d; drafts 4 to 2020-12 are held", old);
    }
    if (strstr(name->text, "json-schema.org/schema"))
        return DRAFT_2020;
    return schema_refuse(s, ENGINE_EUNSUPPORTED, v, "$schema", "\"%.150s\" is no dialect that is known; drafts 4 to 2020-12 "
                         "are held, and the last counts where there is no $schema", name->text);
}

static int add_anchor(schema *s, json_value *v, const resource *in, int dynamic, const char *name, uint32_t len) {
    anchor *a = pool_alloc(s->p, sizeof *a);
    if (!a)
        return 0;
    *a = (anchor){in, dynamic, name, len, v, s->anchors};
    s->anchors = a;
    return 1;
}

static resource *new_resource(schema *s, json_value *v, const char *uri_text, int draft) {
    resource *r = pool_alloc(s->p, sizeof *r);
    if (!r || draft == 0)
        return NULL;
    *r = (resource){uri_text, v, draft, s->resources ? s->resources->number + 1 : 0, s->resources};
    s->resources = r;
    return r;
}

/* The resource that v belongs to, which is a new one where v has an identity. NULL: failed. */
static resource *identify(schema *s, json_value *v, resource *in) {
    const json_value *named = json_get(v, "$schema");
    int draft = in ? in->draft : DRAFT_2020;
    if (!in || named)
        draft = draft_of(s, v, draft);
    if (draft == 0)
        return NULL;
    const json_value *id = json_get(v, draft == DRAFT_4 ? "id" : "$id");
    const char *base = in ? in->uri : "";
    if (!id || id->type != JSON_STRING || (in && draft <= DRAFT_7 && json_get(v, "$ref")))
        return in ? in : new_resource(s, v, base, draft);
    const char *hash = memchr(id->text, '#', id->n);
    size_t len = hash ? (size_t)(hash - id->text) : id->n;
    if (len || !in) {
        const char *uri_text = resolve_uri(s, base, id->text, len);
        in = uri_text ? new_resource(s, v, uri_text, draft) : NULL;
    }
    if (in && hash && id->n - len > 1 && draft <= DRAFT_7 &&
        !add_anchor(s, v, in, 0, hash + 1, (uint32_t)(id->n - len - 1)))
        return NULL;
    return in;
}

static int index_anchors(schema *s, json_value *v, resource *in) {
    static const char *const names[] = {"$anchor", "$dynamicAnchor"};
    for (size_t i = 0; i < 2 && in->draft >= DRAFT_2019; i++) {
        const json_value *name = json_get(v, names[i]);
        if (name && name->type == JSON_STRING && !add_anchor(s, v, in, (int)i, name->text, name->n))
            return 0;
    }
    const json_value *recursive = json_get(v, "$recursiveAnchor");
    if (recursive && recursive->type == JSON_TRUE && in->draft == DRAFT_2019)
        return add_anchor(s, v, in, 1, "#recursive", 10); /* no name that a fragment could have */
    return 1;
}

static int index_children(schema *s, json_value *v, resource *in, int kind) {
    int list = v->type == JSON_ARRAY && (kind == 2 || kind == 4);
    if (list || (v->type == JSON_OBJECT && (kind == 3 || kind == 5))) {
        v->resource = in;
        for (uint32_t i = 0; i < v->n; i++)
            if (!schema_index(s, list ? v->items[i] : v->members[i].value, in))
                return 0;
        return 1;
    }
    return kind == 2 || kind == 3 || schema_index(s, v, in);
}

int schema_index(schema *s, json_value *v, resource *in) {
    if (!pool_step(s->p, 1))
        return 0;
    if (!v->fresh)
        return 1;
    v->fresh = 0;
    if (v->type != JSON_OBJECT) {
        v->resource = in ? in : new_resource(s, v, "", DRAFT_2020);
    } else {
        resource *own = identify(s, v, in);
        v->resource = own;
        if (!own || !index_anchors(s, v, own))
            return 0;
    }
    resource *own = v->resource;
    if (!s->main_resource)
        s->main_resource = own;
    for (uint32_t i = 0; own && v->type == JSON_OBJECT && i < v->n; i++) {
        int kind = keyword_holds_schemas(v->members[i].key, v->members[i].len);
        if (kind && !index_children(s, v->members[i].value, own, kind))
            return 0;
    }
    return own != NULL;
}

/* ---- References --------------------------------------------------------------------------------------- */

static uint32_t hex(char c) {
    return c >= '0' && c <= '9' ? (uint32_t)(c - '0') : (c | 32) >= 'a' && (c | 32) <= 'f' ? (uint32_t)((c | 32) - 'a' + 10) : 16;
}

/* Percent-decode; the length. */
static uint32_t percent_decode(const char *text, uint32_t len, char *out) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < len; i++) {
        if (text[i] == '%' && i + 2 < len && hex(text[i + 1]) < 16 && hex(text[i + 2]) < 16) {
            out[n++] = (char)(hex(text[i + 1]) << 4 | hex(text[i + 2]));
            i += 2;
        } else {
            out[n++] = text[i];
        }
    }
    return n;
}

static json_value *child(const json_value *v, const char *name, uint32_t len) {
    if (v->type != JSON_ARRAY)
        return json_get_len(v, name, len);
    uint64_t index = 0;
    if (len == 0 || len > 9 || (len > 1 && name[0] == '0'))
        return NULL;
    for (uint32_t i = 0; i < len; i++) {
        if (name[i] < '0' || name[i] > '9')
            return NULL;
        index = index * 10 + (uint64_t)(name[i] - '0');
    }
    return index < v->n ? v->items[index] : NULL;
}

/* The value that a JSON pointer names below a root, indexed as a schema; NULL: there is none. */
static json_value *walk_pointer(schema *s, json_value *v, resource *in, char *pointer, uint32_t len) {
    uint32_t at = 0;
    while (v && at < len) {
        uint32_t n = 0, from = ++at; /* past the slash */
        for (; at < len && pointer[at] != '/'; at++) {
            char c = pointer[at];
            if (c == '~' && at + 1 < len && (pointer[at + 1] == '0' || pointer[at + 1] == '1'))
                c = pointer[++at] == '0' ? '~' : '/';
            pointer[from + n++] = c;
        }
        if (!pool_step(s->p, v->n / 8))
            return NULL;
        v = child(v, pointer + from, n);
        if (v && v->resource)
            in = v->resource;
    }
    return v && schema_index(s, v, in) ? v : NULL;
}

static resource *find_resource(const schema *s, const resource *from, const char *uri_text) {
    if (strcmp(from->uri, uri_text) == 0)
        return (resource *)from;
    for (resource *r = s->resources; r && pool_step(s->p, 1); r = r->next)
        if (strcmp(r->uri, uri_text) == 0)
            return r;
    return NULL;
}

static json_value *find_fragment(schema *s, resource *r, const char *text, uint32_t len) {
    char *decoded = pool_alloc(s->p, len + 1);
    if (!decoded)
        return NULL;
    uint32_t n = percent_decode(text, len, decoded);
    if (n == 0)
        return r->root;
    if (decoded[0] == '/')
        return walk_pointer(s, r->root, r, decoded, n);
    for (const anchor *a = s->anchors; a && pool_step(s->p, 1); a = a->next)
        if (a->in == r && a->len == n && memcmp(a->name, decoded, n) == 0)
            return a->at;
    return NULL;
}

json_value *schema_resolve(schema *s, const json_value *holder, const json_value *ref) {
    resource *from = holder->resource;
    if (!from || ref->type != JSON_STRING) {
        schema_refuse(s, ENGINE_EFORMAT, holder, "$ref", "a reference must be a string");
        return NULL;
    }
    int kind = MEMO_REFERENCE + from->number;
    const json_value *known = schema_recall(s, kind, ref->text, ref->n);
    if (known)
        return (json_value *)known;
    const char *hash = memchr(ref->text, '#', ref->n);
    size_t len = hash ? (size_t)(hash - ref->text) : ref->n;
    const char *uri_text = len ? resolve_uri(s, from->uri, ref->text, len) : from->uri;
    resource *r = uri_text ? find_resource(s, from, uri_text) : NULL;
    json_value *found = !r ? NULL : hash ? find_fragment(s, r, hash + 1, (uint32_t)(ref->n - len - 1)) : r->root;
    if (!found && !r)
        schema_refuse(s, ENGINE_EUNSUPPORTED, holder, "$ref", "\"%.150s\" is not in the document, and nothing is fetched",
                      ref->text);
    else if (!found)
        schema_refuse(s, ENGINE_EFORMAT, holder, "$ref", "\"%.150s\" leads nowhere", ref->text);
    else
        schema_remember(s, kind, ref->text, ref->n, found);
    return found;
}

int schema_is_static(const schema *s, const json_value *ref) {
    const char *name = "#recursive", *hash = memchr(ref->text, '#', ref->n);
    uint32_t len = 10, found = 0;
    if (hash && ref->text + ref->n > hash + 1) {
        name = hash + 1;
        len = (uint32_t)(ref->text + ref->n - name);
    }
    for (const anchor *a = s->anchors; a; a = a->next)
        found += a->dynamic && a->len == len && memcmp(a->name, name, len) == 0;
    return found <= 1;
}
