// Package snapshot writes the first rows of a tokenized dataset in the form that
// Python's Hugging Face datasets library saves and loads, so that a user can look at
// exactly what a job trained on.
//
// The archive is a .tar.zst with the folder train_dataset/ and, for a job with a
// validation file, eval_dataset/. Each is a save_to_disk folder:
//
//	data-00000-of-00001.arrow   the rows, an Arrow IPC stream
//	dataset_info.json           the types of the columns
//	state.json                  the list of data files
//
// # Invariants
//
//   - At most [MaxRows] rows of each dataset, and bounded lines, are read.
//   - The same rows give the same bytes.
//
// The Arrow stream (Arrow columnar format 1.5, IPC streaming) is written by hand: one
// schema and one record batch of three list columns, without nulls.
package snapshot
