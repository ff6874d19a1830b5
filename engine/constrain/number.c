/* number.c: languages of JSON number texts (lang.h). */
#include <string.h>

#include "lang_impl.h"

const lang *lang_number_all(lang_set *s) {
    if (s->number_all || s->pool->status != ENGINE_OK)
        return s->number_all;
    /* 0 start, 1 after the sign, 2 zero, 3 whole digits, 4 point, 5 decimals, 6 e, 7 sign of e, 8 digits of e */
    static const lang_edge edges[] = {
        {'-', '-', 1}, {'0', '0', 2}, {'1', '9', 3}, {'0', '0', 2}, {'1', '9', 3}, {'.', '.', 4}, {'E', 'E', 6},
        {'e', 'e', 6}, {'.', '.', 4}, {'0', '9', 3}, {'E', 'E', 6}, {'e', 'e', 6}, {'0', '9', 5}, {'0', '9', 5},
        {'E', 'E', 6}, {'e', 'e', 6}, {'+', '+', 7}, {'-', '-', 7}, {'0', '9', 8}, {'0', '9', 8}, {'0', '9', 8},
    };
    static const uint32_t first[] = {0, 3, 5, 8, 12, 13, 16, 19, 20, 21};
    static const uint8_t accept[] = {0, 0, 1, 1, 0, 1, 0, 0, 1};
    scratch_mark mark = scratch_here(s);
    dfa d;
    int good = dfa_init(s, &d, 9, 21);
    for (uint32_t i = 0; good && i < 9; i++) {
        good = dfa_state(s, &d, accept[i]);
        for (uint32_t e = first[i]; good && e < first[i + 1]; e++)
            good = dfa_edge(s, &d, edges[e].lo, edges[e].hi, edges[e].to);
    }
    if (good) {
        dfa_close(&d);
        s->number_all = lang_from_dfa(s, &d);
    }
    scratch_release(s, mark);
    return s->number_all;
}
