/* philox.h: Philox4x32-10, the counter-based random number generator of Salmon, Moraes, Dror
 * and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011). A pure function of key and
 * counter: no state to carry, none to lose. Known answers: tests/engine/test_sampler.py. */
#ifndef GB_PHILOX_H
#define GB_PHILOX_H
#include <stdint.h>

/* out[0..3] = Philox4x32-10 of counter[0..3] under key[0..1]. */
static inline void gb_philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0;
        uint64_t p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u; /* Weyl sequences: golden ratio, square root of 3 */
        k1 += 0xBB67AE85u;
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

/* 64 random bits that depend on (seed, draw) only. */
static inline uint64_t gb_random64(uint64_t seed, uint64_t draw)
{
    uint32_t counter[4] = {(uint32_t)draw, (uint32_t)(draw >> 32), 0, 0};
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t out[4];
    gb_philox4x32(counter, key, out);
    return (uint64_t)out[1] << 32 | out[0];
}

#endif
