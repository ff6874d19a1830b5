/* constraint.h: what a compiled constraint is made of, for api.c and matcher.c. */
#ifndef GAUGEBLOCK_CONSTRAIN_CONSTRAINT_H
#define GAUGEBLOCK_CONSTRAIN_CONSTRAINT_H
#include "document.h"

struct engine_constraint {
    pool memory;            /* all that compilation made; freed with the constraint */
    const doc_ops *ops;
    void *program;
    const char *notes;
    int is_json;            /* documents are JSON: endings name the values that they fill */
    uint64_t position_bytes; /* what a matcher's positions may take */
};

/* Documents that are the strings of one language, nothing else (lang_doc.c). */
engine_status lang_doc_new(pool *p, const lang *language, const doc_ops **ops, void **program);

#endif
