package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"text/tabwriter"

	"athanor/engine/enginetest"
	"athanor/engine/tensor"
)

// flags of the command line.
type flags struct {
	dir, library, python, only, child string
	steps, threads                    int
	rows, length, rank                int
}

func main() {
	var f flags
	flag.StringVar(&f.dir, "dir", filepath.Join(os.TempDir(), "athanor-trainbench"), "folder for the model")
	flag.StringVar(&f.library, "onnxruntime", filepath.Join("engine/ort/lib", runtime.GOOS+"-"+runtime.GOARCH), "library, or the folder that holds it")
	flag.StringVar(&f.python, "python", "/usr/bin/python3", "interpreter with PyTorch, \"\" for none")
	flag.StringVar(&f.only, "only", "", "names of the rows to measure, with commas between; \"\" = all")
	flag.IntVar(&f.steps, "steps", 5, "steps measured, after one that is not")
	flag.IntVar(&f.threads, "threads", 2, "threads")
	flag.IntVar(&f.rows, "rows", 2, "rows of a batch")
	flag.IntVar(&f.length, "length", 512, "positions of a row")
	flag.IntVar(&f.rank, "rank", 16, "rank of the adapters")
	flag.StringVar(&f.child, "child", "", "")
	flag.Parse()
	if err := run(f); err != nil {
		fmt.Fprintln(os.Stderr, "trainbench:", err)
		os.Exit(1)
	}
}

// modelDir is where the model is.
func (f flags) modelDir() string { return filepath.Join(f.dir, "model") }

// shape is the model that is trained.
func shape() enginetest.DecoderShape {
	return enginetest.DecoderShape{
		Architecture: "LlamaForCausalLM", Vocabulary: 32000, Hidden: 1024, Layers: 8, Heads: 16, KVHeads: 4,
		FFN: 2816, Context: 2048, DType: tensor.F32,
	}
}

// way is one row of the table.
type way struct {
	name    string
	full    bool
	layered bool
	twice   bool // every layer is computed twice
	format  string
	torch   bool
}

var ways = []way{
	{name: "torch", torch: true},
	{name: "whole"},
	{name: "layered", layered: true},
	{name: "recompute", layered: true, twice: true},
	{name: "recompute-bf16", layered: true, twice: true, format: "bf16"},
	{name: "recompute-int8", layered: true, twice: true, format: "int8"},
	{name: "recompute-int4", layered: true, twice: true, format: "int4"},
	{name: "full-torch", full: true, torch: true},
	{name: "full-whole", full: true},
	{name: "full-layered", full: true, layered: true},
	{name: "full-recompute", full: true, layered: true, twice: true},
}

// result is what a child prints.
type result struct {
	Name            string  `json:"name"`
	Seconds         float64 `json:"seconds"` // mean of a step
	Best            float64 `json:"best"`
	TokensPerSecond float64 `json:"tokens_per_second"`
	PeakBytes       int64   `json:"peak_bytes"`
	AnonBytes       int64   `json:"anon_bytes"` // peak of what is not a mapped file; 0 = not measured
	EstimateBytes   int64   `json:"estimate_bytes"`
	Flops           float64 `json:"flops"` // of the products of a step
	Loss            float64 `json:"loss"`
	Load            string  `json:"load"` // average of the last minute, before the run
}

func run(f flags) error {
	if f.child != "" {
		return child(f)
	}
	model := f.modelDir()
	if _, err := os.Stat(filepath.Join(model, "config.json")); err != nil {
		if err := os.MkdirAll(model, 0o755); err != nil {
			return err
		}
		if err := enginetest.WriteDecoder(model, shape(), 1); err != nil {
			return err
		}
	}
	var results []result
	for _, w := range ways {
		if w.torch && f.python == "" || f.only != "" && !strings.Contains(","+f.only+",", ","+w.name+",") {
			continue
		}
		r, err := measure(f, w, model)
		if err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
		fmt.Fprintf(os.Stderr, "%s: %.0f tokens/s\n", w.name, r.TokensPerSecond)
		results = append(results, r)
	}
	return report(f, results)
}

// measure runs one way in a process of its own.
func measure(f flags, w way, model string) (result, error) {
	load, _ := os.ReadFile("/proc/loadavg")
	before, _, _ := strings.Cut(string(load), " ")
	var cmd *exec.Cmd
	if w.torch {
		rank := f.rank
		if w.full {
			rank = 0
		}
		cmd = exec.Command(f.python, "scripts/trainbench/reference.py", "bench", model,
			strconv.Itoa(f.rows), strconv.Itoa(f.length), strconv.Itoa(f.steps), strconv.Itoa(rank))
	} else {
		self, err := os.Executable()
		if err != nil {
			return result{}, err
		}
		cmd = exec.Command(self, append([]string{"-child", w.name}, os.Args[1:]...)...)
	}
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return result{}, err
	}
	r := result{Name: w.name, Load: before}
	if err := json.Unmarshal(bytes.TrimSpace(out), &r); err != nil {
		return result{}, errors.Join(fmt.Errorf("output %q", out), err)
	}
	return r, nil
}

// report prints the table.
func report(f flags, results []result) error {
	peak, err := sgemm(f)
	if err != nil {
		return err
	}
	fmt.Printf("sgemm peak %.0f GF/s, %d threads, batch %d x %d, rank %d\n\n", peak/1e9, f.threads, f.rows, f.length, f.rank)
	base := map[bool]result{}
	for _, r := range results {
		if strings.HasSuffix(r.Name, "torch") {
			base[strings.HasPrefix(r.Name, "full")] = r
		}
	}
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 1, ' ', 0)
	fmt.Fprintln(t, "| way\t| s/step\t| best\t| tok/s\t| % of peak\t| peak GB\t| of it anon\t| estimate\t| speed\t| memory\t| loss\t| load\t|")
	fmt.Fprintln(t, "|---\t|---\t|---\t|---\t|---\t|---\t|---\t|---\t|---\t|---\t|---\t|---\t|")
	for _, r := range results {
		b := base[strings.HasPrefix(r.Name, "full")]
		speed, memory := "-", "-"
		if b.Seconds > 0 {
			speed = fmt.Sprintf("%.2f", b.Seconds/r.Seconds)
			memory = fmt.Sprintf("%.0f%%", 100*float64(r.PeakBytes)/float64(b.PeakBytes))
		}
		fmt.Fprintf(t, "| %s\t| %.2f\t| %.2f\t| %.0f\t| %s\t| %.2f\t| %s\t| %s\t| %s\t| %s\t| %.3f\t| %s\t|\n", r.Name, r.Seconds, r.Best, r.TokensPerSecond,
			percent(r.Flops, r.Seconds*peak), float64(r.PeakBytes)/1e9, gigabytes(r.AnonBytes), gigabytes(r.EstimateBytes), speed, memory, r.Loss, r.Load)
	}
	return t.Flush()
}

func percent(part, whole float64) string {
	if part == 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f", 100*part/whole)
}

func gigabytes(n int64) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", float64(n)/1e9)
}
