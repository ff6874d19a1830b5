/* status.h: how every source file reports a failure. Nothing here allocates. */
#ifndef GB_STATUS_H
#define GB_STATUS_H
#include "engine.h"

/* Write one formatted sentence to err (cut to errlen, always terminated) and return code, so
 * that a refusal is one statement: return gb_fail(err, errlen, ENGINE_EFORMAT, "…", …). */
engine_status gb_fail(char *err, size_t errlen, engine_status code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

enum { GB_QUOTE_BYTES = 200 };

/* "text" with everything but printable ASCII as \xNN, cut to fit: safe on any terminal. */
const char *gb_quote(char out[GB_QUOTE_BYTES], const char *text, uint64_t len);

#endif
