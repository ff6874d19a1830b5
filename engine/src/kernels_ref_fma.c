/* kernels_ref_fma.c: kernels_ref.c once more, compiled for x86-64 with AVX2 and FMA.
 *
 * The source is the same and contraction is off, so the bits are the same; only the calls to
 * fmaf become instructions. kernels.c chooses it where processor and system support it. */
#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC target("avx2,fma")
#endif

#define GB_KERNELS_TABLE gb_kernels_ref_fma
#define GB_KERNELS_NAME "ref"
#include "kernels_ref.c"

#if defined(__clang__)
#pragma clang attribute pop
#endif
#else
typedef int gb_kernels_ref_fma_is_for_x86_64; /* ISO C wants a declaration */
#endif
