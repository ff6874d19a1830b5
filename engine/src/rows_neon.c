/* rows_neon.c: row kernels and attention for AArch64, which always has NEON. The code is that of
 * rows_simd.h and
 * attention_simd.h over the operations of simd_neon.h. */
#include "kernels.h"

#if defined(__aarch64__)
#include "mathfn.h"

#include <arm_neon.h>

#include "simd_neon.h"

#include "rows_simd.h"

#include "attention_simd.h"

void gb_rows_neon(gb_kernels *set)
{
    override_rows(set);
    override_attention(set);
}
#endif
