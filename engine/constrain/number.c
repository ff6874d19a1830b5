/* number.c: languages of JSON number texts whose exact decimal value is in a range, a multiple, an integer.
 *
 * Texts without an exponent are judged whatever their length, leading minus and -0 included. Of texts
 * with an exponent those are held that programs write: d or d.ddd with d not 0 (at most 16 decimals, the
 * last not 0, or just .0) or a zero mantissa, and an exponent, leading zeros allowed, of at most 300 in
 * size. Left out where a value must be judged: other texts with an exponent (10e3, 1e999), all of them
 * where multipleOf has a factor above 16 beside its power of ten, and for integers below 10^16 in size by
 * their bounds. A reader tracks how the digits compare with both bounds, once as they stand and once as a
 * mantissa, and their remainder; the language is what is found by exploring it. Refused by name: bounds of
 * more than 4000 places, and multiples whose remainders pass the caps of a language. */
#include <string.h>

#include "lang_impl.h"

enum { MAX_DECIMALS = 16, MAX_EXPONENT = 300, MAX_PLACES = 4000, MAX_EXPONENT_FACTOR = 16 };
enum { STEPS_OF_A_READING = 100 };   /* it is hashed and compared for each letter */
enum { LESS = 0, EQUAL = 1, MORE = 2, NEVER = 3 };  /* NEVER: the text as it stands is out, whatever follows */
enum { SIGNED, WHOLE, POINT, DECIMALS, E, E_SIGN, E_DIGITS };
enum { LEAD_NONE, LEAD_ZERO, LEAD_ONE, LEAD_MANY };  /* the digits before the point */

/* A bound on the size of a number: 0.d0d1d2… * 10^places. */
typedef struct bound {
    const char *digits;      /* no zeros at either end */
    int32_t n, places, n_decimals;
    int set, inclusive;
} bound;

typedef struct spec {
    bound low[2], high[2];   /* of the size, by sign (1: negative) */
    int none[2];             /* no number of that sign */
    int no_exponent[2];      /* texts of that sign with an exponent are left out */
    int integer_text;        /* no point, no exponent */
    int has_multiple;
    uint64_t m;              /* multiples of m * 10^e; m is not a multiple of 10 */
    int32_t e;
} spec;

/* How far the digits agree with a bound: how they compare, and how many were compared. */
typedef struct track {
    uint16_t how, at;
} track;

typedef struct reading {
    uint8_t phase, negative, lead;
    uint8_t fits;            /* with a multiple: nothing seen forbids the text as it stands */
    uint8_t first_zero;      /* the only decimal is a zero that the remainder does not count yet */
    uint8_t last_zero;       /* the last decimal is a zero */
    uint16_t decimals;
    uint64_t rest;           /* remainder by m */
    uint32_t zeros;          /* pending zeros of a whole number, where e > 0 */
    track low, high;         /* as they stand */
    track low_m, high_m;     /* as a mantissa */
    int16_t e_low, e_high;   /* exponents allowed */
    uint8_t e_digits, e_cmp_low, e_cmp_high, unused;
    uint32_t padding;        /* readings are compared as bytes */
} reading;

/* ---- Decimals -------------------------------------------------------------------------------- */

static int bad_decimal(pool *p, const char *text, uint64_t len, engine_status status, const char *why) {
    (void)pool_fail(p, status, "number %.*s: %s", (int)(len < 60 ? len : 60), text, why);
    return 0;
}

/* The exponent at text[at…len), saturated. */
static int64_t read_exponent(const char *text, uint64_t at, uint64_t len) {
    int negative = at < len && text[at] == '-';
    int64_t e = 0;
    for (at += at < len && (text[at] == '-' || text[at] == '+'); at < len; at++)
        e = e > 1000000000 ? e : e * 10 + (text[at] - '0');
    return negative ? -e : e;
}

