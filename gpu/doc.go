// Package gpu knows what this machine can compute on and who has been promised
// how much of it.
//
//	Inventory  what is there: Devices (fixed facts) and Usage (measured now)
//	Host       the Inventory of the processor and main memory
//	Ledger     reservations: memory and cores promised to owners, never more
//	           than there is
//	Plan       where a request goes, as a pure function
//
// The processor is a Device like others: main memory is its memory, and work
// that keeps cores busy for long reserves them too.
//
// A Device of kind CUDA is either a whole GPU or one MIG instance; a GPU in MIG
// mode is not itself a Device, because nothing can run on it. Device IDs are
// stable over restarts: "cpu", "GPU-…" or "MIG-…", the spelling that
// CUDA_VISIBLE_DEVICES takes.
//
// Bytes are int64 everywhere. Package gpu/nvml adds NVIDIA GPUs; this package
// needs no driver.
package gpu
