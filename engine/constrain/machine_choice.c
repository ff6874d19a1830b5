/* machine_choice.c: the alternatives of the element of a JSON document that begins at a position: a
 * scalar value, a key, or the end of the container instead. Says 0 where a container or endlessly many
 * texts may come. What is written may hold a text twice, or one that turns out to be impossible (an item
 * that a unique array has): the caller steps through each. Owns nothing. */
#include "choice.h"
#include "machine_int.h"

#include <string.h>

static int allowed_key(const uint64_t *allowed, uint32_t i)
{
    return (int)(allowed[i >> 6] >> (i & 63) & 1);
}

/* The keys that a position behind a key's opening quote allows. */
static int put_keys(choice_writer *w, const pos *open)
{
    for (uint32_t i = 0; i < open->n; i++) {
        const thread *t = &open->t[i];
        const objinfo *o = open->f->items[t->owner].alt;
        if (t->lang && !choice_words(w, t->lang, t->state, 1))
            return 0;
        for (uint32_t k = t->lang ? t->hi : t->state; k < t->hi; k++) {
            uint32_t len = w->len;
            if (!allowed_key(open->keys->allowed[t->owner], k))
                continue;
            if (!choice_spell(w, o->key[k]->text, o->key[k]->len) || !choice_keep(w, "\"", 1))
                return 0;
            w->len = len;
        }
    }
    return 1;
}

static int next_keys(const machine *m, choice_writer *w, const pos *at)
{
    const pos *open = machine_step(m, w->arena, at, '"');
    if (open == NULL)
        return !doc_arena_failed(w->arena);
    w->text[w->len++] = '"';
    int done = put_keys(w, open);
    w->len--;
    return done;
}

static int next_strings(const machine *m, choice_writer *w, const pos *at)
{
    const pos *open = machine_step(m, w->arena, at, '"');
    if (open == NULL)
        return !doc_arena_failed(w->arena);
    w->text[w->len++] = '"';
    int done = 1;
    for (uint32_t i = 0; done && i < open->n; i++)
        done = choice_words(w, open->t[i].lang, open->t[i].state, 1);
    w->len--;
    return done;
}

static int next_value(const machine *m, choice_writer *w, const pos *at)
{
    static const char *const literals[3] = {"true", "false", "null"};
    if (at->w == NULL)
        return 1; /* only the end may come */
    if (machine_step(m, w->arena, at, '{') || machine_step(m, w->arena, at, '['))
        return 0;
    for (int i = 0; i < 3; i++)
        if (machine_step(m, w->arena, at, (uint8_t)literals[i][0]) &&
            !choice_keep(w, literals[i], (uint32_t)strlen(literals[i])))
            return 0;
    for (uint32_t e = 0; e < at->w->n; e++)
        if (!choice_numbers(w, m->program->nodes[at->w->entries[e].node].number))
            return 0;
    return next_strings(m, w, at);
}

static int next_element(const machine *m, choice_writer *w, const pos *at)
{
    return w->out->kind == DOC_CHOICE_KEY ? next_keys(m, w, at) : next_value(m, w, at);
}

/* Between elements: the end of the container, or the comma with what it leads to. */
static int after_element(const machine *m, choice_writer *w, const pos *at)
{
    const pos *on = machine_step(m, w->arena, at, ',');
    if (on == NULL)
        return !doc_arena_failed(w->arena);
    w->text[w->len++] = ',';
    return next_element(m, w, on);
}

int machine_alternatives(const machine *m, doc_arena *arena, const pos *at, doc_choice *out)
{
    uint32_t kind = at->f->kind;
    int begins = at->lex == LEX_VALUE || at->lex == LEX_FIRST_ITEM || at->lex == LEX_FIRST_KEY ||
                 at->lex == LEX_NEXT_KEY || (at->lex == LEX_AFTER && kind != FRAME_ROOT);
    choice_writer *w = begins ? doc_arena_alloc(arena, sizeof *w) : NULL;
    if (w == NULL)
        return 0;
    w->arena = arena;
    w->out = out;
    w->len = w->steps = 0;
    int in_object = at->lex == LEX_FIRST_KEY || at->lex == LEX_NEXT_KEY || (at->lex == LEX_AFTER && kind == FRAME_OBJECT);
    out->kind = in_object ? DOC_CHOICE_KEY : DOC_CHOICE_VALUE;
    if (at->lex == LEX_FIRST_KEY || at->lex == LEX_FIRST_ITEM || at->lex == LEX_AFTER) {
        const char *end = in_object ? "}" : "]";
        if (machine_step(m, arena, at, (uint8_t)*end) && !choice_keep(w, end, 1))
            return 0;
    }
    return at->lex == LEX_AFTER ? after_element(m, w, at) : next_element(m, w, at);
}
