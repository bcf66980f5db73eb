// Package storetest opens databases for tests. It works on real files: there is
// no fake of package store.
package storetest
