/* version.c: what this library is: version, contract revisions, compiler, flags, kernel set.
 * Strings are static; a build may define ENGINE_BUILD_FLAGS as the text of its flags. */
#include "kernels.h"

#ifndef ENGINE_BUILD_FLAGS
#define ENGINE_BUILD_FLAGS "unknown"
#endif

#define TEXT2(x) #x
#define TEXT(x) TEXT2(x)

const char *engine_version(void)
{
    return "0.1.0";
}

const char *engine_numerics(void)
{
    return "gb1";
}

const char *engine_compiler(void)
{
#if defined(__clang__)
    return "clang " TEXT(__clang_major__) "." TEXT(__clang_minor__) "." TEXT(__clang_patchlevel__);
#else
    return "gcc " TEXT(__GNUC__) "." TEXT(__GNUC_MINOR__) "." TEXT(__GNUC_PATCHLEVEL__);
#endif
}

const char *engine_build_flags(void)
{
    return ENGINE_BUILD_FLAGS;
}

const char *engine_kernel_set(void)
{
    const gb_kernels *set = gb_kernels_get();
    return set != NULL ? set->name : "none";
}
