package config

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestParseBytes(t *testing.T) {
	tests := []struct {
		text string
		want Bytes // -1 is an error
	}{
		{"0", 0}, {"8589934592", 8 << 30}, {"8GiB", 8 << 30}, {" 8 gib ", 8 << 30}, {"8g", 8 << 30}, {"8G", 8 << 30},
		{"500MB", 500e6}, {"1.5 GB", 15e8}, {"1.5GiB", 3 << 29}, {"0.5k", 512}, {"12b", 12}, {"2TiB", 2 << 40},
		{"9223372036854775807", 1<<63 - 1}, {"8388607TiB", 8388607 << 40},
		{"", -1}, {"GiB", -1}, {"-1", -1}, {"-1GiB", -1}, {"+1", -1}, {"1e9", -1}, {"0x10", -1}, {"inf", -1}, {"nan", -1}, {"infgb", -1},
		{"1.5", -1}, {"1.5b", -1}, {"8 G iB", -1}, {"8GiBs", -1}, {"8PiB", -1}, {"1..5g", -1}, {".", -1}, {".g", -1}, {"1 2g", -1},
		{"9223372036854775808", -1}, {"8388608TiB", -1}, {"99999999999999999.5TiB", -1}, {"1_000", -1},
	}
	for _, tt := range tests {
		got, err := ParseBytes(tt.text)
		switch {
		case tt.want < 0 && (err == nil || !strings.Contains(err.Error(), tt.text)):
			t.Errorf("%q: got %d, %v; want an error that quotes it", tt.text, got, err)
		case tt.want >= 0 && (err != nil || got != tt.want):
			t.Errorf("%q: got %d, %v; want %d", tt.text, got, err, tt.want)
		}
	}
}

func TestBytesText(t *testing.T) {
	for n, want := range map[Bytes]string{0: "0", 1000: "1000", 8 << 30: "8GiB", 3 << 29: "1536MiB", 1 << 50: "1024TiB"} {
		if got := n.String(); got != want {
			t.Errorf("%d is written %q, want %q", n, got, want)
		}
		if back, err := ParseBytes(n.String()); err != nil || back != n {
			t.Errorf("%q is read as %d, %v", n.String(), back, err)
		}
	}
}

func TestSizesInFileAndEnvironment(t *testing.T) {
	file := filepath.Join(t.TempDir(), "athanor.toml")
	write(t, file, "memory = \"8GiB\"\nkv-memory = 1_048_576\n")
	c, err := Load(file)
	if err != nil {
		t.Fatal(err)
	}
	if c.Memory != 8<<30 || c.KVMemory != 1<<20 {
		t.Errorf("got memory %d and kv-memory %d", c.Memory, c.KVMemory)
	}
	t.Setenv("ATHANOR_KV_MEMORY", "64MiB")
	if c, err = Load(file); err != nil || c.KVMemory != 64<<20 {
		t.Errorf("from the environment: %d, %v", c.KVMemory, err)
	}
	t.Setenv("ATHANOR_KV_MEMORY", "much")
	if _, err = Load(file); err == nil || !strings.Contains(err.Error(), "ATHANOR_KV_MEMORY") {
		t.Errorf("got %v, want an error that names the variable", err)
	}
}

func FuzzParseBytes(f *testing.F) {
	f.Add("8GiB")
	f.Add("1.5 gb")
	f.Fuzz(func(t *testing.T, text string) {
		n, err := ParseBytes(text)
		if err != nil {
			return
		}
		if n < 0 {
			t.Fatalf("%q is %d", text, n)
		}
		if back, err := ParseBytes(n.String()); err != nil || back != n {
			t.Fatalf("%q is %d, written %q, read as %d, %v", text, n, n.String(), back, err)
		}
	})
}