int lang_decimal_parse(pool *p, const char *text, uint64_t len, lang_decimal *out) {
    char *digits = pool_alloc(p, len + 1);
    uint64_t at = 0, n = 0;
    int64_t exponent = 0;
    int point = 0, any = 0;
    if (!digits)
        return 0;
    *out = (lang_decimal){.negative = len > 0 && text[0] == '-', .digits = digits};
    for (at = (uint64_t)out->negative; at < len && ((text[at] >= '0' && text[at] <= '9') || (text[at] == '.' && !point)); at++) {
        if (text[at] == '.') {
            point = 1;
            continue;
        }
        any = 1;
        exponent -= point;
        if (n || text[at] != '0')
            digits[n++] = text[at];
    }
    if (!any)
        return bad_decimal(p, text, len, ENGINE_EFORMAT, "no number");
    if (at < len) {
        uint64_t from = at + 1 + (at + 1 < len && (text[at + 1] == '-' || text[at + 1] == '+'));
        for (uint64_t i = from; i <= len; i++)
            if ((text[at] | 0x20) != 'e' || from == len || (i < len && (text[i] < '0' || text[i] > '9')))
                return bad_decimal(p, text, len, ENGINE_EFORMAT, "no number");
        exponent += read_exponent(text, at + 1, len);
    }
    for (; n && digits[n - 1] == '0'; n--)
        exponent++;
    if (n == 0) {
        digits[n++] = '0';
        exponent = 0;
    }
    if (exponent > 1000000000 || exponent < -1000000000 || n > 1000000000)
        return bad_decimal(p, text, len, ENGINE_EUNSUPPORTED, "its exponent is larger than can be held");
    out->n_digits = (uint32_t)n;
    out->exponent = (int32_t)exponent;
    return 1;
}

static int is_zero(const lang_decimal *d) {
    for (uint32_t i = 0; i < d->n_digits; i++)
        if (d->digits[i] != '0')
            return 0;
    return 1;
}

/* ---- Setting up ------------------------------------------------------------------------------ */

static bound bound_of(const lang_decimal *d, int inclusive) {
    bound b = {.digits = d->digits, .n = (int32_t)d->n_digits, .places = (int32_t)d->n_digits + d->exponent, .set = 1,
               .inclusive = inclusive};
    for (; b.n && b.digits[0] == '0'; b.digits++, b.n--)
        b.places--;
    while (b.n && b.digits[b.n - 1] == '0')
        b.n--;
    if (b.n == 0)
        b.places = 0;
    b.n_decimals = b.n > b.places ? b.n - b.places : 0;
    return b;
}

/* A bound from below on numbers of one sign (above: of the mirrored ones), as bounds on their size. */
static void set_bound(spec *s, const lang_decimal *d, int exclusive, int from_above) {
    if (!d)
        return;
    int negative = d->negative && !is_zero(d);
    int towards = from_above; /* the sign on whose side the bound limits the size from above: 0 positive */
    bound b = bound_of(d, !exclusive);
    if (is_zero(d)) { /* from below: negative sizes are at most 0 */
        s->high[!towards] = b;
        if (exclusive) {
            s->low[towards] = b;
            s->none[!towards] = 1;
        }
    } else if (negative == towards) { /* 5 from below: positive sizes from 5 on, nothing negative */
        s->low[towards] = b;
        s->none[!towards] = 1;
    } else {
        s->high[!towards] = b;
    }
}

static int refuse(lang_set *set, const char *what) {
    (void)pool_fail(set->pool, ENGINE_EUNSUPPORTED, "%s", what);
    return 0;
}

static int set_multiple(lang_set *set, spec *s, const lang_decimal *d, int integer) {
    uint64_t m = d ? 0 : 1;
    int32_t e = d ? d->exponent : 0;
    if (!d && !integer)
        return 1;
    for (uint32_t i = 0; d && i < d->n_digits; i++) {
        if (m > 100000000000000000u)
            return refuse(set, "multipleOf has more digits than can be held");
        m = m * 10 + (uint64_t)(d->digits[i] - '0');
    }
    if (m == 0 || (d && d->negative))
        return refuse(set, "multipleOf must be greater than 0");
    if (integer) { /* the least common multiple with 1 */
        for (; e < 0 && m % 10 == 0; e++)
            m /= 10;
        for (int32_t k = e; k < 0 && m % 2 == 0; k++)
            m /= 2;
        for (int32_t k = e; k < 0 && m % 5 == 0; k++)
            m /= 5;
        e = e < 0 ? 0 : e;
    }
    for (; m % 10 == 0; e++)
        m /= 10;
    if (m > LANG_MAX_STATES || e > MAX_PLACES || e < -MAX_PLACES)
        return refuse(set, "multipleOf needs more remainders than can be held");
    s->has_multiple = 1;
    s->m = m;
    s->e = e;
    return 1;
}

