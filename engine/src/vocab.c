/* vocab.c: reads the vocabulary of a GGUF file and answers questions about its tokens.
 *
 * Owns engine_vocab, which copies all it needs; engine_vocab_free() releases it. Refused: other
 * tokenizer models and pre-tokenizers (by name), arrays of the wrong type or length, spellings
 * that stand twice or hold a NUL byte, unknown token types, scores that are NaN, byte tokens with another
 * spelling than <0xNN>, special ids outside the vocabulary, and bytes that only a control token
 * or no token at all could spell. What a token is follows llama.cpp b11549, which also looks at spellings
 * (vocab_marks.c). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gguf.h"
#include "status.h"
#include "tokenizer.h"
#include "unicode_tables.h"

typedef unsigned long long ull;

enum { STRINGS_AT_ONCE = 1024 };

/* Reading state: the file, where errors go, and the status that a failing step leaves. */
typedef struct loader {
    engine_vocab *v;
    const engine_file *file;
    char *err;
    size_t errlen;
    engine_status status;
    const char **ptrs; /* [STRINGS_AT_ONCE] */
    uint64_t *lens;
} loader;

/* Record a refusal; the value is 0, so that a step can return it. */
#define REFUSE(l, code, ...) ((l)->status = gb_fail((l)->err, (l)->errlen, (code), __VA_ARGS__), 0)

static int no_memory(loader *l)
{
    return REFUSE(l, ENGINE_ENOMEM, "out of memory for the vocabulary");
}

/* ---- Spellings ------------------------------------------------------------------------------------------ */

const char *tok_text(const engine_vocab *v, uint32_t piece, uint64_t *len)
{
    *len = v->text_at[piece + 1] - v->text_at[piece];
    return v->text + v->text_at[piece];
}

static uint64_t hash_bytes(const char *text, uint64_t len)
{
    uint64_t h = 0x9E3779B97F4A7C15u ^ len;
    for (; len >= 8; len -= 8, text += 8) {
        uint64_t word;
        memcpy(&word, text, 8);
        h = (h ^ word) * 0xFF51AFD7ED558CCDu;
        h ^= h >> 32;
    }
    uint64_t tail = 0;
    memcpy(&tail, text, len);
    h = (h ^ tail) * 0xC4CEB9FE1A85EC53u;
    return h ^ h >> 29;
}

/* Slot that holds the spelling, or the empty one where it would go. */
static uint64_t slot_of(const engine_vocab *v, const char *text, uint64_t len)
{
    uint64_t slot = hash_bytes(text, len) & v->slot_mask;
    for (; v->slots[slot] != 0; slot = (slot + 1) & v->slot_mask) {
        uint64_t n;
        const char *other = tok_text(v, v->slots[slot] - 1, &n);
        if (n == len && memcmp(other, text, len) == 0)
            break;
    }
    return slot;
}

uint32_t tok_find(const engine_vocab *v, const char *text, uint64_t len)
{
    uint32_t found = v->slots[slot_of(v, text, len)];
    return found == 0 ? TOK_NO_PIECE : found - 1;
}

uint32_t tok_find_string(const engine_vocab *v, const char *text)
{
    return tok_find(v, text, strlen(text));
}

static int grow_slots(engine_vocab *v)
{
    uint64_t size = v->slots == NULL ? 1024 : (v->slot_mask + 1) * 2;
    uint32_t *slots = calloc(size, sizeof *slots);
    if (slots == NULL)
        return 0;
    free(v->slots);
    v->slots = slots;
    v->slot_mask = size - 1;
    for (uint32_t piece = 0; piece < v->pieces; piece++) {
        uint64_t len;
        const char *text = tok_text(v, piece, &len);
        v->slots[slot_of(v, text, len)] = piece + 1;
    }
    return 1;
}

