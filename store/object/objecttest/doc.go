// Package objecttest proves implementations of object.Store: [Run] is the suite
// that each has to pass, and [StartS3] starts a real S3 server to run it against.
//
// The server is versitygw, which scripts/get-versitygw builds into bin/. Where it
// is missing the tests that need it are skipped, and say so.
package objecttest