static int prepare(lang_set *set, spec *s, const lang_range *r) {
    memset(s, 0, sizeof *s);
    s->integer_text = r->integer == 2;
    set_bound(s, r->min, r->min_exclusive, 0);
    set_bound(s, r->max, r->max_exclusive, 1);
    for (int i = 0; i < 4; i++) {
        const bound *b = i < 2 ? &s->low[i] : &s->high[i - 2];
        if (b->set && (b->n > MAX_PLACES || b->places > MAX_PLACES || b->places < -MAX_PLACES))
            return refuse(set, "a bound of more than 4000 places is not held");
    }
    if (!set_multiple(set, s, r->multiple_of, r->integer))
        return 0;
    for (int i = 0; i < 2; i++)
        s->no_exponent[i] = s->integer_text || (s->has_multiple && s->m > MAX_EXPONENT_FACTOR) ||
                            (r->integer && s->high[i].set && s->high[i].places <= 16);
    return 1;
}

/* ---- Comparing digits with a bound ----------------------------------------------------------- */

static int digit_of(const bound *b, int32_t i) {
    return i >= 0 && i < b->n ? b->digits[i] - '0' : 0;
}

static track compare_digit(track t, int digit, int against, int32_t most) {
    if (t.how == EQUAL)
        t.how = digit < against ? LESS : digit > against ? MORE : EQUAL;
    if (t.at < most)
        t.at++;
    return t;
}

/* A digit before the point; t.at counts them. */
static track whole_digit(const bound *b, track t, int digit) {
    if (!b->set)
        return t;
    if (t.at >= b->places)
        return (track){MORE, (uint16_t)(b->places < 0 ? 0 : b->places + 1)}; /* more digits than the bound */
    return compare_digit(t, digit, digit_of(b, t.at), b->places);
}

/* The whole number is over: how it compares, with nothing behind it read yet. */
static track whole_over(const bound *b, track t) {
    if (!b->set)
        return t;
    if (t.at < b->places)
        t.how = LESS;
    return (track){t.how, 0};
}

/* A decimal; t.at counts them while all is equal. */
static track decimal_digit(const bound *b, track t, int digit) {
    if (!b->set || t.how != EQUAL)
        return t;
    t = compare_digit(t, digit, digit_of(b, b->places + t.at), b->n_decimals);
    return t.how == EQUAL ? t : (track){t.how, 0};
}

static track mantissa_digit(const bound *b, track t, int digit) {
    if (!b->set || t.how != EQUAL)
        return t;
    t = compare_digit(t, digit, digit_of(b, t.at), b->n);
    return t.how == EQUAL ? t : (track){t.how, 0};
}

static int compares(track t, int32_t all) {
    return t.how == EQUAL && t.at < all ? LESS : t.how;
}

static int within(const bound *low, const bound *high, int how_low, int how_high) {
    return (!low->set || how_low == MORE || (how_low == EQUAL && low->inclusive)) &&
           (!high->set || how_high == LESS || (how_high == EQUAL && high->inclusive));
}

/* ---- Remainders ------------------------------------------------------------------------------ */

/* Fewest zeros behind a number with remainder r that make it a multiple of m; 999: none do. */
static int zeros_needed(const spec *s, uint64_t r) {
    for (int n = 0; n < 64; n++) {
        if (r == 0)
            return n;
        r = r * 10 % s->m;
    }
    return 999;
}

