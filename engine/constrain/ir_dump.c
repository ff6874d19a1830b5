/* ir_dump.c: a program as JSON text, for tests and for looking at. Languages are given by number and, where
 * they are small, by all their words; else by their edges, so that a reader can run them. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "ir.h"

typedef struct dump {
    pool *p;
    char *text;
    uint64_t n, cap;
} dump;

static void put(dump *d, const char *text, uint64_t n) {
    if (d->cap - d->n < n + 1) {
        uint64_t cap = 2 * (d->cap + n) + 4096;
        char *grown = pool_grow(d->p, d->text, d->n, cap);
        if (!grown)
            return;
        d->text = grown;
        d->cap = cap;
    }
    memcpy(d->text + d->n, text, n);
    d->n += n;
    d->text[d->n] = '\0';
}

static void __attribute__((format(printf, 2, 3))) print(dump *d, const char *format, ...) {
    char room[256];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(room, sizeof room, format, args);
    va_end(args);
    put(d, room, n < (int)sizeof room ? (uint64_t)n : sizeof room - 1);
}

static void put_string(dump *d, const char *text, uint64_t len) {
    put(d, "\"", 1);
    for (uint64_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c < 0x20)
            print(d, "\\u%04x", c);
        else if (c == '"' || c == '\\')
            print(d, "\\%c", c);
        else
            put(d, text + i, 1);
    }
    put(d, "\"", 1);
}

static void put_object(dump *d, const ir_object *o) {
    print(d, "{\"keys\": [");
    for (uint32_t i = 0; i < o->n_keys; i++) {
        put(d, i ? ", [" : "[", i ? 3 : 1);
        put_string(d, o->keys[i].text, o->keys[i].len);
        print(d, ", %u, %u]", o->keys[i].value, o->keys[i].required);
    }
    print(d, "], \"rest\": [");
    for (uint32_t i = 0; i < o->n_rest; i++)
        print(d, "%s[%u, %u]", i ? ", " : "", lang_id(o->rest[i].keys), o->rest[i].value);
    print(d, "], \"some\": [");
    for (uint32_t i = 0; i < o->n_some; i++)
        print(d, "%s[%u, %u, %u]", i ? ", " : "", lang_id(o->some[i].keys), o->some[i].value, o->some[i].min);
    print(d, "], \"implies\": [");
    for (uint32_t i = 0; i < o->n_implies; i++)
        print(d, "%s[%u, %u]", i ? ", " : "", o->implies[i].if_key, o->implies[i].then_key);
    print(d, "], \"min\": %u, \"max\": %u, \"cost\": %u, \"height\": %u}", o->min_members, o->max_members, o->cost,
          o->height);
}

static void put_array(dump *d, const ir_array *a) {
    print(d, "{\"prefix\": [");
    for (uint32_t i = 0; i < a->n_prefix; i++)
        print(d, "%s%u", i ? ", " : "", a->prefix[i]);
    print(d, "], \"items\": %u, \"contains\": [", a->items);
    for (uint32_t i = 0; i < a->n_contains; i++)
        print(d, "%s[%u, %u, %u, %u]", i ? ", " : "", a->contains[i].value, a->contains[i].other, a->contains[i].min,
              a->contains[i].max);
    print(d, "], \"min\": %u, \"max\": %u, \"unique\": %u, \"cost\": %u, \"height\": %u}", a->min_items, a->max_items,
          a->unique, a->cost, a->height);
}

static void put_node(dump *d, const ir_node *n) {
    print(d, "{\"null\": %u, \"true\": %u, \"false\": %u, \"number\": %u, \"string\": %u,\n  \"objects\": [", n->admits_null,
          n->admits_true, n->admits_false, lang_id(n->number), lang_id(n->string));
    for (uint32_t i = 0; i < n->n_objects; i++) {
        put(d, i ? ",\n    " : "", i ? 6 : 0);
        put_object(d, &n->objects[i]);
    }
    print(d, "],\n  \"arrays\": [");
    for (uint32_t i = 0; i < n->n_arrays; i++) {
        put(d, i ? ",\n    " : "", i ? 6 : 0);
        put_array(d, &n->arrays[i]);
    }
    print(d, "], \"cost\": %u, \"height\": %u}", n->cost, n->height);
}

/* Languages by id, each once: null, or {"start", "states": {state: [accepting, [[lo, hi, to], …]]}}. */
typedef struct seen {
    const lang **langs;
    uint32_t n, cap;
} seen;

