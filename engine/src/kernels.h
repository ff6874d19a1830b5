/* kernels.h: the table of arithmetic kernels. docs/numerics.md defines what each computes; the
 * entries of kernels_ref.c are that definition in C, and every other set equals them bit for
 * bit. Kernels neither allocate nor fail: a caller validates, passes whole buffers, and reads
 * the returned flag where a kernel is asked whether its values were finite. */
#ifndef GB_KERNELS_H
#define GB_KERNELS_H
#include "dtype.h"

enum {
    GB_BLOCK = 32,    /* activations are quantised in blocks of 32 */
    GB_SEGMENT = 256, /* a dot product is summed in segments of 256 elements */
    GB_CHUNK = 128,   /* attention works in chunks of 128 positions, and a KV page holds one */
};

enum { GB_GATE_SILU = 0, GB_GATE_GELU_TANH = 1 };

/* 32 activations: x[i] is near d * q[i]. s is d times the sum of q, sh the same of each half. */
typedef struct gb_act32 {
    int16_t q[GB_BLOCK]; /* int8: -127 … 127; wide: -16319 … 16319 */
    float d;
    float s;
    float sh[2];
} gb_act32;

/* Rows of a weight matrix in the file's own format: [rows][k]. */
typedef struct gb_matrix {
    const dtype *type;
    const uint8_t *data;
    uint64_t row_bytes;
    int64_t k;
    int64_t rows;
    int32_t number; /* among the matrices of its model */
} gb_matrix;

typedef struct gb_panels gb_panels; /* a matrix rearranged for vector kernels: panels.h */
typedef struct gb_acts gb_acts;     /* quantised rows to match */
/* Keys and values of one KV head and chunk, as a page holds them. f16 and f32: k is
 * [key_dim][GB_CHUNK], v is [GB_CHUNK][value_dim]. q8: codes, k as [key_dim / 4][GB_CHUNK][4]; the scales are
 * [key_dim / 32][GB_CHUNK] and [value_dim / 32][GB_CHUNK]. */
typedef struct gb_kv_chunk {
    const void *k, *v;
    const float *k_scales, *v_scales;
    const void *next; /* keys that will be asked for next, or NULL */
    int64_t key_dim, value_dim;
    float scale, cap; /* of scores; cap 0: none */
} gb_kv_chunk;

/* One query head of one row; it sees positions first <= p < last of the chunk. */
typedef struct gb_query {
    const float *q;      /* [key_dim]; of q8 the scales: [key_dim / 32] */
    const int8_t *codes; /* [key_dim], q8 only */
    int32_t first, last;
    float *out;          /* m, l, o[value_dim] */
} gb_query;

