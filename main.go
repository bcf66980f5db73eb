// Athanor is a complete model platform in one binary: it serves, fine-tunes,
// evaluates and meters AI models behind one HTTP API. See README.md.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"athanor/server/cli"
)

// version is stamped by the linker; see scripts/build.
var version = "unknown"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, func() { signal.Reset(os.Interrupt) }) // a second Ctrl-C does not wait
	code := cli.Execute(ctx, version, os.Args[1:])
	stop()
	os.Exit(code)
}
