/* mask.c: masks of tokens (mask.h): the walk. It steps the document once for each byte of the trie that
 * is allowed, except below positions in string bodies, whose tokens are taken from a cache: those that
 * stay inside at once, those that close the string through a trie of what follows the quote. */
#include "mask.h"

#include <stdlib.h>
#include <string.h>

#define MIN_TOKENS 24u /* below a node, to look for a string body there */
#define MAX_EXCEPTIONS 512u

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

/* Whether a way to the quote is one of the exceptions. */
static int is_exception(const except *x, const uint8_t *way, uint32_t n)
{
    for (uint32_t i = 0; i < x->n; i++)
        if (x->lens[i] == n - 1 && memcmp(x->texts[i], way, n - 1) == 0)
            return 1;
    return 0;
}

/* The position behind the closing quote, where that is the same wherever the string is closed. NULL: no
 * way there is known that is no exception. */
static const doc *behind_quote(mask_walk *w, const mask_entry *e, const doc *at, const except *x)
{
    for (uint64_t lengths = e->way_lengths; lengths != 0; lengths &= lengths - 1) {
        uint32_t len = (uint32_t)__builtin_ctzll(lengths);
        const uint8_t *way = e->ways + e->way_at[len];
        if (!is_exception(x, way, len))
            return step_all(w, at, way, len);
    }
    return NULL;
}

/* Closing after an exception leads elsewhere: take back its tokens, and walk them. A remainder that needs
 * an escape is in no token without one, and those with escapes are walked anyway. */
static int walk_exceptions(mask_walk *w, const walk_over *o, uint32_t node, const doc *at, const except *x)
{
    static const uint8_t quote = '"';
    for (uint32_t i = 0; i < x->n; i++) {
        const uint8_t *text = (const uint8_t *)x->texts[i];
        uint32_t len = x->lens[i], found = len > 0 ? trie_find(o->t, node, text, len) : node;
        if ((len > 0 && found == 0) || (found = trie_find(o->t, found, &quote, 1)) == 0)
            continue;
        clear_tokens(o->mask, o->t->list + o->t->nodes[found].first, tokens_below(o->t, found));
        const doc *next = step_all(w, at, text, len);
        next = next != NULL ? w->ops->step(w->program, w->arena, next, quote) : NULL;
        if (next == NULL) {
            if (doc_arena_failed(w->arena))
                return 0;
            continue;
        }
        set_own(o, found);
        if (!walk_trie(w, o, found, next))
            return 0;
    }
    return 1;
}

static void make_key(const mask_walk *w, const doc_lexical *lex, int32_t trie_name, uint32_t node, mask_key *key)
{
    memset(key, 0, offsetof(mask_key, places));
    key->node = node;
    key->trie = (uint8_t)trie_name;
    key->uniform = lex->kind == DOC_IN_STRING && lex->uniform;
    mask_cache_places(w->tokens->cache, lex->langs, lex->states, lex->n_langs, lex->kind == DOC_IN_TEXT, &key->places);
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
static int walk_fast(mask_walk *w, const walk_over *o, const mask_entry *e, const doc *at, const except *x)
{
    if (e->fast.nodes[e->fast.n].first == 0)
        return 1;
    const walk_over fast = {&e->fast, -1, o->mask, o->stack};
    const doc *behind = behind_quote(w, e, at, x);
    if (behind == NULL)
        return doc_arena_failed(w->arena) ? 0 : -1;
    set_own(&fast, 0);
    return walk_trie(w, &fast, 0, behind);
}

/* The tokens below a node in a string body. 1: done; 0: out of memory; -1: nothing is known, walk. */
static int walk_body(mask_walk *w, const walk_over *o, uint32_t node, const doc *at, doc_lexical *lex)
{
    except x;
    mask_entry *own = NULL;
    x.n = 0;
    if (lex->kind == DOC_IN_STRING && lex->uniform) {
        x.n = w->ops->exceptions(w->program, at, x.texts, x.lens, MAX_EXCEPTIONS);
        if (x.n > MAX_EXCEPTIONS)
            x.n = lex->uniform = 0;
    }
    const mask_entry *e = find_entry(w, o, node, lex, &own);
    if (e == NULL)
        return -1;
    int result = walk_fast(w, o, e, at, &x);
    if (result == 1) {
        set_inside(w, e, o->mask);
        const walk_over slow = {&e->slow, -1, o->mask, o->stack};
        result = walk_exceptions(w, o, node, at, &x) && walk_trie(w, &slow, 0, at);
    }
    mask_entry_free(own);
    return result;
}

/* ---- The walk ------------------------------------------------------------------------------------ */

/* Take all tokens below a node from a cached entry where the position is in a string body. */
static int try_body(mask_walk *w, const walk_over *o, uint32_t node, const doc *at)
{
    doc_lexical lex;
    if (o->name < 0 || tokens_below(o->t, node) < MIN_TOKENS)
        return -1;
    w->ops->lexical(w->program, at, &lex);
    if (lex.kind != DOC_IN_STRING && lex.kind != DOC_IN_TEXT)
        return -1;
    return walk_body(w, o, node, at, &lex);
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
        if (trie_end(t, node) == node + 1) {
            node++;
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
