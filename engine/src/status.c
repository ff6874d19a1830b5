/* status.c: formatting of error texts; see status.h. */
#include "status.h"

#include <stdarg.h>
#include <stdio.h>

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
