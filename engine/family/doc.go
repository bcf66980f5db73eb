// Package family finds out what a model folder holds and turns decoders into
// serving graphs.
//
// Open is an explicit list: one line per architecture, each family in a
// package of its own below this one, all sharing package decoder. A folder
// that is something else (an adapter, a diffusion pipeline, an unknown
// architecture) is named in an *UnsupportedError.
package family
