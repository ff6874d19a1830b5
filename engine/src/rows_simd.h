/* rows_simd.h: the row kernels over the vector operations of simd_*.h. Lanes are outputs, or the 16
 * partials of a reduction; the order within each is that of kernels_ref.c. The ends of rows that
 * do not fill a vector go through a padded copy of it. Included once per instruction set. */
#include "mathfn.h"

enum { PARTIALS = 16, PARTIAL_VECTORS = PARTIALS / VF };

/* exp(x) for x <= 0, lane by lane as gb_expf. */
INLINE vf vf_exp(vf x)
{
    vf z = vf_fma(x, vf_set(0x1.715476p+0f), vf_set(GB_ROUND_F32));
    vf n = vf_sub(z, vf_set(GB_ROUND_F32));
    vf r = vf_fma(n, vf_set(-0x1.62e4p-1f), x);
    r = vf_fma(n, vf_set(-0x1.7f7d1cp-20f), r);
    vf p = vf_set(0x1.6a2430p-10f);
    p = vf_fma(p, r, vf_set(0x1.1239e4p-7f));
    p = vf_fma(p, r, vf_set(0x1.5558f2p-5f));
    p = vf_fma(p, r, vf_set(0x1.555492p-3f));
    p = vf_fma(p, r, vf_set(0x1.fffffcp-2f));
    p = vf_fma(p, r, vf_set(1.0f));
    p = vf_fma(p, r, vf_set(1.0f));
    vf y = vi_float(vi_add(vf_bits(p), vi_shift23(vf_bits(z))));
    return vf_select(vf_at_least(x, vf_set(-87.0f)), y, vf_set(0.0f));
}

INLINE vf vf_abs(vf x) { return vi_float(vi_and(vf_bits(x), vi_set(0x7fffffff))); }
INLINE vf vf_minus(vf x) { return vi_float(vi_or(vf_bits(x), vi_set(INT32_MIN))); } /* -|x| */

INLINE vf vf_tanh(vf x)
{
    vf a = vf_abs(x), t = vf_mul(a, a);
    vf p = vf_set(-0x1.830be6p-8f);
    p = vf_fma(p, t, vf_set(0x1.54e014p-6f));
    p = vf_fma(p, t, vf_set(-0x1.b89ed8p-5f));
    p = vf_fma(p, t, vf_set(0x1.1109dcp-3f));
    p = vf_fma(p, t, vf_set(-0x1.55553ep-2f));
    vf small = vf_fma(vf_mul(a, t), p, a);
    vf e = vf_exp(vf_mul(vf_set(-2.0f), a));
    vf large = vf_div(vf_sub(vf_set(1.0f), e), vf_add(vf_set(1.0f), e));
    vf y = vf_select(vf_less(a, vf_set(0.6f)), small, large);
    return vi_float(vi_or(vf_bits(y), vi_and(vf_bits(x), vi_set(INT32_MIN))));
}

INLINE vf vf_gate(vf x, vf z)
{
    vf e = vf_exp(vf_minus(z));
    vf top = vf_select(vf_less(z, vf_set(0.0f)), vf_mul(x, e), x);
    return vf_div(top, vf_add(vf_set(1.0f), e));
}

INLINE vf vf_gelu_tanh(vf x)
{
    vf t = vf_mul(x, x);
    vf u = vf_fma(t, vf_set(0x1.6e4e26p-5f), vf_set(1.0f));
    return vf_gate(x, vf_mul(vf_mul(x, vf_set(0x1.988454p+0f)), u));
}

/* Bits of the largest |x|: below those of infinity where all are finite. */
INLINE vi most_bits(const float *x, int64_t n)
{
    vi most = vi_set(0), magnitude = vi_set(0x7fffffff);
    int64_t i = 0;
    for (; i + VF <= n; i += VF)
        most = vi_max(most, vi_and(vf_bits(vf_load(x + i)), magnitude));
    if (i < n) {
        float end[VF] = {0};
        memcpy(end, x + i, (size_t)(n - i) * sizeof *end);
        most = vi_max(most, vi_and(vf_bits(vf_load(end)), magnitude));
    }
    return most;
}

static int all_finite(const float *x, int64_t n)
{
    return vi_largest(most_bits(x, n)) < (int32_t)GB_NONFINITE_BITS;
}

static int rms_norm(const float *x, const float *w, int64_t n, float eps, float *y)
{
    vf sums[PARTIAL_VECTORS];
    float part[PARTIALS];
    for (int j = 0; j < PARTIAL_VECTORS; j++)
        sums[j] = vf_set(0.0f);
    int64_t i = 0;
    for (; i + PARTIALS <= n; i += PARTIALS)
        for (int j = 0; j < PARTIAL_VECTORS; j++) {
            vf v = vf_load(x + i + j * VF);
            sums[j] = vf_fma(v, v, sums[j]);
        }
    if (i < n) { /* what is left are the first partials */
        for (int j = 0; j < PARTIAL_VECTORS; j++)
            vf_store(part + j * VF, sums[j]);
        for (int j = 0; i + j < n; j++)
            part[j] = gb_fmaf(x[i + j], x[i + j], part[j]);
        for (int j = 0; j < PARTIAL_VECTORS; j++)
            sums[j] = vf_load(part + j * VF);
    }
    float sum = vf_tree(sums);
    if (gb_abs_bits(sum) >= GB_NONFINITE_BITS)
        return 0;
    float r = 1.0f / __builtin_sqrtf(sum / (float)n + eps);
    for (i = 0; i + VF <= n; i += VF)
        vf_store(y + i, vf_mul(vf_mul(vf_load(x + i), vf_set(r)), vf_load(w + i)));
    for (; i < n; i++)
        y[i] = (x[i] * r) * w[i];
    return 1;
}

