/* attention_simd.h: attention of several queries against one chunk, over the operations of
 * simd_*.h. Lanes are positions for the scores and channels for the weighted sum; every lane's
 * order is that of kernels_ref.c. A tile keeps queries x vectors of sums in registers, so that keys and
 * values, f16 in memory, are read and widened once for up to six queries. Expects rows_simd.h. */

enum {
    GROUP = 6,      /* queries of a tile at most */
    WIDE_GROUP = 3, /* up to here a tile is twice as wide */
    WIDE = VEC_REGISTERS / 4,
    NARROW = VEC_REGISTERS / 8,
    CACHE_LINE = 64,
};

#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 8")
#endif

/* A group of queries, and where their scores go. */
typedef struct group {
    const gb_kv_chunk *kv;
    const gb_query *q;
    int n;
    int64_t low, high;      /* positions that any of them sees */
    float (*s)[GB_CHUNK];   /* [n]: scores, then weights */
    const char *ahead_k, *ahead_v; /* what to fetch while reading keys and values, or NULL */
} group;

INLINE int64_t item_bytes(int type)
{
    return type == ENGINE_KV_F32 ? 4 : type == ENGINE_KV_F16 ? 2 : 1;
}

INLINE vf load_items(const void *plane, int64_t first, int type)
{
    if (type == ENGINE_KV_F32)
        return vf_load((const float *)plane + first);
    return type == ENGINE_KV_F16 ? vf_load_f16((const uint16_t *)plane + first) : vf_load_s8((const int8_t *)plane + first);
}

/* Fetch as many bytes as a step of a tile reads, out of what will be read a plane later. */
INLINE void fetch(const char *ahead, int64_t step, int64_t bytes)
{
    if (ahead == NULL)
        return;
    const char *at = ahead + step * bytes;
    UNROLL for (int64_t i = 0; i < bytes; i += CACHE_LINE)
        __builtin_prefetch(at + i, 0, 3);
}

/* ---- Scores -------------------------------------------------------------------------------- */

/* nt vectors of positions from p0 on, for nq queries. */
INLINE void score_tile(const group *g, int a0, int nq, int nt, int64_t p0, int type)
{
    const void *keys = g->kv->k;
    const float *q[GROUP];
    vf sum[GROUP][WIDE];
    UNROLL for (int a = 0; a < nq; a++) {
        q[a] = g->q[a0 + a].q;
        UNROLL for (int t = 0; t < nt; t++)
            sum[a][t] = vf_set(0.0f);
    }
    int64_t step = p0 / (nt * VF) * g->kv->key_dim;
    for (int64_t i = 0; i < g->kv->key_dim; i++) {
        vf k[WIDE];
        fetch(g->ahead_k, step + i, nt * VF * item_bytes(type));
        UNROLL for (int t = 0; t < nt; t++)
            k[t] = load_items(keys, i * GB_CHUNK + p0 + t * VF, type);
        UNROLL for (int a = 0; a < nq; a++) {
            vf factor = vf_set(q[a][i]);
            UNROLL for (int t = 0; t < nt; t++)
                sum[a][t] = vf_fma(factor, k[t], sum[a][t]);
        }
    }
    UNROLL for (int a = 0; a < nq; a++)
        UNROLL for (int t = 0; t < nt; t++)
            vf_store(&g->s[a0 + a][p0 + t * VF], sum[a][t]);
}

INLINE int32_t four_codes(const int8_t *p)
{
    int32_t four;
    memcpy(&four, p, 4);
    return four;
}

