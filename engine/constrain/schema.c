/* schema.c: a JSON Schema becomes a program of nodes (ir.h): goals and their meanings, interning, texts of
 * refusals, and the entry point. See schema.h for the words. Everything belongs to the pool. */
#include "schema.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define FAILED UINT32_MAX

/* ---- Refusals and notes ------------------------------------------------------------------------ */

static void place(const json_value *at, const char *keyword, char *out, size_t cap) {
    char pointer[200];
    json_pointer_of(at, pointer, sizeof pointer);
    if (keyword)
        (void)snprintf(out, cap, "schema: keyword \"%s\" at \"%s\"", keyword, pointer);
    else
        (void)snprintf(out, cap, "schema: at \"%s\"", pointer);
}

int schema_refuse(schema *s, engine_status status, const json_value *at, const char *keyword, const char *format, ...) {
    char where[320], what[300];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(what, sizeof what, format, args);
    va_end(args);
    place(at, keyword, where, sizeof where);
    (void)pool_fail(s->p, status, "%s: %s", where, what);
    return 0;
}

void schema_locate(schema *s, const json_value *at, const char *keyword) {
    char where[320], was[sizeof s->p->error];
    if (s->p->status == ENGINE_OK || strncmp(s->p->error, "schema: ", 8) == 0)
        return;
    place(at, keyword, where, sizeof where);
    memcpy(was, s->p->error, sizeof was);
    was[sizeof was - sizeof where] = 0;
    (void)snprintf(s->p->error, sizeof s->p->error, "%s: %.180s", where, was);
}

static void note_bytes(schema *s, const char *text, uint32_t n) {
    if (s->cap_notes - s->n_notes_bytes < n + 1) {
        uint32_t cap = 2 * (s->cap_notes + n) + 256;
        char *grown = pool_grow(s->p, s->notes, s->n_notes_bytes, cap);
        if (!grown)
            return;
        s->notes = grown;
        s->cap_notes = cap;
    }
    memcpy(s->notes + s->n_notes_bytes, text, n);
    s->n_notes_bytes += n;
    s->notes[s->n_notes_bytes] = '\0';
}

static void note_string(schema *s, const char *text) {
    note_bytes(s, "\"", 1);
    for (; *text; text++) {
        char escape[8];
        if ((unsigned char)*text < 0x20)
            note_bytes(s, escape, (uint32_t)snprintf(escape, sizeof escape, "\\u%04x", (unsigned)*text));
        else if (*text == '"' || *text == '\\')
            note_bytes(s, escape, (uint32_t)snprintf(escape, sizeof escape, "\\%c", *text));
        else
            note_bytes(s, text, 1);
    }
    note_bytes(s, "\"", 1);
}

void schema_note(schema *s, const json_value *at, const char *keyword, const char *note) {
    char pointer[2048];
    if (s->n_notes_bytes > 1u << 20)
        return;
    json_pointer_of(at, pointer, sizeof pointer);
    note_bytes(s, s->n_notes_bytes ? ", " : "[", s->n_notes_bytes ? 2 : 1);
    note_bytes(s, "{\"pointer\": ", 12);
    note_string(s, pointer);
    note_bytes(s, ", \"keyword\": ", 13);
    note_string(s, keyword);
    note_bytes(s, ", \"note\": ", 10);
    note_string(s, note);
    note_bytes(s, "}", 1);
}

/* ---- Texts ---------------------------------------------------------------------------------------- */

static uint64_t hash_bytes(const char *text, uint64_t len) {
    uint64_t h = 1469598103934665603u;
    for (uint64_t i = 0; i < len; i++)
        h = (h ^ (unsigned char)text[i]) * 1099511628211u;
    return h ^ h >> 29;
}

const void *schema_recall(schema *s, int kind, const char *text, uint64_t len) {
    const text_memo *m = s->memos[(hash_bytes(text, len) + (uint64_t)kind) % SCHEMA_BUCKETS];
    for (; m; m = m->next)
        if (m->kind == kind && m->len == len && memcmp(m->text, text, len) == 0)
            return m->result;
    return NULL;
}

