/* fpenv.h: the floating-point control word of every computation.
 *
 * A process may have set flush-to-zero, denormals-are-zero or another rounding mode (a shared
 * object built with -ffast-math does so when it is loaded, and new threads inherit it). Every
 * entry point that computes calls gb_fpenv_enter() first and gb_fpenv_leave() last; the work
 * between them stands in a function of its own that is not inlined, so that no operation can
 * be moved across. This header also refuses compilers that do not compute in IEEE f32 and f64. */
#ifndef GB_FPENV_H
#define GB_FPENV_H
#include <float.h>
#include <stdint.h>

#ifdef __FAST_MATH__
#error "Gaugeblock's arithmetic is exact to the bit: build without -ffast-math"
#endif
#if !defined(FLT_EVAL_METHOD) || FLT_EVAL_METHOD != 0
#error "Gaugeblock needs FLT_EVAL_METHOD 0 (x86-64 with SSE2, or AArch64)"
#endif
#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "Gaugeblock runs on little-endian machines only"
#endif

typedef struct gb_fpenv {
    uint64_t word; /* as it was on entry */
} gb_fpenv;

#if defined(__x86_64__)

/* Round to nearest even, no flush-to-zero, no denormals-are-zero, all exceptions masked. */
static inline gb_fpenv gb_fpenv_enter(void)
{
    uint32_t old, fresh = 0x1F80;
    __asm__ volatile("stmxcsr %0" : "=m"(old) : : "memory");
    __asm__ volatile("ldmxcsr %0" : : "m"(fresh) : "memory");
    return (gb_fpenv){old};
}

static inline void gb_fpenv_leave(gb_fpenv saved)
{
    uint32_t old = (uint32_t)saved.word;
    __asm__ volatile("ldmxcsr %0" : : "m"(old) : "memory");
}

#elif defined(__aarch64__)

static inline gb_fpenv gb_fpenv_enter(void)
{
    uint64_t old, fresh = 0;
    __asm__ volatile("mrs %0, fpcr" : "=r"(old) : : "memory");
    __asm__ volatile("msr fpcr, %0" : : "r"(fresh) : "memory");
    return (gb_fpenv){old};
}

static inline void gb_fpenv_leave(gb_fpenv saved)
{
    __asm__ volatile("msr fpcr, %0" : : "r"(saved.word) : "memory");
}

#else
#error "Gaugeblock runs on x86-64 and AArch64 only"
#endif

#define GB_NOINLINE __attribute__((noinline))

#endif
