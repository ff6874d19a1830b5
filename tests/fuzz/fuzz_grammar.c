/* fuzz_grammar.c: libFuzzer target of grammars: sources in both notations, and walks under them.
 *
 * Byte 0 chooses the notation; up to a byte 0xFF comes the source, behind it what steers the walk. A
 * source is compiled within 64 MiB and three million steps, or refused with a text. Promises on each
 * position of the walk: a byte is allowed exactly where a step leads on, endings get shorter by one byte
 * at a time and end legally, a kept copy allows and ends as its original does. */
#include <stdint.h>
#include <string.h>

#include "grammar.h"
#include "walk.h"

enum { STEPS = 24, ENDING = 256, BUDGET = 300, ARENA = 8 << 20 };

static int budget; /* steps left for this input: an ambiguous grammar takes milliseconds for one */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The byte chosen by `choice` among those allowed; -1: none is. */
static int choose(const uint64_t set[4], uint8_t choice)
{
    int found = -1;
    for (int i = 0; i < 256; i++) {
        int byte = (choice + i) & 255;
        if (set[byte / 64] >> (byte % 64) & 1) {
            found = byte;
            break;
        }
    }
    return found;
}

static int out_of_room(const doc *at, const doc_arena *arena)
{
    if (at == NULL)
        walk_require(doc_arena_failed(arena), "an allowed byte leads on unless the arena is full");
    return at == NULL;
}

/* Close from a position; its distance must fall by one with each byte. */
static void close_from(const doc_ops *ops, void *machine, const doc *at)
{
    doc_arena *arena = doc_arena_new(ARENA);
    uint32_t left = ops->distance(machine, at);
    uint8_t byte;
    walk_require(arena != NULL, "the fuzzer has memory");
    while (left > 0 && left < ENDING && budget-- > 0) {
        walk_require(ops->closing(machine, at, &byte), "what may not end here has an ending");
        at = ops->step(machine, arena, at, byte);
        if (out_of_room(at, arena))
            break;
        walk_require(ops->distance(machine, at) == --left, "endings get shorter byte by byte");
    }
    if (left == 0)
        walk_require(ops->accepting(machine, at) && !ops->closing(machine, at, &byte), "an ending ends the document");
    doc_arena_free(arena);
}

static void compare(const doc_ops *ops, void *machine, const doc *a, const doc *b)
{
    uint64_t left[4], right[4];
    ops->allowed(machine, a, left);
    ops->allowed(machine, b, right);
    walk_require(memcmp(left, right, sizeof left) == 0, "a kept position allows what its original does");
    walk_require(ops->distance(machine, a) == ops->distance(machine, b), "a kept position ends as its original does");
}

static void walk(const doc_ops *ops, void *machine, const uint8_t *steer, size_t n)
{
    doc_arena *arenas[2] = {doc_arena_new(ARENA), doc_arena_new(ARENA)};
    walk_require(arenas[0] != NULL && arenas[1] != NULL, "the fuzzer has memory");
    const doc *at = ops->start(machine, arenas[0]);
    for (size_t i = 0; i < n && i < STEPS && budget-- > 0 && !out_of_room(at, arenas[i & 1]); i++) {
        uint64_t set[4];
        close_from(ops, machine, at);
        ops->allowed(machine, at, set);
        int byte = choose(set, steer[i]);
        walk_require(byte >= 0 || ops->accepting(machine, at), "no position is a dead end");
        if (!(set[steer[i] / 64] >> (steer[i] % 64) & 1))
            walk_require(ops->step(machine, arenas[i & 1], at, steer[i]) == NULL, "no other byte leads on");
        if (byte < 0)
            break;
        const doc *next = ops->step(machine, arenas[i & 1], at, (uint8_t)byte);
        if (out_of_room(next, arenas[i & 1]))
            break;
        doc_arena_reset(arenas[~i & 1], 0);
        at = ops->keep(machine, arenas[~i & 1], next);
        if (at != NULL)
            compare(ops, machine, next, at);
    }
    doc_arena_free(arenas[0]);
    doc_arena_free(arenas[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    pool p;
    const doc_ops *ops = NULL;
    void *machine = NULL;
    if (size == 0)
        return 0;
    const uint8_t *end = memchr(data + 1, 0xFF, size - 1);
    size_t len = end != NULL ? (size_t)(end - data) - 1 : size - 1;
    const uint8_t *steer = end != NULL ? end + 1 : data;
    size_t n = end != NULL ? size - len - 2 : size;
    budget = BUDGET;
    pool_init(&p, 64u << 20, 3000000);
    int kind = data[0] & 1 ? ENGINE_CONSTRAINT_LARK : ENGINE_CONSTRAINT_GBNF;
    engine_status status = grammar_new(&p, kind, (const char *)data + 1, len, &ops, &machine);
    if (status == ENGINE_OK)
        walk(ops, machine, steer, n);
    else
        walk_require(p.error[0] != '\0' && machine == NULL, "a refused grammar says why and hands nothing over");
    pool_free(&p);
    return 0;
}
