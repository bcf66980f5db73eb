package web

import _ "embed"

//go:embed index.html
var index []byte

// Index is the page, UTF-8 HTML.
func Index() []byte { return index }
