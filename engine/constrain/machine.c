/* machine.c: makes a program ready to be read (keys in byte order, ways to read members and items,
 * costs of nodes) and offers the machine as a table of operations on documents. Owns nothing: all
 * memory is the pool's. Refuses what machine.h names; alternatives that cannot be completed are
 * left out. */
#include "machine_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Operations -------------------------------------------------------------------------------- */

static const doc *op_start(void *program, doc_arena *arena)
{
    return (const doc *)machine_start(program, arena);
}

static const doc *op_step(void *program, doc_arena *arena, const doc *at, uint8_t byte)
{
    return (const doc *)machine_step(program, arena, (const pos *)at, byte);
}

static void op_allowed(void *program, const doc *at, uint64_t set[4])
{
    memset(set, 0, 4 * sizeof *set);
    doc_arena *arena = doc_arena_new(64u << 20);
    uint64_t mark = arena ? doc_arena_mark(arena) : 0;
    for (int b = 0; arena && b < 256; b++) {
        if (machine_step(program, arena, (const pos *)at, (uint8_t)b))
            set[b >> 6] |= 1ull << (b & 63);
        doc_arena_reset(arena, mark);
    }
    doc_arena_free(arena);
}

static int op_accepting(void *program, const doc *at)
{
    (void)program;
    return machine_accepting((const pos *)at);
}

static const doc *op_keep(void *program, doc_arena *to, const doc *at)
{
    return (const doc *)machine_keep(program, to, (const pos *)at);
}

static uint32_t op_distance(void *program, const doc *at)
{
    return machine_distance(program, (const pos *)at);
}

static int op_closing(void *program, const doc *at, uint8_t *byte)
{
    return machine_closing(program, (const pos *)at, byte);
}

static uint32_t op_pointer(void *program, const doc *at, char *out, uint32_t cap)
{
    (void)program;
    return machine_pointer((const pos *)at, out, cap);
}

static void op_lexical(void *program, const doc *at, doc_lexical *out)
{
    machine_lexical(program, (const pos *)at, out);
}

static uint32_t op_exceptions(void *program, const doc *at, const char **texts, uint32_t *lens, uint32_t cap)
{
    (void)program;
    return machine_exceptions((const pos *)at, texts, lens, cap);
}

static uint32_t op_only(void *program, doc_arena *arena, const doc *at, uint8_t out[DOC_ONLY])
{
    return machine_only(program, arena, (const pos *)at, out);
}

static void op_free(void *program)
{
    (void)program; /* all is the pool's */
}

static uint32_t op_ending(void *program, const doc *at, uint8_t *out, uint32_t cap)
{
    return machine_ending(program, (const pos *)at, out, cap);
}

static int op_alternatives(void *program, doc_arena *arena, const doc *at, doc_choice *out)
{
    return machine_alternatives(program, arena, (const pos *)at, out);
}

static const doc_ops machine_ops = {
    .start = op_start,
    .step = op_step,
    .allowed = op_allowed,
    .accepting = op_accepting,
    .keep = op_keep,
    .distance = op_distance,
    .closing = op_closing,
    .pointer = op_pointer,
    .lexical = op_lexical,
    .exceptions = op_exceptions,
    .free = op_free,
    .only = op_only,
    .ending = op_ending,
    .alternatives = op_alternatives,
};

/* ---- Alternatives --------------------------------------------------------------------------------- */

static int key_order(const void *a, const void *b)
{
    const ir_key *x = *(const ir_key *const *)a, *y = *(const ir_key *const *)b;
    int order = memcmp(x->text, y->text, x->len < y->len ? x->len : y->len);
    return order ? order : x->len < y->len ? -1 : x->len > y->len;
}

static int sort_keys(pool *p, const ir_object *o, objinfo *out)
{
    uint32_t n = o->n_keys;
    out->key = pool_alloc(p, n * sizeof *out->key);
    out->decl = pool_alloc(p, n * sizeof *out->decl);
    out->rank = pool_alloc(p, n * sizeof *out->rank);
    out->bytes = pool_alloc(p, n * sizeof *out->bytes);
    out->usable = pool_alloc(p, (out->n_words + 1ull) * sizeof *out->usable);
    out->required = pool_alloc(p, (out->n_words + 1ull) * sizeof *out->required);
    uint64_t *none = pool_alloc(p, (out->n_words + 1ull) * sizeof *none);
    if (none == NULL || !pool_step(p, n))
        return 0;
    out->taken_none = none;
    for (uint32_t i = 0; i < n; i++)
        out->key[i] = &o->keys[i];
    if (n > 1)
        qsort(out->key, n, sizeof *out->key, key_order);
    for (uint32_t i = 0; i < n; i++) {
        out->decl[i] = (uint32_t)(out->key[i] - o->keys);
        out->rank[out->decl[i]] = i;
        out->bytes[i] = body_bytes(out->key[i]->text, out->key[i]->len);
        out->required[i >> 6] |= (uint64_t)(out->key[i]->required != 0) << (i & 63);
        out->n_required += out->key[i]->required != 0;
    }
    return 1;
}