/* Append a spelling that is not there yet. Returns its piece, or TOK_NO_PIECE without memory. */
static uint32_t add_piece(engine_vocab *v, const char *text, uint64_t len)
{
    if (v->slots == NULL || (uint64_t)v->pieces * 2 >= v->slot_mask)
        if (!grow_slots(v))
            return TOK_NO_PIECE;
    if (v->pieces + 1 >= v->piece_cap) {
        uint32_t cap = v->piece_cap + v->piece_cap / 2 + 1024;
        uint64_t *at = realloc(v->text_at, (uint64_t)(cap + 1) * sizeof *at);
        if (at == NULL)
            return TOK_NO_PIECE;
        if (v->text_at == NULL)
            at[0] = 0;
        v->text_at = at;
        v->piece_cap = cap;
    }
    uint64_t used = v->text_at[v->pieces];
    if (used + len + 8 > v->text_cap) { /* 8 spare: a spelling may be looked at one byte past its end */
        uint64_t cap = (used + len + 8) + (used + len) / 2;
        char *grown = realloc(v->text, cap);
        if (grown == NULL)
            return TOK_NO_PIECE;
        v->text = grown;
        v->text_cap = cap;
    }
    uint64_t slot = slot_of(v, text, len);
    memcpy(v->text + used, text, len);
    v->text_at[++v->pieces] = used + len;
    v->slots[slot] = v->pieces;
    return v->pieces - 1;
}

static uint32_t intern(engine_vocab *v, const char *text, uint64_t len)
{
    uint32_t piece = v->slots == NULL ? TOK_NO_PIECE : tok_find(v, text, len);
    return piece != TOK_NO_PIECE ? piece : add_piece(v, text, len);
}

int tok_byte_letter(uint8_t byte, char out[2])
{
    uint32_t code = byte; /* printable Latin-1 stands for itself, the other 68 bytes are U+0100 and up */
    if (byte <= 0x20)
        code = 0x100u + byte;
    else if (byte >= 0x7F && byte <= 0xA0)
        code = 0x121u + byte - 0x7F;
    else if (byte == 0xAD)
        code = 0x143;
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    out[0] = (char)(0xC0 | code >> 6);
    out[1] = (char)(0x80 | (code & 0x3F));
    return 2;
}

/* The byte that a letter stands for, or -1. */
static int letter_byte(uint32_t code)
{
    if ((code > 0x20 && code < 0x7F) || (code > 0xA0 && code < 0x100 && code != 0xAD))
        return (int)code;
    if (code >= 0x100 && code <= 0x120)
        return (int)(code - 0x100);
    if (code >= 0x121 && code <= 0x142)
        return (int)(code - 0x121 + 0x7F);
    return code == 0x143 ? 0xAD : -1;
}

/* ---- Arrays of the file ------------------------------------------------------------------------------- */

/* Call each(l, i, text, len) for every string of the array; 0 where it or the file failed. */
static int each_string(loader *l, const char *key, uint64_t count,
                       int (*each)(loader *l, uint64_t i, const char *text, uint64_t len))
{
    uint64_t index = (uint64_t)engine_file_find_kv(l->file, key, strlen(key));
    for (uint64_t first = 0; first < count; first += STRINGS_AT_ONCE) {
        uint64_t n = count - first < STRINGS_AT_ONCE ? count - first : STRINGS_AT_ONCE;
        l->status = engine_file_kv_strings(l->file, index, first, n, l->ptrs, l->lens, l->err, l->errlen);
        if (l->status != ENGINE_OK)
            return 0;
        for (uint64_t i = 0; i < n; i++)
            if (!each(l, first + i, l->ptrs[i], l->lens[i]))
                return 0;
    }
    return 1;
}

static int add_token(loader *l, uint64_t i, const char *text, uint64_t len)
{
    engine_vocab *v = l->v;
    char empty[40], q[GB_QUOTE_BYTES];
    if (len == 0) { /* named as the reference names it */
        len = (uint64_t)snprintf(empty, sizeof empty, "[EMPTY_%llu]", (ull)i);
        text = empty;
    }
    if (memchr(text, 0, len) != NULL)
        return REFUSE(l, ENGINE_EFORMAT, "tokenizer.ggml.tokens: token %llu, %s, holds a NUL byte", (ull)i,
                      gb_quote(q, text, len));
    uint32_t other = v->slots == NULL ? TOK_NO_PIECE : tok_find(v, text, len);
    if (other != TOK_NO_PIECE)
        return REFUSE(l, ENGINE_EFORMAT, "tokenizer.ggml.tokens: token %llu repeats the spelling %s of token %u",
                      (ull)i, gb_quote(q, text, len), (unsigned)other);
    if (add_piece(v, text, len) == TOK_NO_PIECE)
        return no_memory(l);
    if (len > v->longest)
        v->longest = len;
    return 1;
}

