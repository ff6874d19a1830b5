/* repack.h: the weights of a model as panels, built when the first device asks and shared by all.
 *
 * A model owns one gb_repack. Building copies every matrix that is multiplied straight from the
 * file, by all workers of the device that asks, and gives the file's pages back as it goes, so
 * that memory holds about one copy of the weights. */
#ifndef GB_REPACK_H
#define GB_REPACK_H
#include "model.h"
#include "panels.h"
#include "threads.h"

gb_repack *gb_repack_new(void); /* NULL where out of memory */
void gb_repack_free(gb_repack *r);
/* Build where that is not done yet. Thread-safe; panels never move or change afterwards. */
engine_status gb_repack_build(const engine_model *model, threads *pool, char *err, size_t errlen);
/* The panels of a matrix of the model; only after a build. Their data is NULL where the matrix is not multiplied. */
const gb_panels *gb_repack_find(const gb_repack *r, const gb_matrix *w);

#endif
