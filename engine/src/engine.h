/* engine.h: the whole public C interface of the Gaugeblock engine.
 *
 * Handles are opaque. A call that can fail returns an engine_status and, unless it is
 * ENGINE_OK, writes one NUL-terminated sentence to err (cut to errlen, never NULL-deref'd
 * when errlen is 0): what was refused, where (key, tensor, byte offset), what would fix it.
 * No call exits, asserts, prints, or leaves a half-made object behind on failure.
 *
 * Threads: a file, a vocabulary and a model are immutable after opening and may be shared.
 * A context belongs to one caller at a time, except engine_context_cancel().
 * Floating-point control words are set on entry to every call that computes, in the caller
 * and in every worker, and restored on return: see docs/numerics.md.
 *
 * engine/build.py feeds this file, minus its '#' lines, to cffi: keep it free of
 * conditional declarations, and use enums for constants. */
#ifndef GAUGEBLOCK_ENGINE_H
#define GAUGEBLOCK_ENGINE_H
#include <stddef.h>
#include <stdint.h>

typedef enum engine_status {
    ENGINE_OK = 0,
    ENGINE_EINVAL = 1,       /* an argument of the caller is wrong (id, position, size, option) */
    ENGINE_EIO = 2,          /* the file cannot be read, or is not a regular file */
    ENGINE_EFORMAT = 3,      /* the file is malformed; the text holds the byte offset */
    ENGINE_EUNSUPPORTED = 4, /* well-formed, but refused by name (architecture, type, split file) */
    ENGINE_ENOMEM = 5,
    ENGINE_ECONTEXT = 6,     /* the step would not fit into the context; nothing was evaluated */
    ENGINE_ENONFINITE = 7,   /* a NaN or an infinity arose; the step is undone */
    ENGINE_ECANCELLED = 8,   /* engine_context_cancel() was seen; the step is undone */
    ENGINE_ESELFTEST = 9,    /* this machine does not reproduce the known answers */
} engine_status;

/* ---- Build and machine ------------------------------------------------------------- */

const char *engine_version(void);            /* "0.1.0" */
const char *engine_numerics(void);           /* contract revision of the arithmetic, "gb1" */
const char *engine_tokenizer_revision(void); /* contract revision of tokenisation, "t1" */
const char *engine_compiler(void);           /* "gcc 12.2.0" */
const char *engine_build_flags(void);        /* the flags that this library was compiled with */
const char *engine_kernel_set(void);         /* the kernel set in use: "ref" */
/* Known-answer test of the arithmetic (quantiser, dot, norm, exp, softmax, rope, sampler).
 * engine_model_load() runs it once per process; this call runs it again. */
engine_status engine_selftest(char *err, size_t errlen);

/* ---- Files: GGUF, header only --------------------------------------------------------- */

typedef struct engine_file engine_file;

/* GGUF metadata value types, as in the file format. */
enum {
    ENGINE_GGUF_U8 = 0, ENGINE_GGUF_I8 = 1, ENGINE_GGUF_U16 = 2, ENGINE_GGUF_I16 = 3,
    ENGINE_GGUF_U32 = 4, ENGINE_GGUF_I32 = 5, ENGINE_GGUF_F32 = 6, ENGINE_GGUF_BOOL = 7,
    ENGINE_GGUF_STRING = 8, ENGINE_GGUF_ARRAY = 9, ENGINE_GGUF_U64 = 10, ENGINE_GGUF_I64 = 11,
    ENGINE_GGUF_F64 = 12,
};

typedef struct engine_kv {
    const char *key;     /* not NUL-terminated; lives as long as the file */
    uint64_t key_len;
    int32_t type;        /* ENGINE_GGUF_*; for an array, ENGINE_GGUF_ARRAY */
    int32_t elem_type;   /* element type of an array, else equal to type */
    uint64_t count;      /* elements of an array, else 1 */
    uint64_t offset;     /* byte offset of the value in the file */
    const void *data;    /* little-endian scalars, unaligned, or the bytes of a string;
                            NULL for an array of strings: see engine_file_kv_strings() */
    uint64_t data_bytes;
} engine_kv;