/* Whether every key of the rest is one of `keys`: rests lie inside or outside, so one word tells. */
static int rest_within(const lang *rest, const lang *keys)
{
    uint32_t cost;
    spelled word = {NULL, 0};
    situation s = {.minus = NONE};
    int within = lang_is_all(keys);
    if (!within && !lang_is_empty(rest) &&
        cheapest_words(rest, lang_start(rest), NULL, 0, NULL, &s, 1, &cost, 1, &word) == 1)
        within = lang_holds(keys, word.word, word.len);
    free(word.word);
    return within;
}

static int member_options(pool *p, const ir_object *o, objinfo *out)
{
    uint32_t members = o->n_keys + o->n_rest, n = 0;
    out->options = pool_alloc(p, (members + (uint64_t)o->n_rest * o->n_some) * sizeof *out->options);
    out->first = o->n_some ? pool_alloc(p, (members + 1ull) * sizeof *out->first) : NULL;
    if (out->options == NULL || (o->n_some && out->first == NULL))
        return 0;
    for (uint32_t i = 0; i < members; i++) {
        uint32_t value = i < o->n_keys ? out->key[i]->value : o->rest[i - o->n_keys].value;
        if (out->first)
            out->first[i] = n;
        out->options[n++] = (option){value, 0};
        for (uint32_t j = 0; i >= o->n_keys && j < o->n_some; j++)
            if (rest_within(o->rest[i - o->n_keys].keys, o->some[j].keys))
                out->options[n++] = (option){o->some[j].value, j + 1};
    }
    if (out->first)
        out->first[members] = n;
    return 1;
}

static engine_status prepare_object(pool *p, const ir_object *o, objinfo *out)
{
    if (o->n_keys > 65536 || o->n_some > MAX_COUNTS)
        return pool_fail(p, ENGINE_EUNSUPPORTED, "an object with more than 65,536 declared members, or %d existence "
                         "conditions on members, cannot be held: simplify it", MAX_COUNTS);
    *out = (objinfo){.o = o, .n_keys = o->n_keys, .n_rest = o->n_rest, .n_words = (o->n_keys + 63) / 64};
    if (!sort_keys(p, o, out) || !member_options(p, o, out))
        return p->status;
    if (o->min_members > MAX_FILL && o->min_members - MAX_FILL > out->n_required && o->min_members <= o->max_members)
        return pool_fail(p, ENGINE_EUNSUPPORTED, "minProperties %u, more than %d above the %u required members, cannot "
                         "be held", o->min_members, MAX_FILL, out->n_required);
    for (uint32_t r = 0; r < o->n_rest; r++)
        if (!lang_is_empty(o->rest[r].keys) &&
            lang_count(o->rest[r].keys, lang_start(o->rest[r].keys)) == LANG_INFINITE)
            out->endless = 1;
    return ENGINE_OK;
}

static engine_status prepare_array(pool *p, const ir_array *a, arrinfo *out)
{
    if (a->n_contains > MAX_COUNTS)
        return pool_fail(p, ENGINE_EUNSUPPORTED, "an array with more than %d contains cannot be held: simplify it",
                         MAX_COUNTS);
    *out = (arrinfo){.a = a, .max = a->max_items, .values = LANG_INFINITE};
    uint32_t n = 0;
    out->options = pool_alloc(p, (a->n_prefix + 1ull + a->n_contains) * sizeof *out->options);
    out->first = a->n_contains ? pool_alloc(p, (a->n_prefix + 2ull) * sizeof *out->first) : NULL;
    if (out->options == NULL || (a->n_contains && out->first == NULL))
        return p->status;
    for (uint32_t i = 0; i < a->n_prefix; i++, n++) {
        out->options[n] = (option){a->prefix[i], 0};
        if (out->first)
            out->first[i] = n;
    }
    if (out->first)
        out->first[a->n_prefix] = n;
    out->options[n++] = (option){a->items, 0};
    for (uint32_t j = 0; j < a->n_contains; j++) {
        if (a->contains[j].max != IR_NO_MAX)
            out->options[a->n_prefix].node = a->contains[j].other;
        out->options[n++] = (option){a->contains[j].value, j + 1};
    }
    if (out->first)
        out->first[a->n_prefix + 1] = n;
    return ENGINE_OK;
}