/* The same with integer dot products, one block of 32 after the other. */
INLINE void score_tile_q8(const group *g, int a0, int nq, int nt, int64_t p0)
{
    const int8_t *keys = g->kv->k;
    for (int64_t b = 0; b < g->kv->key_dim / GB_BLOCK; b++) {
        vi sum[GROUP][WIDE];
        UNROLL for (int a = 0; a < nq; a++) {
            int32_t total = 0;
            for (int i = 0; i < GB_BLOCK; i++)
                total += g->q[a0 + a].codes[b * GB_BLOCK + i];
            UNROLL for (int t = 0; t < nt; t++)
                sum[a][t] = dot_start(total);
        }
        for (int64_t i = b * GB_BLOCK; i < (b + 1) * GB_BLOCK; i += 4) {
            vi k[WIDE];
            fetch(g->ahead_k, (p0 / (nt * VF) * g->kv->key_dim + i) / 4, nt * VF * 4);
            UNROLL for (int t = 0; t < nt; t++)
                k[t] = dot_keys(keys + i * GB_CHUNK + (p0 + t * VF) * 4);
            UNROLL for (int a = 0; a < nq; a++) {
                int32_t four = four_codes(g->q[a0 + a].codes + i);
                UNROLL for (int t = 0; t < nt; t++)
                    sum[a][t] = dot4(sum[a][t], k[t], four);
            }
        }
        UNROLL for (int a = 0; a < nq; a++)
            UNROLL for (int t = 0; t < nt; t++) {
                float *s = &g->s[a0 + a][p0 + t * VF];
                vf d = vf_mul(vf_set(g->q[a0 + a].q[b]), vf_load(g->kv->k_scales + b * GB_CHUNK + p0 + t * VF));
                vf_store(s, vf_fma(d, vi_convert(sum[a][t]), b == 0 ? vf_set(0.0f) : vf_load(s)));
            }
    }
}

INLINE void score_some(const group *g, int a0, int nq, int nt, int64_t p0, int type)
{
    if (type == ENGINE_KV_Q8)
        score_tile_q8(g, a0, nq, nt, p0);
    else
        score_tile(g, a0, nq, nt, p0, type);
}

/* A tile's keys of all its positions are read, so the last one is as narrow as what is seen of it. */
INLINE void score_group(const group *g, int a0, int nq, int type)
{
    int nt = nq <= WIDE_GROUP ? WIDE : NARROW;
    int64_t width = nt * VF, p = g->low / width * width;
    for (; p + width <= g->high; p += width)
        score_some(g, a0, nq, nt, p, type);
    if (p >= g->high)
        return;
    if (nt >= 4 && g->high - p <= (int64_t)nt / 4 * VF)
        score_some(g, a0, nq, nt >= 4 ? nt / 4 : 1, p, type);
    else if (g->high - p <= (int64_t)nt / 2 * VF)
        score_some(g, a0, nq, nt / 2, p, type);
    else
        score_some(g, a0, nq, nt, p, type);
}

/* ---- Weights ------------------------------------------------------------------------------- */

/* Positions of the 16-groups at both ends that are not seen. */
INLINE void fill_unseen(float *s, const gb_query *q, int64_t begin, int64_t end, float value)
{
    for (int64_t p = begin; p < q->first; p++)
        s[p] = value;
    for (int64_t p = q->last; p < end; p++)
        s[p] = value;
}

/* Scale and cap scores begin … end-1; 0 where one is not finite. */
INLINE int finish_scores(const gb_kv_chunk *kv, float *s, int64_t begin, int64_t end)
{
    vf by = vf_set(kv->scale), cap = vf_set(kv->cap);
    vi most = vi_set(0), magnitude = vi_set(0x7fffffff);
    for (int64_t p = begin; p < end; p += VF) {
        vf x = vf_mul(vf_load(s + p), by);
        most = vi_max(most, vi_and(vf_bits(x), magnitude));
        if (kv->cap != 0.0f)
            x = vf_mul(cap, vf_tanh(vf_div(x, cap)));
        vf_store(s + p, x);
    }
    return vi_largest(most) < (int32_t)GB_NONFINITE_BITS;
}

