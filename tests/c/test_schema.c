/* test_schema.c: the schema compiler under the sanitizers: the JSON reader's strictness, refusals by name
 * with pointer and keyword, shortest costs worked out by hand, and what is large or deep. */
#include "check.h"
#include "ir.h"
#include "json_read.h"

#include <stdlib.h>

typedef struct row {
    const char *text;
    engine_status status;
    const char *part; /* of the refusal */
} row;

static engine_status compile(const char *text, size_t len, uint32_t *cost, uint32_t *height, char *error) {
    pool p;
    ir_program *program = NULL;
    pool_init(&p, 512u << 20, 100000000);
    engine_status status = ir_compile_schema(&p, text, len, IR_FORMAT_ASSERT, &program);
    CHECK((status == ENGINE_OK) == (program != NULL));
    if (program && cost)
        *cost = program->nodes[program->root].cost;
    if (program && height)
        *height = program->nodes[program->root].height;
    if (error)
        memcpy(error, p.error, sizeof p.error);
    pool_free(&p);
    return status;
}

static void test_reader(void) {
    static const row rows[] = {
        {"", ENGINE_EFORMAT, "byte 0"}, {"{\"a\":1,\"a\":2}", ENGINE_EFORMAT, "repeated"},
        {"01", ENGINE_EFORMAT, "byte 1"}, {"\"\\ud800\"", ENGINE_EFORMAT, "surrogate"},
        {"\"\xed\xa0\x80\"", ENGINE_EFORMAT, "UTF-8"}, {"\"\x01\"", ENGINE_EFORMAT, "control"},
        {"[1,]", ENGINE_EFORMAT, "byte 3"}, {"{} {}", ENGINE_EFORMAT, "more than one"}, {"nul", ENGINE_EFORMAT, "value"},
        {"\"\\x\"", ENGINE_EFORMAT, "escape"}, {"[1", ENGINE_EFORMAT, "','"}, {"-", ENGINE_EFORMAT, "number"},
        {"{\"a\" 1}", ENGINE_EFORMAT, "':'"}, {"\"abc", ENGINE_EFORMAT, "no end"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        pool p;
        pool_init(&p, 1 << 20, 1 << 20);
        json_value *v = json_read(&p, rows[i].text, strlen(rows[i].text));
        CHECK(v == NULL && p.status == rows[i].status && strstr(p.error, rows[i].part) != NULL);
        if (v != NULL || !strstr(p.error, rows[i].part))
            printf("  %s: %s\n", rows[i].text, p.error);
        pool_free(&p);
    }
}

static void test_refusals(void) {
    static const row rows[] = {
        {"1", ENGINE_EFORMAT, "a schema must be"},
        {"{\"properties\":{\"a/b\":{\"type\":\"foo\"}}}", ENGINE_EFORMAT, "keyword \"type\" at \"/properties/a~1b\""},
        {"{\"minLength\":-1}", ENGINE_EFORMAT, "\"minLength\""},
        {"{\"items\":{\"required\":\"a\"}}", ENGINE_EFORMAT, "keyword \"required\" at \"/items\""},
        {"{\"exclusiveMinimum\":true}", ENGINE_EFORMAT, "draft 4"},
        {"{\"multipleOf\":0}", ENGINE_EFORMAT, "above 0"},
        {"{\"$ref\":\"#/nowhere\"}", ENGINE_EFORMAT, "leads nowhere"},
        {"{\"$ref\":\"http://x.y/z\"}", ENGINE_EUNSUPPORTED, "nothing is fetched"},
        {"{\"$ref\":\"#\"}", ENGINE_EUNSUPPORTED, "circle"},
        {"{\"anyOf\":[{\"$ref\":\"#\"},{}]}", ENGINE_EUNSUPPORTED, "refers to itself"},
        {"false", ENGINE_EUNSUPPORTED, "no finite document"},
        {"{\"type\":\"object\",\"required\":[\"a\"],\"properties\":{\"a\":{\"$ref\":\"#\"}}}", ENGINE_EUNSUPPORTED,
         "no finite document"},
        {"{\"not\":{\"uniqueItems\":true}}", ENGINE_EUNSUPPORTED, "keyword \"uniqueItems\""},
        {"{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"const\":{\"a\":1}}}", ENGINE_EUNSUPPORTED, "uniqueItems"},
        {"{\"patternProperties\":{\"(\":{}}}", ENGINE_EFORMAT, "keyword \"patternProperties\""},
        {"{\"minProperties\":4000000000}", ENGINE_EUNSUPPORTED, "minProperties"},
        {"{\"$schema\":\"http://json-schema.org/draft-03/schema#\"}", ENGINE_EUNSUPPORTED, "draft 3"}};
    char error[512];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        engine_status status = compile(rows[i].text, strlen(rows[i].text), NULL, NULL, error);
        int as_wanted = status == rows[i].status && strstr(error, rows[i].part) != NULL;
        CHECK(as_wanted);
        if (!as_wanted)
            printf("  %s: %d %s\n", rows[i].text, (int)status, error);
    }
}

