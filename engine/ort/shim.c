#include "shim.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "_cgo_export.h"

// The library's first two entries, reached through OrtGetApiBase.
typedef struct {
  const void *(*GetApi)(uint32_t version);
  const char *(*GetVersionString)(void);
} OrtApiBase;

#define DECLARE(place, name, result, params) typedef result(*name##_fn) params;
ORT_API_ENTRIES(DECLARE)
#undef DECLARE

#define ENUMERATE(place, name, result, params) place_##name = place,
enum { ORT_API_ENTRIES(ENUMERATE) };
#undef ENUMERATE

static void *const *table;
static OrtEnv *env;
static OrtMemoryInfo *cpu_memory;
static OrtAllocator *allocator;

// ORT(name)(...) calls an entry of the table.
#define ORT(name) ((name##_fn)table[place_##name])

// TRY leaves the function with the message of a failed call.
#define TRY(call)                       \
  do {                                  \
    OrtStatus *status_ = (call);        \
    if (status_) return fail(status_);  \
  } while (0)

// copy returns a message for the caller to free, never NULL.
static char *copy(const char *s) {
  char *c = strdup(s ? s : "unknown error");
  if (!c) abort(); // not even memory for a message
  return c;
}

// fail turns a status into a message.
static char *fail(OrtStatus *status) {
  char *m = copy(ORT(GetErrorMessage)(status));
  ORT(ReleaseStatus)(status);
  return m;
}

static void on_log(void *param, OrtEnum severity, const char *category, const char *id,
                   const char *location, const char *message) {
  (void)param, (void)id;
  ortLog((int)severity, (char *)category, (char *)location, (char *)message);
}

char *ort_load(const char *path, int severity) {
  void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!lib) return copy(dlerror());
  const OrtApiBase *(*base)(void) = (const OrtApiBase *(*)(void))dlsym(lib, "OrtGetApiBase");
  if (!base) {
    dlclose(lib);
    return copy("the library has no OrtGetApiBase: it is not ONNX Runtime");
  }
  table = base()->GetApi(ATHANOR_ORT_API_VERSION);
  if (!table) {
    char m[128];
    snprintf(m, sizeof m, "version %.32s of the library has no API %d; 1.%d or later is needed",
             base()->GetVersionString(), ATHANOR_ORT_API_VERSION, ATHANOR_ORT_API_VERSION);
    dlclose(lib);
    return copy(m);
  }
  TRY(ORT(CreateEnvWithCustomLogger)(on_log, NULL, (OrtEnum)severity, "athanor", &env));
  TRY(ORT(CreateCpuMemoryInfo)(1 /* arena */, 0 /* default */, &cpu_memory));
  TRY(ORT(GetAllocatorWithDefaultOptions)(&allocator));
  return NULL;
}

static char *configure(const ort_session_config *c, OrtSessionOptions *o) {
  TRY(ORT(SetIntraOpNumThreads)(o, c->threads));
  TRY(ORT(SetInterOpNumThreads)(o, 1));
  TRY(ORT(SetSessionLogSeverityLevel)(o, c->severity));
  TRY(ORT(SetSessionGraphOptimizationLevel)(o, c->optimise ? 99u /* all */ : 0u));
  TRY(ORT(DisableMemPattern)(o));
  if (c->save) TRY(ORT(SetOptimizedModelFilePath)(o, c->save));
  for (int i = 0; i < c->entries; i++) TRY(ORT(AddSessionConfigEntry)(o, c->keys[i], c->values[i]));
  return NULL;
}

char *ort_session_new(const ort_session_config *c, OrtSession **out) {
  OrtSessionOptions *o = NULL;
  TRY(ORT(CreateSessionOptions)(&o));
  char *message = configure(c, o);
  if (!message) {
    OrtStatus *status = c->model
        ? ORT(CreateSessionFromArray)(env, c->model, c->size, o, out)
        : ORT(CreateSession)(env, c->path, o, out);
    if (status) message = fail(status);
  }
  ORT(ReleaseSessionOptions)(o);
  return message;
}

void ort_session_free(OrtSession *s) { ORT(ReleaseSession)(s); }

char *ort_session_counts(const OrtSession *s, size_t *inputs, size_t *outputs) {
  TRY(ORT(SessionGetInputCount)(s, inputs));
  TRY(ORT(SessionGetOutputCount)(s, outputs));
  return NULL;
}

static char *port_type(const OrtTypeInfo *info, ort_port *p) {
  const OrtTensorTypeAndShapeInfo *tensor = NULL;
  OrtEnum type = 0;
  TRY(ORT(CastTypeInfoToTensorInfo)(info, &tensor));
  if (!tensor) return copy("not a tensor");
  TRY(ORT(GetTensorElementType)(tensor, &type));
  TRY(ORT(GetDimensionsCount)(tensor, &p->rank));
  if (p->rank > ORT_SHIM_MAX_RANK) return copy("too many dimensions");
  TRY(ORT(GetDimensions)(tensor, p->dims, p->rank));
  p->type = (int)type;
  return NULL;
}

char *ort_session_port(const OrtSession *s, int output, size_t i, ort_port *p) {
  char *name = NULL;
  TRY(output ? ORT(SessionGetOutputName)(s, i, allocator, &name)
             : ORT(SessionGetInputName)(s, i, allocator, &name));
  p->name = copy(name);
  TRY(ORT(AllocatorFree)(allocator, name));
  OrtTypeInfo *info = NULL;
  TRY(output ? ORT(SessionGetOutputTypeInfo)(s, i, &info)
             : ORT(SessionGetInputTypeInfo)(s, i, &info));
  char *message = port_type(info, p);
  ORT(ReleaseTypeInfo)(info);
  return message;
}

char *ort_value_new(void *data, size_t size, const int64_t *dims, size_t rank, int type, OrtValue **out) {
  TRY(ORT(CreateTensorWithDataAsOrtValue)(cpu_memory, data, size, dims, rank, (OrtEnum)type, out));
  return NULL;
}

void ort_value_free(OrtValue *v) { ORT(ReleaseValue)(v); }

char *ort_run_options_new(OrtRunOptions **out) {
  TRY(ORT(CreateRunOptions)(out));
  // What a run has to say comes back as its status; logging it again would
  // report every cancelled request as an error.
  TRY(ORT(RunOptionsSetRunLogSeverityLevel)(*out, 4 /* fatal */));
  return NULL;
}

void ort_run_options_free(OrtRunOptions *o) { ORT(ReleaseRunOptions)(o); }

char *ort_terminate(OrtRunOptions *o, int stop) {
  TRY(stop ? ORT(RunOptionsSetTerminate)(o) : ORT(RunOptionsUnsetTerminate)(o));
  return NULL;
}

char *ort_run(OrtSession *s, const OrtRunOptions *o,
              char **in_names, OrtValue **in, size_t n_in,
              char **out_names, OrtValue **out, size_t n_out) {
  TRY(ORT(Run)(s, o, (const char *const *)in_names, (const OrtValue *const *)in, n_in,
               (const char *const *)out_names, n_out, out));
  return NULL;
}

void *ort_alloc(size_t size) {
  void *p = NULL;
  if (posix_memalign(&p, 64, size ? size : 64)) return NULL;
  return memset(p, 0, size ? size : 64);
}
