// Package files keeps the files that users upload: for training, evaluation and
// batches. It takes their bytes in, checks them, hands them out and deletes them.
//
// # Words
//
//   - A file is announced, then its bytes arrive; a file that was announced and did
//     not arrive within a day is deleted.
//   - A link is a URL that the server signed: who has it may PUT the bytes of one
//     file, or of one part, without a key.
//   - An upload brings a file in parts, each of which may be sent again.
//   - Ingestion joins the parts of a file and validates it.
//
// # The life of a file
//
//	POST /files -> 302 ---- PUT to the link --+
//	POST /files, multipart -------------------+--> PENDING -> QUEUED -> RUNNING -> COMPLETED
//	POST /files/upload, multipart ------------+                          |   |---> INVALID_FORMAT
//	POST /files/multipart/... -> PUT parts ---+                          +-------> FAILED
//
// Only files for fine-tuning are validated; others are COMPLETED as soon as they
// are in one piece. Files for batches are kept for seven days.
//
// # Objects
//
// A file's bytes are one object, "files/<file>/<unique>", and those of parts
// "uploads/<upload>/<number>/<unique>". Before an object is written, a job that
// deletes it is put into the queue for later; the transaction that makes a record
// refer to the object takes the job out again. Whenever the process dies, what
// nobody refers to is deleted in the end, and no list of all objects is needed.
//
// # Invariants
//
//   - Everything is scoped to the project of the key, or of the link's file.
//   - Memory does not grow with the size of a file.
//   - Size and SHA-256 of a record are those of its object.
package files
