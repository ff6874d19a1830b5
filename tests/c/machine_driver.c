/* machine_driver.c: a program of nodes, written as JSON on standard input, walked by the machine; what
 * tests/engine/constrain/test_machine.py compares with its own reading of the same program.
 *
 * usage: machine_driver FLAGS tree ALPHABET_HEX LENGTH < PROGRAM: every prefix over the alphabet that is
 *          alive, up to LENGTH bytes: prefix, accepting, distance, its ending, JSON pointer (texts in hex)
 *        machine_driver FLAGS walk TEXT_HEX … < PROGRAM: the same for each prefix of each text
 * What the machine promises of its own operations is checked at every prefix; a breach ends with 3. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json_read.h"
#include "machine.h"

static pool memory;
static ir_program program;
static const doc_ops *ops;
static void *machine;
static doc_arena *scratch, *other;

static void stop(const char *why)
{
    printf("breach: %s\n", why);
    exit(3);
}

/* ---- The program --------------------------------------------------------------------------------- */

static uint32_t number_of(const json_value *v, uint32_t otherwise)
{
    return v ? (uint32_t)strtoul(v->text, NULL, 10) : otherwise;
}

static const lang *lang_of(const json_value *v)
{
    lang_set *s = program.langs;
    if (v == NULL || v->type == JSON_NULL)
        return lang_empty(s);
    if (v->type == JSON_TRUE)
        return lang_all(s);
    if (v->type == JSON_STRING)
        return lang_regex(s, v->text, v->n, 0);
    if (v->type == JSON_OBJECT)
        return lang_length(s, number_of(json_get(v, "min"), 0), number_of(json_get(v, "max"), LANG_NO_MAX));
    const char **texts = pool_alloc(&memory, v->n * sizeof *texts);
    uint64_t *lens = pool_alloc(&memory, v->n * sizeof *lens);
    for (uint32_t i = 0; i < v->n; i++) {
        texts[i] = v->items[i]->text;
        lens[i] = v->items[i]->n;
    }
    return lang_words_of(s, texts, lens, v->n);
}

static uint32_t count_of(const json_value *v)
{
    return v ? v->n : 0;
}

static void object_of(const json_value *v, ir_object *o)
{
    const json_value *keys = json_get(v, "keys"), *rest = json_get(v, "rest"), *some = json_get(v, "some");
    const json_value *implies = json_get(v, "implies");
    ir_key *k = pool_alloc(&memory, (o->n_keys = count_of(keys)) * sizeof *k);
    ir_rest *r = pool_alloc(&memory, (o->n_rest = count_of(rest)) * sizeof *r);
    ir_some *s = pool_alloc(&memory, (o->n_some = count_of(some)) * sizeof *s);
    ir_implies *m = pool_alloc(&memory, (o->n_implies = count_of(implies)) * sizeof *m);
    for (uint32_t i = 0; i < o->n_keys; i++) {
        json_value **at = keys->items[i]->items;
        k[i] = (ir_key){at[0]->text, at[0]->n, number_of(at[1], 0), at[2]->type == JSON_TRUE};
    }
    for (uint32_t i = 0; i < o->n_rest; i++)
        r[i] = (ir_rest){lang_of(rest->items[i]->items[0]), number_of(rest->items[i]->items[1], 0)};
    for (uint32_t i = 0; i < o->n_some; i++) {
        json_value **at = some->items[i]->items;
        s[i] = (ir_some){lang_of(at[0]), number_of(at[1], 0), 0, number_of(at[2], 0), IR_NO_MAX};
    }
    for (uint32_t i = 0; i < o->n_implies; i++)
        m[i] = (ir_implies){number_of(implies->items[i]->items[0], 0), number_of(implies->items[i]->items[1], 0)};
    o->keys = k;
    o->rest = r;
    o->some = s;
    o->implies = m;
    o->min_members = number_of(json_get(v, "min"), 0);
    o->max_members = number_of(json_get(v, "max"), IR_NO_MAX);
}

static void array_of(const json_value *v, ir_array *a)
{
    const json_value *prefix = json_get(v, "prefix"), *contains = json_get(v, "contains");
    uint32_t *p = pool_alloc(&memory, (a->n_prefix = count_of(prefix)) * sizeof *p);
    ir_contains *c = pool_alloc(&memory, (a->n_contains = count_of(contains)) * sizeof *c);
    for (uint32_t i = 0; i < a->n_prefix; i++)
        p[i] = number_of(prefix->items[i], 0);
    for (uint32_t i = 0; i < a->n_contains; i++) {
        json_value **at = contains->items[i]->items;
        c[i] = (ir_contains){number_of(at[0], 0), number_of(at[1], 0), number_of(at[2], 0),
                             at[3]->type == JSON_NULL ? IR_NO_MAX : number_of(at[3], 0)};
    }
    a->prefix = p;
    a->contains = c;
    a->items = number_of(json_get(v, "items"), IR_NODE_NONE);
    a->min_items = number_of(json_get(v, "min"), 0);
    a->max_items = number_of(json_get(v, "max"), IR_NO_MAX);
    a->unique = json_get(v, "unique") != NULL;
}

static void node_of(const json_value *v, ir_node *n)
{
    const json_value *words = json_get(v, "literals"), *objects = json_get(v, "objects"), *arrays = json_get(v, "arrays");
    n->admits_true = words && strchr(words->text, 't') != NULL;
    n->admits_false = words && strchr(words->text, 'f') != NULL;
    n->admits_null = words && strchr(words->text, 'n') != NULL;
    n->number = lang_of(json_get(v, "number"));
    n->string = lang_of(json_get(v, "string"));
    ir_object *o = pool_alloc(&memory, (n->n_objects = count_of(objects)) * sizeof *o);
    ir_array *a = pool_alloc(&memory, (n->n_arrays = count_of(arrays)) * sizeof *a);
    for (uint32_t i = 0; i < n->n_objects; i++)
        object_of(objects->items[i], &o[i]);
    for (uint32_t i = 0; i < n->n_arrays; i++)
        array_of(arrays->items[i], &a[i]);
    n->objects = o;
    n->arrays = a;
}