static void rope(float *x, const float *cs, int64_t pairs, int neox)
{
    int64_t i = 0;
    for (; i + VF <= pairs; i += VF) {
        vf c, s, a, b;
        vf_load_pairs(cs + 2 * i, &c, &s);
        if (neox) {
            a = vf_load(x + i);
            b = vf_load(x + pairs + i);
        } else {
            vf_load_pairs(x + 2 * i, &a, &b);
        }
        vf y0 = vf_fms(a, c, vf_mul(b, s)), y1 = vf_fma(a, s, vf_mul(b, c));
        if (neox) {
            vf_store(x + i, y0);
            vf_store(x + pairs + i, y1);
        } else {
            vf_store_pairs(x + 2 * i, y0, y1);
        }
    }
    int64_t step = neox ? 1 : 2, far = neox ? pairs : 1;
    for (; i < pairs; i++) {
        float c = cs[2 * i], s = cs[2 * i + 1], a = x[i * step], b = x[i * step + far];
        float bs = b * s, bc = b * c;
        x[i * step] = gb_fmaf(a, c, -bs);
        x[i * step + far] = gb_fmaf(a, s, bc);
    }
}

static void gate(float *g, const float *u, int64_t n, int kind)
{
    int64_t i = 0;
    for (; kind == GB_GATE_SILU && i + VF <= n; i += VF) {
        vf x = vf_load(g + i);
        vf_store(g + i, vf_mul(vf_gate(x, x), vf_load(u + i)));
    }
    for (; kind != GB_GATE_SILU && i + VF <= n; i += VF)
        vf_store(g + i, vf_mul(vf_gelu_tanh(vf_load(g + i)), vf_load(u + i)));
    for (; i < n; i++)
        g[i] = (kind == GB_GATE_SILU ? gb_siluf(g[i]) : gb_gelu_tanhf(g[i])) * u[i];
}

static void add(float *x, const float *y, int64_t n)
{
    int64_t i = 0;
    for (; i + VF <= n; i += VF)
        vf_store(x + i, vf_add(vf_load(x + i), vf_load(y + i)));
    for (; i < n; i++)
        x[i] = x[i] + y[i];
}

static void scale(float *x, float by, int64_t n)
{
    int64_t i = 0;
    for (; i + VF <= n; i += VF)
        vf_store(x + i, vf_mul(vf_load(x + i), vf_set(by)));
    for (; i < n; i++)
        x[i] = x[i] * by;
}

/* The largest value, then where it first stands: two quick passes. */
static int64_t argmax(const float *x, int64_t n)
{
    vf most[4];
    int64_t i = 0;
    for (int j = 0; j < 4; j++)
        most[j] = vf_set(x[0]);
    for (; i + 4 * VF <= n; i += 4 * VF)
        for (int j = 0; j < 4; j++)
            most[j] = vf_max(vf_load(x + i + j * VF), most[j]);
    float best = vf_largest(vf_max(vf_max(most[0], most[1]), vf_max(most[2], most[3])));
    for (; i < n; i++)
        best = x[i] > best ? x[i] : best;
    vf same = vf_set(best);
    for (i = 0; i + VF <= n && !vf_any(vf_at_least(vf_load(x + i), same)); i += VF)
        continue;
    while (x[i] < best)
        i++;
    return i;
}

static void exps(const float *x, int64_t n, float most, float by, float *e)
{
    int64_t i = 0;
    for (; i + VF <= n; i += VF)
        vf_store(e + i, vf_exp(vf_div(vf_sub(vf_load(x + i), vf_set(most)), vf_set(by))));
    for (; i < n; i++)
        e[i] = gb_expf((x[i] - most) / by);
}

static int softcap(float *x, float cap, int64_t n)
{
    if (!all_finite(x, n))
        return 0;
    int64_t i = 0;
    for (; i + VF <= n; i += VF)
        vf_store(x + i, vf_mul(vf_set(cap), vf_tanh(vf_div(vf_load(x + i), vf_set(cap)))));
    for (; i < n; i++)
        x[i] = cap * gb_tanhf(x[i] / cap);
    return 1;
}

static void override_rows(gb_kernels *set)
{
    set->rms_norm = rms_norm;
    set->rope = rope;
    set->gate = gate;
    set->add = add;
    set->scale = scale;
    set->softcap = softcap;
    set->all_finite = all_finite;
    set->argmax = argmax;
    set->exps = exps;
}
