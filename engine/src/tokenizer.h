/* tokenizer.h: what the files of the tokenizer share.
 *
 *   vocab.c        reads and validates the vocabulary; owns engine_vocab
 *   vocab_marks.c  decides what a token is where the file does not say
 *   pretokenize.c  splits text into the words that merges stay inside (byte-level BPE)
 *   merge.c        merges neighbours in the order of their keys
 *   bpe.c, spm.c   turn one stretch of plain text into ids
 *   tokenizer.c    finds special tokens, adds BOS and EOS, and calls the two above
 *
 * A "piece" is a spelling: ids below size are tokens, the ones above are spellings that only
 * merges mention (a merge may pass through a string that is no token). */
#ifndef GB_TOKENIZER_H
#define GB_TOKENIZER_H
#include "engine.h"

enum { TOK_MODEL_BPE = 0, TOK_MODEL_SPM = 1 };
enum { TOK_PRE_GPT2 = 0, TOK_PRE_SMOLLM = 1, TOK_PRE_QWEN2 = 2, TOK_PRE_LLAMA_BPE = 3, TOK_PRE_NONE = 4 };

/* What a token is; several may hold (an end-of-turn token typed as normal is also control). */
enum {
    TOK_NORMAL = 1, TOK_UNKNOWN = 2, TOK_CONTROL = 4, TOK_USER_DEFINED = 8, TOK_UNUSED = 16, TOK_BYTE = 32,
    TOK_LSTRIP = 64,  /* swallows white space before it */
    TOK_RSTRIP = 128, /* swallows white space after it */
    TOK_END = 256,    /* ends a generation */
    TOK_BARRED = 512, /* never made from a literal span */
};

#define TOK_NO_PIECE UINT32_MAX

/* One merge: the pair of pieces left and right becomes result. Lower ranks go first. */
typedef struct tok_merge {
    uint64_t pair; /* left << 32 | right; UINT64_MAX marks an empty slot */
    uint32_t rank, result;
} tok_merge;

struct engine_vocab {
    int model, pre;
    engine_vocab_info info; /* info.size is the number of tokens */
    int ignore_merges;      /* a word that is a token is taken whole */

    char *text;             /* spellings of all pieces, back to back */
    uint64_t *text_at;      /* [pieces + 1] offsets into text */
    uint32_t pieces;        /* tokens, then the spellings that only merges mention */
    uint64_t text_cap;
    uint32_t piece_cap;
    uint32_t *slots;        /* hash of spellings: piece + 1, 0 where empty */
    uint64_t slot_mask;
    uint64_t longest;       /* bytes of the longest token */

    char *bytes;            /* what each token stands for, back to back */
    uint64_t *bytes_at;     /* [size + 1] */
    uint16_t *flags;        /* [size] TOK_* */
    float *scores;          /* [size], SentencePiece only */

    tok_merge *merges;      /* hash of pairs, byte-level BPE only */
    uint64_t merge_mask;
    uint32_t letters[256];  /* piece of each byte: its letter (BPE); its token or TOK_NO_PIECE (SPM) */
    int32_t ascii[256];     /* token spelled with this one byte, or -1 (BPE) */

    uint32_t *specials;     /* ids of special tokens, sorted by spelling */
    uint32_t *special_rank; /* [n_specials] place in the order of matching of each of specials */
    uint32_t *special_at_rank; /* the inverse */
    uint32_t n_specials;
    uint32_t special_first[257]; /* specials that begin with byte b: [special_first[b], special_first[b + 1]) */
};

/* Spellings. */
const char *tok_text(const engine_vocab *v, uint32_t piece, uint64_t *len);
uint32_t tok_find(const engine_vocab *v, const char *text, uint64_t len); /* TOK_NO_PIECE where absent */
uint32_t tok_find_string(const engine_vocab *v, const char *text);        /* likewise, NUL-terminated */
const tok_merge *tok_merge_of(const engine_vocab *v, uint32_t left, uint32_t right); /* NULL where absent */

