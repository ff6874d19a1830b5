/* selftest.h: the known answers, for the test that runs at load and for the program
 * tests/identity/chain.c that prints them on another machine. */
#ifndef GB_SELFTEST_H
#define GB_SELFTEST_H
#include "kernels.h"

typedef struct selftest_case {
    const char *name;
    uint64_t (*run)(const gb_kernels *k); /* FNV-1a of the bits of all results */
    uint64_t expected;
} selftest_case;

/* Case number i, NULL past the last. Run it under gb_fpenv_enter(). */
const selftest_case *selftest_at(int i);

#endif
