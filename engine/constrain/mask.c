/* mask.c: masks of tokens (mask.h): the walk. It steps the document once for each byte of the trie that
 * is allowed, except below positions in string bodies, whose tokens are taken from a cache: those that
 * stay inside at once, those that close the string through a trie of what follows the quote. */
#include "mask.h"

#include <stdlib.h>
#include <string.h>

#define MIN_TOKENS 24u /* below a node, to look for a string body there */
#define MAX_EXCEPTIONS 512u
#define MAX_BODIES 16u /* strings within one token that are looked up: walks into entries nest so deep */

/* Remainders of the string being read after which closing it leads elsewhere. */
typedef struct except {
    const char *texts[MAX_EXCEPTIONS];
    uint32_t lens[MAX_EXCEPTIONS];
    uint32_t n;
} except;

/* A node on the path to the one that is visited, and the position that its bytes lead to. */
typedef struct mask_frame {
    const doc *at;
    uint64_t mark;    /* of the arena: what was made below the node goes when the node's subtree is left */
    uint32_t end;     /* node after the subtree */
} mask_frame;

/* What a walk is about: a trie, its name for cached entries (or -1), and the mask. */
typedef struct walk_over {
    const trie *t;
    int32_t name;
    uint32_t *mask;
    mask_frame *stack;
} walk_over;

static int walk_trie(mask_walk *w, const walk_over *o, uint32_t root, const doc *at);

static void set_tokens(uint32_t *mask, const int32_t *list, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        mask[list[i] >> 5] |= 1u << (list[i] & 31);
}

static void clear_tokens(uint32_t *mask, const int32_t *list, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        mask[list[i] >> 5] &= ~(1u << (list[i] & 31));
}

static uint32_t tokens_below(const trie *t, uint32_t node)
{
    return t->nodes[trie_end(t, node)].first - t->nodes[node].first;
}

static void set_own(const walk_over *o, uint32_t node)
{
    uint32_t first = o->t->nodes[node].first;
    set_tokens(o->mask, o->t->list + first, trie_own_end(o->t, node) - first);
}

/* ---- String bodies --------------------------------------------------------------------------- */

static void set_inside(const mask_walk *w, const mask_entry *e, uint32_t *mask)
{
    if (e->dense == NULL) {
        set_tokens(mask, e->sparse, e->n_sparse);
        return;
    }
    uint32_t words = ((uint32_t)w->tokens->n + 31) / 32;
    for (uint32_t i = 0; i < words; i++)
        mask[i] |= e->dense[i];
}

static const doc *step_all(mask_walk *w, const doc *at, const uint8_t *bytes, uint32_t n)
{
    for (uint32_t i = 0; i < n && at != NULL; i++)
        at = w->ops->step(w->program, w->arena, at, bytes[i]);
    return at;
}

/* Alternatives of an object declare the same keys: keep each once. */
static void drop_repeated(except *x)
{
    uint16_t table[2 * MAX_EXCEPTIONS] = {0}; /* index + 1, open addressing */
    uint32_t kept = 0;
    for (uint32_t i = 0; i < x->n; i++) {
        uint32_t len = x->lens[i], slot = len * 0x9e3779b9u;
        for (uint32_t k = 0; k < len; k++)
            slot = (slot ^ (uint8_t)x->texts[i][k]) * 0x01000193u;
        for (slot %= 2 * MAX_EXCEPTIONS; table[slot] != 0; slot = (slot + 1) % (2 * MAX_EXCEPTIONS)) {
            uint32_t other = table[slot] - 1u;
            if (x->lens[other] == len && memcmp(x->texts[other], x->texts[i], len) == 0)
                break;
        }
        if (table[slot] != 0)
            continue;
        x->texts[kept] = x->texts[i];
        x->lens[kept++] = len;
        table[slot] = (uint16_t)kept;
    }
    x->n = kept;
}

/* Whether a way to the quote is one of the exceptions. */
static int is_exception(const except *x, const uint8_t *way, uint32_t n)
{
    for (uint32_t i = 0; i < x->n; i++)
        if (x->lens[i] == n - 1 && memcmp(x->texts[i], way, n - 1) == 0)
            return 1;
    return 0;
}

/* The position behind the closing quote at an exit. NULL: no way there is known that is no exception;
 * *none: and there is no other, so all that closes here are exceptions. */
static const doc *behind_quote(mask_walk *w, const mask_exit *e, const doc *at, const except *x, int *none)
{
    *none = 0;
    for (uint32_t i = 0; i < e->n_ways; i++) {
        const uint8_t *way = e->ways + e->way_at[i];
        if (!is_exception(x, way, e->way_len[i]))
            return step_all(w, at, way, e->way_len[i]);
    }
    *none = !e->more;
    return NULL;
}

/* Read an exception from the node on; the tokens on its way are legal as far as it can be read. The node
 * before the quote, or 0. */
