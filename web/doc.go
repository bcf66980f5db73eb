// Package web is the page that the server shows to a browser at /. It is one
// file without outside resources, embedded in the binary.
package web
