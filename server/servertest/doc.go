// Package servertest has what tests of the server's slices share: a kit with a
// fixed clock and counted ids, the runner of golden transcripts, and the check
// of every operation's access.
//
// # Transcripts
//
// A transcript is a file testdata/<tag>/<name>.txt with one or more exchanges,
// separated by lines "===":
//
//	# What this shows. Lines with # and + come before a request.
//	+ 2h
//	POST /v1/api-keys
//	Authorization: Bearer $ADMIN
//
//	{"name": "laptop"}
//	---
//	201
//	content-type: application/json
//
//	{
//	  "id": "key-2"
//	}
//
// "+ 2h" moves the clock. $NAME stands for a value of World.Vars, and in a
// response for the secret that $NAME was assigned by "$NAME = path.in.body" among
// the lines before the next request. JSON bodies are shown indented, streams as
// they come, of the headers only those that the API promises. With -update the
// responses are written instead of compared; then read the difference.
//
// # Synthetic time
//
// fasthttp starts a goroutine with the first request of a process. Started
// inside a testing/synctest bubble it would keep the bubble from ending, so a
// package that serves requests inside one calls Main from its TestMain, which
// serves one request outside first.
package servertest
