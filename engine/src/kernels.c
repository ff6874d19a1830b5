/* kernels.c: which set of kernels runs. The order is fastest first; a set that the processor or
 * the operating system does not support is passed over, and one named by the environment
 * variable ENGINE_KERNELS is used or nothing is. */
#include "kernels.h"

#include <stdlib.h>
#include <string.h>

const gb_kernels *gb_kernels_at(int i, int *runs_here)
{
    *runs_here = 1;
#if defined(__x86_64__)
    if (i == 0) {
        /* both ask the system too, through XGETBV */
        *runs_here = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
        return &gb_kernels_ref_fma;
    }
    i--;
#endif
    return i == 0 ? &gb_kernels_ref : NULL;
}

const gb_kernels *gb_kernels_get(void)
{
    const char *wanted = getenv("ENGINE_KERNELS");
    const gb_kernels *set;
    int runs_here;
    for (int i = 0; (set = gb_kernels_at(i, &runs_here)) != NULL; i++)
        if (runs_here && (wanted == NULL || strcmp(wanted, set->name) == 0))
            return set;
    return NULL;
}