static uint32_t read_exception(mask_walk *w, const walk_over *o, uint32_t node, const doc **at, const uint8_t *text,
                               uint32_t len)
{
    for (uint32_t i = 0; i < len && *at != NULL; i++) {
        node = trie_find(o->t, node, text + i, 1);
        if (node == 0)
            return 0;
        *at = w->ops->step(w->program, w->arena, *at, text[i]);
        if (*at != NULL)
            set_own(o, node);
    }
    return node;
}

/* Closing after an exception leads elsewhere: take back its tokens, and walk them. A remainder that needs
 * an escape is in no token without one, and those with escapes are walked anyway. */
static int walk_exceptions(mask_walk *w, const walk_over *o, uint32_t node, const doc *at, const except *x,
                           int covered)
{
    static const uint8_t quote = '"';
    for (uint32_t i = 0; i < x->n; i++) {
        const uint8_t *text = (const uint8_t *)x->texts[i];
        uint32_t len = x->lens[i], found = node;
        const doc *next = at;
        if (!covered)
            found = read_exception(w, o, node, &next, text, len);
        else if (len > 0)
            found = trie_find(o->t, node, text, len);
        if ((len > 0 && found == 0) || (found = trie_find(o->t, found, &quote, 1)) == 0)
            continue;
        clear_tokens(o->mask, o->t->list + o->t->nodes[found].first, tokens_below(o->t, found));
        if (covered)
            next = step_all(w, at, text, len);
        next = next != NULL ? w->ops->step(w->program, w->arena, next, quote) : NULL;
        if (next != NULL) {
            set_own(o, found);
            if (!walk_trie(w, o, found, next))
                return 0;
        }
        if (doc_arena_failed(w->arena))
            return 0;
    }
    return !doc_arena_failed(w->arena);
}

static void make_key(const mask_walk *w, const doc_lexical *lex, int32_t trie_name, uint32_t node, mask_key *key)
{
    memset(key, 0, offsetof(mask_key, places));
    key->node = node;
    key->trie = (uint8_t)trie_name;
    key->uniform = lex->kind == DOC_IN_STRING ? (uint8_t)lex->uniform : 0;
    key->covered = lex->kind != DOC_IN_STRING || lex->uniform != 1 || lex->covered;
    mask_cache_places(w->tokens->cache, lex->langs, lex->states, lex->n_langs, 
                      lex->kind == DOC_IN_TEXT ? BODY_RAW : lex->plain ? BODY_PLAIN : BODY_JSON, &key->places);
}

static int is_global(const body_places *places)
{
    for (uint32_t i = 0; i < places->n; i++)
        if (places->at[i].lang != NULL)
            return 0;
    return 1;
}

static const mask_entry *find_entry(mask_walk *w, const walk_over *o, uint32_t node, const doc_lexical *lex,
                                    mask_entry **own)
{
    mask_key key;
    make_key(w, lex, o->name, node, &key);
    int global = is_global(&key.places);
    if (!global && w->cache == NULL)
        w->cache = constraint_mask_cache(w->constraint, w->tokens);
    mask_cache *cache = global ? w->tokens->cache : w->cache;
    return cache != NULL ? mask_cache_get(cache, &key, own) : NULL;
}

/* Tokens that close the string, by what follows the quote. As walk_body. */
static int walk_exits(mask_walk *w, const walk_over *o, const mask_entry *e, const doc *at, const except *x)
{
    const doc *behind[MASK_EXITS];
    int none;
    for (uint32_t i = 0; i < e->n_exits; i++) {
        behind[i] = behind_quote(w, &e->exits[i], at, x, &none);
        if (behind[i] == NULL && !none)
            return doc_arena_failed(w->arena) ? 0 : -1;
    }
    for (uint32_t i = 0; i < e->n_exits; i++) {
        if (behind[i] == NULL)
            continue;
        const walk_over after = {&e->exits[i].after, -1, o->mask, o->stack};
        set_own(&after, 0);
        if (!walk_trie(w, &after, 0, behind[i]))
            return 0;
    }
    return 1;
}

/* The tokens below a node in a string body. 1: done; 0: out of memory; -1: nothing is known, walk. */
static int walk_body(mask_walk *w, const walk_over *o, uint32_t node, const doc *at, doc_lexical *lex)
{
    except x;
    mask_entry *own = NULL;
    x.n = 0;
    if (lex->kind == DOC_IN_STRING && lex->uniform == 1) {
        x.n = w->ops->exceptions(w->program, at, x.texts, x.lens, MAX_EXCEPTIONS);
        if (x.n > 1 && x.n <= MAX_EXCEPTIONS)
            drop_repeated(&x);
        if (x.n > MAX_EXCEPTIONS && !lex->covered)
            return -1;
        if (x.n > MAX_EXCEPTIONS)
            x.n = lex->uniform = 0;
    }
    const mask_entry *e = find_entry(w, o, node, lex, &own);
    if (e == NULL)
        return -1;
    int result = walk_exits(w, o, e, at, &x);
    if (result == 1) {
        set_inside(w, e, o->mask);
        const walk_over slow = {&e->slow, -1, o->mask, o->stack};
        result = walk_exceptions(w, o, node, at, &x, lex->covered) && walk_trie(w, &slow, 0, at);
    }
    mask_entry_free(own);
    return result;
}

