/* sampler.c: from raw logits to a token, to log-probabilities, to the n best.
 *
 * Part of the numeric path (docs/sampling.md): exponentials are our own, and once a probability
 * exists it is an integer, so that sums, filters and the draw are exact and no order of addition
 * matters. Refuses options out of range by name, ids out of range, non-finite logits by id.
 * Work space is allocated per call and freed before it returns; nothing is kept. */
#include "engine.h"
#include "kernels.h"
#include "mathfn.h"
#include "philox.h"
#include "status.h"

#include <stdlib.h>

__extension__ typedef unsigned __int128 sampler_u128;

/* A weight is exp(y) in units of 2^-42, y <= 0; a sum over 2^22 of them fits in 64 bits. */
#define WEIGHT_ONE 0x1p42f
#define VOCAB_MAX (1 << 22)

enum { STRETCH = 1024 }; /* exponentials at hand at once */

/* Where a descending order by value, ascending by id, is cut: the last entry that belongs. */
typedef struct cut {
    uint32_t key;
    int32_t id;
} cut;

typedef struct work {
    float *z;         /* [vocab] logits after penalties, or of legal tokens; NULL where they are the caller's */
    int32_t *id;      /* of the legal tokens, ascending; NULL where all are legal */
    uint32_t *key;    /* [n] ordered like the logits; n tokens are legal */
    uint64_t *weight; /* [n] 0 where a filter removed the token */
    void *block;      /* what they are parts of: in pieces, they would go back to the system every time */
} work;

/* Bit i % 32 of words[i / 32] is set where token i is legal; words NULL: all are. */
typedef struct legal {
    const uint32_t *words;
    uint64_t n_words;
} legal;

/* Room for the parts that a choice needs; 0: out of memory. */
static int work_new(work *w, int32_t vocab, int wants_z, int wants_id, int wants_weights)
{
    size_t n = (size_t)vocab, words = n * ((size_t)wants_z + (size_t)wants_id + 3 * (size_t)wants_weights);
    *w = (work){0};
    if (words == 0)
        return 1;
    w->block = malloc(words * 4);
    if (w->block == NULL)
        return 0;
    uint32_t *at = w->block;
    if (wants_weights) {
        w->weight = w->block;
        w->key = at + 2 * n;
        at += 3 * n;
    }
    if (wants_z) {
        w->z = (float *)at;
        at += n;
    }
    if (wants_id)
        w->id = (int32_t *)at;
    return 1;
}

/* Loops over the vocabulary are vector code; a wrong ENGINE_KERNELS is for the model to refuse. */
static const gb_kernels *kernels(void)
{
    const gb_kernels *set = gb_kernels_get();
    return set != NULL ? set : &gb_kernels_ref;
}

/* An unsigned integer that orders like the finite float f; both zeros are one value. */
static uint32_t ordered(float f)
{
    uint32_t u = gb_bits(f + 0.0f);
    return u & 0x80000000u ? ~u : u | 0x80000000u;
}

static engine_status check_values(const float *values, int32_t vocab, const char *what, char *err, size_t errlen)
{
    if (values == NULL)
        return gb_fail(err, errlen, ENGINE_EINVAL, "%s are NULL; give an array of the vocabulary's size", what);
    if (vocab < 1 || vocab > VOCAB_MAX)
        return gb_fail(err, errlen, ENGINE_EINVAL, "vocabulary of %ld tokens; 1 to %ld are possible", (long)vocab,
                       (long)VOCAB_MAX);
    if (kernels()->all_finite(values, vocab))
        return ENGINE_OK;
    for (int32_t i = 0; i < vocab; i++)
        if (gb_abs_bits(values[i]) >= GB_NONFINITE_BITS)
            return gb_fail(err, errlen, ENGINE_ENONFINITE, "%s hold %s at token %ld", what,
                           gb_abs_bits(values[i]) > GB_NONFINITE_BITS ? "a NaN" : "an infinity", (long)i);
    return ENGINE_OK;
}

/* low <= value <= high, false for NaN whatever the flags of the compiler. */
static int within(float value, float low, float high)
{
    return gb_abs_bits(value) < GB_NONFINITE_BITS && value >= low && value <= high;
}

static engine_status check_options(const engine_sampler_options *o, char *err, size_t errlen)
{
    const struct {
        const char *name;
        float value, low, high;
    } ranges[] = {
        {"temperature", o->temperature, 0.0f, 1e6f},
        {"top_p", o->top_p, 0.0f, 1.0f},
        {"min_p", o->min_p, 0.0f, 1.0f},
        {"repeat_penalty", o->repeat_penalty, 0x1p-20f, 0x1p20f},
        {"frequency_penalty", o->frequency_penalty, -1e6f, 1e6f},
        {"presence_penalty", o->presence_penalty, -1e6f, 1e6f},
    };
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++)
        if (!within(ranges[i].value, ranges[i].low, ranges[i].high))
            return gb_fail(err, errlen, ENGINE_EINVAL, "%s is %g; it must lie between %g and %g", ranges[i].name,
                           (double)ranges[i].value, (double)ranges[i].low, (double)ranges[i].high);
    if (o->top_k < 0)
        return gb_fail(err, errlen, ENGINE_EINVAL, "top_k is %ld; it must be 0 (off) or more", (long)o->top_k);
    return ENGINE_OK;
}