/* Scores to weights exp(s - m); m and l to q->out. 0 where a score is not finite. */
INLINE int soften(const gb_kv_chunk *kv, const gb_query *q, float *s)
{
    int64_t begin = q->first / PARTIALS * PARTIALS, end = (q->last + PARTIALS - 1) / PARTIALS * PARTIALS;
    vf most = vf_set(-__builtin_inff()), sums[PARTIAL_VECTORS];
    fill_unseen(s, q, begin, end, 0.0f);
    if (!finish_scores(kv, s, begin, end))
        return 0;
    fill_unseen(s, q, begin, end, -__builtin_inff());
    for (int64_t p = begin; p < end; p += VF)
        most = vf_max(vf_load(s + p), most);
    float m = vf_largest(most) + 0.0f; /* of two zeros, +0 */
    for (int j = 0; j < PARTIAL_VECTORS; j++)
        sums[j] = vf_set(0.0f);
    for (int64_t p = begin; p < end; p += PARTIALS)
        for (int j = 0; j < PARTIAL_VECTORS; j++) {
            vf e = vf_exp(vf_sub(vf_load(s + p + j * VF), vf_set(m)));
            vf_store(s + p + j * VF, e);
            sums[j] = vf_add(sums[j], e);
        }
    q->out[0] = m;
    q->out[1] = vf_tree(sums);
    return 1;
}

/* ---- Weighted sums --------------------------------------------------------------------------- */

/* The weights of a query for the channels of one block: of q8, times the block's scales. */
INLINE void block_weights(const group *g, int a, int64_t block, float *e)
{
    const float *d = g->kv->v_scales + block * GB_CHUNK;
    for (int64_t p = 0; p < GB_CHUNK; p += VF)
        vf_store(e + p, vf_mul(vf_load(g->s[a] + p), vf_load(d + p)));
}

/* Channels i0 … i0 + nt VF - 1 of nq queries gain positions from … to-1. */
INLINE void weigh_tile(const group *g, int a0, int nq, int nt, int64_t i0, int64_t from, int64_t to, int type)
{
    const int64_t dim = g->kv->value_dim, step = i0 / (nt * VF) * GB_CHUNK;
    const void *values = g->kv->v;
    const float *e[GROUP][WIDE]; /* per vector, because q8 blocks differ */
    float scaled[GROUP][WIDE * VF / GB_BLOCK + 1][GB_CHUNK];
    vf sum[GROUP][WIDE];
    UNROLL for (int a = 0; a < nq; a++) {
        if (type == ENGINE_KV_Q8)
            UNROLL for (int b = 0; b * GB_BLOCK < nt * VF; b++)
                block_weights(g, a0 + a, i0 / GB_BLOCK + b, scaled[a][b]);
        UNROLL for (int t = 0; t < nt; t++) {
            e[a][t] = type == ENGINE_KV_Q8 ? scaled[a][t * VF / GB_BLOCK] : g->s[a0 + a];
            sum[a][t] = vf_load(g->q[a0 + a].out + 2 + i0 + t * VF);
        }
    }
    for (int64_t p = from; p < to; p++) {
        vf v[WIDE];
        fetch(g->ahead_v, step + p, nt * VF * item_bytes(type));
        UNROLL for (int t = 0; t < nt; t++)
            v[t] = load_items(values, p * dim + i0 + t * VF, type);
        UNROLL for (int a = 0; a < nq; a++)
            UNROLL for (int t = 0; t < nt; t++)
                sum[a][t] = vf_fma(vf_set(e[a][t][p]), v[t], sum[a][t]);
    }
    UNROLL for (int a = 0; a < nq; a++)
        UNROLL for (int t = 0; t < nt; t++)
            vf_store(g->q[a0 + a].out + 2 + i0 + t * VF, sum[a][t]);
}