typedef struct engine_tensor {
    const char *name;    /* not NUL-terminated */
    uint64_t name_len;
    int32_t type;        /* ggml type number */
    int32_t n_dims;
    uint64_t dims[4];    /* dims[0] is the row length; unused ones are 1 */
    uint64_t offset;     /* absolute byte offset in the file */
    uint64_t bytes;
} engine_tensor;

/* Map (use_mmap != 0) or read the GGUF behind fd and validate its header and every tensor's
 * extent; no weight is touched when mapped. fd stays the caller's and may be closed after.
 * A mapped file that is cut short while open kills the process with SIGBUS at the next read of
 * what is gone; where files may change, open with use_mmap = 0. */
engine_status engine_file_open(engine_file **out, int fd, int use_mmap, char *err, size_t errlen);
void engine_file_free(engine_file *file);
uint64_t engine_file_bytes(const engine_file *file);
uint32_t engine_file_version(const engine_file *file);
uint64_t engine_file_kv_count(const engine_file *file);
uint64_t engine_file_tensor_count(const engine_file *file);
engine_status engine_file_kv(const engine_file *file, uint64_t index, engine_kv *out, char *err, size_t errlen);
/* Index of a key, or -1. */
int64_t engine_file_find_kv(const engine_file *file, const char *key, uint64_t key_len);
/* Pointers and lengths of n elements, from first on, of an array of strings. */
engine_status engine_file_kv_strings(const engine_file *file, uint64_t index, uint64_t first, uint64_t n,
                                     const char **ptrs, uint64_t *lens, char *err, size_t errlen);
engine_status engine_file_tensor(const engine_file *file, uint64_t index, engine_tensor *out, char *err, size_t errlen);
int64_t engine_file_find_tensor(const engine_file *file, const char *name, uint64_t name_len);
/* n rows from first on of a tensor, dequantised: out is [n][dims[0]] f32. Rows count over dims 1 to 3. */
engine_status engine_file_tensor_rows(const engine_file *file, uint64_t index, uint64_t first, uint64_t n,
                                      float *out, char *err, size_t errlen);

/* Tensor types. Name of a ggml type number ("Q4_K"), or NULL where it is not one that we run. */
const char *engine_type_name(int32_t type);
uint64_t engine_type_block_items(int32_t type); /* 0 where unknown */
uint64_t engine_type_block_bytes(int32_t type);
/* Decode n values (a multiple of the block) from src_bytes bytes. */
engine_status engine_dequantize(int32_t type, const void *src, uint64_t src_bytes, uint64_t n, float *out,
                                char *err, size_t errlen);

/* ---- Vocabulary --------------------------------------------------------------------------- */

typedef struct engine_vocab engine_vocab;

/* A byte range [begin, end) of a text. */
typedef struct engine_span {
    uint64_t begin;
    uint64_t end;
} engine_span;

enum {
    ENGINE_TOKENIZE_SPECIAL = 1,  /* text of control and unknown tokens becomes those tokens; that of
                                     user-defined ones always does */
    ENGINE_TOKENIZE_BOS_EOS = 2,  /* add BOS and EOS where the metadata says so */
};

/* Token kinds, as in tokenizer.ggml.token_type. */
enum {
    ENGINE_TOKEN_NORMAL = 1, ENGINE_TOKEN_UNKNOWN = 2, ENGINE_TOKEN_CONTROL = 3,
    ENGINE_TOKEN_USER_DEFINED = 4, ENGINE_TOKEN_UNUSED = 5, ENGINE_TOKEN_BYTE = 6,
};