static engine_status check_history(const int32_t *history, int32_t n, int32_t vocab, char *err, size_t errlen)
{
    if (n < 0 || (n > 0 && history == NULL))
        return gb_fail(err, errlen, ENGINE_EINVAL, "history of %ld tokens is not an array", (long)n);
    for (int32_t i = 0; i < n; i++)
        if (history[i] < 0 || history[i] >= vocab)
            return gb_fail(err, errlen, ENGINE_EINVAL, "history[%ld] is %ld; ids run from 0 to %ld", (long)i,
                           (long)history[i], (long)vocab - 1);
    return ENGINE_OK;
}

static int has_penalties(const engine_sampler_options *o)
{
    return o->repeat_penalty != 1.0f || o->frequency_penalty != 0.0f || o->presence_penalty != 0.0f;
}

/* z = logits with each distinct token of the history penalised once, frequency by its count. */
static engine_status penalise(float *z, const float *logits, int32_t vocab, const engine_sampler_options *o,
                              const int32_t *history, int32_t n_history, char *err, size_t errlen)
{
    uint32_t *count = calloc((size_t)vocab, sizeof *count);
    if (count == NULL)
        return gb_fail(err, errlen, ENGINE_ENOMEM, "out of memory: token counts of %ld tokens", (long)vocab);
    memcpy(z, logits, (size_t)vocab * sizeof *z);
    for (int32_t i = 0; i < n_history; i++)
        count[history[i]]++;
    for (int32_t i = 0; i < vocab; i++) {
        if (count[i] == 0)
            continue;
        z[i] = z[i] > 0.0f ? z[i] / o->repeat_penalty : z[i] * o->repeat_penalty;
        z[i] = z[i] - (float)count[i] * o->frequency_penalty;
        z[i] = z[i] - o->presence_penalty;
    }
    free(count);
    return check_values(z, vocab, "logits after penalties", err, errlen);
}

/* The cut behind which the weights of the best entries first reach target (>= 1). weight NULL
 * counts entries. Four passes over the bytes of the keys, one over the ids: no sort. */
static cut select_best(const uint32_t *key, const uint64_t *weight, int32_t n, uint64_t target)
{
    uint32_t prefix = 0, mask = 0;
    uint64_t above = 0; /* weight of the entries that are known to lie before the cut */
    for (int shift = 24; shift >= 0; shift -= 8) {
        uint64_t part[4][256] = {{0}}, *sum = part[0]; /* four, so that additions need not wait for each other */
        for (int32_t i = 0; i < n; i++)
            if ((key[i] & mask) == prefix)
                part[i & 3][key[i] >> shift & 255] += weight ? weight[i] : 1;
        for (int j = 0; j < 256; j++)
            sum[j] = part[0][j] + part[1][j] + part[2][j] + part[3][j];
        uint32_t digit = 255;
        while (digit > 0 && above + sum[digit] < target)
            above += sum[digit--];
        prefix |= digit << shift;
        mask |= 255u << shift;
    }
    int32_t id = 0;
    for (int32_t i = 0; i < n && above < target; i++)
        if (key[i] == prefix) {
            above += weight ? weight[i] : 1;
            id = i;
        }
    return (cut){prefix, id};
}

static int before_cut(const cut *c, uint32_t key, int32_t id)
{
    return key > c->key || (key == c->key && id <= c->id);
}

static void remove_behind(work *w, int32_t vocab, const cut *c)
{
    for (int32_t i = 0; i < vocab; i++)
        if (!before_cut(c, w->key[i], i))
            w->weight[i] = 0;
}

static uint64_t total_weight(const work *w, int32_t vocab)
{
    uint64_t total = 0;
    for (int32_t i = 0; i < vocab; i++)
        total += w->weight[i];
    return total;
}