/* What is left of a head whose length is no multiple of a vector; never q8. */
static void weigh_rest(const group *g, int a0, int nq, int64_t i0, int64_t from, int64_t to, int type)
{
    for (int64_t p = from; p < to; p++) {
        float row[VF] = {0};
        for (int64_t i = i0; i < g->kv->value_dim; i++) {
            int64_t at = p * g->kv->value_dim + i;
            row[i - i0] = type == ENGINE_KV_F32 ? ((const float *)g->kv->v)[at]
                                                : gb_f16_to_f32(((const uint16_t *)g->kv->v)[at]);
        }
        for (int a = a0; a < a0 + nq; a++)
            for (int64_t i = i0; i < g->kv->value_dim; i++)
                g->q[a].out[2 + i] = gb_fmaf(g->s[a][p], row[i - i0], g->q[a].out[2 + i]);
    }
}

INLINE void weigh_group(const group *g, int a0, int nq, int64_t from, int64_t to, int type)
{
    int nt = nq <= WIDE_GROUP && VF * WIDE <= 64 ? WIDE : NARROW;
    int64_t dim = g->kv->value_dim, i = 0;
    for (; i + nt * VF <= dim; i += nt * VF)
        weigh_tile(g, a0, nq, nt, i, from, to, type);
    for (; i + VF <= dim; i += VF)
        weigh_tile(g, a0, nq, 1, i, from, to, type);
    if (i < dim)
        weigh_rest(g, a0, nq, i, from, to, type);
}

/* ---- Groups ------------------------------------------------------------------------------------ */

typedef void tile_fn(const group *g, int a0, int64_t from, int64_t to);