static void whole_rest(const spec *s, reading *r, int digit) {
    if (!s->has_multiple)
        return;
    if (s->e > 0 && digit == 0 && r->lead != LEAD_ZERO) {
        if (r->zeros < (uint32_t)s->e)
            r->zeros++;
        else
            r->rest = r->rest * 10 % s->m;
        return;
    }
    for (; r->zeros; r->zeros--)
        r->rest = r->rest * 10 % s->m;
    r->rest = (r->rest * 10 + (uint64_t)digit) % s->m;
}

/* Whether the whole number is a multiple, with only zeros behind the point. */
static int whole_fits(const spec *s, const reading *r) {
    if (!s->has_multiple || r->lead == LEAD_ZERO)
        return 1;
    if (s->e < 0)
        return zeros_needed(s, r->rest) <= -s->e;
    return r->rest == 0 && r->zeros == (uint32_t)s->e;
}

static int decimals_fit(const spec *s, const reading *r) {
    if (!s->has_multiple)
        return 1;
    if (!r->fits)
        return 0;
    if (s->e < 0 && r->decimals < -s->e)
        return zeros_needed(s, r->rest) <= -s->e - r->decimals + (r->first_zero != 0);
    return 1;
}

static void decimal_rest(const spec *s, reading *r, int digit) {
    if (!s->has_multiple)
        return;
    if (r->first_zero) {
        r->rest = r->rest * 10 % s->m;
        r->first_zero = 0;
    }
    if (r->decimals == 1 && digit == 0) /* decimals counts this one */
        r->first_zero = 1;
    else
        r->rest = (r->rest * 10 + (uint64_t)digit) % s->m;
    if (s->e >= 0 || r->decimals > -s->e)
        r->fits = r->fits && digit == 0;
    else if (r->decimals == -s->e)
        r->fits = r->fits && (r->first_zero ? r->rest * 10 % s->m : r->rest) == 0;
}

/* ---- The reader ------------------------------------------------------------------------------ */

/* Forget what can no longer matter, so that readings that go on alike are equal. 0: nothing is left. */
static int settle(const spec *s, reading *r) {
    const bound *low = &s->low[r->negative], *high = &s->high[r->negative];
    if (r->phase == WHOLE) {
        if (r->lead == LEAD_MANY)
            r->low_m = r->high_m = (track){0};
        return !(r->lead == LEAD_MANY && high->set && r->high.how == MORE && r->high.at > high->places);
    }
    if (r->lead == LEAD_ONE && r->decimals > MAX_DECIMALS)
        r->lead = LEAD_MANY;
    if (r->lead != LEAD_ONE) {
        int32_t most = s->has_multiple && s->e < 0 ? -s->e : 0;
        r->last_zero = 0;
        r->low_m = r->high_m = (track){0};
        if (r->decimals >= most) {
            r->decimals = (uint16_t)most;
            r->rest = r->first_zero = 0;
        }
    }
    if ((low->set && r->low.how == LESS) || (high->set && r->high.how == MORE) || (s->has_multiple && !r->fits))
        r->low.how = r->high.how = NEVER;
    if (r->low.how != NEVER)
        return 1;
    r->low.at = r->high.at = r->fits = 0;
    return r->lead != LEAD_MANY && !s->no_exponent[r->negative];
}

static int start_digits(const spec *s, reading *r, int digit) {
    r->phase = WHOLE;
    r->lead = digit == 0 ? LEAD_ZERO : s->no_exponent[r->negative] ? LEAD_MANY : LEAD_ONE;
    r->low.how = r->high.how = r->low_m.how = r->high_m.how = EQUAL;
    r->fits = 1;
    if (digit == 0)
        return 1;
    r->low = whole_digit(&s->low[r->negative], r->low, digit);
    r->high = whole_digit(&s->high[r->negative], r->high, digit);
    r->low_m = mantissa_digit(&s->low[r->negative], r->low_m, digit);
    r->high_m = mantissa_digit(&s->high[r->negative], r->high_m, digit);
    whole_rest(s, r, digit);
    return 1;
}

