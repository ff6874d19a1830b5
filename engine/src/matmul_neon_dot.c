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

MI mi mi_broadcast(const int32_t *q) { return vreinterpretq_u8_s32(vld1q_dup_s32(q)); }
MI mi mi_dp(mi acc, mi w, mi x)
{
    return mi_u8(vdotq_s32(mi_s32(acc), vreinterpretq_s8_u8(w), vreinterpretq_s8_u8(x)));
}

#include "matmul_tile.h"

#else
typedef int gb_matmul_neon_dot_is_for_aarch64; /* ISO C wants a declaration */
#endif
