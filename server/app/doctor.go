package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"athanor/engine"
	"athanor/engine/ort"
	"athanor/engine/train/selftest"
	"athanor/gpu"
	"athanor/gpu/nvml"
	"athanor/server/config"
	"athanor/server/rest"
)

// Verdict is the outcome of one check of the machine.
type Verdict string

// The verdicts: fine, working but worth knowing, broken.
const (
	Passed Verdict = "ok"
	Warned Verdict = "warning"
	Failed Verdict = "FAILED"
)

// Finding is one check in plain words.
type Finding struct {
	Check   string
	Verdict Verdict
	Text    string
}

// Diagnose checks the machine and the data directory and reports each finding.
// It needs no running server and disturbs none.
func Diagnose(ctx context.Context, cfg config.Config, report func(Finding)) {
	checks := []struct {
		name string
		run  func(context.Context, config.Config) (Verdict, string)
	}{
		{"processor", checkCPU}, {"gpus", checkGPUs}, {"data directory", checkDisk}, {"disk sync", checkSync},
		{"port", checkPort}, {"onnxruntime", checkLibrary}, {"one token", checkToken}, {"training", checkTraining},
	}
	for _, c := range checks {
		verdict, text := c.run(ctx, cfg)
		report(Finding{Check: c.name, Verdict: verdict, Text: text})
	}
}

func checkCPU(ctx context.Context, _ config.Config) (Verdict, string) {
	devices, err := gpu.NewHost().Devices(ctx)
	if err != nil || len(devices) == 0 {
		return Failed, fmt.Sprintf("the processor cannot be read: %v", err)
	}
	d := devices[0]
	text := fmt.Sprintf("%s, %d cores, %s memory, %s", d.Name, d.Cores, gpu.Size(d.MemoryBytes), strings.Join(d.Features, " "))
	if !slices.Contains(d.Features, "avx2") && !slices.Contains(d.Features, "neon") && !slices.Contains(d.Features, "asimd") {
		return Warned, text + "; without AVX2 or NEON models run slowly"
	}
	return Passed, text
}

func checkGPUs(ctx context.Context, _ config.Config) (Verdict, string) {
	inventory, err := nvml.Open()
	if err != nil {
		return Passed, fmt.Sprintf("none: %v; models run on the processor", err)
	}
	defer inventory.Close()
	devices, err := inventory.Devices(ctx)
	if err != nil {
		return Warned, fmt.Sprintf("the NVIDIA driver answers with an error: %v", err)
	}
	var names []string
	for _, d := range devices {
		names = append(names, fmt.Sprintf("%s (%s)", d.Name, gpu.Size(d.MemoryBytes)))
	}
	return Passed, fmt.Sprintf("%d seen: %s", len(devices), strings.Join(names, ", "))
}

// lowDisk is the free space, in bytes, below which the disk check warns.
const lowDisk = 5 << 30

func checkDisk(_ context.Context, cfg config.Config) (Verdict, string) {
	dir, missing := existing(cfg.Data)
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return Failed, fmt.Sprintf("%s: %v", dir, err)
	}
	free := int64(s.Bavail) * s.Bsize
	text := fmt.Sprintf("%s, %s free", cfg.Data, gpu.Size(free))
	if missing {
		text = fmt.Sprintf("%s will be made, %s free", cfg.Data, gpu.Size(free))
	}
	if free < lowDisk {
		return Warned, text + "; models need more"
	}
	return Passed, text
}

// existing is dir, or the nearest directory above it that exists.
func existing(dir string) (found string, missing bool) {
	for {
		if info, err := os.Stat(dir); err == nil && info.IsDir() {
			return dir, missing
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return dir, missing
		}
		dir, missing = parent, true
	}
}

// checkSync times small fsync'd writes: what every acknowledged change costs.
func checkSync(_ context.Context, cfg config.Config) (Verdict, string) {
	dir, _ := existing(cfg.Data)
	f, err := os.CreateTemp(dir, ".doctor-")
	if err != nil {
		return Failed, fmt.Sprintf("%s cannot be written: %v", dir, err)
	}
	defer os.Remove(f.Name())
	defer f.Close()
	const rounds = 50
	start := time.Now()
	for i := range rounds {
		if _, err := f.WriteAt([]byte("athanor"), int64(i)*4096); err != nil {
			return Failed, err.Error()
		}
		if err := f.Sync(); err != nil {
			return Failed, err.Error()
		}
	}
	rate := rounds / time.Since(start).Seconds()
	text := fmt.Sprintf("%.0f synced writes a second", rate)
	if rate < 50 {
		return Warned, text + "; every change waits for one"
	}
	return Passed, text
}

