/* status.h: how every source file reports a failure. Nothing here allocates. */
#ifndef GB_STATUS_H
#define GB_STATUS_H
#include "engine.h"

/* Write one formatted sentence to err (cut to errlen, always terminated) and return code, so
 * that a refusal is one statement: return gb_fail(err, errlen, ENGINE_EFORMAT, "…", …). */
engine_status gb_fail(char *err, size_t errlen, engine_status code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif
