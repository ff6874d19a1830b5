/* test_machine.c: the machine at its limits, over programs made by hand: nesting, memory that runs out
 * at any point, positions that outlive their arena. What it reads is compared with a plain reading in
 * tests/engine/constrain/test_machine.py. */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "machine.h"

typedef struct fixture {
    pool memory;
    ir_program program;
    ir_node nodes[3];
    ir_object object;
    ir_array array;
    ir_rest rest;
    ir_key keys[2];
    const doc_ops *ops;
    void *machine;
} fixture;

/* Node 1 is any value; node 2 an object with "name" (any) and, where it is unique, "all" of them. */
static void begin(fixture *x, int unique)
{
    char err[256];
    memset(x, 0, sizeof *x);
    pool_init(&x->memory, 64u << 20, 1u << 24);
    lang_set *s = lang_set_new(&x->memory);
    x->rest = (ir_rest){lang_all(s), IR_NODE_ANY};
    x->object = (ir_object){.rest = &x->rest, .n_rest = 1, .max_members = IR_NO_MAX};
    x->array = (ir_array){.items = IR_NODE_ANY, .max_items = IR_NO_MAX, .unique = (uint8_t)unique};
    x->nodes[0] = (ir_node){.number = lang_empty(s), .string = lang_empty(s)};
    x->nodes[1] = (ir_node){1, 1, 1, lang_number_all(s), lang_all(s), &x->object, 1, &x->array, 1, 0, 0};
    x->program = (ir_program){.nodes = x->nodes, .n_nodes = 2, .root = IR_NODE_ANY, .langs = s};
    engine_status status = machine_new(&x->program, &x->memory, DOC_ORDER_ANY, &x->ops, &x->machine, err, sizeof err);
    CHECK(status == ENGINE_OK);
}

static void end(fixture *x)
{
    x->ops->free(x->machine);
    pool_free(&x->memory);
}

/* The position after the text; NULL where it is refused. */
static const doc *read_text(fixture *x, doc_arena *arena, const char *text)
{
    const doc *at = x->ops->start(x->machine, arena);
    for (; at && *text; text++)
        at = x->ops->step(x->machine, arena, at, (uint8_t)*text);
    return at;
}

static void nesting_ends_at_the_limit(void)
{
    fixture x;
    begin(&x, 0);
    static char deep[MACHINE_MAX_NESTING + 2];
    memset(deep, '[', MACHINE_MAX_NESTING);
    doc_arena *arena = doc_arena_new(64u << 20);
    const doc *at = read_text(&x, arena, deep);
    CHECK(at != NULL);
    CHECK(at && x.ops->distance(x.machine, at) == MACHINE_MAX_NESTING);
    CHECK(at && x.ops->step(x.machine, arena, at, '[') == NULL);
    CHECK(at && x.ops->step(x.machine, arena, at, '{') == NULL);
    CHECK(at && x.ops->step(x.machine, arena, at, '1') != NULL);
    uint8_t byte;
    uint32_t n = 0;
    for (; at && x.ops->closing(x.machine, at, &byte); n++)
        at = x.ops->step(x.machine, arena, at, byte);
    CHECK(n == MACHINE_MAX_NESTING && at && x.ops->accepting(x.machine, at));
    doc_arena_free(arena);
    end(&x);
}

static const char long_text[] = "{\"a\":[1,2.5e3,\"x\\u00e9\",{\"b\":{},\"c\":[[],true]}],\"d\\ud83d\\ude00\":[\"\",{\"k\":[1]}]}";

/* Whatever the arena holds, a text is read, or the arena says that it failed. */
static void memory_that_runs_out_is_said(void)
{
    for (int unique = 0; unique < 2; unique++) {
        fixture x;
        begin(&x, unique);
        int done = 0;
        for (uint64_t bytes = 4096; bytes < 1u << 20; bytes += 512) {
            doc_arena *arena = doc_arena_new(bytes);
            const doc *at = read_text(&x, arena, long_text);
            CHECK(at != NULL || doc_arena_failed(arena));
            done += at != NULL;
            doc_arena_free(arena);
        }
        CHECK(done > 0);
        end(&x);
    }
}

static void kept_positions_outlive_their_arena(void)
{
    for (int unique = 0; unique < 2; unique++) {
        fixture x;
        begin(&x, unique);
        doc_arena *here = doc_arena_new(1u << 20), *there = doc_arena_new(1u << 20);
        const doc *at = x.ops->start(x.machine, here);
        for (const char *c = long_text; at && *c; c++) { /* each step from a copy, its source gone */
            at = x.ops->step(x.machine, here, at, (uint8_t)*c);
            doc_arena_reset(there, 0);
            at = at ? x.ops->keep(x.machine, there, at) : NULL;
            doc_arena *swap = here;
            here = there;
            there = swap;
        }
        CHECK(at && x.ops->accepting(x.machine, at));
        doc_arena_free(here);
        doc_arena_free(there);
        end(&x);
    }
}

static void values_of_unique_arrays_compare_by_value(void)
{
    static const char *const refused[] = {"[1,1.0]", "[10,1e1]", "[0,-0.0]", "[\"a\",\"\\u0061\"]", "[true,true]",
                                          "[{\"a\":1,\"b\":[2]},{\"b\":[2.0],\"a\":10e-1}]", "[[],[]]"};
    static const char *const admitted[] = {"[1,\"1\"]", "[true,\"true\"]", "[[1,2],[2,1]]", "[{\"a\":1},{\"b\":1}]",
                                           "[[[1],2],[[1,2]]]", "[0.1,0.01]"};
    fixture x;
    begin(&x, 1);
    doc_arena *arena = doc_arena_new(8u << 20);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        CHECK(read_text(&x, arena, refused[i]) == NULL);
    for (size_t i = 0; i < sizeof admitted / sizeof *admitted; i++)
        CHECK(read_text(&x, arena, admitted[i]) != NULL);
    CHECK(!doc_arena_failed(arena));
    doc_arena_free(arena);
    end(&x);
}

static void keys_never_repeat(void)
{
    fixture x;
    begin(&x, 0);
    doc_arena *arena = doc_arena_new(8u << 20);
    CHECK(read_text(&x, arena, "{\"a\":1,\"a\"") == NULL);
    CHECK(read_text(&x, arena, "{\"a\":1,\"\\u0061\"") == NULL);
    CHECK(read_text(&x, arena, "{\"a\":{\"a\":1},\"ab\":1}") != NULL);
    doc_arena_free(arena);
    end(&x);
}

int main(void)
{
    static const test tests[] = {
        {"nesting ends at the limit", nesting_ends_at_the_limit},
        {"memory that runs out is said", memory_that_runs_out_is_said},
        {"kept positions outlive their arena", kept_positions_outlive_their_arena},
        {"values of unique arrays compare by value", values_of_unique_arrays_compare_by_value},
        {"keys never repeat", keys_never_repeat},
    };
    return run_tests(tests, sizeof tests / sizeof *tests);
}
