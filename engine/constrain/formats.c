/* formats.c: the formats of JSON Schema as languages.
 *
 * A format is a pattern (regex.c), now and then cut by a length. Each is what the RFC allows and
 * jsonschema's checker accepts, with one addition: leap seconds, which the checker does not know, are held
 * where they can be (23:59:60 in UTC; in a date-time on June 30th or December 31st; offsets of whole and half
 * hours). Smaller than the RFC: year 0000 is out; offsets at leap seconds; idn-hostname and the domains of
 * idn-email take the letters of about a dozen scripts, with the contexts that these need (no other combining
 * marks, no "xn--", a domain all right to left or not at all), labels with others than ASCII up to 12
 * characters; IRIs stay in the Basic Multilingual Plane; uri-template without reserved operators, and without
 * % in names; relative-json-pointer without a digit behind a 0; regex takes patterns that ECMA-262 and Python
 * both read, groups and lookaheads nested up to four deep, ranges of few kinds. A format is made once a set. */
#include <stdio.h>
#include <string.h>

#include "lang_impl.h"

/* ---- Pieces ---------------------------------------------------------------------------------- */

#define YEAR "(?!0000)\\d{4}"
#define LEAP_YEAR "(?!0000)(?:\\d\\d(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)"
#define DATE                                                                                        \
    "(?:" YEAR "-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)" \
    "|02-(?:0[1-9]|1\\d|2[0-8]))|" LEAP_YEAR "-02-29)"
#define TIME "(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d+)?(?:[Zz]|[+-](?:[01]\\d|2[0-3]):[0-5]\\d)"

#define OCTET "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define IPV4 "(?:" OCTET "\\.){3}" OCTET
#define H16 "[0-9A-Fa-f]{1,4}"
#define LS32 "(?:" H16 ":" H16 "|" IPV4 ")"
#define IPV6                                                                                               \
    "(?:(?:" H16 ":){6}" LS32 "|::(?:" H16 ":){5}" LS32 "|(?:" H16 ")?::(?:" H16 ":){4}" LS32              \
    "|(?:(?:" H16 ":){0,1}" H16 ")?::(?:" H16 ":){3}" LS32 "|(?:(?:" H16 ":){0,2}" H16 ")?::(?:" H16       \
    ":){2}" LS32 "|(?:(?:" H16 ":){0,3}" H16 ")?::" H16 ":" LS32 "|(?:(?:" H16 ":){0,4}" H16 ")?::" LS32   \
    "|(?:(?:" H16 ":){0,5}" H16 ")?::" H16 "|(?:(?:" H16 ":){0,6}" H16 ")?::)"
/* What the checker of IRIs reads: a fixed number of groups on each side of "::". */
#define IPV6_FULL                                                                                          \
    "(?:(?:" H16 ":){6}" LS32 "|::(?:" H16 ":){5}" LS32 "|" H16 "::(?:" H16 ":){4}" LS32 "|" H16 ":" H16   \
    "::(?:" H16 ":){3}" LS32 "|(?:" H16 ":){2}" H16 "::(?:" H16 ":){2}" LS32 "|(?:" H16 ":){3}" H16 "::"   \
    H16 ":" LS32 ")"

#define LABEL "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#define ATEXT "[A-Za-z0-9!#$%&'*+\\-/=?^_`{|}~"
#define ADDRESS "\\[(?:" IPV4 "|IPv6:" IPV6 ")\\]"
/* Letters of scripts that IDNA takes in any place: lower case where there is case, composed, left to right. */
#define PLAIN                                                                                                \
    "a-z0-9\\u00DF-\\u00F6\\u00F8-\\u00FF\\u03AC-\\u03CE\\u0430-\\u045F\\u0561-\\u0586\\u06F0-\\u06F9\\u0E01-\\u0E30" \
    "\\u0F0B\\u10D0-\\u10F0\\u3007\\u3041-\\u3096\\u30A1-\\u30FA\\u3105-\\u312F\\u4E00-\\u9FA5\\uAC00-\\uD7A3"
