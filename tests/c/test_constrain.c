/* test_constrain.c: constraints through the public calls, for the sanitizers: random legal documents,
 * cut and closed everywhere, masks against a fork that commits, several threads over one constraint.
 * Kinds that a source is not given for are tested from Python. */
#include "check.h"
#include "engine.h"

#include <pthread.h>
#include <stdlib.h>

enum { N_TOKENS = 320, STEPS = 24, BYTES = 4096 };

typedef struct sample {
    int32_t kind;
    const char *source;
} sample;

static const sample samples[] = {
    {ENGINE_CONSTRAINT_REGEX, "[a-z]{2,12}( [0-9]+)?"},
    {ENGINE_CONSTRAINT_REGEX, ".*"},
    {ENGINE_CONSTRAINT_REGEX, "(true|false|\\u00e9+)x?"},
    {ENGINE_CONSTRAINT_CHOICE, "[\"red\",\"green\",\"gr\\u00f6\\u00dfe\",\"\\ud83d\\ude00\"]"},
    {ENGINE_CONSTRAINT_JSON, ""},
    {ENGINE_CONSTRAINT_JSON_SCHEMA,
     "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"minLength\":2,\"maxLength\":5},"
     "\"tags\":{\"type\":\"array\",\"items\":{\"enum\":[\"a\",\"b\",1]},\"uniqueItems\":true},"
     "\"n\":{\"type\":\"number\",\"minimum\":3,\"maximum\":40}},\"required\":[\"name\",\"n\"]}"},
    {ENGINE_CONSTRAINT_JSON_SCHEMA,
     "{\"$defs\":{\"t\":{\"type\":\"object\",\"properties\":{\"next\":{\"$ref\":\"#/$defs/t\"}},"
     "\"patternProperties\":{\"^x\":{\"type\":\"string\",\"pattern\":\"^[0-9]+$\"}},"
     "\"additionalProperties\":{\"type\":\"integer\"}}},\"$ref\":\"#/$defs/t\"}"},
};
enum { N_SAMPLES = sizeof samples / sizeof samples[0] };

/* Token 0 ends; 1 … 256 are single bytes; the rest are runs of what JSON is made of. */
static engine_tokens *make_tokens(void)
{
    static const char parts[] = "\"\":\",\"}{[]:,a1e-.\\n \"name\"tags\"null\"n\"true";
    static char bytes[BYTES];
    uint64_t offsets[N_TOKENS + 1], used = 0;
    int32_t end = 0;
    char err[256];
    engine_tokens *tokens = NULL;
    for (int i = 0; i < N_TOKENS; i++) {
        offsets[i] = used;
        if (i >= 1 && i <= 256)
            bytes[used++] = (char)(i - 1);
        else if (i > 256)
            for (int n = 2 + i % 4, at = (i * 7) % (int)(sizeof parts - 8); n > 0; n--)
                bytes[used++] = parts[at++];
    }
    offsets[N_TOKENS] = used;
    CHECK(engine_tokens_new(&tokens, bytes, offsets, N_TOKENS, &end, 1, err, sizeof err) == ENGINE_OK);
    return tokens;
}

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* Closing never fails, and what it writes is accepted. */
static void close_here(engine_matcher *m)
{
    static _Thread_local char out[BYTES * 16], filled[BYTES * 16];
    char err[256];
    uint64_t len, filled_len;
    engine_matcher *fork;
    CHECK(engine_matcher_close(m, out, sizeof out, &len, filled, sizeof filled, &filled_len, err, sizeof err) ==
          ENGINE_OK);
    CHECK(engine_matcher_fork(&fork, m, err, sizeof err) == ENGINE_OK);
    CHECK(engine_matcher_commit_bytes(fork, out, len, err, sizeof err) == ENGINE_OK);
    CHECK(engine_matcher_accepting(fork));
    engine_matcher_free(fork);
    CHECK(engine_matcher_forced(m, out, sizeof out, &len, err, sizeof err) == ENGINE_OK);
    CHECK(engine_matcher_pointer(m, out, sizeof out, &len, err, sizeof err) == ENGINE_OK);
}

/* A legal token, chosen at random; -1: only the end is. The mask equals what forks take. */
static int32_t check_mask(engine_matcher *m, uint32_t *random)
{
    uint32_t mask[N_TOKENS / 32];
    char err[256];
    int32_t legal[N_TOKENS], n = 0;
    CHECK(engine_matcher_mask(m, mask, N_TOKENS / 32, err, sizeof err) == ENGINE_OK);
    for (int32_t token = 0; token < N_TOKENS; token++) {
        engine_matcher *fork;
        CHECK(engine_matcher_fork(&fork, m, err, sizeof err) == ENGINE_OK);
        int taken = engine_matcher_commit(fork, token, err, sizeof err) == ENGINE_OK;
        engine_matcher_free(fork);
        CHECK(taken == (int)(mask[token / 32] >> (token % 32) & 1));
        if (taken && token > 0)
            legal[n++] = token;
    }
    return n > 0 ? legal[next_random(random) % (uint32_t)n] : -1;
}