static int load_tokens(loader *l)
{
    engine_kv kv;
    int found = gguf_get_array(l->file, "tokenizer.ggml.tokens", ENGINE_GGUF_STRING, &kv, l->err, l->errlen);
    if (found < 0)
        return l->status = ENGINE_EFORMAT, 0;
    if (found == 0 || kv.count == 0)
        return REFUSE(l, ENGINE_EFORMAT, "tokenizer.ggml.tokens is %s: the file has no vocabulary",
                      found ? "empty" : "missing");
    if (kv.count > INT32_MAX / 4)
        return REFUSE(l, ENGINE_EFORMAT, "tokenizer.ggml.tokens has %llu entries; at most %d are supported",
                      (ull)kv.count, INT32_MAX / 4);
    if (!each_string(l, "tokenizer.ggml.tokens", kv.count, add_token))
        return 0;
    l->v->info.size = (int32_t)kv.count;
    return 1;
}

static int right_count(loader *l, const char *key, const engine_kv *kv)
{
    if (kv->count == (uint64_t)l->v->info.size)
        return 1;
    return REFUSE(l, ENGINE_EFORMAT, "byte %llu: %s has %llu entries for %d tokens", (ull)kv->offset, key,
                  (ull)kv->count, (int)l->v->info.size);
}

static int load_types(loader *l)
{
    static const char key[] = "tokenizer.ggml.token_type";
    static const uint16_t flag_of[] = {0, TOK_NORMAL, TOK_UNKNOWN, TOK_CONTROL, TOK_USER_DEFINED, TOK_UNUSED, TOK_BYTE};
    engine_vocab *v = l->v;
    engine_kv kv;
    v->flags = calloc((size_t)v->info.size, sizeof *v->flags);
    if (v->flags == NULL)
        return no_memory(l);
    int found = gguf_get_array(l->file, key, ENGINE_GGUF_I32, &kv, l->err, l->errlen);
    if (found < 0)
        return l->status = ENGINE_EFORMAT, 0;
    if (found > 0 && !right_count(l, key, &kv))
        return 0;
    for (int32_t i = 0; i < v->info.size; i++) {
        int32_t type = ENGINE_TOKEN_NORMAL;
        if (found > 0)
            memcpy(&type, (const char *)kv.data + (size_t)i * sizeof type, sizeof type);
        if (type < ENGINE_TOKEN_NORMAL || type > ENGINE_TOKEN_BYTE)
            return REFUSE(l, ENGINE_EFORMAT, "%s: token %d has the unknown type %d", key, (int)i, (int)type);
        v->flags[i] = flag_of[type];
        if (flag_of[type] & (TOK_CONTROL | TOK_UNKNOWN))
            v->flags[i] |= TOK_BARRED;
    }
    return 1;
}

static int load_scores(loader *l)
{
    static const char key[] = "tokenizer.ggml.scores";
    engine_vocab *v = l->v;
    engine_kv kv;
    if (v->model != TOK_MODEL_SPM)
        return 1;
    int found = gguf_get_array(l->file, key, ENGINE_GGUF_F32, &kv, l->err, l->errlen);
    if (found < 0)
        return l->status = ENGINE_EFORMAT, 0;
    if (found == 0)
        return REFUSE(l, ENGINE_EFORMAT, "%s is missing: a SentencePiece vocabulary needs it", key);
    if (!right_count(l, key, &kv))
        return 0;
    v->scores = malloc((size_t)v->info.size * sizeof *v->scores);
    if (v->scores == NULL)
        return no_memory(l);
    memcpy(v->scores, kv.data, (size_t)v->info.size * sizeof *v->scores);
    for (int32_t i = 0; i < v->info.size; i++)
        if (isnan(v->scores[i]))
            return REFUSE(l, ENGINE_EFORMAT, "%s: the score of token %d is NaN", key, (int)i);
    return 1;
}

/* ---- Model, pre-tokenizer, ids ----------------------------------------------------------------------- */

static int same(const char *text, uint64_t len, const char *name)
{
    return len == strlen(name) && memcmp(text, name, len) == 0;
}

