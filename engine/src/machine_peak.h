/* machine_peak.h: the two limits that kernels are judged against, measured over a given pool. */
#ifndef GB_MACHINE_PEAK_H
#define GB_MACHINE_PEAK_H
#include "threads.h"

/* A register-only loop of integer products. set is the beginning of the names of the kernel sets
 * that live on this instruction. */
typedef struct gb_dot_loop {
    const char *set;
    const char *instruction;
    double macs; /* int8 multiply-accumulates of one round */
    void (*rounds)(int64_t n);
} gb_dot_loop;

double gb_seconds(void); /* a monotonic clock */
/* Bytes per second of one pass over data, by the faster of the read loops that run here; bytes is a
 * multiple of 4096. Best of so many passes. */
double gb_read_rate(threads *pool, const uint8_t *data, uint64_t bytes, int32_t repetitions);
/* The loop of the kernel set called name; where none is meant for it, the fastest that runs here. */
const gb_dot_loop *gb_dot_loop_for(const char *name);
/* int8 multiply-accumulates per second of the whole pool, best of so many. */
double gb_dot_rate(threads *pool, const gb_dot_loop *loop, int32_t repetitions);

#endif
