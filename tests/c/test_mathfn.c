/* test_mathfn.c: our elementary functions against the C library's in a wider type: an oracle
 * that shares no code with them. Bounds are those that docs/numerics.md states. */
#include "check.h"
#include "mathfn.h"

#include <math.h>

/* Relative error, in units of 2^-24. */
static double ulps(float found, double exact)
{
    return exact == 0.0 ? fabs((double)found) : fabs((double)found / exact - 1.0) * 0x1p24;
}

static double relative(double found, long double exact)
{
    return (double)fabsl((found - exact) / exact);
}

static void exponential(void)
{
    double worst = 0.0;
    for (float x = 0.0f; x >= -87.0f; x -= 0.000244140625f * 3.0f) {
        double u = ulps(gb_expf(x), exp((double)x));
        worst = u > worst ? u : worst;
    }
    CHECK(worst < 1.25);
    CHECK(gb_expf(0.0f) == 1.0f && gb_expf(-0.0f) == 1.0f);
    CHECK(gb_expf(-87.0f) > 0.0f && gb_expf(nextafterf(-87.0f, -88.0f)) == 0.0f);
    CHECK(gb_expf(-INFINITY) == 0.0f);
}

static void hyperbolic_tangent(void)
{
    double worst = 0.0;
    for (float x = 1e-6f; x < 12.0f; x += 0.0001f) {
        double u = ulps(gb_tanhf(x), tanh((double)x));
        worst = u > worst ? u : worst;
        CHECK(gb_tanhf(-x) == -gb_tanhf(x));
    }
    CHECK(worst < 4.0);
    CHECK(gb_tanhf(0.0f) == 0.0f && signbit(gb_tanhf(-0.0f)) && gb_tanhf(1e30f) == 1.0f);
}

static void gates(void)
{
    double silu = 0.0, gelu = 0.0;
    for (float x = -40.0f; x < 40.0f; x += 0.001f) {
        double v = 2.0 * sqrt(2.0 / 3.14159265358979323846) * (x + 0.044715 * pow(x, 3));
        double u = ulps(gb_siluf(x), x / (1.0 + exp(-(double)x)));
        silu = u > silu ? u : silu;
        if (x > -5.0f) /* beyond, gelu is below 1e-6 and its own conditioning dominates */
            u = ulps(gb_gelu_tanhf(x), x / (1.0 + exp(-v)));
        gelu = u > gelu ? u : gelu;
    }
    CHECK(silu < 4.0);
    CHECK(gelu < 60.0);
    CHECK(isnan(gb_siluf(NAN)) && !isfinite(gb_siluf(INFINITY)) && !isfinite(gb_siluf(-INFINITY)));
    CHECK(isnan(gb_gelu_tanhf(NAN)) && !isfinite(gb_gelu_tanhf(INFINITY)) && !isfinite(gb_gelu_tanhf(-INFINITY)));
}

static void doubles(void)
{
    for (int i = 1; i < 20000; i++) {
        double x = (i - 10000) * 0.0625, y = i * 0.37 * (i % 3 == 0 ? 1e-9 : 1.0), s, c;
        CHECK(relative(gb_exp(x), expl(x)) < 4e-16);
        if (fabs(y - 1.0) > 0.01)
            CHECK(relative(gb_log(y), logl(y)) < 4e-16);
        CHECK(relative(gb_pow(500000.0, -i / 20000.0), powl(500000.0L, (long double)(-i / 20000.0))) < 4e-15);
        double angle = i * i * 0.731 * (i % 2 == 0 ? 1.0 : 1e-6);
        gb_sincos(angle, &s, &c);
        CHECK(fabsl(s - sinl(angle)) < 3e-16 && fabsl(c - cosl(angle)) < 3e-16);
    }
    CHECK(gb_exp(0.0) == 1.0 && gb_log(1.0) == 0.0);
}

int main(void)
{
    static const test tests[] = {
        {"exp, f32", exponential},
        {"tanh, f32", hyperbolic_tangent},
        {"silu and gelu, f32", gates},
        {"exp, log, pow, sin and cos, f64", doubles},
    };
    return run_tests(tests, sizeof tests / sizeof *tests);
}