typedef struct engine_vocab_info {
    int32_t size;
    int32_t bos, eos, eot, unk, pad; /* -1 where absent */
    int32_t add_bos, add_eos;        /* 0 or 1 */
    int32_t add_space_prefix;        /* 1: a text is tokenised with a space before it, so the bytes of
                                        a whole text's tokens begin with one that is not the text's */
    const char *model;               /* "gpt2" or "llama" */
    const char *pre;                 /* "smollm", …; "default" for SentencePiece */
    const char *unicode;             /* version of the Unicode tables */
} engine_vocab_info;

/* Copies what it needs: the file may be freed afterwards. Works on files without tensors. */
engine_status engine_vocab_open(engine_vocab **out, const engine_file *file, char *err, size_t errlen);
void engine_vocab_free(engine_vocab *vocab);
engine_status engine_vocab_describe(const engine_vocab *vocab, engine_vocab_info *out);
/* Tokenise len bytes (arbitrary bytes are allowed). No token that the file types as control or
 * unknown, that begins a text or ends a generation may overlap one of the literal spans
 * (ascending, disjoint), neither by its spelling nor through merges: that is how message
 * content stays plain text inside a rendered template. User-defined tokens (runs of white
 * space, markup) are text, and stay. *n_out receives the number of ids, also when it exceeds cap: then
 * nothing was written beyond cap and the call returns ENGINE_EINVAL. */
engine_status engine_tokenize(const engine_vocab *vocab, const char *text, uint64_t len, uint32_t flags,
                              const engine_span *literal, uint64_t n_literal,
                              int32_t *out, uint64_t cap, uint64_t *n_out, char *err, size_t errlen);
/* The bytes that a token stands for. Control tokens have none unless special != 0. */
engine_status engine_token_bytes(const engine_vocab *vocab, int32_t id, int special,
                                 const char **bytes, uint64_t *len, char *err, size_t errlen);
/* The vocabulary's own spelling of a token (with U+2581, byte-level letters, <0x0A>). */
engine_status engine_token_text(const engine_vocab *vocab, int32_t id, const char **text, uint64_t *len,
                                char *err, size_t errlen);
int32_t engine_token_kind(const engine_vocab *vocab, int32_t id); /* ENGINE_TOKEN_*, 0 where out of range */
int engine_token_is_end(const engine_vocab *vocab, int32_t id);   /* ends a generation: EOS, EOT, EOM, … */

/* ---- Model ---------------------------------------------------------------------------------- */

typedef struct engine_model engine_model;

typedef struct engine_model_info {
    const char *architecture; /* "llama", "qwen2", "qwen3", "gemma3" */
    int32_t vocab;            /* rows of the output matrix */
    int32_t width;            /* embedding length */
    int32_t layers;
    int32_t heads, kv_heads;
    int32_t head_dim;         /* of keys */
    int32_t ffn;
    int32_t context_train;    /* positions that the model was trained for */
    int32_t window;           /* sliding window in positions, 0 where there is none */
    int32_t tied_output;      /* 1: the output matrix is the embedding matrix */
    uint64_t weights_bytes;
} engine_model_info;

/* Check every tensor's name, type and shape against the metadata and bind them.
 * The model borrows file's bytes: free the model first. */
engine_status engine_model_load(engine_model **out, const engine_file *file, char *err, size_t errlen);
void engine_model_free(engine_model *model);
engine_status engine_model_describe(const engine_model *model, engine_model_info *out);

/* ---- Contexts: sequences of evaluated positions ------------------------------------------ */

typedef struct engine_context engine_context;

enum { ENGINE_ACTIVATIONS_WIDE = 0, ENGINE_ACTIVATIONS_INT8 = 1, ENGINE_ACTIVATIONS_F32 = 2 };
enum { ENGINE_KV_F16 = 0, ENGINE_KV_F32 = 1, ENGINE_KV_Q8 = 2 };
enum { ENGINE_WANT_NONE = 0, ENGINE_WANT_LOGITS = 1, ENGINE_WANT_HIDDEN = 2 };

