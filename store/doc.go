// Package store keeps the appliance's records in one bbolt file.
//
// It knows how to store, index, page and migrate records; it knows nothing about
// what they mean. It never makes an id and never reads a clock: both arrive from
// the caller. Bytes that are not records (weights, uploads, results) belong in
// store/object, and every value here stays below [MaxRecord].
//
// # Schema
//
//	athanor.db
//	├── meta
//	│   ├── schema                     -> version, decimal text (only Open writes it)
//	│   └── <name>                     -> organisation-wide value (Meta)
//	├── <kind>                         one bucket per table
//	│   └── <id>                       -> record, JSON
//	├── <kind>.<index>                 one bucket per index of the table
//	│   ├── <key>                      -> id        (unique index)
//	│   └── <key> 00 <id>              -> id        (any other index)
//	└── events
//	    └── <kind>
//	        └── <id>
//	            └── <seq, 8 bytes BE>  -> event, opaque bytes
//
// The tables of the appliance and their indexes are the variables of tables.go.
//
// # Words
//
//   - A table holds records of one Go type under string ids.
//   - An index maps keys computed from a record to its id. A record may have
//     several keys in one index, or none.
//   - A page is a bounded run of an index (or of the ids) under a key prefix.
//   - An event is an immutable entry in the log of one record.
//
// # Transactions
//
// [DB.View] reads a snapshot. [DB.Update] writes, and joins concurrent callers
// into one fsynced commit; see there for what that asks of its function. Both
// hand out copies, which the caller may keep and change. A transaction must be
// short: no network, no engine, no waiting inside it, and no second transaction.
//
// # Invariants
//
//   - An Update that returned nil has reached the disk.
//   - An Update that returned an error, or panicked, has changed nothing.
//   - Every index agrees with its records after every commit ([Check] proves it).
//   - A file made by a newer program is never opened, an older one is copied
//     before it is changed, and a new one appears under its name only when whole.
package store