static void read_program(void)
{
    static char text[1 << 20];
    size_t len = fread(text, 1, sizeof text, stdin);
    pool_init(&memory, 1u << 30, 1u << 30);
    program.langs = lang_set_new(&memory);
    json_value *v = json_read(&memory, text, len), *nodes = v ? json_get(v, "nodes") : NULL;
    if (nodes == NULL) {
        printf("refused: %s\n", memory.error);
        exit(2);
    }
    program.n_nodes = nodes->n;
    program.nodes = pool_alloc(&memory, nodes->n * sizeof *program.nodes);
    program.root = number_of(json_get(v, "root"), 0);
    for (uint32_t i = 0; i < nodes->n; i++)
        node_of(nodes->items[i], &program.nodes[i]);
}

/* ---- Walks ----------------------------------------------------------------------------------------- */

static void put_hex(const uint8_t *s, uint32_t n)
{
    putchar('x');
    for (uint32_t i = 0; i < n; i++)
        printf("%02x", s[i]);
}

static uint32_t get_hex(const char *s, uint8_t *out)
{
    uint32_t n = 0;
    for (; s[0] && s[1]; s += 2, n++) {
        char pair[3] = {s[0], s[1], 0};
        out[n] = (uint8_t)strtoul(pair, NULL, 16);
    }
    return n;
}

#define LONGEST 4096

/* The ending from a position, byte by byte; distances must fall by one each. */
static uint32_t ending(const doc *at, uint8_t *out)
{
    uint32_t n = 0, left = ops->distance(machine, at);
    uint8_t byte;
    while (ops->closing(machine, at, &byte)) {
        if (n == LONGEST)
            stop("the ending does not end");
        out[n++] = byte;
        at = ops->step(machine, other, at, byte);
        if (at == NULL)
            stop("an ending leaves the language");
        uint32_t now = ops->distance(machine, at);
        if (now + 1 != left)
            stop("an ending comes no nearer");
        left = now;
    }
    if (left != 0 || !ops->accepting(machine, at))
        stop("an ending stops short");
    return n;
}

static void check_allowed(const doc *at)
{
    uint64_t set[4];
    ops->allowed(machine, at, set);
    uint64_t mark = doc_arena_mark(other);
    for (int b = 0; b < 256; b++) {
        const doc *next = ops->step(machine, other, at, (uint8_t)b);
        if ((next != NULL) != (int)(set[b >> 6] >> (b & 63) & 1))
            stop("allowed and step differ");
    }
    doc_arena_reset(other, mark);
}

static void report(const doc *at, const uint8_t *prefix, uint32_t len)
{
    static uint8_t end[LONGEST];
    static char pointer[256];
    uint64_t mark = doc_arena_mark(other);
    const doc *kept = ops->keep(machine, other, at);
    if (kept == NULL)
        stop("a position cannot be kept");
    uint32_t n = ending(kept, end);
    doc_arena_reset(other, mark);
    uint32_t distance = ops->distance(machine, at);
    if (distance != n || (distance == 0) != ops->accepting(machine, at))
        stop("distance and ending differ");
    check_allowed(at);
    uint32_t plen = ops->pointer(machine, at, pointer, sizeof pointer);
    put_hex(prefix, len);
    printf(" %d %u ", ops->accepting(machine, at), distance);
    put_hex(end, n);
    putchar(' ');
    put_hex((const uint8_t *)pointer, plen);
    putchar('\n');
}

static void tree(const doc *at, const uint8_t *alphabet, uint32_t n, uint8_t *prefix, uint32_t len, uint32_t longest)
{
    report(at, prefix, len);
    if (len == longest)
        return;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t mark = doc_arena_mark(scratch);
        const doc *next = ops->step(machine, scratch, at, alphabet[i]);
        prefix[len] = alphabet[i];
        if (next)
            tree(next, alphabet, n, prefix, len + 1, longest);
        else if (doc_arena_failed(scratch))
            stop("no memory");
        doc_arena_reset(scratch, mark);
    }
}

static void walk(const char *hex)
{
    static uint8_t text[1 << 20];
    uint32_t n = get_hex(hex, text);
    const doc *at = ops->start(machine, scratch);
    for (uint32_t i = 0; at && i <= n; i++) {
        report(at, text, i);
        at = i < n ? ops->step(machine, scratch, at, text[i]) : NULL;
    }
}

int main(int argc, char **argv)
{
    char err[512];
    uint8_t alphabet[256], prefix[LONGEST];
    if (argc < 4)
        return 1;
    read_program();
    engine_status status = machine_new(&program, &memory, (uint32_t)atoi(argv[1]), &ops, &machine, err, sizeof err);
    if (status != ENGINE_OK) {
        printf("refused: %s\n", err);
        pool_free(&memory);
        return 2;
    }
    scratch = doc_arena_new(1u << 30);
    other = doc_arena_new(1u << 30);
    if (strcmp(argv[2], "tree") == 0)
        tree(ops->start(machine, scratch), alphabet, get_hex(argv[3], alphabet), prefix, 0, (uint32_t)atoi(argv[4]));
    else
        for (int i = 3; i < argc; i++)
            walk(argv[i]);
    ops->free(machine);
    doc_arena_free(scratch);
    doc_arena_free(other);
    pool_free(&memory);
    return 0;
}