static int load_pre(loader *l)
{
    static const char *const names[] = {"gpt-2", "smollm", "qwen2", "llama-bpe"};
    const char *text;
    uint64_t len;
    char q[GB_QUOTE_BYTES];
    engine_vocab *v = l->v;
    if (v->model == TOK_MODEL_SPM) {
        v->pre = TOK_PRE_NONE;
        v->info.pre = "default";
        return 1;
    }
    int found = gguf_get_str(l->file, "tokenizer.ggml.pre", &text, &len, l->err, l->errlen);
    if (found < 0)
        return l->status = ENGINE_EFORMAT, 0;
    if (found == 0)
        return REFUSE(l, ENGINE_EUNSUPPORTED, "tokenizer.ggml.pre is missing, so how to split text is not known; "
                      "gpt-2, smollm, qwen2 and llama-bpe are supported: convert the model again");
    for (int i = 0; i < 4; i++) {
        if (!same(text, len, names[i]))
            continue;
        v->pre = i;
        v->info.pre = names[i];
        v->ignore_merges = i == TOK_PRE_LLAMA_BPE;
        return 1;
    }
    return REFUSE(l, ENGINE_EUNSUPPORTED, "tokenizer.ggml.pre is %s; gpt-2, smollm, qwen2 and llama-bpe are supported",
                  gb_quote(q, text, len));
}

static int load_model_name(loader *l)
{
    const char *text;
    uint64_t len;
    char q[GB_QUOTE_BYTES];
    int found = gguf_get_str(l->file, "tokenizer.ggml.model", &text, &len, l->err, l->errlen);
    if (found < 0)
        return l->status = ENGINE_EFORMAT, 0;
    if (found == 0)
        return REFUSE(l, ENGINE_EFORMAT, "tokenizer.ggml.model is missing: the file has no vocabulary");
    l->v->model = same(text, len, "llama") ? TOK_MODEL_SPM : TOK_MODEL_BPE;
    if (l->v->model == TOK_MODEL_BPE && !same(text, len, "gpt2"))
        return REFUSE(l, ENGINE_EUNSUPPORTED, "tokenizer.ggml.model is %s; gpt2 and llama are supported",
                      gb_quote(q, text, len));
    l->v->info.model = l->v->model == TOK_MODEL_SPM ? "llama" : "gpt2";
    return 1;
}

/* Set *id from the file; leave it where the key is absent. */
static int load_id(loader *l, const char *key, int32_t *id)
{
    uint32_t value;
    int found = gguf_get_u32(l->file, key, &value, l->err, l->errlen);
    if (found < 0)
        return l->status = ENGINE_EFORMAT, 0;
    if (found == 0)
        return 1;
    if (value >= (uint32_t)l->v->info.size)
        return REFUSE(l, ENGINE_EFORMAT, "%s is %u, outside the vocabulary of %d tokens", key, (unsigned)value,
                      (int)l->v->info.size);
    *id = (int32_t)value;
    return 1;
}

static int load_bool(loader *l, const char *key, int *value)
{
    if (gguf_get_bool(l->file, key, value, l->err, l->errlen) >= 0)
        return 1;
    return l->status = ENGINE_EFORMAT, 0;
}