typedef struct engine_context_options {
    int32_t activations;      /* ENGINE_ACTIVATIONS_* */
    int32_t kv;               /* ENGINE_KV_* */
    int32_t context_tokens;   /* positions a sequence may hold; 1 and up */
    int32_t sequences;        /* how many sequences, ids 0 … sequences-1; 1 and up */
    int32_t threads;          /* workers including the caller; 1 … 256 */
    int32_t batch;            /* rows evaluated together inside a step; 1 … 4096 */
    int32_t no_repack;        /* 0: the model's weights are copied once into a form that is faster to
                                 read, and shared by its contexts; 1: this context reads the file's
                                 bytes, slower, with the same results */
} engine_context_options;

/* One position to evaluate. Positions of a sequence are contiguous: pos must be the
 * sequence's length, counting the entries of the same step that stand before this one. */
typedef struct engine_entry {
    int32_t seq;
    int32_t pos;
    int32_t token;          /* used where embedding is NULL */
    int32_t want;           /* ENGINE_WANT_* */
    const float *embedding; /* [width], as if looked up (before any scaling by the model); or NULL */
} engine_entry;

/* KV memory is taken in pages of one attention chunk as sequences grow. */
engine_status engine_context_new(engine_context **out, const engine_model *model,
                                 const engine_context_options *options, char *err, size_t errlen);
void engine_context_free(engine_context *context);
uint64_t engine_context_kv_bytes(const engine_context *context); /* pages in use now */

/* Evaluate n entries, of any mix of sequences. out receives, in the order of the entries that
 * want something, [vocab] logits (ENGINE_WANT_LOGITS) or the [width] final normed hidden state
 * (ENGINE_WANT_HIDDEN); out_len is the number of floats that it holds and must be exact.
 * Results do not depend on how entries are grouped into steps, on batch, threads or on other
 * sequences. On failure every sequence has the length that it had before. */
engine_status engine_step(engine_context *context, const engine_entry *entries, int32_t n,
                          float *out, uint64_t out_len, char *err, size_t errlen);
/* From any thread: on != 0 makes a running or later step return ENGINE_ECANCELLED at its next
 * layer, until on == 0 is set. */
void engine_context_cancel(engine_context *context, int on);

int32_t engine_sequence_length(const engine_context *context, int32_t seq); /* -1 where out of range */
/* Forget the positions from length on. */
engine_status engine_sequence_truncate(engine_context *context, int32_t seq, int32_t length, char *err, size_t errlen);
/* Make dst a copy of src; whole pages are shared until one side writes. */
engine_status engine_sequence_fork(engine_context *context, int32_t src, int32_t dst, char *err, size_t errlen);
/* A sequence's state as bytes, for this model and these options only (both are checked). */
uint64_t engine_sequence_snapshot_bytes(const engine_context *context, int32_t seq);
engine_status engine_sequence_snapshot(const engine_context *context, int32_t seq, void *out, uint64_t bytes,
                                       char *err, size_t errlen);
engine_status engine_sequence_restore(engine_context *context, int32_t seq, const void *state, uint64_t bytes,
                                      char *err, size_t errlen);

/* ---- Sampling and log-probabilities --------------------------------------------------- */

typedef struct engine_sampler_options {
    float temperature;        /* 0: greedy, filters and draws unused */
    int32_t top_k;            /* 0: off */
    float top_p;              /* 1: off */
    float min_p;              /* 0: off */
    float repeat_penalty;     /* 1: off; once per distinct token of the history */
    float frequency_penalty;  /* 0: off; times the token's count in the history */
    float presence_penalty;   /* 0: off; once per distinct token */
    uint64_t seed;
} engine_sampler_options;

/* Choose a token from raw logits [vocab]. history is what penalties look at; draw is the
 * number of the token within its generation (0, 1, …): the random number is a pure function of
 * (seed, draw). Ties go to the lower id. Non-finite logits are ENGINE_ENONFINITE. */
