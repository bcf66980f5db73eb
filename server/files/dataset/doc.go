// Package dataset checks files of training data, evaluation data and batches
// against the rules of their formats, line by line, in one pass and with memory
// that does not grow with the file. It knows no server: the same rules serve the
// ingestion of uploads and the linter on the command line.
//
// # Words
//
//   - A line is a sample: one JSON object of a JSONL file, one record of a CSV
//     file, one row of a Parquet file. Lines count from 1.
//   - A problem is the first rule that a line breaks, as "Line <n>: <reason>"; the
//     reason begins with the place in the line.
//   - The format of a line follows from its fields: general (text), conversation
//     (messages), instruction (prompt, completion), preference_openai (input,
//     preferred_output, non_preferred_output), and tokenized for Parquet (input_ids,
//     attention_mask, labels). All lines of a file have the same.
//
// # Bounds
//
// A line has at most MaxLine bytes and maxNodes JSON values, nested maxDepth deep.
// A longer line is a problem of that line and is skipped; the rest of the file is
// checked as usual. Of the problems the first Options.Problems are kept and all
// are counted.
//
// # Invariants
//
//   - Bad data is never an error of Check: errors are failures to read, and the end
//     of the context.
//   - Nothing is decoded twice or copied: rules look at positions in the line.
package dataset