void schema_remember(schema *s, int kind, const char *text, uint64_t len, const void *result) {
    text_memo **bucket = &s->memos[(hash_bytes(text, len) + (uint64_t)kind) % SCHEMA_BUCKETS];
    text_memo *m = pool_alloc(s->p, sizeof *m);
    if (m) {
        *m = (text_memo){text, len, kind, result, *bucket};
        *bucket = m;
    }
}

static int grow_keys(schema *s) {
    uint32_t buckets = s->key_buckets ? 4 * s->key_buckets : 256;
    key_text **table = pool_alloc(s->p, buckets * sizeof *table);
    uint32_t *mark = pool_grow(s->p, s->mark, s->mark_cap * sizeof *mark, buckets * sizeof *mark);
    if (!table || !mark)
        return 0;
    for (uint32_t i = 0; i < s->key_buckets; i++) {
        for (key_text *k = s->key_table[i], *next; k; k = next) {
            next = k->next;
            key_text **bucket = &table[hash_bytes(k->text, k->len) % buckets];
            k->next = *bucket;
            *bucket = k;
        }
    }
    s->key_table = table;
    s->key_buckets = buckets;
    s->mark = mark;
    s->mark_cap = buckets;
    return 1;
}

const key_text *schema_key(schema *s, const char *text, uint32_t len) {
    uint64_t h = hash_bytes(text, len);
    if (s->key_buckets)
        for (const key_text *k = s->key_table[h % s->key_buckets]; k; k = k->next)
            if (k->len == len && memcmp(k->text, text, len) == 0)
                return k;
    if (s->n_keys == s->key_buckets && !grow_keys(s))
        return NULL;
    key_text *k = pool_alloc(s->p, sizeof *k);
    if (!k)
        return NULL;
    key_text **bucket = &s->key_table[h % s->key_buckets];
    *k = (key_text){text, len, s->n_keys++, *bucket};
    *bucket = k;
    return k;
}

cell *schema_cell(schema *s, const json_value *v) {
    if (!v->meaning)
        ((json_value *)v)->meaning = pool_alloc(s->p, sizeof(cell)); /* the tree is ours */
    return v->meaning;
}