func checkPort(ctx context.Context, cfg config.Config) (Verdict, string) {
	ln, err := net.Listen("tcp", cfg.Listen)
	if err == nil {
		return Passed, cfg.Listen + " is free" + closeQuietly(ln)
	}
	if conn, dialErr := DialAdmin(ctx, cfg); dialErr == nil {
		return Passed, cfg.Listen + " is taken; a server of this data directory runs" + closeQuietly(conn)
	}
	return Failed, fmt.Sprintf("%s cannot be used: %v", cfg.Listen, err)
}

// closeQuietly closes c and adds nothing to a text.
func closeQuietly(c io.Closer) string {
	_ = c.Close()
	return ""
}

func checkLibrary(_ context.Context, cfg config.Config) (Verdict, string) {
	library, err := ort.Locate(cfg.ONNXRuntime, cfg.Data)
	if err != nil {
		return Failed, err.Error() + "; scripts/get-onnxruntime fetches it, or give --onnxruntime"
	}
	rt, err := ort.Open(ort.Options{Library: library})
	if err != nil {
		return Failed, fmt.Sprintf("%s does not load: %v", library, err)
	}
	name := rt.Name()
	if err := rt.Close(); err != nil {
		return Warned, fmt.Sprintf("%s from %s loads, but does not close: %v", name, library, err)
	}
	return Passed, name + " from " + library
}

// checkToken starts a throw-away appliance and generates one token in a worker.
func checkToken(ctx context.Context, cfg config.Config) (Verdict, string) {
	if _, err := ort.Locate(cfg.ONNXRuntime, cfg.Data); err != nil {
		return Failed, "not tried: there is no ONNX Runtime"
	}
	dir, err := os.MkdirTemp("", "athanor-doctor-")
	if err != nil {
		return Failed, err.Error()
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	cfg.Data = dir
	cfg.S3 = config.S3{}
	a, err := Open(ctx, cfg, Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return Failed, err.Error()
	}
	defer a.Close()
	start := time.Now()
	ctx = rest.WithCaller(ctx, &rest.Principal{})
	g, release, err := a.Generator(ctx, DemoModel)
	if err != nil {
		return Failed, err.Error()
	}
	defer release()
	tokens := 0
	err = g.Generate(ctx, &engine.GenerateRequest{Prompt: "Once", MaxTokens: 1}, func(ev *engine.Event) error {
		tokens += len(ev.Tokens)
		return nil
	})
	if err == nil && tokens == 0 {
		err = errors.New("no token came")
	}
	if err != nil {
		return Failed, err.Error()
	}
	return Passed, fmt.Sprintf("%s answered in a worker after %s, start included", DemoModel, time.Since(start).Round(time.Millisecond))
}

// trainTime bounds the check of training, which takes less than a second.
const trainTime = time.Minute

// checkTraining compares the gradients of a small model with those of plain Go,
// and says what a job may use.
func checkTraining(ctx context.Context, cfg config.Config) (Verdict, string) {
	library, err := ort.Locate(cfg.ONNXRuntime, cfg.Data)
	if err != nil {
		return Failed, "not tried: there is no ONNX Runtime"
	}
	rt, err := ort.Open(ort.Options{Library: library})
	if err != nil {
		return Failed, err.Error()
	}
	defer rt.Close()
	ctx, cancel := context.WithTimeout(ctx, trainTime)
	defer cancel()
	if err := selftest.Run(ctx, rt); err != nil {
		return Failed, fmt.Sprintf("this machine cannot train: %v", err)
	}
	machine := gpu.NewHost()
	devices, err := machine.Devices(ctx)
	if err != nil || len(devices) == 0 {
		return Failed, fmt.Sprintf("the processor cannot be read: %v", err)
	}
	usage, err := machine.Usage(ctx)
	if err != nil || len(usage) == 0 {
		return Failed, fmt.Sprintf("the memory cannot be read: %v", err)
	}
	return Passed, fmt.Sprintf("the gradients of %s are right on the processor; %s of memory are free now, jobs at once: %d, cores for each: %d",
		rt.Name(), gpu.Size(usage[0].FreeBytes), cfg.TrainingJobs, max(1, devices[0].Cores/max(1, cfg.TrainingJobs)))
}