/* Temperature, then top-k, top-p and min-p: fills w->key and w->weight. */
static void weigh(work *w, const float *z, int32_t vocab, const engine_sampler_options *o)
{
    const gb_kernels *k = kernels();
    float best = z[k->argmax(z, vocab)], e[STRETCH];
    for (int32_t start = 0; start < vocab; start += STRETCH) {
        int32_t n = vocab - start < STRETCH ? vocab - start : STRETCH;
        k->exps(z + start, n, best, o->temperature, e);
        for (int32_t i = 0; i < n; i++) {
            w->key[start + i] = ordered(z[start + i]);
            w->weight[start + i] = (uint64_t)(int64_t)(e[i] * WEIGHT_ONE); /* at most 2^42 */
        }
    }
    if (o->top_k > 0 && o->top_k < vocab) {
        cut c = select_best(w->key, NULL, vocab, (uint64_t)o->top_k);
        remove_behind(w, vocab, &c);
    }
    if (o->top_p < 1.0f) {
        uint64_t share = (uint64_t)(o->top_p * 0x1p32f); /* in units of 2^-32 */
        sampler_u128 wanted = (sampler_u128)total_weight(w, vocab) * share;
        uint64_t target = (uint64_t)((wanted + 0xffffffffu) >> 32);
        cut c = select_best(w->key, w->weight, vocab, target > 0 ? target : 1);
        remove_behind(w, vocab, &c);
    }
    uint64_t least = (uint64_t)(o->min_p * WEIGHT_ONE);
    for (int32_t i = 0; i < vocab; i++)
        if (w->weight[i] < least)
            w->weight[i] = 0;
}

/* The token under the random point, weights laid end to end by ascending id. */
static int32_t draw_token(const work *w, int32_t vocab, uint64_t random)
{
    uint64_t point = (uint64_t)((sampler_u128)random * total_weight(w, vocab) >> 64);
    int32_t id = 0;
    while (point >= w->weight[id])
        point -= w->weight[id++];
    return id;
}

/* Move the logits of the legal tokens together, ids beside them; their number. They keep their order, so
 * what follows treats them as a smaller vocabulary. */
static int32_t gather(work *w, const float *z, int32_t vocab, const uint32_t *words)
{
    int32_t n = 0;
    for (int32_t first = 0; first < vocab; first += 32) {
        uint32_t bits = words[first / 32];
        if (vocab - first < 32)
            bits &= (1u << (vocab - first)) - 1;
        for (; bits != 0; bits &= bits - 1) {
            int32_t id = first + __builtin_ctz(bits);
            w->z[n] = z[id];
            w->id[n++] = id;
        }
    }
    return n;
}

static engine_status check_arguments(const float *logits, int32_t vocab, const legal *mask,
                                     const engine_sampler_options *o, const int32_t *history, int32_t n_history,
                                     char *err, size_t errlen)
{
    engine_status status = check_options(o, err, errlen);
    if (status == ENGINE_OK)
        status = check_values(logits, vocab, "logits", err, errlen);
    if (status == ENGINE_OK)
        status = check_history(history, n_history, vocab, err, errlen);
    if (status == ENGINE_OK && mask->words != NULL && mask->n_words != ((uint64_t)vocab + 31) / 32)
        return gb_fail(err, errlen, ENGINE_EINVAL, "a mask of %llu words; %ld tokens need %ld",
                       (unsigned long long)mask->n_words, (long)vocab, ((long)vocab + 31) / 32);
    return status;
}

/* Penalties and the mask: *z is what to choose from, *n how many. */
static engine_status prepare(work *w, const float **z, int32_t *n, const legal *mask, const engine_sampler_options *o,
                             const int32_t *history, int32_t n_history, char *err, size_t errlen)
{
    if (n_history > 0 && has_penalties(o)) {
        engine_status status = penalise(w->z, *z, *n, o, history, n_history, err, errlen);
        if (status != ENGINE_OK)
            return status;
        *z = w->z;
    }
    if (mask->words != NULL) {
        *n = gather(w, *z, *n, mask->words); /* in place where penalties were applied: never ahead */
        *z = w->z;
        if (*n == 0)
            return gb_fail(err, errlen, ENGINE_EINVAL, "the mask allows no token at all");
    }
    return ENGINE_OK;
}

static GB_NOINLINE engine_status sample(const float *logits, int32_t vocab, const legal *mask,
                                        const engine_sampler_options *o, const int32_t *history, int32_t n_history,
                                        uint64_t draw, int32_t *token, char *err, size_t errlen)
{
    work w;
    const float *z = logits;
    int32_t n = vocab, chosen;
    int masked = mask->words != NULL, penalised = n_history > 0 && has_penalties(o);
    engine_status status = check_arguments(logits, vocab, mask, o, history, n_history, err, errlen);
    if (status != ENGINE_OK)
        return status;
    if (!work_new(&w, vocab, masked || penalised, masked, o->temperature != 0.0f))
        return gb_fail(err, errlen, ENGINE_ENOMEM, "out of memory: sampling among %ld tokens", (long)vocab);
    status = prepare(&w, &z, &n, mask, o, history, n_history, err, errlen);
    if (status == ENGINE_OK) {
        if (o->temperature == 0.0f) {
            chosen = (int32_t)kernels()->argmax(z, n);
        } else {
            weigh(&w, z, n, o);
            chosen = draw_token(&w, n, gb_random64(o->seed, draw));
        }
        *token = masked ? w.id[chosen] : chosen;
    }
    free(w.block);
    return status;
}

