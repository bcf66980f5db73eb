package token_test

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"athanor/engine/token"
)

// BenchmarkEncode on English and mixed text; SPM without word boundaries shows
// that the cost stays near-linear.
func BenchmarkEncode(b *testing.B) {
	english, err := os.ReadFile(shared(b, "LIBS.md"))
	if err != nil {
		b.Fatal(err)
	}
	var g randomTexts
	mustReadJSON(b, "testdata/texts.json.gz", &g)
	texts := map[string]string{
		"english": strings.Repeat(string(english), 1<<20/len(english)+1),
		"mixed":   strings.Join(g.Texts, "\n"),
	}
	for _, name := range append([]string{"gpt2"}, vectorSets...) {
		for kind, s := range texts {
			b.Run(name+"/"+kind, func(b *testing.B) { benchmarkEncode(b, mustLoadDir(b, name), s) })
		}
	}
	for _, n := range []int{1 << 12, 1 << 16, 1 << 20} {
		b.Run("phi-3-mini/one-word-"+byteCount(n), func(b *testing.B) {
			benchmarkEncode(b, mustLoadDir(b, "phi-3-mini"), strings.Repeat("abcdefghij", n/10))
		})
	}
}

func byteCount(n int) string {
	return map[int]string{1 << 12: "4KiB", 1 << 16: "64KiB", 1 << 20: "1MiB"}[n]
}

func benchmarkEncode(b *testing.B, tok *token.Tokenizer, s string) {
	b.SetBytes(int64(len(s)))
	b.ReportAllocs()
	start := cpuTime(b)
	for b.Loop() {
		tok.Encode(s, token.EncodeOptions{})
	}
	b.ReportMetric(float64(b.N)*float64(len(s))/1e6/(cpuTime(b)-start).Seconds(), "MB/cpu-s")
}

// cpuTime is what the process has used: on a shared machine the figure that
// can be compared.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func BenchmarkDecode(b *testing.B) {
	for _, name := range []string{"qwen2.5", "phi-3-mini"} {
		b.Run(name, func(b *testing.B) {
			tok := mustLoadDir(b, name)
			ids := tok.Encode(strings.Repeat("The quick brown fox jumps over 13 lazy dogs. ", 1000), token.EncodeOptions{})
			b.ReportAllocs()
			for b.Loop() {
				tok.Decode(ids, true)
			}
			b.ReportMetric(float64(len(ids))*float64(b.N)/b.Elapsed().Seconds(), "tokens/s")
		})
	}
}

func BenchmarkLoad(b *testing.B) {
	for _, name := range []string{"qwen2.5", "t5-small", "all-minilm-l6-v2"} {
		b.Run(name, func(b *testing.B) {
			dir := os.DirFS(shared(b, "tokenizers", name))
			for b.Loop() {
				if _, err := token.LoadDir(dir); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