/* ---- Atoms and goals --------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t h, uint64_t v) {
    h = (h ^ v) * 0x9E3779B97F4A7C15u;
    return h ^ h >> 31;
}

static uint64_t atom_hash(const atom *a) {
    return mix(mix(a->kind + 1, (uint64_t)(uintptr_t)a->value), a->goal);
}

static int grow_atoms(schema *s) {
    uint32_t cap = s->cap_atoms ? 2 * s->cap_atoms : 64, slots = 2 * cap;
    atom *atoms = pool_grow(s->p, s->atoms, s->n_atoms * sizeof *atoms, cap * sizeof *atoms);
    uint32_t *table = pool_alloc(s->p, slots * sizeof *table);
    if (!atoms || !table)
        return 0;
    for (uint32_t i = 0; i < s->n_atoms; i++) {
        uint64_t at = atom_hash(&atoms[i]) & (slots - 1);
        while (table[at])
            at = (at + 1) & (slots - 1);
        table[at] = i + 1;
    }
    s->atoms = atoms;
    s->cap_atoms = cap;
    s->atom_table = table;
    s->atom_slots = slots;
    return 1;
}

static uint32_t intern_atom(schema *s, atom a) {
    if (s->n_atoms == s->cap_atoms && !grow_atoms(s))
        return FAILED;
    uint64_t at = atom_hash(&a) & (s->atom_slots - 1);
    for (; s->atom_table[at]; at = (at + 1) & (s->atom_slots - 1)) {
        const atom *b = &s->atoms[s->atom_table[at] - 1];
        if (b->kind == a.kind && b->value == a.value && b->goal == a.goal)
            return s->atom_table[at] - 1;
    }
    s->atoms[s->n_atoms] = a;
    s->atom_table[at] = s->n_atoms + 1;
    return s->n_atoms++;
}

static int grow_goals(schema *s) {
    uint32_t cap = s->cap_goals ? 2 * s->cap_goals : 128, slots = 2 * cap;
    goal *goals = pool_grow(s->p, s->goals, s->n_goals * sizeof *goals, cap * sizeof *goals);
    uint32_t *table = pool_alloc(s->p, slots * sizeof *table);
    if (!goals || !table)
        return 0;
    for (uint32_t i = 2; i < s->n_goals; i++) {
        uint64_t at = goals[i].hash & (slots - 1);
        while (table[at])
            at = (at + 1) & (slots - 1);
        table[at] = i + 1;
    }
    s->goals = goals;
    s->cap_goals = cap;
    s->goal_table = table;
    s->goal_slots = slots;
    return 1;
}

static uint32_t intern_goal(schema *s, const uint32_t *atoms, uint32_t n) {
    uint64_t h = n;
    if (s->n_goals == s->cap_goals && !grow_goals(s))
        return FAILED;
    for (uint32_t i = 0; i < n; i++)
        h = mix(h, atoms[i]);
    uint64_t at = h & (s->goal_slots - 1);
    for (; s->goal_table[at]; at = (at + 1) & (s->goal_slots - 1)) {
        const goal *g = &s->goals[s->goal_table[at] - 1];
        if (g->hash == h && g->n == n && memcmp(g->atoms, atoms, n * sizeof *atoms) == 0)
            return s->goal_table[at] - 1;
    }
    if (s->n_goals >= SCHEMA_MAX_GOALS) {
        schema_refuse(s, ENGINE_EUNSUPPORTED, s->root, NULL, "more than %d combinations of subschemas: simplify it",
                      SCHEMA_MAX_GOALS);
        return FAILED;
    }
    uint32_t *copy = pool_grow(s->p, atoms, n * sizeof *atoms, n * sizeof *atoms);
    if (!copy || !pool_step(s->p, 1))
        return FAILED;
    s->goals[s->n_goals] = (goal){.atoms = copy, .n = n, .hash = h};
    s->goal_table[at] = s->n_goals + 1;
    return s->n_goals++;
}

static uint32_t goal_of_atom(schema *s, atom a, int negated) {
    uint32_t id = intern_atom(s, a);
    if (id == FAILED)
        return FAILED;
    id = 2 * id + (negated != 0);
    return intern_goal(s, &id, 1);
}

/* The schema that v comes down to: plain references are followed. NULL: failed. */
static const json_value *follow(schema *s, const json_value *v) {
    for (uint32_t steps = 0; v && v->type == JSON_OBJECT; steps++) {
        const json_value *const *kw = schema_gather(s, v);
        if (!kw)
            return NULL;
        if (!kw[KW_REF])
            return v;
        for (uint32_t k = 1; schema_draft(v) > DRAFT_7 && k < KW_ID; k++)
            if (k != KW_REF && kw[k])
                return v;
        if (steps > 1000) {
            schema_refuse(s, ENGINE_EUNSUPPORTED, v, "$ref", "references lead in a circle");
            return NULL;
        }
        v = schema_resolve(s, v, kw[KW_REF]);
    }
    return v;
}

static uint32_t find_goal(schema *s, const json_value *v) {
    const json_value *target = follow(s, v);
    if (!target)
        return FAILED;
    if (target->type == JSON_TRUE || target->type == JSON_FALSE)
        return target->type == JSON_TRUE ? GOAL_ANY : GOAL_NONE;
    const json_value *const *kw = schema_gather(s, target);
    if (!kw)
        return FAILED;
    uint32_t k = 1;
    while (k < KW_ID && !kw[k])
        k++;
    if (k == KW_ID)
        return GOAL_ANY;
    return goal_of_atom(s, (atom){.value = target, .kind = ATOM_SCHEMA}, 0);
}

uint32_t goal_of_schema(schema *s, const json_value *v, int negated) {
    cell *c = schema_cell(s, v);
    if (!c)
        return FAILED;
    if (!c->goal) {
        uint32_t g = find_goal(s, v);
        if (g == FAILED)
            return FAILED;
        c->goal = g + 1;
    }
    return negated ? goal_not(s, c->goal - 1) : c->goal - 1;
}

uint32_t goal_of_constant(schema *s, const json_value *v, int negated) {
    return goal_of_atom(s, (atom){.value = v, .kind = ATOM_CONSTANT}, negated);
}

uint32_t goal_not(schema *s, uint32_t a) {
    if (a == FAILED)
        return FAILED;
    if (a <= GOAL_ANY)
        return a == GOAL_ANY ? GOAL_NONE : GOAL_ANY;
    if (s->goals[a].n == 1) {
        uint32_t flipped = s->goals[a].atoms[0] ^ 1;
        if (s->atoms[flipped / 2].kind == ATOM_GOAL && !(flipped & 1))
            return s->atoms[flipped / 2].goal;
        return intern_goal(s, &flipped, 1);
    }
    return goal_of_atom(s, (atom){.goal = a, .kind = ATOM_GOAL}, 1);
}

