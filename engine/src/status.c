/* status.c: formatting of error texts; see status.h. */
#include "status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

engine_status gb_fail(char *err, size_t errlen, engine_status code, const char *format, ...)
{
    if (err == NULL || errlen == 0)
        return code;
    va_list args;
    va_start(args, format);
    vsnprintf(err, errlen, format, args);
    va_end(args);
    return code;
}

const char *gb_quote(char out[GB_QUOTE_BYTES], const char *text, uint64_t len)
{
    size_t at = 0;
    out[at++] = '"';
    for (uint64_t i = 0; i < len; i++) {
        unsigned char b = (unsigned char)text[i];
        if (at > GB_QUOTE_BYTES - 12) {
            memcpy(out + at, "...", 3);
            at += 3;
            break;
        }
        if (b < 0x20 || b > 0x7e || b == '"' || b == '\\')
            at += (size_t)snprintf(out + at, 5, "\\x%02x", b);
        else
            out[at++] = (char)b;
    }
    out[at++] = '"';
    out[at] = 0;
    return out;
}
