// Package parquet reads training data that is tokenized already from Parquet
// files: the column input_ids, a list of integers, and, if they are there, the lists
// attention_mask and labels of the same length.
//
// Files come from users, so nothing in them is believed: every length and offset is
// compared with what is there before it is used, and no memory is taken because a
// number in the file says so. That is why this is a reader of its own for the small
// part of the format which such files use, and no general one.
//
// # What is read
//
//   - lists of INT32 or INT64, in the three-level layout of the standard or as a
//     repeated column, and flat row groups of any number
//   - data pages of versions 1 and 2, plain, with dictionary or as binary packed
//     deltas; checksums are verified where pages have them
//   - uncompressed, Snappy, gzip and Zstandard
//
// Everything else is refused by name.
//
// # Bounds
//
// A footer has at most MaxFooter bytes, a page MaxPage, a row MaxTokens tokens.
// A Reader needs at most three times (for its columns) two pages, their compressed
// form and one row. The number of values of a file is at most maxExpansion for each
// of its bytes, so that a small file cannot take hours.
//
// References: the format's specification (apache/parquet-format, README,
// Encodings.md, LogicalTypes.md, parquet.thrift) and that of the Thrift compact
// protocol.
package parquet
