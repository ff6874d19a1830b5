/* chain.c: the arithmetic from norm to softmax as a program without a model, for a machine on
 * which nothing else is built (an AArch64 cross-build under qemu-user). It prints one line per
 * known answer of engine/src/selftest.c and per kernel set, and fails where one differs. */
#include "fpenv.h"
#include "selftest.h"

#include <stdio.h>

static int check(const gb_kernels *set)
{
    int wrong = 0;
    const selftest_case *c;
    for (int i = 0; (c = selftest_at(i)) != NULL; i++) {
        gb_fpenv saved = gb_fpenv_enter();
        unsigned long long found = c->run(set), expected = c->expected;
        gb_fpenv_leave(saved);
        printf("%-8s %-14s 0x%016llx%s\n", set->name, c->name, found, found == expected ? "" : "  DIFFERS");
        wrong |= found != expected;
    }
    return wrong;
}

int main(void)
{
    int wrong = 0, runs_here;
    const gb_kernels *set;
    for (int i = 0; (set = gb_kernels_at(i, &runs_here)) != NULL; i++)
        if (runs_here)
            wrong |= check(set);
    return wrong;
}