static void see(dump *d, seen *s, const lang *l) {
    uint32_t id = lang_id(l);
    if (id >= s->cap) {
        uint32_t cap = 2 * id + 64;
        const lang **grown = pool_grow(d->p, s->langs, s->cap * sizeof *grown, cap * sizeof *grown);
        if (!grown)
            return;
        s->langs = grown;
        s->cap = cap;
    }
    s->langs[id] = l;
    s->n = id >= s->n ? id + 1 : s->n;
}

static void put_lang(dump *d, const lang *l) {
    enum { CAP = 65536 };
    uint8_t *queued = pool_alloc(d->p, CAP);
    uint32_t *queue = pool_alloc(d->p, CAP * sizeof *queue), n = 0;
    uint32_t start = lang_start(l), min, max;
    if (lang_is_length(l, &min, &max)) {
        print(d, "{\"min\": %u, \"max\": %u}", min, max);
        return;
    }
    if (start == LANG_DEAD || start >= CAP || !queued || !queue) {
        print(d, start == LANG_DEAD ? "{\"words\": []}" : "null");
        return;
    }
    print(d, "{\"start\": %u, \"states\": {", start);
    queue[n++] = start;
    queued[start] = 1;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t count = lang_edges(l, queue[i], NULL, 0);
        lang_edge *edges = pool_alloc(d->p, (count + 1) * sizeof *edges);
        if (!edges)
            return;
        (void)lang_edges(l, queue[i], edges, count);
        print(d, "%s\"%u\": [%d, [", i ? ", " : "", queue[i], lang_accepts(l, queue[i]) != 0);
        for (uint32_t j = 0; j < count; j++) {
            print(d, "%s[%u, %u, %u]", j ? ", " : "", edges[j].lo, edges[j].hi, edges[j].to);
            if (edges[j].to < CAP && !queued[edges[j].to]) {
                queued[edges[j].to] = 1;
                queue[n++] = edges[j].to;
            }
        }
        print(d, "]]");
    }
    print(d, "}}");
}

static void put_langs(dump *d, const ir_program *program) {
    seen s = {0};
    int first = 1;
    for (uint32_t i = 0; i < program->n_nodes; i++) {
        const ir_node *n = &program->nodes[i];
        see(d, &s, n->number);
        see(d, &s, n->string);
        for (uint32_t j = 0; j < n->n_objects; j++) {
            for (uint32_t k = 0; k < n->objects[j].n_rest; k++)
                see(d, &s, n->objects[j].rest[k].keys);
            for (uint32_t k = 0; k < n->objects[j].n_some; k++)
                see(d, &s, n->objects[j].some[k].keys);
        }
    }
    for (uint32_t i = 0; i < s.n && d->p->status == ENGINE_OK; i++) {
        if (!s.langs[i])
            continue;
        print(d, "%s\"%u\": ", first ? "" : ",\n ", i);
        put_lang(d, s.langs[i]);
        first = 0;
    }
}

char *ir_dump(pool *p, const ir_program *program) {
    dump d = {.p = p};
    print(&d, "{\"root\": %u,\n\"nodes\": [\n", program->root);
    for (uint32_t i = 0; i < program->n_nodes; i++) {
        put(&d, i ? ",\n" : "", i ? 2 : 0);
        put_node(&d, &program->nodes[i]);
    }
    print(&d, "],\n\"langs\": {");
    put_langs(&d, program);
    print(&d, "},\n\"notes\": ");
    const char *notes = program->notes ? program->notes : "[]";
    put(&d, notes, strlen(notes));
    print(&d, "}\n");
    return p->status == ENGINE_OK ? d.text : NULL;
}