uint32_t goal_and(schema *s, uint32_t a, uint32_t b) {
    if (a == FAILED || b == FAILED)
        return FAILED;
    if (a == b || b == GOAL_ANY)
        return a;
    if (a == GOAL_ANY)
        return b;
    if (a == GOAL_NONE || b == GOAL_NONE)
        return GOAL_NONE;
    const goal *x = &s->goals[a], *y = &s->goals[b];
    uint32_t small[64], *out = small, n = 0;
    if (x->n + y->n > 64 && !(out = pool_alloc(s->p, (x->n + y->n) * sizeof *out)))
        return FAILED;
    for (uint32_t i = 0, j = 0; i < x->n || j < y->n;) {
        uint32_t next = j == y->n || (i < x->n && x->atoms[i] <= y->atoms[j]) ? x->atoms[i] : y->atoms[j];
        i += i < x->n && x->atoms[i] == next;
        j += j < y->n && y->atoms[j] == next;
        if (n && out[n - 1] == (next ^ 1))
            return GOAL_NONE; /* an atom and its negation */
        out[n++] = next;
    }
    return intern_goal(s, out, n);
}

int goal_within(const schema *s, uint32_t a, uint32_t b) {
    if (a == b || a == GOAL_NONE || b == GOAL_ANY)
        return 1;
    if (a == GOAL_ANY || b == GOAL_NONE)
        return 0;
    const goal *x = &s->goals[a], *y = &s->goals[b];
    uint32_t i = 0;
    for (uint32_t j = 0; i < y->n && j < x->n && x->atoms[j] <= y->atoms[i]; j++)
        i += x->atoms[j] == y->atoms[i];
    return i == y->n;
}

/* ---- Meanings ------------------------------------------------------------------------------------------- */

static const meaning *make_meaning(schema *s, const json_value *v) {
    if (v->type == JSON_TRUE)
        return s->everything;
    if (v->type == JSON_FALSE)
        return s->nothing;
    const json_value *const *kw = schema_gather(s, v);
    if (!kw)
        return NULL;
    if (kw[KW_REF] && schema_draft(v) <= DRAFT_7) { /* siblings do not count there */
        const json_value *target = schema_resolve(s, v, kw[KW_REF]);
        return target ? schema_meaning(s, target) : NULL;
    }
    const meaning *scalars = schema_scalars(s, v, kw);
    if (!scalars)
        return NULL;
    meaning m = *scalars;
    if (m.objects.n) {
        m.objects = (shape_list){0};
        if (!shape_add(s, &m.objects, object_of_schema(s, v, kw)))
            return NULL;
    }
    if (m.arrays.n) {
        m.arrays = (shape_list){0};
        if (!shape_add(s, &m.arrays, array_of_schema(s, v, kw)))
            return NULL;
    }
    meaning *base = pool_grow(s->p, &m, sizeof m, sizeof m);
    return base ? schema_combine(s, v, kw, base) : NULL;
}

const meaning *schema_meaning(schema *s, const json_value *v) {
    cell *c = schema_cell(s, v);
    if (!c || !pool_step(s->p, 1))
        return NULL;
    if (c->as_schema)
        return c->as_schema;
    if (c->busy) {
        if (!s->probing)
            schema_refuse(s, ENGINE_EUNSUPPORTED, v, "$ref", "the schema refers to itself without a value in between");
        return NULL;
    }
    if (s->depth >= SCHEMA_MAX_DEPTH) {
        schema_refuse(s, ENGINE_EUNSUPPORTED, v, NULL, "more than %d subschemas within one another", SCHEMA_MAX_DEPTH);
        return NULL;
    }
    c->busy = 1;
    s->depth++;
    c->as_schema = make_meaning(s, v);
    s->depth--;
    c->busy = 0;
    return c->as_schema;
}

