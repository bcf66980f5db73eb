// Package decoder has what decoder families share: the description of a
// decoder, the reader of config.json, the search for weights under their
// various names, their conversion, and the serving graph.
//
// A family package reads its own fields into a Decoder, whose switches say
// what to build; nothing here asks for the name of an architecture.
package decoder