static int load_ids(loader *l, tok_marks *m)
{
    engine_vocab_info *info = &l->v->info;
    int spm = l->v->model == TOK_MODEL_SPM, add_bos = spm || l->v->pre == TOK_PRE_LLAMA_BPE, add_eos = 0;
    *m = (tok_marks){-1, -1, -1, -1, -1, -1, -1};
    info->unk = spm ? 0 : -1;
    info->bos = spm && info->size > 1 ? 1 : -1;
    info->eos = spm && info->size > 2 ? 2 : -1;
    info->eot = info->pad = -1;
    const struct { const char *key; int32_t *id; } keys[] = {
        {"tokenizer.ggml.bos_token_id", &info->bos}, {"tokenizer.ggml.eos_token_id", &info->eos},
        {"tokenizer.ggml.eot_token_id", &info->eot}, {"tokenizer.ggml.unknown_token_id", &info->unk},
        {"tokenizer.ggml.padding_token_id", &info->pad}, {"tokenizer.ggml.eom_token_id", &m->eom},
        {"tokenizer.ggml.fim_pre_token_id", &m->fim_pre}, {"tokenizer.ggml.fim_suf_token_id", &m->fim_suf},
        {"tokenizer.ggml.fim_mid_token_id", &m->fim_mid}, {"tokenizer.ggml.fim_pad_token_id", &m->fim_pad},
        {"tokenizer.ggml.fim_rep_token_id", &m->fim_rep}, {"tokenizer.ggml.fim_sep_token_id", &m->fim_sep},
        {"tokenizer.ggml.prefix_token_id", &m->fim_pre}, {"tokenizer.ggml.suffix_token_id", &m->fim_suf},
        {"tokenizer.ggml.middle_token_id", &m->fim_mid},
    };
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (!load_id(l, keys[i].key, keys[i].id))
            return 0;
    l->v->info.add_space_prefix = spm;
    if (!load_bool(l, "tokenizer.ggml.add_bos_token", &add_bos)
        || !load_bool(l, "tokenizer.ggml.add_eos_token", &add_eos)
        || !load_bool(l, "tokenizer.ggml.add_space_prefix", &l->v->info.add_space_prefix))
        return 0;
    if ((add_bos && info->bos < 0) || (add_eos && info->eos < 0))
        return REFUSE(l, ENGINE_EFORMAT, "the file asks to add %s to every text, but tokenizer.ggml.%s_token_id is missing",
                      add_bos && info->bos < 0 ? "BOS" : "EOS", add_bos && info->bos < 0 ? "bos" : "eos");
    info->add_bos = add_bos != 0;
    info->add_eos = add_eos != 0;
    l->v->info.add_space_prefix = spm && l->v->info.add_space_prefix;
    return 1;
}

/* A few models, known by name only, want the white space around their special tokens gone. */
static int load_model_marks(loader *l)
{
    const char *name;
    uint64_t len;
    int found = gguf_get_str(l->file, "general.name", &name, &len, l->err, l->errlen);
    if (found < 0)
        return l->status = ENGINE_EFORMAT, 0;
    if (found > 0)
        tok_mark_by_model_name(l->v, name, len);
    return 1;
}

/* ---- Merges and letters ---------------------------------------------------------------------------------- */

const tok_merge *tok_merge_of(const engine_vocab *v, uint32_t left, uint32_t right)
{
    uint64_t pair = (uint64_t)left << 32 | right, slot = (pair * 0x9E3779B97F4A7C15u >> 20) & v->merge_mask;
    for (; v->merges[slot].pair != UINT64_MAX; slot = (slot + 1) & v->merge_mask)
        if (v->merges[slot].pair == pair)
            return &v->merges[slot];
    return NULL;
}

/* "left right", cut at the first space behind the first byte. Without one it can never apply,
 * and a pair that stands twice keeps its first rank, both as in the reference. */
static int add_merge(loader *l, uint64_t i, const char *text, uint64_t len)
{
    engine_vocab *v = l->v;
    const char *space = len > 1 ? memchr(text + 1, ' ', len - 1) : NULL;
    if (space == NULL || space + 1 == text + len)
        return 1;
    uint64_t left_len = (uint64_t)(space - text), right_len = len - left_len - 1;
    char small[256], *joined = len <= sizeof small ? small : malloc(len);
    if (joined == NULL)
        return no_memory(l);
    memcpy(joined, text, left_len);
    memcpy(joined + left_len, space + 1, right_len);
    uint32_t left = intern(v, text, left_len), right = intern(v, space + 1, right_len);
    uint32_t result = intern(v, joined, left_len + right_len);
    if (joined != small)
        free(joined);
    if (left == TOK_NO_PIECE || right == TOK_NO_PIECE || result == TOK_NO_PIECE)
        return no_memory(l);
    uint64_t pair = (uint64_t)left << 32 | right, slot = (pair * 0x9E3779B97F4A7C15u >> 20) & v->merge_mask;
    while (v->merges[slot].pair != UINT64_MAX && v->merges[slot].pair != pair)
        slot = (slot + 1) & v->merge_mask;
    if (v->merges[slot].pair == UINT64_MAX)
        v->merges[slot] = (tok_merge){pair, (uint32_t)i, result};
    return 1;
}

