/* lark.h: between the parts of the reader of Lark's notation. */
#ifndef GAUGEBLOCK_CONSTRAIN_LARK_H
#define GAUGEBLOCK_CONSTRAIN_LARK_H
#include "cfg.h"

/* The regular expression at s->at, which moves behind its flags: /…/imslux. (lark_regex.c) */
const cfg_expr *lark_regex(cfg_source *s, lang_set *langs);
/* A terminal of Lark's library "common"; NULL with the pool good where there is none of the name. */
const cfg_expr *lark_common(cfg_source *s, lang_set *langs, const char *name, uint64_t len);

#endif