/* Ids that decide which tokens end a generation, besides those of engine_vocab_info. */
typedef struct tok_marks {
    int32_t eom, fim_pre, fim_suf, fim_mid, fim_pad, fim_rep, fim_sep;
} tok_marks;

/* Set the flags of tokens whose role shows in their spelling, or in the model's name. */
void tok_mark_by_spelling(engine_vocab *v, const tok_marks *given);
void tok_mark_by_model_name(engine_vocab *v, const char *name, uint64_t len);

/* Where ids go: they are counted always, and written while there is room. */
typedef struct tok_sink {
    int32_t *out;
    uint64_t cap, n;
} tok_sink;

void tok_emit(tok_sink *sink, int32_t id);

/* The spans of a text that must stay plain text. */
typedef struct tok_literal {
    const engine_span *span;
    uint64_t n;
} tok_literal;

/* 1 where a non-empty span shares a byte with [begin, end). */
int tok_literal_hit(const tok_literal *literal, uint64_t begin, uint64_t end);

/* The letter of a byte in byte-level BPE, as UTF-8; returns its length, 1 or 2. */
int tok_byte_letter(uint8_t byte, char out[2]);

/* Decode one code point of text[pos, end) and set *next behind it. A byte that begins none is
 * a code point of its own, U+FFFD. Surrogates and overlong forms pass, as in the reference. */
uint32_t tok_decode(const char *text, uint64_t pos, uint64_t end, uint64_t *next);

/* Iterate over the words of text[pos, end). */
typedef struct tok_words {
    int pre;
    const char *text;
    uint64_t pos, end;
    uint64_t part_end; /* of the stretch without digits that pos is in (smollm) */
} tok_words;

/* 1 and [*begin, *word_end), or 0 at the end. Words are never empty and leave no gaps. */
int tok_next_word(tok_words *words, uint64_t *begin, uint64_t *word_end);

/* ---- Merging ---------------------------------------------------------------------------------------- */

typedef struct tok_symbol {
    int32_t prev, next; /* -1 at the ends; tok_chain_merge() sets them */
    uint32_t source;    /* offset in the text that it came from */
    uint32_t at, len;   /* its bytes; at is SentencePiece's offset in the escaped text; len 0: merged away */
    uint32_t piece;
} tok_symbol;

typedef struct tok_candidate {
    uint32_t key, result;
    int32_t left, right;
    uint32_t len; /* of both sides, when it was pushed */
} tok_candidate;

enum { TOK_MAX_SYMBOLS = 1 << 30 };

typedef struct tok_chain {
    tok_symbol *symbols;
    tok_candidate *heap;
    uint64_t cap, n_heap;
    uint64_t source_end; /* where the source of the last symbol ends */
    const void *self;    /* handed to join */
    /* 1, with the key (lower goes first) and the piece of a and b joined, whose source ends at end; or 0. */
    int (*join)(const void *self, const tok_symbol *a, const tok_symbol *b, uint64_t end, uint32_t *key,
                uint32_t *result);
} tok_chain;

int tok_chain_reserve(tok_chain *chain, uint64_t n); /* room for n symbols; 0 without memory */
void tok_chain_merge(tok_chain *chain, uint64_t n);  /* symbols[0] stays the head of the list */
void tok_chain_free(tok_chain *chain);

/* Ids of the plain text [begin, end). ENGINE_OK or ENGINE_ENOMEM. space_before is SentencePiece's
 * dummy space. */
engine_status tok_bpe(const engine_vocab *v, const char *text, uint64_t begin, uint64_t end,
                      const tok_literal *literal, tok_sink *sink);
engine_status tok_spm(const engine_vocab *v, const char *text, uint64_t begin, uint64_t end, int space_before,
                      const tok_literal *literal, tok_sink *sink);

#endif
