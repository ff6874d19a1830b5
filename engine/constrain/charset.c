/* charset.c: sets of letters as ranges, and the classes \d \w \s of ECMA-262. In scratch. */
#include <stdlib.h>
#include <string.h>

#include "regex.h"

int charset_add(lang_set *s, charset *c, uint32_t lo, uint32_t hi) {
    if (c->n == c->cap) {
        uint32_t cap = c->cap ? c->cap * 2 : 4;
        range *ranges = scratch_alloc(s, cap * sizeof *ranges);
        if (!ranges)
            return 0;
        if (c->n)
            memcpy(ranges, c->ranges, c->n * sizeof *ranges);
        c->ranges = ranges;
        c->cap = cap;
    }
    c->ranges[c->n++] = (range){lo, hi};
    return pool_step(s->pool, 1);
}

int charset_add_points(lang_set *s, charset *c, uint32_t lo, uint32_t hi) {
    if (lo >= 0xD800 && lo < 0xE000)
        lo = 0xE000;
    if (hi >= 0xD800 && hi < 0xE000)
        hi = 0xD7FF;
    return lo > hi || charset_add(s, c, letter_of(lo), letter_of(hi));
}

int charset_add_set(lang_set *s, charset *c, const charset *other) {
    for (uint32_t i = 0; i < other->n; i++)
        if (!charset_add(s, c, other->ranges[i].lo, other->ranges[i].hi))
            return 0;
    return 1;
}

static int compare_ranges(const void *pa, const void *pb) {
    const range *a = pa, *b = pb;
    return (a->lo > b->lo) - (a->lo < b->lo);
}

int charset_finish(lang_set *s, charset *c) {
    int sorted = 1;
    for (uint32_t i = 1; i < c->n; i++)
        sorted &= c->ranges[i - 1].lo <= c->ranges[i].lo;
    if (!sorted)
        qsort(c->ranges, c->n, sizeof *c->ranges, compare_ranges);
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->n; i++) {
        range r = c->ranges[i];
        if (n && r.lo <= c->ranges[n - 1].hi + 1)
            c->ranges[n - 1].hi = r.hi > c->ranges[n - 1].hi ? r.hi : c->ranges[n - 1].hi;
        else
            c->ranges[n++] = r;
    }
    c->n = n;
    return s->pool->status == ENGINE_OK;
}

int charset_negate(lang_set *s, charset *c) {
    charset out = {0};
    uint32_t at = 0;
    for (uint32_t i = 0; i < c->n; i++) {
        if (c->ranges[i].lo > at && !charset_add(s, &out, at, c->ranges[i].lo - 1))
            return 0;
        at = c->ranges[i].hi + 1;
    }
    if (at < LETTERS && !charset_add(s, &out, at, LAST_LETTER))
        return 0;
    *c = out;
    return 1;
}

int charset_add_class(lang_set *s, charset *c, char letter) {
    static const range digits[] = {{'0', '9'}};
    static const range words[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
    static const range spaces[] = {{0x09, 0x0D},     {0x20, 0x20},     {0xA0, 0xA0},     {0x1680, 0x1680},
                                   {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F},
                                   {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
    char lower = (char)(letter | 0x20);
    const range *from = lower == 'd' ? digits : lower == 'w' ? words : spaces;
    uint32_t n = lower == 'd' ? 1 : lower == 'w' ? 4 : 10;
    charset class = {0};
    for (uint32_t i = 0; i < n; i++)
        if (!charset_add_points(s, &class, from[i].lo, from[i].hi))
            return 0;
    if (letter != lower && !charset_negate(s, &class))
        return 0;
    return charset_add_set(s, c, &class);
}
