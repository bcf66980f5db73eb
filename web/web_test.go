package web_test

import (
	"bytes"
	"regexp"
	"testing"

	"athanor/web"
)

// TestNothingFromOutside guards the promise that the page works without a
// network: it names no other host.
func TestNothingFromOutside(t *testing.T) {
	page := web.Index()
	if !bytes.Contains(page, []byte("<title>Athanor</title>")) {
		t.Fatal("the page is not there")
	}
	if found := regexp.MustCompile(`(?i)(src|href)\s*=\s*["']?(https?:)?//`).Find(page); found != nil {
		t.Errorf("the page loads from outside: %s", found)
	}
}
