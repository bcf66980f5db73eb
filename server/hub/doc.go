// Package hub is a client of the protocol of the public model hub (huggingface.co)
// and of the mirrors that speak it. It fetches the files of a repository into a
// directory and pushes a directory into a repository.
//
// # Words
//
//   - A repository is "owner/name"; a revision of it is a branch, a tag or a commit.
//   - Large files (LFS) are known by the SHA-256 of their content, others by their
//     git blob id.
//
// # Invariants
//
//   - A revision is resolved once; all files come from that one commit.
//   - A file appears under its name only when it is whole and its content has the
//     size and the digest that the hub announced. What was cut goes on where it
//     stopped, also after a restart of the process.
//   - Nothing is written outside the target directory.
//   - A token goes to the hub itself only: not to the hosts that it redirects to,
//     not into errors or logs.
//   - Everything is bounded: number and sizes of files, answers, tries, waits.
//
// # What it must not do
//
// It knows nothing of models: which files matter is the caller's filter. It opens no
// connections by itself: its HTTP client is handed in, see package egress.
package hub