/* What an atom without its sign admits. */
static const meaning *atom_meaning(schema *s, uint32_t index) {
    atom a = s->atoms[index];
    if (a.kind == ATOM_GOAL)
        return goal_meaning(s, a.goal);
    if (a.kind == ATOM_SCHEMA)
        return schema_meaning(s, a.value);
    cell *c = schema_cell(s, a.value);
    if (c && !c->as_constant)
        c->as_constant = schema_enum(s, &a.value, 1);
    return c ? c->as_constant : NULL;
}

/* The plain atoms first: what the negated ones take away is then small. */
static const meaning *make_goal(schema *s, uint32_t g) {
    const meaning *m = s->everything;
    for (uint32_t negated = 0; negated < 2; negated++) {
        for (uint32_t i = 0; m && i < s->goals[g].n; i++) {
            uint32_t a = s->goals[g].atoms[i];
            if ((a & 1) != negated)
                continue;
            const meaning *one = atom_meaning(s, a / 2);
            m = !one ? NULL : negated ? meaning_minus(s, m, one) : meaning_and(s, m, one);
            if (one && !m)
                schema_locate(s, s->atoms[a / 2].value, negated ? "not" : NULL);
        }
    }
    return m;
}

const meaning *goal_meaning(schema *s, uint32_t g) {
    if (g <= GOAL_ANY)
        return g == GOAL_ANY ? s->everything : s->nothing;
    if (s->goals[g].means)
        return s->goals[g].means;
    if (s->goals[g].busy) {
        if (!s->probing)
            schema_refuse(s, ENGINE_EUNSUPPORTED, s->root, "$ref", "the schema refers to itself without a value in between");
        return NULL;
    }
    s->goals[g].busy = 1;
    const meaning *m = make_goal(s, g);
    s->goals[g].busy = 0;
    s->goals[g].means = m;
    return m;
}

static int meaning_excluded(schema *s, const meaning *m, uint32_t depth) {
    if (m->null || m->yes || m->no || !lang_is_empty(m->number) || !lang_is_empty(m->string))
        return 0;
    for (uint32_t i = 0; i < m->objects.n; i++)
        if (!object_excluded(s, m->objects.at[i], depth))
            return 0;
    for (uint32_t i = 0; i < m->arrays.n; i++)
        if (!array_excluded(s, m->arrays.at[i], depth))
            return 0;
    return 1;
}

int goal_excluded(schema *s, uint32_t g, uint32_t depth) {
    if (g <= GOAL_ANY || g == FAILED)
        return g == GOAL_NONE;
    if (s->goals[g].empty || s->goals[g].probed > depth)
        return s->goals[g].empty;
    s->probing++;
    s->goals[g].probed = (uint8_t)(depth + 1);
    const meaning *m = goal_meaning(s, g);
    int empty = m && meaning_excluded(s, m, depth);
    s->goals[g].empty = (uint8_t)empty;
    s->probing--;
    return empty;
}

/* ---- The whole ------------------------------------------------------------------------------------------- */

static int prepare(schema *s) {
    shape_rest *rest = pool_alloc(s->p, sizeof *rest);
    object_shape *object = pool_alloc(s->p, sizeof *object);
    array_shape *array = pool_alloc(s->p, sizeof *array);
    meaning *all = pool_alloc(s->p, sizeof *all), *none = pool_alloc(s->p, sizeof *none);
    s->langs = lang_set_new(s->p);
    if (!rest || !object || !array || !all || !none || !s->langs || !grow_goals(s))
        return 0;
    s->n_goals = 2; /* none, any */
    *rest = (shape_rest){lang_all(s->langs), GOAL_ANY};
    *object = (object_shape){.rest = rest, .n_rest = 1, .max = IR_NO_MAX};
    *array = (array_shape){.items = GOAL_ANY, .max = IR_NO_MAX};
    s->any_object = object;
    s->any_array = array;
    *none = (meaning){.number = lang_empty(s->langs), .string = lang_empty(s->langs)};
    *all = (meaning){1, 1, 1, lang_number_all(s->langs), rest->keys, {0}, {0}};
    if (!shape_add(s, &all->objects, object) || !shape_add(s, &all->arrays, array))
        return 0;
    s->nothing = none;
    s->everything = all;
    return s->p->status == ENGINE_OK;
}