/* A letter with what may only follow it: a dot between two l, keraia before Greek, joiners behind a virama. */
#define U_UNIT "(?:[" PLAIN "]|l\\u00B7(?=l)|\\u0375(?=[\\u03AC-\\u03CE])|[\\u0915-\\u0939](?:\\u094D[\\u200C\\u200D]?)?)"
#define KANA "[\\u3041-\\u3096\\u30A1-\\u30FA\\u4E00-\\u9FA5]"
#define DOT ".\\u3002\\uFF0E\\uFF61"
#define U_LABEL                                                                                              \
    "(?:(?!..--)" LABEL "|(?![^" DOT "]{13})(?:" U_UNIT "+|\\u30FB*" KANA "(?:\\u30FB|" KANA ")*))"
/* Right to left: Hebrew, with geresh behind a letter; Arabic, with its digits, and a non-joiner between joining letters. */
#define ARABIC "\\u0622-\\u063A\\u0641-\\u064A"
#define R_LABEL                                                                                              \
    "(?:(?![^" DOT "]{13})(?:(?:[\\u05D0-\\u05EA][\\u05F3\\u05F4]?)+|[" ARABIC "\\u0621\\u06FD\\u06FE](?:["     \
    ARABIC "\\u0621\\u0660-\\u0669\\u06FD\\u06FE]|[\\u0626\\u0628\\u062A-\\u062E\\u0633-\\u063A\\u0641-\\u0647"     \
    "\\u0649\\u064A]\\u200C(?=[" ARABIC "]))*))"
#define U_DOMAIN(SEPARATOR) "(?:" U_LABEL "(?:" SEPARATOR U_LABEL ")*|" R_LABEL "(?:" SEPARATOR R_LABEL ")*)"

#define PCT "%[0-9A-Fa-f]{2}"
#define URI_SET "A-Za-z0-9._~!$&'()*+,;=\\-"
#define URI_PARTS(SET, V6)                                                                                 \
    "//(?:(?:[" SET ":]|" PCT ")*@)?(?:\\[(?:" V6 "|v[0-9A-Fa-f]+\\.[" URI_SET ":]+)\\]|(?:[" SET "]|" PCT \
    ")*)(?::\\d*)?(?:/(?:[" SET ":@]|" PCT ")*)*|/(?:(?:[" SET ":@]|" PCT ")+(?:/(?:[" SET ":@]|" PCT ")*)*)?"
#define URI_TAIL(SET, PRIVATE)                                                                             \
    "(?:\\?(?:[" SET PRIVATE ":@/?]|" PCT ")*)?(?:#(?:[" SET ":@/?]|" PCT ")*)?"
#define ABSOLUTE(SET, V6)                                                                                  \
    "[A-Za-z][A-Za-z0-9+.\\-]*:(?:" URI_PARTS(SET, V6) "|(?:[" SET ":@]|" PCT ")+(?:/(?:[" SET ":@]|" PCT ")*)*|)"
#define RELATIVE(SET, V6)                                                                                  \
    "(?:" URI_PARTS(SET, V6) "|(?:[" SET "@]|" PCT ")+(?:/(?:[" SET ":@]|" PCT ")*)*|)"
#define UCS "\\u00A0-\\uD7FF\\uF900-\\uFDCF\\uFDF0-\\uFFEF"

#define TEMPLATE_NAME "\\w+(?:\\.\\w+)*"
#define TEMPLATE_SPEC TEMPLATE_NAME "(?:\\*|:[1-9]\\d{0,2})?"
#define POINTER "(?:/(?:[^/~]|~[01])*)*"

