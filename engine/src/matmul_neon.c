/* matmul_neon.c: matmul_tile.h in NEON as every AArch64 processor has it. Products of bytes are exact
 * in int16, and so is the sum of two, as |q| <= 127. */
#include "panels.h"
#if defined(__aarch64__)
#include <arm_neon.h>
#include <stdint.h>
#include <string.h>

#include "mi_neon.h"

#define SIGNED_CODES 1
#define INT_GROUP 8
#define WIDE_GROUP 4
#define TABLE gb_matmul_neon

MI mi mi_broadcast(const int32_t *q) { return vreinterpretq_u8_s32(vld1q_dup_s32(q)); }
MI mi mi_dp(mi acc, mi w, mi x)
{
    int8x16_t c = vreinterpretq_s8_u8(w), q = vreinterpretq_s8_u8(x);
    int16x8_t low = vmull_s8(vget_low_s8(c), vget_low_s8(q)), high = vmull_high_s8(c, q);
    return mi_u8(vpadalq_s16(mi_s32(acc), vpaddq_s16(low, high)));
}

#include "matmul_tile.h"

#else
typedef int gb_matmul_neon_is_for_aarch64; /* ISO C wants a declaration */
#endif