static int more_digits(const spec *s, reading *r, int digit) {
    const bound *low = &s->low[r->negative], *high = &s->high[r->negative];
    if (r->phase == WHOLE) {
        if (r->lead == LEAD_ZERO)
            return 0;
        r->lead = LEAD_MANY;
        r->low = whole_digit(low, r->low, digit);
        r->high = whole_digit(high, r->high, digit);
        whole_rest(s, r, digit);
        return settle(s, r);
    }
    int32_t most = s->has_multiple && -s->e > MAX_DECIMALS ? -s->e : MAX_DECIMALS;
    r->phase = DECIMALS;
    if (r->lead == LEAD_ZERO && digit)
        r->lead = LEAD_MANY; /* 0.5: no exponent behind it */
    if (r->decimals <= most)
        r->decimals++;
    if (r->low.how != NEVER) {
        r->low = decimal_digit(low, r->low, digit);
        r->high = decimal_digit(high, r->high, digit);
    }
    r->low_m = mantissa_digit(low, r->low_m, digit);
    r->high_m = mantissa_digit(high, r->high_m, digit);
    r->last_zero = digit == 0;
    decimal_rest(s, r, digit);
    return settle(s, r);
}

static int point(const spec *s, reading *r) {
    if (r->phase != WHOLE || s->integer_text)
        return 0;
    r->low = whole_over(&s->low[r->negative], r->low);
    r->high = whole_over(&s->high[r->negative], r->high);
    r->fits = s->e < 0 ? 1 : (uint8_t)whole_fits(s, r);
    if (s->has_multiple && s->e > 0)
        for (; r->zeros; r->zeros--)
            r->rest = r->rest * 10 % s->m;
    r->phase = POINT;
    return settle(s, r);
}

/* The exponents that put the mantissa within the range: [e_low, e_high]. 0: none do. */
static int exponents(const spec *s, const reading *r, int *e_low, int *e_high) {
    const bound *low = &s->low[r->negative], *high = &s->high[r->negative];
    *e_low = -MAX_EXPONENT;
    *e_high = MAX_EXPONENT;
    if (r->lead == LEAD_ZERO) /* zero whatever the exponent */
        return within(low, high, low->set && low->n ? LESS : EQUAL, high->set && high->n ? LESS : EQUAL);
    if (high->set && high->n == 0)
        return 0;
    if (low->set && low->n) {
        int how = compares(r->low_m, low->n), at = low->places - 1;
        int reaches = how == MORE || (how == EQUAL && low->inclusive);
        *e_low = at + !reaches > *e_low ? at + !reaches : *e_low;
    }
    if (high->set) {
        int how = compares(r->high_m, high->n), at = high->places - 1;
        int stays = how == LESS || (how == EQUAL && high->inclusive);
        *e_high = at - !stays < *e_high ? at - !stays : *e_high;
    }
    if (s->has_multiple) {
        int least = (r->first_zero ? 0 : r->decimals) + s->e + zeros_needed(s, r->rest);
        *e_low = least > *e_low ? least : *e_low;
    }
    return *e_low <= *e_high;
}

static int exponent_begins(const spec *s, reading *r) {
    int e_low, e_high;
    if ((r->phase != WHOLE && r->phase != DECIMALS) || r->lead == LEAD_MANY || s->no_exponent[r->negative])
        return 0;
    if (r->lead == LEAD_ONE && r->last_zero && r->decimals != 1)
        return 0;
    if (!exponents(s, r, &e_low, &e_high))
        return 0;
    *r = (reading){.phase = E, .e_low = (int16_t)e_low, .e_high = (int16_t)e_high};
    return 1;
}

/* After the exponent's sign, or before its first digit: the sizes that are allowed. */
static int exponent_sign(reading *r, int negative) {
    int low = negative ? -r->e_high : r->e_low, high = negative ? -r->e_low : r->e_high;
    low = low < 0 ? 0 : low;
    if (low > high)
        return 0;
    *r = (reading){.phase = E_SIGN, .e_low = (int16_t)low, .e_high = (int16_t)high, .e_cmp_low = EQUAL, .e_cmp_high = EQUAL};
    return 1;
}

static int places_of(int value) {
    return value == 0 ? 0 : value < 10 ? 1 : value < 100 ? 2 : 3;
}