/* Arrays whose items must differ, where that cannot be held. */
static int check_unique(schema *s, const ir_program *program) {
    for (uint32_t i = 0; i < program->n_nodes; i++)
        for (uint32_t j = 0; j < program->nodes[i].n_arrays; j++)
            if (program->nodes[i].arrays[j].unique && !ir_unique_holdable(program, &program->nodes[i].arrays[j]))
                return schema_refuse(s, ENGINE_EUNSUPPORTED, s->unique_at[i], "uniqueItems",
                                     "held for items that are scalars, or objects and arrays that can always grow; not "
                                     "beside contains, or a prefix of few values");
    return 1;
}

/* One spelling for integers, and for numbers of which there are finitely many. Done to the nodes when all is
 * decided, so that no complement is taken of less than all spellings. */
static int spell_plainly(schema *s, ir_program *program) {
    static const char whole[] = "0|-?[1-9][0-9]*", fraction[] = "-?(0|[1-9][0-9]*)\\.[0-9]*[1-9]";
    const lang *integers = NULL, *fractions = NULL;
    if (!(s->flags & IR_PLAIN))
        return 1;
    for (uint32_t i = 0; i < program->n_nodes; i++) {
        ir_node *n = &program->nodes[i];
        if (lang_is_empty(n->number) || n->number == s->everything->number)
            continue;
        if (!integers) {
            integers = lang_regex(s->langs, whole, sizeof whole - 1, 0);
            fractions = lang_regex(s->langs, fraction, sizeof fraction - 1, 0);
        }
        if (!integers || !fractions)
            return 0;
        const lang *broken = lang_and(s->langs, n->number, fractions);
        const lang *plain = lang_or(s->langs, broken, lang_and(s->langs, n->number, integers));
        if (s->p->status != ENGINE_OK)
            return 0;
        int finite = lang_count(plain, lang_start(plain)) != LANG_INFINITE;
        if (!lang_is_empty(plain) && (lang_is_empty(broken) || finite))
            n->number = plain;
    }
    return 1;
}

static int too_long(uint32_t cost) {
    return cost >= IR_MAX_COST && cost < IR_INFINITE;
}

/* An ending is written out in one go, whichever alternative was begun: none may be of a size that takes long. */
static int check_endings(schema *s, const ir_program *program) {
    for (uint32_t i = 0; i < program->n_nodes; i++) {
        const ir_node *n = &program->nodes[i];
        int refused = too_long(n->cost);
        for (uint32_t j = 0; j < n->n_objects; j++)
            refused |= too_long(n->objects[j].cost);
        for (uint32_t j = 0; j < n->n_arrays; j++)
            refused |= too_long(n->arrays[j].cost);
        if (refused) {
            schema_refuse(s, ENGINE_EUNSUPPORTED, s->root, NULL,
                          "a part of it has no document shorter than %u bytes: lower its minima", IR_MAX_COST);
            return 0;
        }
    }
    return 1;
}

static engine_status compile(schema *s, const char *text, uint64_t len, ir_program *program) {
    s->root = json_read(s->p, text, len);
    if (!s->root || !prepare(s))
        return s->p->status;
    if (!schema_index(s, s->root, NULL))
        return s->p->status;
    uint32_t root = goal_of_schema(s, s->root, 0);
    if (root == FAILED || !schema_emit(s, root, program) || !spell_plainly(s, program) || ir_finish(s->p, program) != ENGINE_OK ||
        !check_unique(s, program) || !check_endings(s, program)) {
        schema_locate(s, s->root, NULL);
        return s->p->status;
    }
    if (program->nodes[program->root].cost == IR_INFINITE)
        schema_refuse(s, ENGINE_EUNSUPPORTED, s->root, NULL, "no finite document meets the schema");
    if (s->n_notes_bytes)
        note_bytes(s, "]", 1);
    program->notes = s->n_notes_bytes ? s->notes : "[]";
    return s->p->status;
}

engine_status ir_compile_schema(pool *p, const char *text, uint64_t len, uint32_t flags, ir_program **out) {
    schema *s = pool_alloc(p, sizeof *s);
    ir_program *program = pool_alloc(p, sizeof *program);
    *out = NULL;
    if (!s || !program)
        return p->status;
    s->p = p;
    s->flags = flags;
    engine_status status = compile(s, text, len, program);
    if (status == ENGINE_OK)
        *out = program;
    return status;
}
