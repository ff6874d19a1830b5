/* grammar.h: context-free grammars as constraints: llama.cpp's GBNF and Lark's notation.
 *
 * Both readers (gbnf.c, lark.c) make rules of one shape (cfg.h), which become automata over bytes with
 * calls (cfg_build.c), which a graph-structured stack reads (cfg.c). What the notations admit, and where
 * they are read otherwise than by their authors' programs, is in docs/constraints.md. */
#ifndef GAUGEBLOCK_CONSTRAIN_GRAMMAR_H
#define GAUGEBLOCK_CONSTRAIN_GRAMMAR_H
#include "document.h"

/* Compile a grammar (UTF-8) of kind ENGINE_CONSTRAINT_GBNF or ENGINE_CONSTRAINT_LARK. A malformed one is
 * ENGINE_EFORMAT, one that cannot be held or admits nothing ENGINE_EUNSUPPORTED; the text names line and
 * column, both from 1, columns in characters. All memory belongs to the pool. */
engine_status grammar_new(pool *p, int kind, const char *source, uint64_t len, const doc_ops **ops, void **machine);

#endif
