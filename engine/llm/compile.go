package llm

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"athanor/engine/compute"
	"athanor/engine/durable"
	"athanor/engine/family"
	"athanor/engine/onnx"
	"athanor/engine/weights"
)

// graphFormat is part of the cache key: raise it when graphs or the layout of
// converted weights change.
const graphFormat = "2"

// The files of a compiled model: two graphs over the same weights.
const (
	plainFile    = "model.onnx"
	adaptersFile = "adapters.onnx"
	weightsFile  = "weights.bin"
	// prepacked is put before the name of a graph, for the runtime's own form of
	// it and its weights, a cache of this machine.
	prepacked = "prepacked-"
)

// compile gives the program of the model, building the cache when needed, and
// the number of its weights.
func compile(ctx context.Context, rt compute.Runtime, fam family.Family, capacity int, opt Options) (compute.Program, int64, error) {
	archive, err := weights.Open(opt.Dir)
	if err != nil {
		return nil, 0, err
	}
	defer archive.Close()
	if err := fam.Check(archive); err != nil {
		return nil, 0, err
	}
	key := cacheKey(opt, capacity)
	dir := filepath.Join(opt.CacheDir, key)
	file := plainFile
	if opt.Adapters {
		file = adaptersFile
	}
	model, err := cached(ctx, dir, file, func() error {
		if err := build(ctx, fam, archive, dir, capacity, opt); err != nil {
			return fmt.Errorf("convert the model to %s: %w", opt.Quantization, err)
		}
		return nil
	})
	if err != nil {
		return nil, 0, err
	}
	if err := ctx.Err(); err != nil {
		return nil, 0, err
	}
	options := compute.Options{Threads: opt.Threads, Dir: dir}
	if opt.Quantization != family.None {
		// In float32 the packed copy would take more disk than it is worth.
		options.Cache, options.Key = filepath.Join(dir, prepacked+file), key
	}
	program, err := rt.Compile(model, options)
	if err != nil {
		return nil, 0, fmt.Errorf("compile the graph: %w", err)
	}
	return program, fam.Parameters(), nil
}

// cacheKey names what a compiled graph depends on beside the model's content.
func cacheKey(opt Options, capacity int) string {
	format := string(opt.Quantization)
	if opt.BlockSize != 0 {
		format += fmt.Sprintf(".%d", opt.BlockSize)
	}
	return fmt.Sprintf("v%s-%s-%d", graphFormat, format, capacity)
}

// build writes graphs and weights into a temporary directory and renames it. The
// caller holds the lock of the cache.
func build(ctx context.Context, fam family.Family, archive *weights.Archive, dir string, capacity int, opt Options) error {
	tmp, err := os.MkdirTemp(filepath.Dir(dir), building)
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	w, err := weights.NewWriter(ctx, filepath.Join(tmp, weightsFile))
	if err != nil {
		return err
	}
	graphs, err := fam.Graph(archive, family.GraphOptions{
		Quantization: opt.Quantization, BlockSize: opt.BlockSize, KVCapacity: capacity, Progress: opt.Progress,
	}, w)
	if err != nil {
		w.Close()
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	for file, model := range map[string]*onnx.Model{plainFile: graphs.Plain, adaptersFile: graphs.Adapters} {
		data, err := onnx.Encode(model)
		if err != nil {
			return err
		}
		if err := durable.WriteFile(filepath.Join(tmp, file), data); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	return os.Rename(tmp, dir)
}