engine_status engine_sample(const float *logits, int32_t vocab, const engine_sampler_options *options,
                            const int32_t *history, int32_t n_history, uint64_t draw,
                            int32_t *token, char *err, size_t errlen);
/* The same among the tokens whose bit is set: bit i % 32 of mask[i / 32], words is exactly (vocab + 31) / 32.
 * The others count as removed before anything else is done, so every filter speaks of legal tokens alone.
 * NULL: all tokens. ENGINE_EINVAL where no bit is set. */
engine_status engine_sample_masked(const float *logits, int32_t vocab, const uint32_t *mask, uint64_t words,
                                   const engine_sampler_options *options, const int32_t *history,
                                   int32_t n_history, uint64_t draw, int32_t *token, char *err, size_t errlen);
/* Natural log-probabilities of all tokens, out is [vocab]. */
engine_status engine_log_softmax(const float *logits, int32_t vocab, float *out, char *err, size_t errlen);
/* The n best ids, value descending, id ascending. */
engine_status engine_top(const float *values, int32_t vocab, int32_t n, int32_t *ids, char *err, size_t errlen);

/* ---- Constraints: documents that end legally wherever they are cut ------------------------- */

typedef struct engine_tokens engine_tokens;         /* a vocabulary, prepared for masks */
typedef struct engine_constraint engine_constraint; /* a compiled language of documents */
typedef struct engine_matcher engine_matcher;       /* a position in one document */

/* Prepare n tokens: token i has the bytes [offsets[i], offsets[i + 1]) of `bytes`; one without bytes is
 * never allowed, unless it is one of the n_ends tokens that end a generation, which are allowed where
 * the document may end. Copies what it needs. */
engine_status engine_tokens_new(engine_tokens **out, const char *bytes, const uint64_t *offsets, int32_t n,
                                const int32_t *ends, int32_t n_ends, char *err, size_t errlen);
void engine_tokens_free(engine_tokens *tokens);

enum {
    ENGINE_CONSTRAINT_JSON_SCHEMA = 1, /* source: a JSON Schema, drafts 4 to 2020-12 */
    ENGINE_CONSTRAINT_JSON = 2,        /* any JSON document; source: "" or "object" */
    ENGINE_CONSTRAINT_REGEX = 3,       /* source: a pattern that the whole text matches */
    ENGINE_CONSTRAINT_CHOICE = 4,      /* source: a JSON array of strings, one of which is the text */
    ENGINE_CONSTRAINT_GBNF = 5,        /* source: a grammar as llama.cpp writes it, rule "root" first */
    ENGINE_CONSTRAINT_LARK = 6,        /* source: a grammar in Lark's notation, rule "start" first */
};

typedef struct engine_constraint_options {
    int32_t order_any;       /* 1: members in any order; 0: declared ones in declared order, others after them */
    int32_t space_free;      /* 1: JSON white space between tokens; 0: none */
    int32_t formats_assert;  /* 1: known formats constrain; 0: they are annotations */
    int32_t plain;           /* 1: one spelling of strings and integers in JSON: escapes only where needed, no
                                exponent, no needless zero; 0: every spelling */
    uint64_t max_bytes;      /* memory of the compilation; 0: 448 MiB */
} engine_constraint_options;

/* Compile. ENGINE_EFORMAT: malformed source; ENGINE_EUNSUPPORTED: what cannot be held exactly, or
 * would pass the limits of memory and effort; the text names JSON pointer and keyword (or line and
 * column). Immutable; may be shared by threads. */
engine_status engine_constraint_compile(engine_constraint **out, int32_t kind, const char *source, uint64_t len,
                                        const engine_constraint_options *options, char *err, size_t errlen);
void engine_constraint_free(engine_constraint *constraint);
/* JSON array of what was taken as an annotation: [{"pointer", "keyword", "note"}]. Lives as long as the
 * constraint. */
const char *engine_constraint_notes(const engine_constraint *constraint);
uint64_t engine_constraint_bytes(const engine_constraint *constraint); /* memory that it holds */

