/* check.h: what every C test uses: a failed condition is printed and counted, and main returns
 * whether there was one. A test is a row {name, fn} of a table. */
#ifndef GB_TEST_CHECK_H
#define GB_TEST_CHECK_H
#include <stdio.h>
#include <string.h>

static int failures;

#define CHECK(condition)                                                        \
    do {                                                                        \
        if (!(condition)) {                                                     \
            failures++;                                                         \
            printf("%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);      \
        }                                                                       \
    } while (0)

typedef struct test {
    const char *name;
    void (*fn)(void);
} test;

static inline int run_tests(const test *tests, int n)
{
    for (int i = 0; i < n; i++) {
        int before = failures;
        tests[i].fn();
        printf("%s %s\n", failures == before ? "ok  " : "FAIL", tests[i].name);
    }
    return failures != 0;
}

#endif
