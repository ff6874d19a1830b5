/* simd_neon.h: the vector operations of simd_avx512.h for AArch64. */
#ifndef GB_SIMD_NEON_H
#define GB_SIMD_NEON_H

enum { VF = 4, VEC_REGISTERS = 32 };
typedef float32x4_t vf;
typedef int32x4_t vi;
typedef uint32x4_t vm;

#define INLINE static inline __attribute__((always_inline))

INLINE vf vf_load(const float *p) { return vld1q_f32(p); }
INLINE void vf_store(float *p, vf x) { vst1q_f32(p, x); }
INLINE vf vf_set(float x) { return vdupq_n_f32(x); }
INLINE vf vf_add(vf a, vf b) { return vaddq_f32(a, b); }
INLINE vf vf_sub(vf a, vf b) { return vsubq_f32(a, b); }
INLINE vf vf_mul(vf a, vf b) { return vmulq_f32(a, b); }
INLINE vf vf_div(vf a, vf b) { return vdivq_f32(a, b); }
INLINE vf vf_fma(vf a, vf b, vf c) { return vfmaq_f32(c, a, b); }
INLINE vf vf_fms(vf a, vf b, vf c) { return vfmaq_f32(vnegq_f32(c), a, b); } /* a b - c */
INLINE vf vf_max(vf a, vf b) { return vmaxq_f32(a, b); }
INLINE vm vf_less(vf a, vf b) { return vcltq_f32(a, b); }
INLINE vm vf_at_least(vf a, vf b) { return vcgeq_f32(a, b); }
INLINE int vf_any(vm m) { return vmaxvq_u32(m) != 0; }
INLINE vf vf_select(vm m, vf yes, vf no) { return vbslq_f32(m, yes, no); }

INLINE vi vf_bits(vf x) { return vreinterpretq_s32_f32(x); }
INLINE vf vi_float(vi x) { return vreinterpretq_f32_s32(x); } /* the same bits */
INLINE vi vi_set(int32_t x) { return vdupq_n_s32(x); }
INLINE vi vi_and(vi a, vi b) { return vandq_s32(a, b); }
INLINE vi vi_or(vi a, vi b) { return vorrq_s32(a, b); }
INLINE vi vi_add(vi a, vi b) { return vaddq_s32(a, b); }
INLINE vi vi_max(vi a, vi b) { return vmaxq_s32(a, b); } /* signed */
INLINE vi vi_shift23(vi a) { return vshlq_n_s32(a, 23); }
INLINE vf vi_convert(vi a) { return vcvtq_f32_s32(a); }
INLINE void vi_store(int32_t *p, vi x) { vst1q_s32(p, x); }

/* The sum of 16 partials by halves: 8, 4, 2, 1. */
INLINE float vf_tree(const vf *part)
{
    float32x4_t p4 = vaddq_f32(vaddq_f32(part[0], part[2]), vaddq_f32(part[1], part[3]));
    float32x2_t p2 = vadd_f32(vget_low_f32(p4), vget_high_f32(p4));
    return vget_lane_f32(p2, 0) + vget_lane_f32(p2, 1);
}

/* The largest lane, of values that are no NaN and of integers. */
INLINE float vf_largest(vf x) { return vmaxvq_f32(x); }
INLINE int32_t vi_largest(vi x) { return vmaxvq_s32(x); }

INLINE vf vf_load_f16(const uint16_t *p) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }
INLINE void vf_store_f16(uint16_t *p, vf x)
{
    vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(x)));
}

INLINE vf vf_load_s8(const int8_t *p)
{
    int32_t four;
    memcpy(&four, p, 4);
    int16x8_t wide = vmovl_s8(vreinterpret_s8_s32(vdup_n_s32(four)));
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(wide)));
}

/* Pairs (cosine, sine) of VF angles apart, and together again. */
INLINE void vf_load_pairs(const float *p, vf *even, vf *odd)
{
    float32x4x2_t pair = vld2q_f32(p);
    *even = pair.val[0];
    *odd = pair.val[1];
}

INLINE void vf_store_pairs(float *p, vf even, vf odd)
{
    float32x4x2_t pair = {{even, odd}};
    vst2q_f32(p, pair);
}

/* Four int8 products per lane: lane i of acc gains k[4i..4i+3] . q[0..3]. */
INLINE vi dot_start(int32_t sum_of_q) { return (void)sum_of_q, vdupq_n_s32(0); }
INLINE vi dot_keys(const int8_t *k) { return vreinterpretq_s32_s8(vld1q_s8(k)); }
INLINE vi dot4(vi acc, vi k, int32_t q)
{
    int8x16_t codes = vreinterpretq_s8_s32(k);
    int8x8_t q4 = vreinterpret_s8_s32(vdup_n_s32(q));
    int32x4_t low = vpaddlq_s16(vmull_s8(vget_low_s8(codes), q4));
    int32x4_t high = vpaddlq_s16(vmull_s8(vget_high_s8(codes), q4));
    return vaddq_s32(acc, vpaddq_s32(low, high));
}

#endif