/* A matcher at the start of a document. Constraint and tokens must outlive it, and its forks. A
 * matcher belongs to one caller at a time. tokens may be NULL: then bytes only. */
engine_status engine_matcher_new(engine_matcher **out, engine_constraint *constraint, engine_tokens *tokens,
                                 char *err, size_t errlen);
void engine_matcher_free(engine_matcher *matcher);
void engine_matcher_reset(engine_matcher *matcher);
engine_status engine_matcher_fork(engine_matcher **out, const engine_matcher *matcher, char *err, size_t errlen);
/* One bit for each token that may come next: bit i % 32 of mask[i / 32]; words is exactly (n + 31) / 32. */
engine_status engine_matcher_mask(engine_matcher *matcher, uint32_t *mask, uint64_t words, char *err, size_t errlen);
/* Advance by a token, or by bytes; ENGINE_EINVAL where not allowed, with nothing changed; the text gives
 * the offset of the first byte refused. An end token changes nothing and needs an accepting position. */
engine_status engine_matcher_commit(engine_matcher *matcher, int32_t token, char *err, size_t errlen);
engine_status engine_matcher_commit_bytes(engine_matcher *matcher, const char *bytes, uint64_t len,
                                          char *err, size_t errlen);
int engine_matcher_accepting(const engine_matcher *matcher);  /* the document may end here */
int engine_matcher_begun(const engine_matcher *matcher);      /* a byte other than white space was read */
/* The bytes that follow whatever the model wants: there is no other way on, but to spell a character of a
 * string with an escape that it does not need. Whole characters, as many as surely fit into cap; *len is what
 * was written. The matcher does not move. */
engine_status engine_matcher_forced(engine_matcher *matcher, char *out, uint64_t cap, uint64_t *len,
                                    char *err, size_t errlen);
/* A shortest completion, the least in byte order among those. *len is its length, written up to cap
 * (ENGINE_EINVAL where it is longer). The matcher does not move. `filled` receives a JSON array of the
 * JSON pointers (RFC 6901) of the values that the completion begins, continues or, for a number, ends, in
 * document order, likewise; containers that it only closes are not listed. NULL: not wanted. */
engine_status engine_matcher_close(engine_matcher *matcher, char *out, uint64_t cap, uint64_t *len,
                                   char *filled, uint64_t filled_cap, uint64_t *filled_len,
                                   char *err, size_t errlen);
/* What the element that begins here may be, where it has finitely many texts, at most 1024: a JSON object
 * {"kind", "texts"}. "value", "key": the texts are JSON, "}" and "]" end the container instead, and where an
 * element has just ended, the others begin with its comma; "text": the whole document. Where no such element
 * begins: "none". Numbers have one text for each value. Up to cap, as in engine_matcher_close. The matcher
 * does not move. */
engine_status engine_matcher_alternatives(engine_matcher *matcher, char *out, uint64_t cap, uint64_t *len,
                                          char *err, size_t errlen);
/* JSON pointer of the value being read, or of the innermost container between values. */
engine_status engine_matcher_pointer(engine_matcher *matcher, char *out, uint64_t cap, uint64_t *len,
                                     char *err, size_t errlen);

/* ---- The machine's limits ------------------------------------------------------------------- */

/* Best of so many repetitions, over so many threads; what kernels are judged against. Memory is
 * read in one plain loop over bytes (a multiple of 4096) that are distinct and filled by the call:
 * take several times the last cache. */
engine_status engine_measure_read(uint64_t bytes, int32_t threads, int32_t repetitions, double *bytes_per_s,
                                  char *err, size_t errlen);
/* int8 products, accumulated in registers alone, by the instruction (a static name) that the kernel
 * set in use lives on; for the reference sets by the fastest that this machine has. */
engine_status engine_measure_dot(int32_t threads, int32_t repetitions, double *macs_per_s, const char **instruction,
                                 char *err, size_t errlen);

#endif
