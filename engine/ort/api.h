// The part of ONNX Runtime's C API that shim.c calls.
//
// The API is one table of function pointers that only ever grows at its end, so
// the place of an entry is its identity. Each line of ORT_API_ENTRIES is: place,
// name, result, parameters. TestTableMatchesHeader compares places and types
// with the header of the pinned onnxruntime_go.
#ifndef ATHANOR_ORT_API_H
#define ATHANOR_ORT_API_H

#include <stddef.h>
#include <stdint.h>

#define ATHANOR_ORT_API_VERSION 24

typedef struct OrtEnv OrtEnv;
typedef struct OrtStatus OrtStatus;
typedef struct OrtSession OrtSession;
typedef struct OrtValue OrtValue;
typedef struct OrtRunOptions OrtRunOptions;
typedef struct OrtTypeInfo OrtTypeInfo;
typedef struct OrtTensorTypeAndShapeInfo OrtTensorTypeAndShapeInfo;
typedef struct OrtSessionOptions OrtSessionOptions;
typedef struct OrtMemoryInfo OrtMemoryInfo;
typedef struct OrtAllocator OrtAllocator;

// The library's enumerations are passed as what they are in its ABI.
typedef unsigned OrtEnum;

typedef void (*OrtLogFunction)(void *param, OrtEnum severity, const char *category,
                               const char *id, const char *location, const char *message);

#define ORT_API_ENTRIES(X) \
  X(2, GetErrorMessage, const char *, (const OrtStatus *)) \
  X(4, CreateEnvWithCustomLogger, OrtStatus *, (OrtLogFunction, void *, OrtEnum, const char *, OrtEnv **)) \
  X(7, CreateSession, OrtStatus *, (const OrtEnv *, const char *, const OrtSessionOptions *, OrtSession **)) \
  X(8, CreateSessionFromArray, OrtStatus *, (const OrtEnv *, const void *, size_t, const OrtSessionOptions *, OrtSession **)) \
  X(9, Run, OrtStatus *, (OrtSession *, const OrtRunOptions *, const char *const *, const OrtValue *const *, size_t, const char *const *, size_t, OrtValue **)) \
  X(10, CreateSessionOptions, OrtStatus *, (OrtSessionOptions **)) \
  X(11, SetOptimizedModelFilePath, OrtStatus *, (OrtSessionOptions *, const char *)) \
  X(17, DisableMemPattern, OrtStatus *, (OrtSessionOptions *)) \
  X(22, SetSessionLogSeverityLevel, OrtStatus *, (OrtSessionOptions *, int)) \
  X(23, SetSessionGraphOptimizationLevel, OrtStatus *, (OrtSessionOptions *, OrtEnum)) \
  X(24, SetIntraOpNumThreads, OrtStatus *, (OrtSessionOptions *, int)) \
  X(25, SetInterOpNumThreads, OrtStatus *, (OrtSessionOptions *, int)) \
  X(30, SessionGetInputCount, OrtStatus *, (const OrtSession *, size_t *)) \
  X(31, SessionGetOutputCount, OrtStatus *, (const OrtSession *, size_t *)) \
  X(33, SessionGetInputTypeInfo, OrtStatus *, (const OrtSession *, size_t, OrtTypeInfo **)) \
  X(34, SessionGetOutputTypeInfo, OrtStatus *, (const OrtSession *, size_t, OrtTypeInfo **)) \
  X(36, SessionGetInputName, OrtStatus *, (const OrtSession *, size_t, OrtAllocator *, char **)) \
  X(37, SessionGetOutputName, OrtStatus *, (const OrtSession *, size_t, OrtAllocator *, char **)) \
  X(39, CreateRunOptions, OrtStatus *, (OrtRunOptions **)) \
  X(41, RunOptionsSetRunLogSeverityLevel, OrtStatus *, (OrtRunOptions *, int)) \
  X(46, RunOptionsSetTerminate, OrtStatus *, (OrtRunOptions *)) \
  X(47, RunOptionsUnsetTerminate, OrtStatus *, (OrtRunOptions *)) \
  X(49, CreateTensorWithDataAsOrtValue, OrtStatus *, (const OrtMemoryInfo *, void *, size_t, const int64_t *, size_t, OrtEnum, OrtValue **)) \
  X(55, CastTypeInfoToTensorInfo, OrtStatus *, (const OrtTypeInfo *, const OrtTensorTypeAndShapeInfo **)) \
  X(60, GetTensorElementType, OrtStatus *, (const OrtTensorTypeAndShapeInfo *, OrtEnum *)) \
  X(61, GetDimensionsCount, OrtStatus *, (const OrtTensorTypeAndShapeInfo *, size_t *)) \
  X(62, GetDimensions, OrtStatus *, (const OrtTensorTypeAndShapeInfo *, int64_t *, size_t)) \
  X(69, CreateCpuMemoryInfo, OrtStatus *, (int, int, OrtMemoryInfo **)) \
  X(76, AllocatorFree, OrtStatus *, (OrtAllocator *, void *)) \
  X(78, GetAllocatorWithDefaultOptions, OrtStatus *, (OrtAllocator **)) \
  X(93, ReleaseStatus, void, (OrtStatus *)) \
  X(95, ReleaseSession, void, (OrtSession *)) \
  X(96, ReleaseValue, void, (OrtValue *)) \
  X(97, ReleaseRunOptions, void, (OrtRunOptions *)) \
  X(98, ReleaseTypeInfo, void, (OrtTypeInfo *)) \
  X(100, ReleaseSessionOptions, void, (OrtSessionOptions *)) \
  X(130, AddSessionConfigEntry, OrtStatus *, (OrtSessionOptions *, const char *, const char *))

#endif
