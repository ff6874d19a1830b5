/* utf8_part.h: a UTF-8 sequence that is half read, and which code points it can still become. */
#ifndef GAUGEBLOCK_CONSTRAIN_UTF8_PART_H
#define GAUGEBLOCK_CONSTRAIN_UTF8_PART_H
#include <stdint.h>

typedef struct utf8_part {
    uint32_t bits;   /* of the code point so far */
    uint16_t left;   /* bytes still to come; 0: nothing is half read */
    uint16_t length; /* of the whole sequence */
} utf8_part;

static inline uint32_t utf8_length(uint32_t code_point)
{
    return code_point < 0x80 ? 1 : code_point < 0x800 ? 2 : code_point < 0x10000 ? 3 : 4;
}

/* Read one byte: 0 where no UTF-8 sequence goes on with it. Overlong forms and surrogates are told by
 * utf8_range being empty. */
static inline int utf8_read(utf8_part *p, uint8_t byte)
{
    if (p->left > 0) {
        if ((byte & 0xc0) != 0x80)
            return 0;
        p->bits = p->bits << 6 | (byte & 0x3f);
        p->left--;
        return 1;
    }
    if (byte < 0x80)
        *p = (utf8_part){byte, 0, 1};
    else if (byte >= 0xc2 && byte < 0xe0)
        *p = (utf8_part){byte & 0x1f, 1, 2};
    else if (byte >= 0xe0 && byte < 0xf0)
        *p = (utf8_part){byte & 0x0f, 2, 3};
    else if (byte >= 0xf0 && byte < 0xf5)
        *p = (utf8_part){byte & 0x07, 3, 4};
    else
        return 0;
    return 1;
}

/* The code points that it can become, surrogates not taken out: lo > hi where there are none. */
static inline void utf8_range(const utf8_part *p, uint32_t *lo, uint32_t *hi)
{
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    uint32_t shift = 6u * p->left;
    *lo = p->bits << shift;
    *hi = *lo | ((1u << shift) - 1);
    if (*lo < least[p->length])
        *lo = least[p->length];
    if (*hi > 0x10ffff)
        *hi = 0x10ffff;
}

/* The bytes of a code point; their number. */
static inline uint32_t utf8_write(uint32_t c, uint8_t out[4])
{
    uint32_t n = utf8_length(c);
    static const uint8_t lead[5] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (uint32_t i = n; i-- > 1; c >>= 6)
        out[i] = (uint8_t)(0x80 | (c & 0x3f));
    out[0] = (uint8_t)(lead[n] | c);
    return n;
}

#endif
