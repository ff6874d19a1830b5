/* vocab_marks.c: what a token is where the file does not say: by its spelling, by the model's name.
 *
 * Follows llama.cpp b11549, whose ids depend on it. Refuses nothing and owns nothing: it only sets flags. */
#include <string.h>

#include "tokenizer.h"

static const char *const eot_names[] = {
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>", "<EOT>", "_<EOT>",
    "[EOT]", "<\xef\xbd\x9c" "end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>", "<end_of_utterance>", NULL};
static const char *const end_names[] = {
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>", "<end_of_turn>",
    "<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>",
    "<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>",
    "<\xef\xbd\x9c" "end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>", "[e~[", NULL};
static const char *const eom_names[] = {"<|eom_id|>", NULL};
static const char *const fim_pre_names[] = {
    "<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<\xef\xbd\x9c" "fim\xe2\x96\x81" "begin\xef\xbd\x9c>", "<PRE>",
    "\xe2\x96\x81<PRE>", "<|code_prefix|>", "<|prefix|>", NULL};
static const char *const fim_suf_names[] = {
    "<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<\xef\xbd\x9c" "fim\xe2\x96\x81hole\xef\xbd\x9c>", "<SUF>",
    "\xe2\x96\x81<SUF>", "<|code_suffix|>", "<|suffix|>", NULL};
static const char *const fim_mid_names[] = {
    "<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<\xef\xbd\x9c" "fim\xe2\x96\x81" "end\xef\xbd\x9c>", "<MID>",
    "\xe2\x96\x81<MID>", "<|code_middle|>", "<|middle|>", NULL};
static const char *const fim_pad_names[] = {"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]", NULL};
static const char *const fim_rep_names[] = {
    "<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>", NULL};
static const char *const fim_sep_names[] = {"<|file_sep|>", NULL};
static const char *const shown_names[] = {"<|channel|>", "<|message|>", "<|start|>", "<|constrain|>", NULL};

/* The token that a name on the list spells, or -1; the first name that exists wins. */
static int32_t first_named(const engine_vocab *v, const char *const *names)
{
    for (; *names != NULL; names++) {
        uint32_t piece = tok_find_string(v, *names);
        if (piece != TOK_NO_PIECE)
            return (int32_t)piece;
    }
    return -1;
}

static void mark(engine_vocab *v, int32_t id, uint16_t flags)
{
    if (id >= 0)
        v->flags[id] |= flags;
}

static int ends(const engine_vocab *v, const char *name)
{
    uint32_t piece = tok_find_string(v, name);
    return piece != TOK_NO_PIECE && (v->flags[piece] & TOK_END);
}

/* What the file declares is not enough: converters type end-of-turn tokens as normal. The
 * reference therefore decides by spelling, and ids depend on it. Where the reference's choice
 * among several spellings hangs on the order of a hash table, the first on the list wins. */
void tok_mark_by_spelling(engine_vocab *v, const tok_marks *given)
{
    tok_marks m = *given;
    const struct { int32_t *id; const char *const *names; } found[] = {
        {&v->info.eot, eot_names}, {&m.eom, eom_names}, {&m.fim_pre, fim_pre_names}, {&m.fim_suf, fim_suf_names},
        {&m.fim_mid, fim_mid_names}, {&m.fim_pad, fim_pad_names}, {&m.fim_rep, fim_rep_names},
        {&m.fim_sep, fim_sep_names}};
    for (size_t i = 0; i < sizeof found / sizeof found[0]; i++) {
        if (*found[i].id >= 0)
            continue;
        *found[i].id = first_named(v, found[i].names);
        mark(v, *found[i].id, TOK_CONTROL | TOK_BARRED);
    }
    for (const char *const *name = end_names; *name != NULL; name++) {
        uint32_t piece = tok_find_string(v, *name);
        if (piece != TOK_NO_PIECE)
            mark(v, (int32_t)piece, TOK_CONTROL | TOK_END | TOK_BARRED);
    }
    for (const char *const *name = shown_names; *name != NULL; name++) {
        uint32_t piece = tok_find_string(v, *name);
        if (piece != TOK_NO_PIECE)
            v->flags[piece] = (uint16_t)((v->flags[piece] & (TOK_END | TOK_BARRED)) | TOK_USER_DEFINED);
    }
    const int32_t end_ids[] = {m.fim_pad, m.fim_rep, m.fim_sep, v->info.eos, v->info.eot, m.eom};
    for (size_t i = 0; i < sizeof end_ids / sizeof end_ids[0]; i++)
        mark(v, end_ids[i], TOK_END | TOK_BARRED);
    mark(v, v->info.bos, TOK_BARRED);
    /* Harmony and Solar: <|end|> closes a message, not the answer. */
    int called = ends(v, "<|call|>") || ends(v, "<|calls|>");
    if (called && (ends(v, "<|return|>") || ends(v, "<|flush|>")) && ends(v, "<|end|>"))
        v->flags[tok_find_string(v, "<|end|>")] = TOK_USER_DEFINED | TOK_BARRED;
    if (ends(v, "</s>") && (ends(v, "<|tool_response>") || ends(v, "<|plamo:eos|>")))
        v->flags[tok_find_string(v, "</s>")] = TOK_NORMAL;
}

/* White space around special tokens goes with them in a few models, known by name only. */
void tok_mark_by_model_name(engine_vocab *v, const char *text, uint64_t len)
{
    int phi = 0, bert = 0;
    for (uint64_t i = 0; i < len; i++) {
        char low[11] = {0};
        for (uint64_t k = 0; k < sizeof low && i + k < len; k++)
            low[k] = (char)(text[i + k] >= 'A' && text[i + k] <= 'Z' ? text[i + k] - 'A' + 'a' : text[i + k]);
        phi |= memcmp(low, "phi-3", 5) == 0 || memcmp(low, "phi3", 4) == 0;
        bert |= memcmp(low, "modern-bert", 11) == 0;
    }
    if (phi) {
        for (int32_t i = 0; i < v->info.size; i++)
            if (v->flags[i] & (TOK_CONTROL | TOK_UNKNOWN | TOK_USER_DEFINED))
                v->flags[i] |= TOK_RSTRIP;
        static const char *const kept[] = {"<unk>", "<s>", "<|endoftext|>"};
        for (int i = 0; i < 3; i++)
            if (tok_find_string(v, kept[i]) != TOK_NO_PIECE)
                v->flags[tok_find_string(v, kept[i])] &= (uint16_t)~TOK_RSTRIP;
    } else if (bert && tok_find_string(v, "[MASK]") != TOK_NO_PIECE) {
        v->flags[tok_find_string(v, "[MASK]")] |= TOK_LSTRIP;
    }
}