static void run(engine_constraint *constraint, engine_tokens *tokens, uint32_t seed)
{
    engine_matcher *m;
    char err[256];
    CHECK(engine_matcher_new(&m, constraint, tokens, err, sizeof err) == ENGINE_OK);
    for (int round = 0; round < 2; round++) {
        engine_matcher_reset(m);
        for (int step = 0; step < STEPS; step++) {
            close_here(m);
            int32_t token = check_mask(m, &seed);
            if (token < 0)
                break;
            CHECK(engine_matcher_commit(m, token, err, sizeof err) == ENGINE_OK);
        }
    }
    engine_matcher_free(m);
}

static engine_constraint *compile(const sample *s)
{
    engine_constraint_options options = {.order_any = 1, .space_free = 1, .formats_assert = 1};
    engine_constraint *made = NULL;
    char err[512] = "";
    engine_status status =
        engine_constraint_compile(&made, s->kind, s->source, strlen(s->source), &options, err, sizeof err);
    if (status != ENGINE_OK)
        printf("%s: %s\n", s->source, err);
    CHECK(status == ENGINE_OK);
    return made;
}

static void documents(void)
{
    engine_tokens *tokens = make_tokens();
    for (int i = 0; i < N_SAMPLES; i++) {
        engine_constraint *constraint = compile(&samples[i]);
        if (constraint == NULL)
            continue;
        CHECK(engine_constraint_notes(constraint)[0] == '[');
        run(constraint, tokens, (uint32_t)i);
        engine_constraint_free(constraint);
    }
    engine_tokens_free(tokens);
}

typedef struct job {
    engine_constraint *constraint;
    engine_tokens *tokens;
    uint32_t seed;
} job;

static void *work(void *argument)
{
    job *j = argument;
    run(j->constraint, j->tokens, j->seed);
    return NULL;
}

static void threads_share(void)
{
    enum { THREADS = 4 };
    engine_tokens *tokens = make_tokens();
    for (int i = 0; i < N_SAMPLES; i++) {
        pthread_t threads[THREADS];
        job jobs[THREADS];
        engine_constraint *constraint = compile(&samples[i]);
        for (uint32_t t = 0; constraint && t < THREADS; t++) {
            jobs[t] = (job){constraint, tokens, t % 2};
            CHECK(pthread_create(&threads[t], NULL, work, &jobs[t]) == 0);
        }
        for (int t = 0; constraint && t < THREADS; t++)
            (void)pthread_join(threads[t], NULL);
        engine_constraint_free(constraint);
    }
    engine_tokens_free(tokens);
}

static void refusals(void)
{
    engine_tokens *tokens = NULL;
    engine_constraint *constraint = NULL;
    uint64_t bad[3] = {0, 5, 4}, good[3] = {0, 1, 2};
    int32_t end = 7;
    char err[256];
    CHECK(engine_tokens_new(&tokens, "abcde", bad, 2, NULL, 0, err, sizeof err) == ENGINE_EINVAL && !tokens);
    CHECK(engine_tokens_new(&tokens, "abcde", good, 2, &end, 1, err, sizeof err) == ENGINE_EINVAL && !tokens);
    CHECK(engine_tokens_new(&tokens, "abcde", good, 0, NULL, 0, err, sizeof err) == ENGINE_EINVAL && !tokens);
    CHECK(engine_constraint_compile(&constraint, 99, "", 0, NULL, err, sizeof err) == ENGINE_EINVAL);
    CHECK(engine_constraint_compile(&constraint, ENGINE_CONSTRAINT_REGEX, "(", 1, NULL, NULL, 0) == ENGINE_EFORMAT);
    CHECK(engine_constraint_compile(&constraint, ENGINE_CONSTRAINT_CHOICE, "[1]", 3, NULL, err, 5) == ENGINE_EFORMAT);
    CHECK(!constraint && strlen(err) == 4);
    engine_tokens_free(NULL);
    engine_constraint_free(NULL);
    engine_matcher_free(NULL);
}

int main(void)
{
    const test tests[] = {
        {"random documents, masks, endings", documents},
        {"threads share a constraint", threads_share},
        {"refusals", refusals},
    };
    return run_tests(tests, sizeof tests / sizeof tests[0]);
}
