/* model_file.h: opens models and contexts for the C tests. Test code: it exits on failure. */
#ifndef GB_TEST_MODEL_FILE_H
#define GB_TEST_MODEL_FILE_H
#include "engine.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

typedef struct opened {
    engine_file *file;
    engine_model *model;
    engine_model_info info;
} opened;

static opened open_model(const char *folder, const char *name)
{
    char path[4096], err[512] = "";
    opened o = {0};
    snprintf(path, sizeof path, "%s/%s.gguf", folder, name);
    int fd = open(path, O_RDONLY);
    if (fd < 0 || engine_file_open(&o.file, fd, 1, err, sizeof err) != ENGINE_OK ||
        engine_model_load(&o.model, o.file, err, sizeof err) != ENGINE_OK) {
        printf("cannot open %s: %s\n", path, err);
        exit(2);
    }
    close(fd);
    engine_model_describe(o.model, &o.info);
    return o;
}

static void close_model(opened *o)
{
    engine_model_free(o->model);
    engine_file_free(o->file);
}

static inline engine_context *open_context(const opened *o, engine_context_options options)
{
    char err[512] = "";
    engine_context *c;
    if (engine_context_new(&c, o->model, &options, err, sizeof err) != ENGINE_OK) {
        printf("cannot open a context: %s\n", err);
        exit(2);
    }
    return c;
}

#endif