static int load_merges(loader *l)
{
    static const char key[] = "tokenizer.ggml.merges";
    engine_vocab *v = l->v;
    engine_kv kv;
    int found = gguf_get_array(l->file, key, ENGINE_GGUF_STRING, &kv, l->err, l->errlen);
    if (found < 0)
        return l->status = ENGINE_EFORMAT, 0;
    if (found == 0)
        return REFUSE(l, ENGINE_EFORMAT, "%s is missing: a byte-level BPE vocabulary needs it", key);
    if (kv.count > INT32_MAX / 4)
        return REFUSE(l, ENGINE_EFORMAT, "%s has %llu entries; at most %d are supported", key, (ull)kv.count,
                      INT32_MAX / 4);
    uint64_t size = 64;
    while (size < kv.count * 2)
        size *= 2;
    v->merges = malloc(size * sizeof *v->merges);
    if (v->merges == NULL)
        return no_memory(l);
    for (uint64_t i = 0; i < size; i++)
        v->merges[i].pair = UINT64_MAX;
    v->merge_mask = size - 1;
    return each_string(l, key, kv.count, add_merge);
}

/* The piece of every byte. A letter that is no token still takes part in merges, and vanishes
 * where none of them uses it, as in the reference: SmolLM2 lacks 21 of the 256. A byte whose
 * letter is a control token could not stand in a literal text: refused. */
static int load_letters(loader *l)
{
    engine_vocab *v = l->v;
    for (int b = 0; b < 256; b++) {
        char letter[2], ascii = (char)b;
        int len = tok_byte_letter((uint8_t)b, letter);
        uint32_t single = tok_find(v, &ascii, 1);
        v->letters[b] = intern(v, letter, (uint64_t)len);
        if (v->letters[b] == TOK_NO_PIECE)
            return no_memory(l);
        v->ascii[b] = single < (uint32_t)v->info.size ? (int32_t)single : -1;
        if (v->letters[b] < (uint32_t)v->info.size && (v->flags[v->letters[b]] & TOK_BARRED))
            return REFUSE(l, ENGINE_EFORMAT, "tokenizer.ggml.token_type: token %u spells byte 0x%02x, yet it is a "
                          "control token, so plain text could turn into it", (unsigned)v->letters[b], (unsigned)b);
    }
    return 1;
}

/* <0xNN>, else the byte itself, else (when the text is tokenised) the unknown token. */
static int load_byte_tokens(loader *l)
{
    engine_vocab *v = l->v;
    for (int b = 0; b < 256; b++) {
        char name[8], single = (char)b;
        snprintf(name, sizeof name, "<0x%02X>", (unsigned)b);
        v->letters[b] = tok_find_string(v, name);
        if (v->letters[b] == TOK_NO_PIECE)
            v->letters[b] = tok_find(v, &single, 1);
        if (v->letters[b] == TOK_NO_PIECE && v->info.unk < 0)
            return REFUSE(l, ENGINE_EFORMAT, "tokenizer.ggml.tokens: there is no token %s and no unknown token, "
                          "so not every text can be spelled", name);
    }
    return 1;
}

