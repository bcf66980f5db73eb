// What Go calls. A function that can fail returns NULL, or a message that the
// caller frees with free().
#ifndef ATHANOR_ORT_SHIM_H
#define ATHANOR_ORT_SHIM_H

#include "api.h"

#define ORT_SHIM_MAX_RANK 64

// ort_load opens the library and creates the environment, whose messages of at
// least the given severity go to ortLog. Once a process.
char *ort_load(const char *path, int severity);

// ort_session_config is everything a session is made from.
typedef struct {
  const void *model; // encoded model, or NULL to read path
  size_t size;
  const char *path;
  const char *save;  // where to write the optimised model, or NULL
  int threads;
  int severity;
  int optimise;      // 0 when the graph has been optimised before
  const char *const *keys; // config entries
  const char *const *values;
  int entries;
} ort_session_config;

char *ort_session_new(const ort_session_config *c, OrtSession **out);
void ort_session_free(OrtSession *s);
char *ort_session_counts(const OrtSession *s, size_t *inputs, size_t *outputs);

// ort_port describes one input or output; the caller frees name.
typedef struct {
  char *name;
  int type;
  size_t rank;
  int64_t dims[ORT_SHIM_MAX_RANK];
} ort_port;

char *ort_session_port(const OrtSession *s, int output, size_t i, ort_port *p);

// ort_value_new makes a tensor over memory that the caller keeps alive.
char *ort_value_new(void *data, size_t size, const int64_t *dims, size_t rank, int type, OrtValue **out);
void ort_value_free(OrtValue *v);

char *ort_run_options_new(OrtRunOptions **out);
void ort_run_options_free(OrtRunOptions *o);
// ort_terminate asks the run with these options to stop; stop = 0 takes it back.
char *ort_terminate(OrtRunOptions *o, int stop);

char *ort_run(OrtSession *s, const OrtRunOptions *o,
              char **in_names, OrtValue **in, size_t n_in,
              char **out_names, OrtValue **out, size_t n_out);

// ort_alloc returns zeroed memory aligned to 64 bytes, or NULL; free() frees it.
void *ort_alloc(size_t size);

#endif