static void test_costs(void) {
    static const struct { const char *text; uint32_t cost, height; } rows[] = {
        {"true", 1, 0}, {"{\"type\":\"string\"}", 2, 0}, {"{\"type\":\"boolean\"}", 4, 0}, {"{\"const\":false}", 5, 0},
        {"{\"type\":\"object\",\"required\":[\"a\",\"\\\"\"]}", 14, 1},                    /* {"a":0,"\"":0} */
        {"{\"type\":\"object\",\"minProperties\":3}", 18, 1},                               /* {"":0,"!":0," ":0} */
        {"{\"type\":\"object\",\"minProperties\":2,\"propertyNames\":{\"minLength\":2}}", 15, 1}, /* {"!!":0,"!#":0} */
        {"{\"type\":\"array\",\"minItems\":3,\"items\":{\"type\":\"array\"}}", 10, 2},
        {"{\"type\":\"array\",\"minItems\":3,\"uniqueItems\":true,\"items\":{\"enum\":[1,\"ab\",10]}}", 11, 1},
        {"{\"type\":\"array\",\"contains\":{\"const\":null},\"minContains\":2}", 11, 1},
        {"{\"type\":\"object\",\"not\":{\"additionalProperties\":{\"type\":\"number\"}}}", 7, 1}, /* {"":""} */
        {"{\"type\":\"string\",\"const\":\"\\u00e9\\n\"}", 6, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint32_t cost = 0, height = 0;
        char error[512];
        engine_status status = compile(rows[i].text, strlen(rows[i].text), &cost, &height, error);
        int as_wanted = status == ENGINE_OK && cost == rows[i].cost && height == rows[i].height;
        CHECK(as_wanted);
        if (!as_wanted)
            printf("  %s: %d cost %u height %u %s\n", rows[i].text, (int)status, cost, height, error);
    }
}

typedef struct buffer {
    char *at;
    size_t n, cap;
} buffer;

static void append(buffer *b, const char *text) {
    size_t n = strlen(text);
    if (b->n + n + 1 > b->cap) {
        b->cap = 2 * (b->cap + n) + 1024;
        b->at = realloc(b->at, b->cap);
    }
    CHECK(b->at != NULL);
    memcpy(b->at + b->n, text, n + 1);
    b->n += n;
}

static void repeat(buffer *b, const char *text, int n) {
    for (int i = 0; i < n; i++)
        append(b, text);
}

static void number(buffer *b, const char *before, int i, const char *after) {
    char room[128];
    snprintf(room, sizeof room, "%s%d%s", before, i, after);
    append(b, room);
}

static void expect(buffer *b, engine_status wanted, uint32_t wanted_cost) {
    char error[512];
    uint32_t cost = 0;
    engine_status status = compile(b->at, b->n, &cost, NULL, error);
    CHECK(status == wanted && (status != ENGINE_OK || cost == wanted_cost));
    if (status != wanted || (status == ENGINE_OK && cost != wanted_cost))
        printf("  %.60s…: %d cost %u %s\n", b->at, (int)status, cost, error);
    free(b->at);
    *b = (buffer){0};
}

static void test_large(void) {
    buffer b = {0};
    append(&b, "{\"enum\":[null");
    for (int i = 0; i < 10000; i++)
        number(&b, i % 2 ? ",\"value " : ",1", i, i % 2 ? "\"" : "");
    append(&b, "]}");
    expect(&b, ENGINE_OK, 2); /* 10 */
    append(&b, "{\"type\":\"object\",\"required\":[\"p0\"],\"properties\":{\"x\":{}");
    for (int i = 0; i < 5000; i++)
        number(&b, ",\"p", i, "\":{\"type\":\"integer\"}");
    append(&b, "},\"allOf\":[{\"properties\":{\"y\":{}");
    for (int i = 0; i < 5000; i++)
        number(&b, ",\"p", i, "\":{\"minimum\":10}");
    append(&b, "}}]}");
    expect(&b, ENGINE_OK, 9); /* {"p0":10} */
    repeat(&b, "{\"items\":", 250);
    append(&b, "{}");
    repeat(&b, "}", 250);
    expect(&b, ENGINE_OK, 1);
    repeat(&b, "{\"not\":", 600);
    append(&b, "{}");
    repeat(&b, "}", 600);
    expect(&b, ENGINE_EFORMAT, 0);
    append(&b, "{\"$defs\":{\"d0\":{\"type\":\"null\"}");
    for (int i = 1; i < 900; i++) {
        number(&b, ",\"d", i, "\":{\"title\":\"t\",\"type\":\"null\",");
        number(&b, "\"$ref\":\"#/$defs/d", i - 1, "\"}");
    }
    append(&b, "},\"$ref\":\"#/$defs/d899\"}");
    expect(&b, ENGINE_OK, 4);
    append(&b, "{\"oneOf\":[{}");
    for (int i = 0; i < 40; i++) {
        number(&b, ",{\"properties\":{\"a", i, "\":{\"type\":\"string\"},");
        number(&b, "\"b", i, "\":{\"type\":\"null\"}}}");
    }
    append(&b, "]}");
    expect(&b, ENGINE_EUNSUPPORTED, 0);
}

static void test_many_branches(void) {
    buffer b = {0};
    append(&b, "{\"oneOf\":[{\"type\":\"null\"}");
    for (int i = 0; i < 3000; i++)
        number(&b, ",{\"title\":\"t\",\"const\":\"s", i, "\"}");
    append(&b, "]}");
    expect(&b, ENGINE_OK, 4);
    append(&b, "{\"type\":\"object\",\"oneOf\":[{\"required\":[\"t\"],\"properties\":{\"t\":{\"const\":\"\"}}}");
    for (int i = 0; i < 300; i++) {
        number(&b, ",{\"required\":[\"t\",\"a", i, "\"],");
        number(&b, "\"properties\":{\"t\":{\"const\":\"k", i, "\"}}}");
    }
    append(&b, "]}");
    expect(&b, ENGINE_OK, 8); /* {"t":""} */
}

int main(void) {
    static const test tests[] = {{"the reader is strict", test_reader},
                                 {"refusals name keyword and pointer", test_refusals},
                                 {"costs are those of the shortest document", test_costs},
                                 {"large and deep schemas", test_large},
                                 {"many branches", test_many_branches}};
    return run_tests(tests, sizeof tests / sizeof *tests);
}
