/* mi_neon.h: the vectors of matmul_tile.h in NEON. */
enum { LANES = 4 };
typedef uint8x16_t mi;
typedef float32x4_t mf;

#define MI static inline __attribute__((always_inline))

MI int32x4_t mi_s32(mi a) { return vreinterpretq_s32_u8(a); }
MI mi mi_u8(int32x4_t a) { return vreinterpretq_u8_s32(a); }

MI mi mi_load(const uint8_t *p) { return vld1q_u8(p); }
MI mi mi_zero(void) { return vdupq_n_u8(0); }
MI mi mi_set8(int x) { return vdupq_n_u8((uint8_t)x); }
MI mi mi_and(mi a, mi b) { return vandq_u8(a, b); }
MI mi mi_xor(mi a, mi b) { return veorq_u8(a, b); }
MI mi mi_add(mi a, mi b) { return mi_u8(vaddq_s32(mi_s32(a), mi_s32(b))); }
MI mi mi_merge(mi a, mi b, mi mask) { return vorrq_u8(a, vandq_u8(b, mask)); }
MI mi mi_left(mi a, int n) { return vshlq_u8(a, vdupq_n_s8((int8_t)n)); }
MI mi mi_right(mi a, int n) { return vshlq_u8(a, vdupq_n_s8((int8_t)-n)); }
MI mi mi_left32(mi a, int n) { return mi_u8(vshlq_s32(mi_s32(a), vdupq_n_s32(n))); }
/* offset times *minus in every lane */
MI mi mi_start(const int32_t *minus, int offset) { return mi_u8(vmulq_n_s32(vld1q_dup_s32(minus), offset)); }
/* Byte i of every lane less offset, as int32. */
MI mi mi_byte(mi a, int i, int offset)
{
    uint32x4_t b = vshlq_u32(vreinterpretq_u32_u8(a), vdupq_n_s32(-8 * i));
    b = vandq_u32(b, vdupq_n_u32(255));
    return mi_u8(vsubq_s32(vreinterpretq_s32_u32(b), vdupq_n_s32(offset)));
}

MI mf mi_float(mi a) { return vcvtq_f32_s32(mi_s32(a)); }
MI mf mf_zero(void) { return vdupq_n_f32(0.0f); }
MI mf mf_load(const float *p) { return vld1q_f32(p); }
MI void mf_store(float *p, mf x) { vst1q_f32(p, x); }
MI mf mf_set(const float *p) { return vld1q_dup_f32(p); }
MI mf mf_add(mf a, mf b) { return vaddq_f32(a, b); }
MI mf mf_sub(mf a, mf b) { return vsubq_f32(a, b); }
MI mf mf_mul(mf a, mf b) { return vmulq_f32(a, b); }
MI mf mf_fma(mf a, mf b, mf c) { return vfmaq_f32(c, a, b); }
MI mf mf_nfma(mf a, mf b, mf c) { return vfmsq_f32(c, a, b); } /* c - a b */
MI mf mf_load_f16(const uint8_t *p)
{
    return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p)));
}
MI mf mf_load_bf16(const uint8_t *p)
{
    return vreinterpretq_f32_u32(vshll_n_u16(vreinterpret_u16_u8(vld1_u8(p)), 16));
}
MI mf mf_load_s8(const uint8_t *p)
{
    int32_t four;
    memcpy(&four, p, sizeof four);
    int16x8_t x = vmovl_s8(vreinterpret_s8_s32(vdup_n_s32(four)));
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(x)));
}
/* Four bits of each byte, from bit shift on. */
MI mf mf_load_nibbles(const uint8_t *p, int shift)
{
    uint32_t four;
    memcpy(&four, p, sizeof four);
    uint32x4_t x = vmovl_u16(vget_low_u16(vmovl_u8(vreinterpret_u8_u32(vdup_n_u32(four >> shift & 0x0f0f0f0fu)))));
    return vcvtq_f32_u32(x);
}
