/* mathfn.c: elementary functions in double: exp, log, pow, sine and cosine.
 *
 * Argument reduction with fma, then Taylor polynomials whose coefficients are the correctly
 * rounded quotients: a second implementation needs the formulas of docs/numerics.md only.
 * Domains are the callers' duty (mathfn.h). Nothing is allocated. */
#include "mathfn.h"

#define ROUND_F64 0x1.8p52 /* adding and subtracting it rounds |x| < 2^51 to the nearest even integer */

/* c[0] + c[1] x + … + c[n-1] x^(n-1), by Horner with fma. */
static double horner(const double *c, int n, double x)
{
    double p = c[n - 1];
    for (int i = n - 2; i >= 0; i--)
        p = __builtin_fma(p, x, c[i]);
    return p;
}

static uint64_t bits64(double x)
{
    uint64_t u;
    memcpy(&u, &x, 8);
    return u;
}

static double from_bits64(uint64_t u)
{
    double x;
    memcpy(&x, &u, 8);
    return x;
}

double gb_exp(double x)
{
    static const double inverse_factorial[14] = {
        1.0, 1.0, 0x1p-1, 0x1.5555555555555p-3, 0x1.5555555555555p-5, 0x1.1111111111111p-7,
        0x1.6c16c16c16c17p-10, 0x1.a01a01a01a01ap-13, 0x1.a01a01a01a01ap-16, 0x1.71de3a556c734p-19,
        0x1.27e4fb7789f5cp-22, 0x1.ae64567f544e4p-26, 0x1.1eed8eff8d898p-29, 0x1.6124613a86d09p-33,
    };
    double z = __builtin_fma(x, 0x1.71547652b82fep+0, ROUND_F64);
    double n = z - ROUND_F64;
    double r = __builtin_fma(n, -0x1.62e42fefa39efp-1, x);
    r = __builtin_fma(n, -0x1.abc9e3b39803fp-56, r);
    return from_bits64(bits64(horner(inverse_factorial, 14, r)) + (bits64(z) << 52));
}

double gb_log(double x)
{
    static const double two_over_odd[11] = { /* 2/1, 2/3, … 2/21 */
        2.0, 0x1.5555555555555p-1, 0x1.999999999999ap-2, 0x1.2492492492492p-2, 0x1.c71c71c71c71cp-3,
        0x1.745d1745d1746p-3, 0x1.3b13b13b13b14p-3, 0x1.1111111111111p-3, 0x1.e1e1e1e1e1e1ep-4,
        0x1.af286bca1af28p-4, 0x1.8618618618618p-4,
    };
    uint64_t u = bits64(x);
    int64_t e = (int64_t)(u >> 52) - 1023;
    double m = from_bits64((u & 0x000fffffffffffffu) | 0x3ff0000000000000u); /* 1 <= m < 2 */
    if (m > 0x1.6a09e667f3bcdp+0) {
        m = m * 0.5;
        e = e + 1;
    }
    double f = (m - 1.0) / (m + 1.0);
    double p = f * horner(two_over_odd, 11, f * f);
    p = __builtin_fma((double)e, 0x1.abc9e3b39803fp-56, p);
    return __builtin_fma((double)e, 0x1.62e42fefa39efp-1, p);
}

double gb_pow(double base, double y)
{
    return gb_exp(y * gb_log(base));
}

void gb_sincos(double x, double *sine, double *cosine)
{
    static const double sine_taylor[9] = { /* (-1)^k / (2k+1)! */
        1.0, -0x1.5555555555555p-3, 0x1.1111111111111p-7, -0x1.a01a01a01a01ap-13, 0x1.71de3a556c734p-19,
        -0x1.ae64567f544e4p-26, 0x1.6124613a86d09p-33, -0x1.ae7f3e733b81fp-41, 0x1.952c77030ad4ap-49,
    };
    static const double cosine_taylor[9] = { /* (-1)^k / (2k)! */
        1.0, -0x1p-1, 0x1.5555555555555p-5, -0x1.6c16c16c16c17p-10, 0x1.a01a01a01a01ap-16,
        -0x1.27e4fb7789f5cp-22, 0x1.1eed8eff8d898p-29, -0x1.93974a8c07c9dp-37, 0x1.ae7f3e733b81fp-45,
    };
    double z = __builtin_fma(x, 0x1.45f306dc9c883p-1, ROUND_F64);
    double n = z - ROUND_F64; /* quarter turns */
    double r = __builtin_fma(n, -0x1.921fb54442d18p+0, x);
    r = __builtin_fma(n, -0x1.1a62633145c07p-54, r);
    r = __builtin_fma(n, 0x1.f1976b7ed8fbcp-110, r);
    double t = r * r;
    double s = r * horner(sine_taylor, 9, t);
    double c = horner(cosine_taylor, 9, t);
    switch (bits64(z) & 3) {
    case 0: *sine = s, *cosine = c; break;
    case 1: *sine = c, *cosine = -s; break;
    case 2: *sine = -s, *cosine = -c; break;
    default: *sine = -c, *cosine = s; break;
    }
}