static int place(int value, int i) {
    int n = places_of(value);
    for (i++; i < n; n--)
        value /= 10;
    return i > places_of(value) ? 0 : value % 10;
}

static uint8_t compare_place(uint8_t how, int digit, int value, int i) {
    if (how != EQUAL || i >= places_of(value))
        return how;
    int against = place(value, i);
    return digit < against ? LESS : digit > against ? MORE : EQUAL;
}

static int exponent_digit(reading *r, int digit) {
    if (r->phase == E && !exponent_sign(r, 0))
        return 0;
    r->phase = E_DIGITS;
    if (digit == 0 && r->e_digits == 0)
        return 1;
    r->e_cmp_low = compare_place(r->e_cmp_low, digit, r->e_low, r->e_digits);
    r->e_cmp_high = compare_place(r->e_cmp_high, digit, r->e_high, r->e_digits);
    r->e_digits++;
    if (r->e_digits > places_of(r->e_high) || (r->e_digits == places_of(r->e_high) && r->e_cmp_high == MORE))
        return 0;
    return 1;
}

static int exponent_fits(const reading *r) {
    int low = places_of(r->e_low), high = places_of(r->e_high);
    return (r->e_digits > low || (r->e_digits == low && r->e_cmp_low != LESS)) &&
           (r->e_digits < high || (r->e_digits == high && r->e_cmp_high != MORE));
}

static int read_letter(const spec *s, reading *r, char c) {
    int digit = c >= '0' && c <= '9';
    if (r->phase == SIGNED) {
        if (c == '-' && !r->negative) {
            r->negative = 1;
            return 1;
        }
        return digit && !s->none[r->negative] && start_digits(s, r, c - '0');
    }
    if (digit && r->phase >= E)
        return exponent_digit(r, c - '0');
    if (digit)
        return more_digits(s, r, c - '0');
    if (c == '.')
        return point(s, r);
    if (c == 'e' || c == 'E')
        return exponent_begins(s, r);
    return r->phase == E && exponent_sign(r, c == '-');
}

static int reading_accepts(const spec *s, const reading *r) {
    const bound *low = &s->low[r->negative], *high = &s->high[r->negative];
    if (r->phase == WHOLE) {
        track l = whole_over(low, r->low), h = whole_over(high, r->high);
        return whole_fits(s, r) && within(low, high, compares(l, low->n_decimals), compares(h, high->n_decimals));
    }
    if (r->phase == DECIMALS)
        return r->low.how != NEVER && decimals_fit(s, r) &&
               within(low, high, compares(r->low, low->n_decimals), compares(r->high, high->n_decimals));
    return r->phase == E_DIGITS && exponent_fits(r);
}

/* ---- Exploring ------------------------------------------------------------------------------- */

typedef struct readings {
    reading *all;
    uint32_t n, cap, *table, table_size;
} readings;

static uint64_t hash_reading(const reading *r) {
    uint64_t words[(sizeof *r + 7) / 8] = {0}, h = 5;
    memcpy(words, r, sizeof *r);
    for (uint32_t i = 0; i < sizeof words / sizeof *words; i++)
        h = mix64(h, words[i]);
    return h;
}

static int grow_readings(lang_set *set, readings *x) {
    uint32_t size = x->table_size ? x->table_size * 2 : 256;
    uint32_t *table = scratch_alloc(set, size * sizeof *table);
    reading *all = scratch_alloc(set, (size / 2 + 1) * sizeof *all);
    if (!table || !all)
        return 0;
    memset(table, 0xFF, size * sizeof *table);
    if (x->n)
        memcpy(all, x->all, x->n * sizeof *all);
    for (uint32_t i = 0; i < x->n; i++) {
        uint32_t at = (uint32_t)hash_reading(&all[i]) & (size - 1);
        while (table[at] != UINT32_MAX)
            at = (at + 1) & (size - 1);
        table[at] = i;
    }
    x->all = all;
    x->table = table;
    x->table_size = size;
    return 1;
}