/* Functions of a number of queries, each compiled for it. */
#define TILES_OF(n, type)                                                                                              \
    static void score_##n##_##type(const group *g, int a0, int64_t from, int64_t to)                                   \
    {                                                                                                                  \
        (void)from, (void)to;                                                                                          \
        score_group(g, a0, n, ENGINE_KV_##type);                                                                       \
    }                                                                                                                  \
    static void weigh_##n##_##type(const group *g, int a0, int64_t from, int64_t to)                                   \
    {                                                                                                                  \
        weigh_group(g, a0, n, from, to, ENGINE_KV_##type);                                                             \
    }
#define TILES(type) TILES_OF(1, type) TILES_OF(2, type) TILES_OF(3, type) TILES_OF(4, type) TILES_OF(6, type)
/* By number of queries; five are taken as four and one. */
#define TABLE(part, type)                                                                                              \
    {NULL, part##_1_##type, part##_2_##type, part##_3_##type, part##_4_##type, NULL, part##_6_##type}

/* Each query sees positions of its own before and after those that all of the group see. */
INLINE void weigh_all(const group *g, tile_fn *const *weigh)
{
    int64_t from = 0, to = GB_CHUNK;
    for (int a = 0; a < g->n; a++) {
        from = g->q[a].first > from ? g->q[a].first : from;
        to = g->q[a].last < to ? g->q[a].last : to;
        memset(g->q[a].out + 2, 0, (size_t)g->kv->value_dim * sizeof(float));
    }
    for (int a = 0; a < g->n; a++) {
        int64_t until = from < to ? from : g->q[a].last;
        if (g->q[a].first < until)
            weigh[1](g, a, g->q[a].first, until);
    }
    if (from >= to)
        return;
    weigh[g->n](g, 0, from, to);
    for (int a = 0; a < g->n; a++)
        if (to < g->q[a].last)
            weigh[1](g, a, to, g->q[a].last);
}

INLINE int attend(const gb_kv_chunk *kv, const gb_query *q, int64_t n, tile_fn *const *score, tile_fn *const *weigh)
{
    float s[GROUP][GB_CHUNK];
    int finite = 1;
    for (int64_t a = 0; a < n;) {
        int count = n - a >= GROUP ? GROUP : n - a == GROUP - 1 ? GROUP - 2 : (int)(n - a);
        group g = {.kv = kv, .q = q + a, .n = count, .low = GB_CHUNK, .high = 0, .s = s};
        if (a == 0) {
            g.ahead_k = kv->v;
            g.ahead_v = kv->next;
        }
        for (int i = 0; i < count; i++) {
            g.low = g.q[i].first < g.low ? g.q[i].first : g.low;
            g.high = g.q[i].last > g.high ? g.q[i].last : g.high;
        }
        score[count](&g, 0, 0, 0);
        for (int i = 0; i < count; i++)
            finite &= soften(kv, &g.q[i], s[i]);
        if (finite)
            weigh_all(&g, weigh);
        a += count;
    }
    return finite;
}

#define ATTEND(name, type)                                                                                             \
    TILES(type)                                                                                                        \
    static int name(const gb_kv_chunk *kv, const gb_query *q, int64_t n)                                               \
    {                                                                                                                  \
        static tile_fn *const score[GROUP + 1] = TABLE(score, type), *const weigh[GROUP + 1] = TABLE(weigh, type);     \
        return attend(kv, q, n, score, weigh);                                                                         \
    }

ATTEND(attend_f16, F16)
ATTEND(attend_f32, F32)
ATTEND(attend_q8, Q8)

/* ---- The other ends of attention -------------------------------------------------------------- */

static int narrow_f16(const float *x, int64_t n, uint16_t *out)
{
    int64_t i = 0;
    uint32_t beyond = 0; /* an exponent of all ones carries into bit 15 */
    for (; i + VF <= n; i += VF)
        vf_store_f16(out + i, vf_load(x + i));
    for (; i < n; i++)
        out[i] = gb_f32_to_f16(x[i]);
    for (i = 0; i < n; i++)
        beyond |= (uint32_t)(out[i] & 0x7fff) + 0x400;
    return (beyond & 0x8000) == 0;
}


enum { MERGED = 64 }; /* chunks whose factors are at hand at once */

/* Channels i … i + nt VF - 1 gain n chunks, each times its factor. */
INLINE void merge_tile(const float *w, const float *o, int64_t stride, int64_t n, int nt, float *out)
{
    vf sum[NARROW];
    UNROLL for (int t = 0; t < nt; t++)
        sum[t] = vf_load(out + t * VF);
    for (int64_t c = 0; c < n; c++)
        UNROLL for (int t = 0; t < nt; t++)
            sum[t] = vf_fma(vf_set(w[c]), vf_load(o + c * stride + t * VF), sum[t]);
    UNROLL for (int t = 0; t < nt; t++)
        vf_store(out + t * VF, sum[t]);
}

static void merge(const float *m, const float *l, const float *o, int64_t stride, int64_t n, int64_t dim, float *out)
{
    float most = m[0], total = 0.0f, w[MERGED] = {0};
    for (int64_t c = 1; c < n; c++)
        most = m[c * stride] > most ? m[c * stride] : most;
    memset(out, 0, (size_t)dim * sizeof *out);
    for (int64_t start = 0; start < n; start += MERGED) {
        int64_t count = n - start < MERGED ? n - start : MERGED, i = 0;
        for (int64_t c = 0; c < count; c++)
            w[c] = m[(start + c) * stride];
        for (int64_t c = 0; c < count; c += VF)
            vf_store(w + c, vf_exp(vf_sub(vf_load(w + c), vf_set(most))));
        for (int64_t c = 0; c < count; c++)
            total = gb_fmaf(w[c], l[(start + c) * stride], total);
        for (; i + NARROW * VF <= dim; i += NARROW * VF)
            merge_tile(w, o + start * stride + i, stride, count, NARROW, out + i);
        for (; i + VF <= dim; i += VF)
            merge_tile(w, o + start * stride + i, stride, count, 1, out + i);
        for (int64_t c = 0; c < count; c++)
            for (int64_t j = i; j < dim; j++)
                out[j] = gb_fmaf(w[c], o[(start + c) * stride + j], out[j]);
    }
    scale(out, 1.0f / total, dim);
}

static void override_attention(gb_kernels *set)
{
    set->narrow_f16 = narrow_f16;
    set->attend[ENGINE_KV_F16] = attend_f16;
    set->attend[ENGINE_KV_F32] = attend_f32;
    set->attend[ENGINE_KV_Q8] = attend_q8;
    set->merge = merge;
}
