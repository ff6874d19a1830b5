/* machine.h: reads JSON documents that a program of nodes (ir.h) admits. The operations and the
 * machine live as long as the pool and the program; the machine is immutable once made, so positions
 * of several threads may share it. */
#ifndef GAUGEBLOCK_CONSTRAIN_MACHINE_H
#define GAUGEBLOCK_CONSTRAIN_MACHINE_H
#include "document.h"
#include "ir.h"

#define MACHINE_MAX_NESTING 512

/* flags: DOC_ORDER_ANY, DOC_SPACE_FREE. ENGINE_EUNSUPPORTED: the program admits nothing that nests at
 * most MACHINE_MAX_NESTING deep, or has alternatives that this machine cannot count exactly (more than
 * one `contains` or `some`; minima more than 512 members above those required). */
engine_status machine_new(ir_program *program, pool *p, uint32_t flags, const doc_ops **ops, void **machine,
                          char *err, size_t errlen);

#endif
