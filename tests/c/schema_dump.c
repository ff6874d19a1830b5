/* schema_dump.c: compiles schemas that arrive on standard input and writes their programs, for tests that
 * judge what a program admits with other eyes. A request is one line with the number of bytes, then the
 * bytes; the answer one line with the status, the number of bytes, microseconds and bytes of the pool, then
 * the text: the program (ir_dump), or why the schema was refused. Argument "annotate": formats do not count. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ir.h"

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

int main(int argc, char **argv) {
    char line[64];
    uint32_t flags = IR_FORMAT_ASSERT;
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "annotate") == 0)
            flags = 0;
    while (fgets(line, sizeof line, stdin)) {
        size_t n = strtoul(line, NULL, 10);
        char *text = malloc(n + 1);
        pool p;
        ir_program *program;
        if (!text || fread(text, 1, n, stdin) != n)
            return 1;
        pool_init(&p, 512u << 20, 100000000u);
        double start = now();
        engine_status status = ir_compile_schema(&p, text, n, flags, &program);
        double took = now() - start;
        unsigned long long bytes = p.bytes;
        const char *out = status == ENGINE_OK ? ir_dump(&p, program) : p.error;
        if (!out)
            out = p.error;
        printf("%d %zu %.0f %llu\n", (int)status, strlen(out), took, bytes);
        fwrite(out, 1, strlen(out), stdout);
        fflush(stdout);
        pool_free(&p);
        free(text);
    }
    return 0;
}
