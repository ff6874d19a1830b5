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

MI void mi_dot(mi acc[], const mi w[4], const int32_t *q, int nt, int bits)
{
    (void)bits;
    GB_UNROLL for (int v = 0; v < 4; v++) {
        int8x16_t c = vreinterpretq_s8_u8(w[v]);
        GB_UNROLL for (int t = 0; t < nt; t++) {
            int8x16_t x = vreinterpretq_s8_s32(vld1q_dup_s32(q + v * nt + t));
            int16x8_t low = vmull_s8(vget_low_s8(c), vget_low_s8(x)), high = vmull_high_s8(c, x);
            acc[t] = mi_u8(vpadalq_s16(mi_s32(acc[t]), vpaddq_s16(low, high)));
        }
    }
}

#include "matmul_tile.h"

#else
typedef int gb_matmul_neon_is_for_aarch64; /* ISO C wants a declaration */
#endif
