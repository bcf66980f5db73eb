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
	"time"
)

// flags of the command line.
type flags struct {
	dir     string
	library string
	formats string
	threads int
	tokens  int
	repeat  int
	rows    int
	child   string // internal: what one measuring process does
	fp32    bool
}

func main() {
	var f flags
	flag.StringVar(&f.dir, "dir", filepath.Join(os.TempDir(), "athanor-bench"), "folder for the model and what is made from it")
	flag.StringVar(&f.library, "onnxruntime", filepath.Join("engine/ort/lib", runtime.GOOS+"-"+runtime.GOARCH), "library, or the folder that holds it")
	flag.StringVar(&f.formats, "formats", "int4/32,int4/128,int8/32", "quantization/block size, with commas between")
	flag.IntVar(&f.threads, "threads", 0, "threads, 0 = physical cores")
	flag.IntVar(&f.tokens, "tokens", 36, "steps of decoding at each number of rows, of which the best 12 in a row count")
	flag.IntVar(&f.repeat, "repeat", 3, "prompts read, of which the fastest counts")
	flag.IntVar(&f.rows, "rows", 8, "most answers at the same time: 1, 4 or 8")
	flag.BoolVar(&f.fp32, "fp32", false, "measure float32 weights too")
	flag.StringVar(&f.child, "child", "", "")
	flag.Parse()
	if err := run(f); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(f flags) error {
	if f.child != "" {
		return child(f)
	}
	if err := makeModel(f.model()); err != nil {
		return err
	}
	formats := strings.Split(f.formats, ",")
	if f.fp32 {
		formats = append(formats, "none")
	}
	var rows []result
	for _, format := range formats {
		r, err := measure(f, format)
		if err != nil {
			return fmt.Errorf("%s: %w", format, err)
		}
		rows = append(rows, r)
	}
	return report(rows)
}

func (f flags) model() string { return filepath.Join(f.dir, "llama-1b-random") }

// cache is the folder of what is derived from the model in one format.
func (f flags) cache(format string) string {
	return filepath.Join(f.dir, "cache-"+strings.ReplaceAll(format, "/", "-"))
}

// result is one row of the table.
type result struct {
	Format    string
	Converted time.Duration // first load: conversion, packing and all; 0 when it was there
	Load      time.Duration
	RSS, Anon int64 // bytes after the load; Anon is the part that is not mapped files
	Peak      int64 // bytes at the end of all measurements
	Prefill   float64
	Decode    map[int]float64 // tokens/s over all rows, by rows
	Sampled   float64         // tokens/s of one row at temperature 1, top_p 0.95
	Bandwidth float64         // bytes/s
	Weights   int64           // bytes read per token, as stored
	Packed    int64           // the same as the kernels keep them
}

// measure starts two processes, so that the memory of the conversion is not
// that of serving.
func measure(f flags, format string) (result, error) {
	var r result
	if _, err := os.Stat(f.cache(format)); errors.Is(err, os.ErrNotExist) {
		fmt.Fprintf(os.Stderr, "%s: converting\n", format)
		if err := spawn("convert "+format, &r); err != nil {
			return r, errors.Join(err, os.RemoveAll(f.cache(format)))
		}
	}
	converted := r.Converted
	fmt.Fprintf(os.Stderr, "%s: measuring\n", format)
	err := spawn("serve "+format, &r)
	r.Format, r.Converted = format, converted
	return r, err
}

// spawn runs this program again with the same flags and reads its result.
func spawn(task string, into *result) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(exe, append(os.Args[1:len(os.Args):len(os.Args)], "-child", task)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("%s: %w", task, err)
	}
	return json.Unmarshal(bytes.TrimSpace(out), into)
}

func child(f flags) error {
	task, format, _ := strings.Cut(f.child, " ")
	r, err := tasks[task](f, format)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

var tasks = map[string]func(flags, string) (result, error){"convert": convert, "serve": serve}

// report prints the table; ratios of one row were measured in one process.
func report(rows []result) error {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "format\tconvert s\tload s\tRSS GB\tof it anon\tpeak\tprefill 512\tB=1\tB=4\tB=8\tB=1 top_p\tGB/s\tMB/token\troof\tpacked\troof\t")
	for _, r := range rows {
		roof := func(size int64) string { return fmt.Sprintf("%.2f", float64(size)*r.Decode[1]/r.Bandwidth) }
		fmt.Fprintf(w, "%s\t%.1f\t%.2f\t%.2f\t%.2f\t%.2f\t%.0f\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f\t%d\t%s\t%d\t%s\t\n",
			r.Format, r.Converted.Seconds(), r.Load.Seconds(), gb(r.RSS), gb(r.Anon), gb(r.Peak),
			r.Prefill, r.Decode[1], r.Decode[4], r.Decode[8], r.Sampled, r.Bandwidth/1e9,
			r.Weights/1e6, roof(r.Weights), r.Packed/1e6, roof(r.Packed))
	}
	return w.Flush()
}

func gb(n int64) float64 { return float64(n) / 1e9 }

// blockOf splits "int4/32".
func blockOf(format string) (quantization string, block int, err error) {
	quantization, size, found := strings.Cut(format, "/")
	if found {
		block, err = strconv.Atoi(size)
	}
	return quantization, block, err
}
