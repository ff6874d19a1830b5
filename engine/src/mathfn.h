/* mathfn.h: our own elementary functions, so that no library decides a bit.
 *
 * Each is one fixed sequence of IEEE operations with the constants of docs/numerics.md. The
 * f32 functions are inline because kernels vectorise over them; those in double serve tables
 * and log-probabilities. Only fma and sqrt come from outside: both are correctly rounded.
 * Call them under gb_fpenv_enter(). */
#ifndef GB_MATHFN_H
#define GB_MATHFN_H
#include "fpenv.h"

#include <string.h>

static inline float gb_fmaf(float a, float b, float c)
{
    return __builtin_fmaf(a, b, c);
}

static inline uint32_t gb_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}

static inline float gb_from_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, 4);
    return f;
}

/* The bits of |x| as an integer: ordered like |x|, and at or above this where not finite. */
#define GB_NONFINITE_BITS 0x7f800000u

static inline uint32_t gb_abs_bits(float f)
{
    return gb_bits(f) & 0x7fffffffu;
}

/* 1.5 * 2^23: adding and subtracting it rounds |x| < 2^22 to the nearest even integer. */
#define GB_ROUND_F32 12582912.0f

/* exp(x) for x <= 0. Below -87 it is 0. A NaN gives no meaningful result: check before. */
static inline float gb_expf(float x)
{
    float z = gb_fmaf(x, 0x1.715476p+0f, GB_ROUND_F32); /* n in its low bits */
    float n = z - GB_ROUND_F32;
    float r = gb_fmaf(n, -0x1.62e4p-1f, x); /* x - n ln 2, in two parts */
    r = gb_fmaf(n, -0x1.7f7d1cp-20f, r);
    float p = 0x1.6a2430p-10f;
    p = gb_fmaf(p, r, 0x1.1239e4p-7f);
    p = gb_fmaf(p, r, 0x1.5558f2p-5f);
    p = gb_fmaf(p, r, 0x1.555492p-3f);
    p = gb_fmaf(p, r, 0x1.fffffcp-2f);
    p = gb_fmaf(p, r, 1.0f);
    p = gb_fmaf(p, r, 1.0f);
    float y = gb_from_bits(gb_bits(p) + (gb_bits(z) << 23)); /* p * 2^n, never subnormal */
    return x >= -87.0f ? y : 0.0f;
}

/* tanh(x) for finite x. */
static inline float gb_tanhf(float x)
{
    float a = gb_from_bits(gb_abs_bits(x));
    float t = a * a;
    float p = -0x1.830be6p-8f;
    p = gb_fmaf(p, t, 0x1.54e014p-6f);
    p = gb_fmaf(p, t, -0x1.b89ed8p-5f);
    p = gb_fmaf(p, t, 0x1.1109dcp-3f);
    p = gb_fmaf(p, t, -0x1.55553ep-2f);
    float small = gb_fmaf(a * t, p, a);
    float e = gb_expf(-2.0f * a);
    float large = (1.0f - e) / (1.0f + e);
    float y = a < 0.6f ? small : large;
    return gb_from_bits(gb_bits(y) | (gb_bits(x) & 0x80000000u));
}

/* x / (1 + exp(-z)), the gate of SiLU (z = x) and of GELU. Not finite where x is not. */
static inline float gb_gatef(float x, float z)
{
    float e = gb_expf(-gb_from_bits(gb_abs_bits(z)));
    float top = z < 0.0f ? x * e : x;
    return top / (1.0f + e);
}

static inline float gb_siluf(float x)
{
    return gb_gatef(x, x);
}

/* GELU in its tanh form: x (1 + tanh(u)) / 2 = x / (1 + exp(-2u)),
 * 2u = 2 sqrt(2/pi) (x + 0.044715 x^3). */
static inline float gb_gelu_tanhf(float x)
{
    float t = x * x;
    float u = gb_fmaf(t, 0x1.6e4e26p-5f, 1.0f);
    return gb_gatef(x, (x * 0x1.988454p+0f) * u);
}

/* exp(x) for |x| <= 700; log(x) for finite normal x > 0; base^y for such base, |y log base| <= 700.
 * Relative error near 1e-15. */
double gb_exp(double x);
double gb_log(double x);
double gb_pow(double base, double y);
/* Sine and cosine for |x| <= 2^30, absolute error near 1e-16. */
void gb_sincos(double x, double *sine, double *cosine);

#endif
