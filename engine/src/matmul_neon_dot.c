/* matmul_neon_dot.c: matmul_tile.h in NEON with the dot product instructions of ARMv8.2. */
#include "panels.h"
#if defined(GB_HAVE_NEON_DOT)
#include <arm_neon.h>
#include <stdint.h>
#include <string.h>

#if !defined(__ARM_FEATURE_DOTPROD)
#pragma GCC target("arch=armv8.2-a+dotprod")
#endif

#include "mi_neon.h"

#define SIGNED_CODES 1
#define INT_GROUP 8
#define WIDE_GROUP 4
#define TABLE gb_matmul_neon_dot

MI void mi_dot(mi acc[], const mi w[4], const int32_t *q, int nt, int bits)
{
    (void)bits;
    GB_UNROLL for (int v = 0; v < 4; v++)
        GB_UNROLL for (int t = 0; t < nt; t++)
            acc[t] = mi_u8(vdotq_s32(mi_s32(acc[t]), vreinterpretq_s8_u8(w[v]),
                                     vreinterpretq_s8_s32(vld1q_dup_s32(q + v * nt + t))));
}

#include "matmul_tile.h"

#else
typedef int gb_matmul_neon_dot_is_for_aarch64; /* ISO C wants a declaration */
#endif
