/* mi_pairs.h: products for sets without a dot product of bytes; included before matmul_tile.h by sets of x86-64.
 * vpmaddubsw multiplies unsigned codes by signed activations and adds pairs to int16, which would saturate: so
 * many such sums are added before they go to int32 as have room. |hi| <= 127 and |lo| <= 64, so codes of 4 bits
 * leave room for eight sums of either, of 5 bits for four and eight, of 6 bits for two and four. Codes of 8 bits
 * are multiplied as magnitude and sign, and leave room for one. Wide sums are joined on their way: 128 hi + lo.
 * Expects mi_avx2.h or mi_avx512.h. */
#define PAIRS_JOIN 1

/* How many sums of pairs have room. */
MI int pairs_room(int bits, int lo)
{
    return bits <= 4 ? 8 : bits == 5 ? (lo ? 8 : 4) : bits == 6 ? (lo ? 4 : 2) : 1;
}

/* Add the pairs of codes w times x to pairs; where no more have room or it is the last, times weight to sum. */
MI void add_pairs(mi *sum, mi *pairs, mi w, mi x, int weight, int room, int signs, int step, int last)
{
    mi p = signs ? mi_pairs(mi_abs8(w), mi_sign8(x, w)) : mi_pairs(w, x);
    *pairs = step % room == 0 ? p : mi_add16(*pairs, p);
    if (last || (step + 1) % room == 0)
        *sum = mi_add(*sum, mi_join_pairs(*pairs, weight));
}

/* Codes w[p] of vectors p times the int8 of nt rows, to the integer sums. */
MI void add_products(mi sum[][16], mi high[][16], mi low[][16], const mi w[], const int32_t *hi, const int32_t *lo,
                     int nt, int vectors, int bits, int step, int last)
{
    const int weight = lo != NULL ? 128 : 1;
    GB_UNROLL for (int t = 0; t < nt; t++) {
        mi x = mi_broadcast(hi + t);
        GB_UNROLL for (int p = 0; p < vectors; p++)
            add_pairs(&sum[p][t], &high[p][t], w[p], x, weight, pairs_room(bits, 0), bits == 8, step, last);
    }
    GB_UNROLL for (int t = 0; lo != NULL && t < nt; t++) {
        mi x = mi_broadcast(lo + t);
        GB_UNROLL for (int p = 0; p < vectors; p++)
            add_pairs(&sum[p][t], &low[p][t], w[p], x, 1, pairs_room(bits, 1), bits == 8, step, last);
    }
}
