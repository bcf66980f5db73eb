// Reads an Arrow IPC stream from standard input and prints its types, metadata and
// rows as JSON; for the test of server/finetunes/snapshot.
import { readFileSync } from 'node:fs';
import { RecordBatchStreamReader, Table } from 'apache-arrow';

const reader = RecordBatchStreamReader.from(readFileSync(0)).open();
const table = new Table(reader.schema, [...reader]);
const types = Object.fromEntries(table.schema.fields.map((f) => [f.name, String(f.type)]));
const rows = table.toArray().map((row) =>
  Object.fromEntries(table.schema.fields.map((f) => [f.name, [...row[f.name]].map(Number)])));
console.log(JSON.stringify({ types, rows, metadata: Object.fromEntries(table.schema.metadata) }));