typedef struct gb_kernels {
    const char *name;
    /* Products over panels p0 <= p < p1, all rows of x against 16 rows of w each: y is [n][ldy]. The
     * three are NULL in a set that has none, which multiplies with matmul_int and matmul_f32. */
    void (*panels_int)(const gb_panels *w, int64_t p0, int64_t p1, const gb_acts *x, float *y, int64_t ldy);
    void (*panels_f32)(const gb_panels *w, int64_t p0, int64_t p1, const float *x, int64_t n, float *y, int64_t ldy);
    /* Quantise blocks b0 … b1-1 of x, [n][k], to be those of rows row … row+n-1 of out. 0 where a value is not
     * finite. */
    int (*quantise_rows)(const float *x, gb_acts *out, int64_t row, int64_t n, int64_t b0, int64_t b1);
    int32_t group[2]; /* rows of a group in gb_acts at most: int8, wide */
    /* Quantise n = 32 m values with codes up to limit (127 or 16319). 0 where one is not finite. */
    int (*quantise)(const float *x, int64_t n, int32_t limit, gb_act32 *out);
    /* y[t][r] for weight rows r0 <= r < r1 and tokens t < n: x is [n][k/32], y is [n][ldy]. */
    void (*matmul_int)(const gb_matrix *w, int64_t r0, int64_t r1, const gb_act32 *x, int64_t n, float *y,
                       int64_t ldy);
    /* The same with f32 activations, x is [n][k]: for float weights, and for the f32 mode. */
    void (*matmul_f32)(const gb_matrix *w, int64_t r0, int64_t r1, const float *x, int64_t n, float *y, int64_t ldy);
    /* y = x / rms(x) * w over n values; y may be x. 0 where the sum of squares is not finite. */
    int (*rms_norm)(const float *x, const float *w, int64_t n, float eps, float *y);
    /* Rotate pairs of x in place. cs is [pairs][2]: cosine, sine. neox pairs i with i + pairs. */
    void (*rope)(float *x, const float *cs, int64_t pairs, int neox);
    /* g = gate(g) * u; kind is GB_GATE_*. */
    void (*gate)(float *g, const float *u, int64_t n, int kind);
    void (*add)(float *x, const float *y, int64_t n);
    void (*scale)(float *x, float by, int64_t n);
    /* x = cap * tanh(x / cap). 0 where an x is not finite. */
    int (*softcap)(float *x, float cap, int64_t n);
    int (*all_finite)(const float *x, int64_t n);
    /* Of finite values: the first index of the largest. */
    int64_t (*argmax)(const float *x, int64_t n);
    /* e = exp((x - most) / by): no x is above most. */
    void (*exps)(const float *x, int64_t n, float most, float by, float *e);

    /* Keys, values and queries of KV type q8: int8 codes up to 127 and a scale per 32 elements.
     * 0 where a value is not finite. */
    int (*quantise_q8)(const float *x, int64_t n, int8_t *codes, float *scales);
    /* To f16, overflow to infinity. 0 where a result is not finite. */
    int (*narrow_f16)(const float *x, int64_t n, uint16_t *out);
    /* n queries against one chunk, by ENGINE_KV_*. 0 where a score is not finite. */
    int (*attend[3])(const gb_kv_chunk *kv, const gb_query *q, int64_t n);
    /* Merge n chunks: m and l are [n], o is [n][dim], each with the given stride in floats. */
    void (*merge)(const float *m, const float *l, const float *o, int64_t stride, int64_t n, int64_t dim, float *out);
} gb_kernels;

/* The set in use. The first call chooses: the environment variable ENGINE_KERNELS names a set,
 * else the fastest that this machine runs. NULL where the name is unknown or cannot run here. */
const gb_kernels *gb_kernels_get(void);
/* The same; where there is none, an error that lists the sets that run here. */
engine_status gb_kernels_require(const gb_kernels **out, char *err, size_t errlen);
/* Set number i in order of preference, whether or not it runs here; NULL past the last. */
const gb_kernels *gb_kernels_at(int i, int *runs_here);

extern const gb_kernels gb_kernels_ref; /* portable */

/* Parts of faster sets: each overrides the entries that it is faster at, same bits. */
#if defined(__x86_64__)
extern const gb_kernels gb_kernels_ref_fma; /* the portable source, compiled for AVX2 with FMA */
void gb_rows_avx512(gb_kernels *set);
void gb_rows_avx512_vnni(gb_kernels *set);
void gb_rows_avx2(gb_kernels *set);
void gb_matmul_avx512_vnni(gb_kernels *set);
void gb_matmul_avx512(gb_kernels *set);
void gb_matmul_avx2_vnni(gb_kernels *set);
void gb_matmul_avx2(gb_kernels *set);
#elif defined(__aarch64__)
void gb_rows_neon(gb_kernels *set);
void gb_matmul_neon(gb_kernels *set);
/* clang's header has the instructions only where the whole build is for them */
#if defined(__ARM_FEATURE_DOTPROD) || !defined(__clang__)
#define GB_HAVE_NEON_DOT 1
void gb_matmul_neon_dot(gb_kernels *set);
#endif
#endif

#endif
