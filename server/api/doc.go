// Package api has the wire types of the HTTP API, one file per area, with
// Validate methods, and Error, the one error that a client ever sees. It is a
// leaf: standard library only.
package api
