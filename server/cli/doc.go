// Package cli has the subcommands. Apart from serve and worker they are clients
// of the API: they speak to a running server over its admin socket, which only
// the same OS user can open, or, when none runs, to one that they start inside
// their own process for the moment.
package cli
