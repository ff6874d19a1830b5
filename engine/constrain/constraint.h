/* constraint.h: what a compiled constraint is made of, for api.c and matcher.c. */
#ifndef GAUGEBLOCK_CONSTRAIN_CONSTRAINT_H
#define GAUGEBLOCK_CONSTRAIN_CONSTRAINT_H
#include <pthread.h>

#include "document.h"
#include "mask.h"

/* The masks of string bodies in languages of a constraint, for one set of tokens. */
typedef struct constraint_masks {
    struct constraint_masks *next;
    uint64_t tokens;        /* their id */
    mask_cache *cache;
} constraint_masks;

struct engine_constraint {
    pool memory;            /* all that compilation made; freed with the constraint */
    const doc_ops *ops;
    void *program;
    const char *notes;
    int is_json;            /* documents are JSON: endings name the values that they fill */
    uint64_t position_bytes; /* what a matcher's positions may take */
    pthread_mutex_t lock;   /* of masks */
    constraint_masks *masks;
};

/* Documents that are the strings of one language, nothing else (lang_doc.c). */
engine_status lang_doc_new(pool *p, const lang *language, const doc_ops **ops, void **program);

#endif