static engine_status prepare_nodes(machine *m)
{
    const ir_program *program = m->program;
    pool *p = m->p;
    m->nodes = pool_alloc(p, program->n_nodes * sizeof *m->nodes);
    for (uint32_t i = 0; m->nodes && i < program->n_nodes; i++) {
        const ir_node *n = &program->nodes[i];
        nodeinfo *out = &m->nodes[i];
        out->cost = NONE;
        out->objects = n->n_objects ? pool_alloc(p, n->n_objects * sizeof *out->objects) : NULL;
        out->arrays = n->n_arrays ? pool_alloc(p, n->n_arrays * sizeof *out->arrays) : NULL;
        if (p->status != ENGINE_OK)
            return p->status;
        out->n_objects = n->n_objects;
        out->n_arrays = n->n_arrays;
        for (uint32_t k = 0; k < n->n_objects; k++)
            if (prepare_object(p, &n->objects[k], &out->objects[k]) != ENGINE_OK)
                return p->status;
        for (uint32_t k = 0; k < n->n_arrays; k++)
            if (prepare_array(p, &n->arrays[k], &out->arrays[k]) != ENGINE_OK)
                return p->status;
    }
    return p->status;
}

/* ---- Costs ---------------------------------------------------------------------------------------- */

static void lower(nodeinfo *n, plan found, int *changed)
{
    if (found.cost < n->cost || (found.cost == n->cost && found.cost != NONE && found.height < n->height)) {
        n->cost = found.cost;
        n->height = found.height;
        *changed = 1;
    }
}

static uint32_t usable_max(const machine *m, const arrinfo *ai)
{
    const ir_array *a = ai->a;
    const option *at;
    for (uint32_t i = 0; i < a->n_prefix && i < a->max_items; i++)
        if (m->nodes[a->prefix[i]].cost == NONE)
            return i;
    for (uint32_t n = options_of(ai->options, ai->first, a->n_prefix, &at); n > 0; n--, at++)
        if (m->nodes[at->node].cost != NONE)
            return a->max_items;
    return a->n_prefix < a->max_items ? a->n_prefix : a->max_items;
}

static plan start_plan(const machine *m, const void *alt, uint32_t kind)
{
    item it;
    memset(&it, 0, sizeof it);
    it.alt = alt;
    situation s = {.minus = NONE};
    plan found;
    if (kind == FRAME_OBJECT) {
        it.missing = ((const objinfo *)alt)->n_required;
        it.needed = ((const objinfo *)alt)->needed;
        it.words = ((const objinfo *)alt)->taken_none;
        found = plan_object(m, &it, &s);
    } else {
        found = plan_array(m, &it, &s);
    }
    if (found.cost != NONE)
        found = (plan){add_cost(found.cost, 1), found.height + 1};
    return found;
}

static void scalar_cost(const ir_node *n, nodeinfo *out, int *changed)
{
    if (!lang_is_empty(n->number))
        lower(out, (plan){lang_distance(n->number, lang_start(n->number)), 0}, changed);
    if (!lang_is_empty(n->string))
        lower(out, (plan){add_cost(lang_distance(n->string, lang_start(n->string)), 2), 0}, changed);
    if (n->admits_null || n->admits_true)
        lower(out, (plan){4, 0}, changed);
    if (n->admits_false)
        lower(out, (plan){5, 0}, changed);
}

/* Costs only fall, from none, until nothing changes: at most as many rounds as documents nest. */
static engine_status node_costs(machine *m)
{
    int changed = 1;
    for (uint32_t i = 0; i < m->program->n_nodes; i++)
        scalar_cost(&m->program->nodes[i], &m->nodes[i], &changed);
    for (uint32_t round = 0; changed; round++) {
        changed = 0;
        if (!pool_step(m->p, m->program->n_nodes))
            return m->p->status;
        for (uint32_t k = m->program->n_nodes; k-- > 0;) {
            nodeinfo *n = &m->nodes[round % 2 ? m->program->n_nodes - 1 - k : k];
            for (uint32_t i = 0; i < n->n_objects; i++)
                lower(n, start_plan(m, &n->objects[i], FRAME_OBJECT), &changed);
            for (uint32_t i = 0; i < n->n_arrays; i++) {
                n->arrays[i].max = usable_max(m, &n->arrays[i]);
                lower(n, start_plan(m, &n->arrays[i], FRAME_ARRAY), &changed);
            }
        }
    }
    return ENGINE_OK;
}