static uint32_t reading_number(lang_set *set, readings *x, const reading *r) {
    if (2 * x->n + 2 > x->table_size && !grow_readings(set, x))
        return UINT32_MAX;
    uint32_t at = (uint32_t)hash_reading(r) & (x->table_size - 1);
    while (x->table[at] != UINT32_MAX) {
        if (memcmp(&x->all[x->table[at]], r, sizeof *r) == 0)
            return x->table[at];
        at = (at + 1) & (x->table_size - 1);
    }
    x->table[at] = x->n;
    x->all[x->n] = *r;
    return x->n++;
}

/* Whether the digits 1 … 9 may lead to different readings. */
static int digits_differ(const spec *s, const reading *r) {
    const bound *low = &s->low[r->negative], *high = &s->high[r->negative];
    if (r->phase >= E)
        return 1;
    return (s->has_multiple && s->m > 1) || r->phase == SIGNED ||
           (low->set && (r->low.how == EQUAL || r->low_m.how == EQUAL)) ||
           (high->set && (r->high.how == EQUAL || r->high_m.how == EQUAL));
}

static int explore_one(lang_set *set, const spec *s, dfa *d, readings *x, uint32_t i) {
    int alike = !digits_differ(s, &x->all[i]), exponent = x->all[i].phase >= E;
    if (!dfa_state(set, d, reading_accepts(s, &x->all[i])) || !pool_step(set->pool, STEPS_OF_A_READING))
        return 0;
    for (const char *c = exponent ? "+-0123456789" : "-.0123456789Ee"; *c; c++) {
        reading next;
        memcpy(&next, &x->all[i], sizeof next);
        int same = alike && *c >= '1' && *c <= '9';
        if (read_letter(s, &next, *c)) {
            uint32_t to = reading_number(set, x, &next);
            if (to == UINT32_MAX || !dfa_edge(set, d, (uint32_t)*c, same ? '9' : (uint32_t)*c, to))
                return 0;
        }
        if (same)
            c += '9' - *c;
    }
    return 1;
}

static int explore(lang_set *set, const spec *s, dfa *d) {
    readings x = {0};
    reading first;
    memset(&first, 0, sizeof first);
    if (!dfa_init(set, d, 64, 256) || reading_number(set, &x, &first) == UINT32_MAX)
        return 0;
    for (uint32_t i = 0; i < x.n; i++)
        if (!explore_one(set, s, d, &x, i))
            return 0;
    dfa_close(d);
    return 1;
}

/* The automaton of RFC 8259's numbers; with_exponent 0: without one. */
static const lang *any_number(lang_set *s, int with_exponent) {
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
    const lang *l = NULL;
    int good = dfa_init(s, &d, 9, 21);
    for (uint32_t i = 0; good && i < 9; i++) {
        good = dfa_state(s, &d, accept[i]);
        for (uint32_t e = first[i]; good && e < first[i + 1]; e++)
            if (with_exponent || edges[e].to != 6)
                good = dfa_edge(s, &d, edges[e].lo, edges[e].hi, edges[e].to);
    }
    if (good) {
        dfa_close(&d);
        l = lang_from_dfa(s, &d);
    }
    scratch_release(s, mark);
    return l;
}

const lang *lang_number_all(lang_set *s) {
    if (!s->number_all)
        s->number_all = any_number(s, 1);
    return s->number_all;
}

const lang *lang_number_held(lang_set *s) {
    if (!s->number_held)
        s->number_held = any_number(s, 0);
    return s->number_held;
}

static const lang *numbers(lang_set *set, const lang_range *range) {
    scratch_mark mark = scratch_here(set);
    const lang *l = NULL;
    spec s;
    dfa d;
    if (prepare(set, &s, range) && explore(set, &s, &d))
        l = lang_from_dfa(set, &d);
    scratch_release(set, mark);
    return l;
}

const lang *lang_numbers(lang_set *s, const lang_range *r) {
    if (s->pool->status != ENGINE_OK)
        return NULL;
    if (!r->min && !r->max && !r->multiple_of && !r->integer)
        return lang_number_all(s);
    return numbers(s, r);
}
