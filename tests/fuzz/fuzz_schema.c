/* fuzz_schema.c: libFuzzer target of JSON Schemas: compiling them, and reading documents under them.
 *
 * Byte 0 holds options (formats, order, white space); up to a byte 0xFF comes the schema, behind it what
 * steers the walk. A schema is compiled within 64 MiB and five million steps, or refused with a text.
 * Promises: a live node has a finite shortest document; on each position of the walk a byte is allowed
 * exactly where a step leads on, and every position can be ended, one byte at a time. */
#include <stdint.h>
#include <string.h>

#include "machine.h"
#include "walk.h"

enum { STEPS = 40, ENDING = 4096, ARENA = 8 << 20 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int choose(const uint64_t set[4], uint8_t choice)
{
    for (int i = 0; i < 256; i++) {
        int byte = (choice + i) & 255;
        if (set[byte / 64] >> (byte % 64) & 1)
            return byte;
    }
    return -1;
}

/* A searched ending is one path: a search that begins further on may be given up where this one was not. */
static const doc *walk_ending(const doc_ops *ops, void *machine, doc_arena *arena, const doc *at, uint32_t *left)
{
    static uint8_t path[ENDING];
    uint32_t n = ops->ending(machine, at, path, ENDING);
    uint8_t byte;
    if (n == 0)
        return at;
    walk_require(n == *left, "an ending is as long as the distance says");
    walk_require(ops->closing(machine, at, &byte) && byte == path[0], "an ending begins with the closing byte");
    for (uint32_t i = 0; i < n && at; i++)
        at = ops->step(machine, arena, at, path[i]);
    walk_require(at != NULL || doc_arena_failed(arena), "an ending is made of allowed bytes");
    *left = 0;
    return at;
}

static void close_from(const doc_ops *ops, void *machine, const doc *at)
{
    doc_arena *arena = doc_arena_new(ARENA);
    uint32_t left = ops->distance(machine, at);
    uint8_t byte;
    walk_require(arena != NULL, "the fuzzer has memory");
    if (left > 0 && left < ENDING)
        at = walk_ending(ops, machine, arena, at, &left);
    while (at && left > 0 && left < ENDING) {
        walk_require(ops->closing(machine, at, &byte), "what may not end here has an ending");
        at = ops->step(machine, arena, at, byte);
        walk_require(at != NULL || doc_arena_failed(arena), "an ending is made of allowed bytes");
        walk_require(at == NULL || ops->distance(machine, at) == --left, "endings get shorter byte by byte");
    }
    if (at && left == 0)
        walk_require(ops->accepting(machine, at), "an ending ends the document");
    doc_arena_free(arena);
}

/* Alternatives are texts that can be tried, none of them empty. (Some may be impossible, in unique arrays.) */
static void try_alternatives(const doc_ops *ops, void *machine, const doc *at)
{
    enum { CAP = 16 };
    doc_arena *arena = doc_arena_new(ARENA);
    const char *texts[CAP];
    uint32_t lens[CAP];
    doc_choice found = {DOC_CHOICE_NONE, 0, CAP, texts, lens};
    walk_require(arena != NULL, "the fuzzer has memory");
    int finite = ops->alternatives(machine, arena, at, &found);
    walk_require(found.n <= CAP, "no more alternatives than there is room for");
    for (uint32_t i = 0; finite && i < found.n; i++) {
        const doc *to = at;
        walk_require(lens[i] > 0, "an alternative has a text");
        for (uint32_t k = 0; to != NULL && k < lens[i]; k++)
            to = ops->step(machine, arena, to, (uint8_t)texts[i][k]);
    }
    doc_arena_free(arena);
}

static void walk(const doc_ops *ops, void *machine, const uint8_t *steer, size_t n)
{
    doc_arena *arena = doc_arena_new(ARENA);
    walk_require(arena != NULL, "the fuzzer has memory");
    const doc *at = ops->start(machine, arena);
    for (size_t i = 0; at != NULL && i < STEPS; i++) {
        uint64_t set[4] = {0};
        ops->allowed(machine, at, set);
        try_alternatives(ops, machine, at);
        int byte = choose(set, i < n ? steer[i] : (uint8_t)(i * 37));
        if (byte < 0) {
            walk_require(ops->accepting(machine, at), "a position without a way on is the end of a document");
            break;
        }
        at = ops->step(machine, arena, at, (uint8_t)byte);
        walk_require(at != NULL || doc_arena_failed(arena), "an allowed byte leads on unless the arena is full");
    }
    if (at != NULL)
        close_from(ops, machine, at);
    doc_arena_free(arena);
}

static void check_program(const ir_program *program)
{
    walk_require(program->root < program->n_nodes, "the root is a node");
    walk_require(program->nodes[program->root].cost != IR_INFINITE, "a program that is handed over admits something");
    for (uint32_t i = 0; i < program->n_nodes; i++) {
        const ir_node *n = &program->nodes[i];
        for (uint32_t j = 0; j < n->n_objects; j++)
            walk_require(n->objects[j].cost >= n->cost && n->objects[j].cost != IR_INFINITE, "live objects have a cost");
        for (uint32_t j = 0; j < n->n_arrays; j++)
            walk_require(n->arrays[j].cost >= n->cost && n->arrays[j].cost != IR_INFINITE, "live arrays have a cost");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    const uint8_t *end = memchr(data + 1, 0xFF, size - 1);
    size_t len = end ? (size_t)(end - data - 1) : size - 1;
    uint32_t flags = data[0] & 1 ? IR_FORMAT_ASSERT : 0, reading = data[0] >> 1 & (DOC_ORDER_ANY | DOC_SPACE_FREE);
    ir_program *program = NULL;
    const doc_ops *ops;
    void *machine;
    char err[256] = "";
    pool p;
    pool_init(&p, 64u << 20, 5000000);
    engine_status status = ir_compile_schema(&p, (const char *)data + 1, len, flags, &program);
    walk_require((status == ENGINE_OK) == (program != NULL), "a program is handed over exactly on success");
    if (status == ENGINE_OK) {
        check_program(program);
        status = machine_new(program, &p, reading, &ops, &machine, err, sizeof err);
        if (status == ENGINE_OK)
            walk(ops, machine, end ? end + 1 : NULL, end ? size - len - 2 : 0);
        else
            walk_require(err[0] != '\0', "a refused program says why");
    } else {
        walk_require(p.error[0] != '\0' && (status == ENGINE_EFORMAT || status == ENGINE_EUNSUPPORTED),
                     "a refused schema says why");
    }
    pool_free(&p);
    return 0;
}