/* ---- What is known once costs are ------------------------------------------------------------------ */

/* What declared members cost, where plans are sums of that. */
static void sum_members(machine *m, objinfo *o)
{
    uint64_t needed = 0;
    o->own = o->simple && o->first == NULL ? pool_alloc(m->p, (o->n_keys + 1ull) * sizeof *o->own) : NULL;
    for (uint32_t k = 0; o->own && k < o->n_keys; k++) {
        o->own[k] = add_cost(m->nodes[o->key[k]->value].cost, add_cost(o->bytes[k], 3));
        if (o->required[k >> 6] >> (k & 63) & 1)
            needed += o->own[k];
    }
    o->summed = o->own != NULL && needed < NONE / 2;
    o->needed = o->summed ? (uint32_t)needed : 0;
}

static void settle_object(machine *m, objinfo *o)
{
    const ir_object *ob = o->o;
    for (uint32_t k = 0; k < o->n_keys; k++)
        o->usable[k >> 6] |= (uint64_t)(m->nodes[o->key[k]->value].cost != NONE) << (k & 63);
    int endless = 0; /* keys without end that have values */
    for (uint32_t r = 0; r < o->n_rest; r++)
        if (m->nodes[ob->rest[r].value].cost != NONE && !lang_is_empty(ob->rest[r].keys) &&
            lang_count(ob->rest[r].keys, lang_start(ob->rest[r].keys)) == LANG_INFINITE)
            endless = 1;
    o->endless = endless;
    o->simple = ob->n_some == 0 && ob->n_implies == 0 && (ob->min_members <= o->n_required || endless);
    m->search |= ob->n_some > 0;
    sum_members(m, o);
}

static engine_status unique_values(machine *m)
{
    for (uint32_t i = 0; i < m->program->n_nodes; i++)
        for (uint32_t k = 0; k < m->nodes[i].n_arrays; k++) {
            arrinfo *ai = &m->nodes[i].arrays[k];
            if (!ai->a->unique)
                continue;
            if (m->canonical == NULL) {
                static const char canonical[] = "0|-?[1-9][0-9]*|-?(0|[1-9][0-9]*)\\.[0-9]*[1-9]";
                m->canonical = lang_regex(m->program->langs, canonical, sizeof canonical - 1, 0);
                if (m->canonical == NULL)
                    return m->p->status;
            }
            ai->values = node_values(m, ai->a->items);
            cheapest_values(m, ai);
            m->search |= ai->a->min_items > 1;
        }
    return m->p->status;
}

/* Alternatives that nothing completes are taken out. */
static void prune(machine *m, nodeinfo *n)
{
    uint32_t kept = 0;
    for (uint32_t k = 0; k < n->n_objects; k++)
        if (start_plan(m, &n->objects[k], FRAME_OBJECT).cost != NONE)
            n->objects[kept++] = n->objects[k];
    n->n_objects = kept;
    kept = 0;
    for (uint32_t k = 0; k < n->n_arrays; k++)
        if (start_plan(m, &n->arrays[k], FRAME_ARRAY).cost != NONE)
            n->arrays[kept++] = n->arrays[k];
    n->n_arrays = kept;
}

static engine_status settle(machine *m)
{
    for (uint32_t i = 0; i < m->program->n_nodes; i++) {
        nodeinfo *n = &m->nodes[i];
        prune(m, n);
        if (n->cost != NONE && n->height > m->max_height)
            m->max_height = n->height;
        for (uint32_t k = 0; k < n->n_objects; k++)
            settle_object(m, &n->objects[k]);
    }
    const nodeinfo *root = &m->nodes[m->program->root];
    if (root->cost == NONE || root->height > MACHINE_MAX_NESTING)
        return pool_fail(m->p, ENGINE_EUNSUPPORTED, "no document nested at most %d deep is admitted",
                         MACHINE_MAX_NESTING);
    return ENGINE_OK;
}

engine_status machine_new(ir_program *program, pool *p, uint32_t flags, const doc_ops **ops, void **made,
                          char *err, size_t errlen)
{
    machine *m = pool_alloc(p, sizeof *m);
    if (m) {
        *m = (machine){.program = program, .p = p, .flags = flags};
        if (prepare_nodes(m) == ENGINE_OK && unique_values(m) == ENGINE_OK && node_costs(m) == ENGINE_OK)
            (void)settle(m);
    }
    if (p->status != ENGINE_OK) {
        if (errlen)
            (void)snprintf(err, errlen, "%s", p->error);
        return p->status;
    }
    *ops = &machine_ops;
    *made = m;
    return ENGINE_OK;
}