engine_status engine_sample_masked(const float *logits, int32_t vocab, const uint32_t *mask, uint64_t words,
                                   const engine_sampler_options *options, const int32_t *history, int32_t n_history,
                                   uint64_t draw, int32_t *token, char *err, size_t errlen)
{
    if (options == NULL || token == NULL)
        return gb_fail(err, errlen, ENGINE_EINVAL, "options and token must not be NULL");
    legal chosen = {mask, words};
    gb_fpenv saved = gb_fpenv_enter();
    engine_status status = sample(logits, vocab, &chosen, options, history, n_history, draw, token, err, errlen);
    gb_fpenv_leave(saved);
    return status;
}

engine_status engine_sample(const float *logits, int32_t vocab, const engine_sampler_options *options,
                            const int32_t *history, int32_t n_history, uint64_t draw, int32_t *token, char *err,
                            size_t errlen)
{
    return engine_sample_masked(logits, vocab, NULL, 0, options, history, n_history, draw, token, err, errlen);
}

/* out = x - max - log(sum of exp(x - max)): terms in f32, their sum by ascending id in double. */
static GB_NOINLINE engine_status log_softmax(const float *logits, int32_t vocab, float *out, char *err, size_t errlen)
{
    engine_status status = check_values(logits, vocab, "logits", err, errlen);
    if (status != ENGINE_OK)
        return status;
    const gb_kernels *k = kernels();
    float best = logits[k->argmax(logits, vocab)], e[STRETCH];
    double sum = 0.0;
    for (int32_t start = 0; start < vocab; start += STRETCH) {
        int32_t n = vocab - start < STRETCH ? vocab - start : STRETCH;
        k->exps(logits + start, n, best, 1.0f, e);
        for (int32_t i = 0; i < n; i++)
            sum += (double)e[i];
    }
    double log_sum = gb_log(sum);
    for (int32_t i = 0; i < vocab; i++)
        out[i] = (float)((double)logits[i] - (double)best - log_sum);
    return ENGINE_OK;
}

engine_status engine_log_softmax(const float *logits, int32_t vocab, float *out, char *err, size_t errlen)
{
    if (out == NULL)
        return gb_fail(err, errlen, ENGINE_EINVAL, "out is NULL; give room for the vocabulary's size");
    gb_fpenv saved = gb_fpenv_enter();
    engine_status status = log_softmax(logits, vocab, out, err, errlen);
    gb_fpenv_leave(saved);
    return status;
}

typedef struct ranked {
    uint32_t key;
    int32_t id;
} ranked;

/* Value descending, id ascending: a total order, so any sort gives the same result. */
static int compare_ranked(const void *left, const void *right)
{
    const ranked *a = left, *b = right;
    if (a->key != b->key)
        return a->key > b->key ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

static GB_NOINLINE engine_status top(const float *values, int32_t vocab, int32_t n, int32_t *ids, char *err,
                                     size_t errlen)
{
    engine_status status = check_values(values, vocab, "values", err, errlen);
    if (status != ENGINE_OK)
        return status;
    if (n < 0 || n > vocab || (n > 0 && ids == NULL))
        return gb_fail(err, errlen, ENGINE_EINVAL, "the %ld best of %ld tokens cannot be given", (long)n, (long)vocab);
    if (n == 0)
        return ENGINE_OK;
    uint32_t *key = calloc((size_t)vocab, sizeof *key);
    ranked *best = malloc((size_t)n * sizeof *best);
    if (key == NULL || best == NULL) {
        free(key);
        free(best);
        return gb_fail(err, errlen, ENGINE_ENOMEM, "out of memory: ranking %ld tokens", (long)vocab);
    }
    for (int32_t i = 0; i < vocab; i++)
        key[i] = ordered(values[i]);
    cut c = select_best(key, NULL, vocab, (uint64_t)n);
    int32_t found = 0;
    for (int32_t i = 0; i < vocab && found < n; i++)
        if (before_cut(&c, key[i], i))
            best[found++] = (ranked){key[i], i};
    qsort(best, (size_t)n, sizeof *best, compare_ranked);
    for (int32_t i = 0; i < n; i++)
        ids[i] = best[i].id;
    free(key);
    free(best);
    return ENGINE_OK;
}

engine_status engine_top(const float *values, int32_t vocab, int32_t n, int32_t *ids, char *err, size_t errlen)
{
    gb_fpenv saved = gb_fpenv_enter();
    engine_status status = top(values, vocab, n, ids, err, errlen);
    gb_fpenv_leave(saved);
    return status;
}