static const struct { const char *name, *pattern; uint32_t max_length; } formats[] = {
    {"date", DATE, 0},
    {"duration",
     "P(?:\\d+W|(?:\\d+Y(?:\\d+M(?:\\d+D)?)?|\\d+M(?:\\d+D)?|\\d+D)(?:T(?:\\d+H(?:\\d+M(?:\\d+S)?)?|\\d+M(?:\\d+S)?|\\d+S))?"
     "|T(?:\\d+H(?:\\d+M(?:\\d+S)?)?|\\d+M(?:\\d+S)?|\\d+S))", 0},
    {"email",
     "(?:" ATEXT "]+(?:\\." ATEXT "]+)*|\"(?:[ !#-\\[\\]-~]|\\\\[ -~])*\")@(?:" LABEL "(?:\\." LABEL ")*|" ADDRESS ")", 0},
    {"idn-email",
     "(?:" ATEXT "\\u00A0-\\u{10FFFF}]+(?:\\." ATEXT "\\u00A0-\\u{10FFFF}]+)*|\"(?:[ !#-\\[\\]-~\\u00A0-\\u{10FFFF}]"
     "|\\\\[ -~])*\")@(?:" U_DOMAIN("\\.") "|" ADDRESS ")", 0},
    {"hostname", LABEL "(?:\\." LABEL ")*", 253},
    {"idn-hostname", U_DOMAIN("[" DOT "]"), 60},
    {"ipv4", IPV4, 0},
    {"ipv6", IPV6, 0},
    {"uri", ABSOLUTE(URI_SET, IPV6) URI_TAIL(URI_SET, ""), 0},
    {"uri-reference", "(?:" ABSOLUTE(URI_SET, IPV6) "|" RELATIVE(URI_SET, IPV6) ")" URI_TAIL(URI_SET, ""), 0},
    {"iri", ABSOLUTE(URI_SET UCS, IPV6_FULL) URI_TAIL(URI_SET UCS, "\\uE000-\\uF8FF"), 0},
    {"iri-reference",
     "(?:" ABSOLUTE(URI_SET UCS, IPV6_FULL) "|" RELATIVE(URI_SET UCS, IPV6_FULL) ")" URI_TAIL(URI_SET UCS, "\\uE000-\\uF8FF"), 0},
    {"uri-template",
     "(?:[!#$&(-;=?-\\[\\]_a-z~\\u00A0-\\uD7FF\\uE000-\\uFDCF\\uFDF0-\\uFFEF]|" PCT "|\\{[+#./;?&]?" TEMPLATE_SPEC "(?:,"
     TEMPLATE_SPEC ")*\\})*", 0},
    {"uuid", "[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}", 0},
    {"json-pointer", POINTER, 0},
    {"relative-json-pointer", "(?:0|[1-9]+0?)(?:#|" POINTER ")", 0},
};

/* ---- Times with leap seconds, and patterns ----------------------------------------------------- */

typedef struct writer {
    char text[16000];
    size_t n;
} writer;

static void put(writer *w, const char *text) {
    size_t n = strlen(text);
    if (w->n + n < sizeof w->text) {
        memcpy(w->text + w->n, text, n + 1);
        w->n += n;
    }
}

/* Alternatives HH:MM:60 with an offset of h half hours ahead of UTC (behind it: back), from 1 to 47. */
static void put_leaps(writer *w, int back) {
    for (int h = 1; h < 48; h++) {
        char one[64];
        int minute = (1439 + (back ? -30 : 30) * h + 1440) % 1440;
        (void)snprintf(one, sizeof one, "%s%02d:%02d:60(?:\\.\\d+)?\\%c%02d:%02d", h > 1 ? "|" : "", minute / 60, minute % 60,
                       back ? '-' : '+', h / 2, h % 2 * 30);
        put(w, one);
    }
}

#define LEAP_UTC "23:59:60(?:\\.\\d+)?(?:[Zz]|[+-]00:00)|"

static void put_time(writer *w) {
    put(w, TIME "|" LEAP_UTC);
    put_leaps(w, 0);
    put(w, "|");
    put_leaps(w, 1);
}

static void put_date_time(writer *w) {
    put(w, DATE "[Tt]" TIME "|" YEAR "-(?:06-30|12-31)[Tt](?:" LEAP_UTC);
    put_leaps(w, 1);
    put(w, ")|" YEAR "-(?:07-01|01-01)[Tt](?:");
    put_leaps(w, 0);
    put(w, ")");
}

/* What ECMA-262 and Python both read as an escape of one character or class, in a class and outside. */
#define RE_ESCAPE "\\\\(?:[dDwWsStnrfv]|[!-/:-@\\[-`{-~ ]|x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4})"
/* Ranges whose ends are seen to be in order; a dash may follow where no further range can be meant. */
#define RE_RANGE                                                                                               \
    "(?:0-\\d|1-[1-9]|2-[2-9]|[3-8]-9|a-[a-z]|A-[A-Za-z]|[b-y]-z|[B-Y]-Z|\\\\x0[01]-\\\\x1[fF]|\\\\x20-\\\\x7[eEfF])"  \
    "(?:-[^\\\\\\[\\]^\\-&~|A-Za-z0-9])?"
