// Package nvml is the gpu.Inventory of NVIDIA GPUs, read through the NVIDIA
// Management Library that comes with the driver. It is the only importer of
// go-nvml.
//
// The library is opened at run time. On a machine without it, and in a build
// without cgo, Open says so with ErrNoLibrary and nothing else happens; calling
// into a library that is not there would end the process, so every function
// newer than the oldest supported driver is looked up before it is called.
//
// A GPU in MIG mode appears as its instances, each with its own UUID and
// memory. The figures of the parent GPU are those of the whole card and are
// never used for an instance.
package nvml