/* ---- The walk ------------------------------------------------------------------------------------ */

/* Take all tokens below a node where their bytes alone tell that they may be read. */
static int take_all(mask_walk *w, const walk_over *o, uint32_t node, const doc *at)
{
    const trie *t = o->t;
    if (w->ops->reads == NULL || t->below == NULL ||
        !w->ops->reads(w->program, at, t->below[node], t->height[node]))
        return 0;
    set_tokens(o->mask, t->list + t->nodes[node].first, tokens_below(t, node));
    return 1;
}

/* Take all tokens below a node from a cached entry where the position is in a string body. */
static int try_body(mask_walk *w, const walk_over *o, uint32_t node, const doc *at)
{
    doc_lexical lex;
    if (o->name < 0 || w->bodies == MAX_BODIES || tokens_below(o->t, node) < MIN_TOKENS)
        return -1;
    w->ops->lexical(w->program, at, &lex);
    if (lex.kind != DOC_IN_STRING && lex.kind != DOC_IN_TEXT)
        return -1;
    w->bodies++;
    int result = walk_body(w, o, node, at, &lex);
    w->bodies--;
    return result;
}

/* Set the tokens below `root` that may be read from `at`; o->stack has room for the trie's depth. */
static int walk_trie(mask_walk *w, const walk_over *o, uint32_t root, const doc *at)
{
    const trie *t = o->t;
    walk_over inner = *o;
    uint32_t depth = 0, node = root + 1;
    mask_frame *stack = o->stack;
    stack[0] = (mask_frame){.at = at, .mark = doc_arena_mark(w->arena), .end = trie_end(t, root)};
    while (node < stack[0].end) {
        while (node >= stack[depth].end)
            depth--;
        mask_frame *f = &stack[depth];
        doc_arena_reset(w->arena, f->mark);
        const doc *next = w->ops->step(w->program, w->arena, f->at, trie_byte(t, node));
        if (next == NULL) {
            if (doc_arena_failed(w->arena))
                return 0;
            node = trie_end(t, node);
            continue;
        }
        set_own(o, node);
        if (trie_end(t, node) == node + 1 || take_all(w, o, node, next)) {
            node = trie_end(t, node);
            continue;
        }
        inner.stack = &stack[depth + 1];
        int taken = try_body(w, &inner, node, next);
        if (taken == 0)
            return 0;
        if (taken == 1) {
            node = trie_end(t, node);
            continue;
        }
        stack[++depth] = (mask_frame){.at = next, .mark = doc_arena_mark(w->arena), .end = trie_end(t, node)};
        node++;
    }
    doc_arena_reset(w->arena, stack[0].mark);
    return 1;
}

/* A walk into an entry may start over below it: at each depth of the token at most three times. */
static int make_room(mask_walk *w, uint32_t depth)
{
    if (w->room >= depth)
        return 1;
    mask_frame *grown = realloc(w->stack, depth * sizeof *grown);
    if (grown == NULL)
        return 0;
    w->stack = grown;
    w->room = depth;
    return 1;
}

int mask_fill(mask_walk *w, const doc *at, uint32_t *mask)
{
    const struct engine_tokens *tokens = w->tokens;
    doc_lexical lex;
    memset(mask, 0, ((size_t)tokens->n + 31) / 32 * sizeof *mask);
    doc_arena_reset(w->arena, 0);
    if (!make_room(w, 3 * (tokens->all.depth + 2)))
        return 0;
    w->ops->lexical(w->program, at, &lex);
    walk_over o = {&tokens->all, MASK_TRIE_ALL, mask, w->stack};
    int result = -1;
    if (lex.kind == DOC_IN_SPACE) {
        o = (walk_over){&tokens->spaced, MASK_TRIE_SPACED, mask, w->stack};
        set_own(&o, 0);
    } else if (lex.kind != DOC_IN_OTHER) {
        result = walk_body(w, &o, 0, at, &lex);
    }
    if (result < 0)
        result = walk_trie(w, &o, 0, at);
    if (result == 1 && w->ops->accepting(w->program, at))
        set_tokens(mask, tokens->ends, (uint32_t)tokens->n_ends);
    return result;
}

void mask_walk_free(mask_walk *w)
{
    free(w->stack);
    doc_arena_free(w->arena);
}