/* Dashes stand first or last; what Python takes for an operation on sets ("--", "&&") is out. */
#define RE_CLASS                                                                                               \
    "\\[(?:\\^?-\\]|(?:\\^-?|-|(?!\\^))(?:" RE_RANGE "|[^\\\\\\[\\]\\-&~|]|" RE_ESCAPE "|[&~|](?![&~|\\-]))+-?\\])"
/* {n}, {n,}, {n,m} where n is at most 99, and at most m as its places say, or both are up to 16. */
#define RE_TENS(D, MORE) "|" D "\\d,(?:" MORE "[1-9]\\d{2,3})"
#define RE_ONES(D) "|" D ",(?:[" D "-9]|[1-9]\\d{1,3})"
#define RE_BRACES                                                                                              \
    "\\{(?:\\d{1,4},?" RE_ONES("0") RE_ONES("1") RE_ONES("2") RE_ONES("3") RE_ONES("4") RE_ONES("5") RE_ONES("6") \
    RE_ONES("7") RE_ONES("8") RE_ONES("9") RE_TENS("1", "[2-9]\\d|") RE_TENS("2", "[3-9]\\d|") RE_TENS("3", "[4-9]\\d|") \
    RE_TENS("4", "[5-9]\\d|") RE_TENS("5", "[6-9]\\d|") RE_TENS("6", "[7-9]\\d|") RE_TENS("7", "[89]\\d|")       \
    RE_TENS("8", "9\\d|") RE_TENS("9", "") "|10,1\\d|11,1[1-9]|12,1[2-9]|13,1[3-9]|14,1[4-9]|15,1[5-9]|16,1[6-9])\\}"

/* A sequence of pattern syntax, with groups and lookaheads nested up to `depth`. */
static void put_pattern(writer *w, int depth) {
    put(w, "(?:\\||\\^|\\$|\\\\[bB]|(?:[^\\\\^$.*+?()\\[\\]{}|]|\\.|" RE_ESCAPE "|" RE_CLASS);
    if (depth) {
        put(w, "|\\((?:\\?[:=!])?");
        put_pattern(w, depth - 1);
        put(w, "\\)");
    }
    put(w, ")(?:(?:[*+?]|" RE_BRACES ")[?]?)?)*");
}

static const lang *make(lang_set *s, const char *name, int *known) {
    writer w;
    w.n = 0;
    *known = 1;
    if (strcmp(name, "time") == 0)
        put_time(&w);
    else if (strcmp(name, "date-time") == 0)
        put_date_time(&w);
    else if (strcmp(name, "regex") == 0)
        put_pattern(&w, 4);
    if (w.n)
        return lang_regex(s, w.text, w.n, 0);
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        if (strcmp(name, formats[i].name) != 0)
            continue;
        const lang *l = lang_regex(s, formats[i].pattern, strlen(formats[i].pattern), 0);
        return formats[i].max_length ? lang_and(s, l, lang_length(s, 0, formats[i].max_length)) : l;
    }
    *known = 0;
    return NULL;
}

struct lang_name {
    struct lang_name *next;
    char name[24];
    const lang *lang;
};

const lang *lang_format(lang_set *s, const char *name, uint64_t len, int *known) {
    char key[24];
    *known = 1;
    for (const struct lang_name *f = s->formats; f; f = f->next)
        if (strlen(f->name) == len && memcmp(f->name, name, len) == 0)
            return f->lang;
    if (len >= sizeof key || memchr(name, '\0', len)) {
        *known = 0;
        return NULL;
    }
    memcpy(key, name, len);
    key[len] = '\0';
    const lang *l = make(s, key, known);
    struct lang_name *f = l ? pool_alloc(s->pool, sizeof *f) : NULL;
    if (!f)
        return NULL;
    memcpy(f->name, key, sizeof key);
    f->lang = l;
    f->next = s->formats;
    s->formats = f;
    return l;
}