/* ---- What a token stands for ------------------------------------------------------------------------- */

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The byte of <0xNN>, or -1. */
static int byte_of_name(const char *text, uint64_t len)
{
    if (len != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>' || hex_digit(text[3]) < 0 || hex_digit(text[4]) < 0)
        return -1;
    return hex_digit(text[3]) * 16 + hex_digit(text[4]);
}

/* Byte letters to bytes; a spelling with any other character stands for itself. */
static uint64_t from_letters(const char *text, uint64_t len, char *out)
{
    uint64_t n = 0, pos = 0, next;
    while (pos < len) {
        int byte = letter_byte(tok_decode(text, pos, len, &next));
        if (byte < 0) {
            memcpy(out, text, len);
            return len;
        }
        out[n++] = (char)byte;
        pos = next;
    }
    return n;
}

/* U+2581 to spaces. */
static uint64_t from_escaped(const char *text, uint64_t len, char *out)
{
    uint64_t n = 0;
    for (uint64_t pos = 0; pos < len;) {
        int space = len - pos >= 3 && memcmp(text + pos, "\xE2\x96\x81", 3) == 0;
        out[n++] = space ? ' ' : text[pos];
        pos += space ? 3 : 1;
    }
    return n;
}

/* The bytes of every token never exceed its spelling. Unused tokens stand for theirs too: merges
 * can produce them. */
static int load_bytes(loader *l)
{
    engine_vocab *v = l->v;
    uint64_t used = 0, total = v->text_at[v->info.size];
    char q[GB_QUOTE_BYTES];
    v->bytes = malloc(total + 1);
    v->bytes_at = malloc(((size_t)v->info.size + 1) * sizeof *v->bytes_at);
    if (v->bytes == NULL || v->bytes_at == NULL)
        return no_memory(l);
    for (int32_t i = 0; i < v->info.size; i++) {
        uint64_t len;
        const char *text = tok_text(v, (uint32_t)i, &len);
        v->bytes_at[i] = used;
        if (v->flags[i] & (TOK_CONTROL | TOK_UNKNOWN | TOK_USER_DEFINED)) {
            memcpy(v->bytes + used, text, len);
            used += len;
        } else if (v->flags[i] & TOK_BYTE) {
            int byte = byte_of_name(text, len);
            if (byte < 0)
                return REFUSE(l, ENGINE_EFORMAT, "tokenizer.ggml.token_type: token %d, %s, is typed as a byte "
                              "but is not spelled <0xNN>", (int)i, gb_quote(q, text, len));
            v->bytes[used++] = (char)byte;
        } else {
            used += v->model == TOK_MODEL_BPE ? from_letters(text, len, v->bytes + used)
                                              : from_escaped(text, len, v->bytes + used);
        }
    }
    v->bytes_at[v->info.size] = used;
    return 1;
}

/* ---- Special tokens --------------------------------------------------------------------------------------- */

/* For sorting: a spelling with its place. */
typedef struct spelled {
    const char *text;
    uint64_t len;
    uint32_t id, index;
} spelled;

static int by_text(const void *a, const void *b)
{
    const spelled *x = a, *y = b;
    int order = memcmp(x->text, y->text, x->len < y->len ? x->len : y->len);
    return order != 0 ? order : (x->len > y->len) - (x->len < y->len);
}

static int by_length(const void *a, const void *b)
{
    const spelled *x = a, *y = b;
    if (x->len != y->len)
        return x->len > y->len ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

static int load_specials(loader *l)
{
    engine_vocab *v = l->v;
    uint32_t n = 0;
    for (int32_t i = 0; i < v->info.size; i++)
        n += (v->flags[i] & (TOK_CONTROL | TOK_UNKNOWN | TOK_USER_DEFINED)) != 0;
    spelled *list = malloc((n + 1) * sizeof *list);
    v->specials = malloc((n + 1) * sizeof *v->specials);
    v->special_rank = malloc((n + 1) * sizeof *v->special_rank);
    v->special_at_rank = malloc((n + 1) * sizeof *v->special_at_rank);
    if (list == NULL || v->specials == NULL || v->special_rank == NULL || v->special_at_rank == NULL) {
        free(list);
        return no_memory(l);
    }
    v->n_specials = n;
    n = 0;
    for (int32_t i = 0; i < v->info.size; i++) {
        if (!(v->flags[i] & (TOK_CONTROL | TOK_UNKNOWN | TOK_USER_DEFINED)))
            continue;
        list[n].text = tok_text(v, (uint32_t)i, &list[n].len);
        list[n++].id = (uint32_t)i;
    }
    qsort(list, n, sizeof *list, by_text);
    uint32_t first[257] = {0};
    for (uint32_t i = 0; i < n; i++) {
        list[i].index = i;
        v->specials[i] = list[i].id;
        first[(uint8_t)list[i].text[0] + 1]++;
    }
    for (int b = 0; b < 256; b++)
        first[b + 1] += first[b];
    memcpy(v->special_first, first, sizeof first);
    qsort(list, n, sizeof *list, by_length);
    for (uint32_t rank = 0; rank < n; rank++) {
        v->special_rank[list[rank].index] = rank;
        v->special_at_rank[rank] = list[rank].index;
    }
    free(list);
    return 1;
}

/* ---- The public interface ------------------------------------------------------------------------------ */

static int load(loader *l)
{
    tok_marks m;
    if (!load_model_name(l) || !load_pre(l) || !load_tokens(l) || !load_types(l) || !load_scores(l) || !load_ids(l, &m))
        return 0;
    tok_mark_by_spelling(l->v, &m);
    if (!load_model_marks(l) || !load_bytes(l) || !load_specials(l))
        return 0;
    if (l->v->model == TOK_MODEL_SPM)
        return load_byte_tokens(l);
    return load_merges(l) && load_letters(l);
}

engine_status engine_vocab_open(engine_vocab **out, const engine_file *file, char *err, size_t errlen)
{
    if (out == NULL || file == NULL)
        return gb_fail(err, errlen, ENGINE_EINVAL, "out or file is NULL");
    *out = NULL;
    loader l = {.file = file, .err = err, .errlen = errlen, .status = ENGINE_ENOMEM};
    l.v = calloc(1, sizeof *l.v);
    l.ptrs = malloc(STRINGS_AT_ONCE * sizeof *l.ptrs);
    l.lens = malloc(STRINGS_AT_ONCE * sizeof *l.lens);
    int ok = l.v != NULL && l.ptrs != NULL && l.lens != NULL ? load(&l) : no_memory(&l);
    free(l.ptrs);
    free(l.lens);
    if (!ok) {
        engine_vocab_free(l.v);
        return l.status;
    }
    l.v->info.unicode = GB_UNICODE_VERSION;
    *out = l.v;
    return ENGINE_OK;
}

void engine_vocab_free(engine_vocab *vocab)
{
    if (vocab == NULL)
        return;
    free(vocab->text);
    free(vocab->text_at);
    free(vocab->slots);
    free(vocab->bytes);
    free(vocab->bytes_at);
    free(vocab->flags);
    free(vocab->scores);
    free(vocab->merges);
    free(vocab->specials);
    free(vocab->special_rank);
    free(vocab->special_at_rank);
    free(vocab);
}

engine_status engine_vocab_describe(const engine_vocab *vocab, engine_vocab_info *out)
{
    if (vocab == NULL || out == NULL)
        return ENGINE_EINVAL;
    *out = vocab->info;
    return ENGINE_OK;
}

static int known_id(const engine_vocab *v, int32_t id)
{
    return v != NULL && id >= 0 && id < v->info.size;
}

engine_status engine_token_bytes(const engine_vocab *vocab, int32_t id, int special, const char **bytes, uint64_t *len,
                                 char *err, size_t errlen)
{
    if (bytes == NULL || len == NULL || !known_id(vocab, id))
        return gb_fail(err, errlen, ENGINE_EINVAL, "token id %d is outside the vocabulary of %d tokens", (int)id,
                       vocab == NULL ? 0 : (int)vocab->info.size);
    *bytes = vocab->bytes + vocab->bytes_at[id];
    *len = vocab->bytes_at[id + 1] - vocab->bytes_at[id];
    if (!special && (vocab->flags[id] & (TOK_CONTROL | TOK_UNKNOWN)))
        *len = 0;
    return ENGINE_OK;
}

engine_status engine_token_text(const engine_vocab *vocab, int32_t id, const char **text, uint64_t *len, char *err,
                                size_t errlen)
{
    if (text == NULL || len == NULL || !known_id(vocab, id))
        return gb_fail(err, errlen, ENGINE_EINVAL, "token id %d is outside the vocabulary of %d tokens", (int)id,
                       vocab == NULL ? 0 : (int)vocab->info.size);
    *text = tok_text(vocab, (uint32_t)id, len);
    return ENGINE_OK;
}

int32_t engine_token_kind(const engine_vocab *vocab, int32_t id)
{
    if (!known_id(vocab, id))
        return 0;
    uint16_t flags = vocab->flags[id];
    if (flags & TOK_CONTROL)
        return ENGINE_TOKEN_CONTROL;
    if (flags & TOK_UNKNOWN)
        return ENGINE_TOKEN_UNKNOWN;
    if (flags & TOK_USER_DEFINED)
        return ENGINE_TOKEN_USER_DEFINED;
    if (flags & TOK_BYTE)
        return ENGINE_TOKEN_BYTE;
    return flags & TOK_UNUSED ? ENGINE_TOKEN_UNUSED : ENGINE_TOKEN_NORMAL;
}

int engine_token_is_end(const engine_vocab *vocab, int32_t id)
{
    return known_id(vocab, id) && (vocab->flags[id] & TOK_END) != 0;
}

const char *engine_tokenizer_revision(void)
{
    return "t1";
}
