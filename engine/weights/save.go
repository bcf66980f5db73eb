package weights

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"

	"athanor/engine/durable"
	"athanor/engine/tensor"
)

// Part is one tensor of a safetensors file that is to be written.
type Part struct {
	Name    string
	Storage string  // the format's own name of the element type: F32, F16, BF16, ...
	Shape   []int64 // outermost first
	// Write writes the elements, little-endian and in order; it is called once.
	Write func(w io.Writer) error
}

// formatMetadata is what readers of the Hugging Face libraries look for in a
// header.
var formatMetadata = map[string]string{"format": "pt"}

// Size is the length of the elements in bytes.
func (p Part) Size() (int64, error) {
	n, ok := record{storage: p.Storage, shape: p.Shape}.bytes()
	if !ok {
		return 0, fmt.Errorf("tensor %q: shape %v of %s cannot be stored", p.Name, p.Shape, p.Storage)
	}
	return n, nil
}

// floatStorages are the types that Floats can write.
var floatStorages = map[tensor.DType]string{tensor.F32: "F32", tensor.F16: "F16", tensor.BF16: "BF16"}

// Floats is a tensor of float32 values stored as d: F32, F16 or BF16, rounded
// to nearest even. read fills dst with the values from element first on; it is
// called in order, with at most 131,072 values or one row of the last dimension
// at a time, whichever is more, and always with whole rows.
func Floats(name string, d tensor.DType, shape []int64, read func(dst []float32, first int64) error) Part {
	p := Part{Name: name, Storage: floatStorages[d], Shape: shape}
	p.Write = func(w io.Writer) error {
		total, ok := tensor.Elements(shape)
		if !ok {
			return fmt.Errorf("tensor %q: shape %v is too large", name, shape)
		}
		step := int64(chunkValues)
		if len(shape) > 0 && shape[len(shape)-1] > 0 {
			row := shape[len(shape)-1]
			step = max(1, step/row) * row
		}
		step = min(step, total)
		values, raw := make([]float32, step), make([]byte, step*int64(d.Size()))
		for first := int64(0); first < total; first += step {
			n := min(step, total-first)
			if err := read(values[:n], first); err != nil {
				return err
			}
			part := raw[:n*int64(d.Size())]
			if err := tensor.PutFloat32s(part, values[:n], d); err != nil {
				return fmt.Errorf("tensor %q: %w", name, err)
			}
			if _, err := w.Write(part); err != nil {
				return err
			}
		}
		return nil
	}
	return p
}

// Values is a tensor whose values are in memory; see Floats.
func Values(name string, d tensor.DType, shape []int64, values []float32) Part {
	return Floats(name, d, shape, func(dst []float32, first int64) error {
		if first+int64(len(dst)) > int64(len(values)) {
			return fmt.Errorf("tensor %q has %d values, shape %v needs more", name, len(values), shape)
		}
		copy(dst, values[first:])
		return nil
	})
}

// Part is a tensor of the archive as it is stored, byte for byte.
func (a *Archive) Part(name string) (Part, error) {
	e, ok := a.entries[name]
	if !ok {
		return Part{}, fmt.Errorf("tensor %q is not in the weights", name)
	}
	return Part{Name: name, Storage: e.Storage, Shape: e.Shape, Write: func(w io.Writer) error {
		buf := make([]byte, min(len(e.data), 4*chunkValues))
		for first := 0; first < len(e.data); first += len(buf) {
			n := min(len(buf), len(e.data)-first)
			err := guard(func() error { copy(buf, e.data[first:first+n]); return nil }, e.from)
			e.from.release(int(e.Offset)+first, n)
			if err != nil {
				return err
			}
			if _, err := w.Write(buf[:n]); err != nil {
				return err
			}
		}
		return nil
	}}, nil
}

// Save writes parts to a new safetensors file and makes it durable. The bytes
// depend on the parts alone, not on their order or the time: wide element types
// come first, so that every tensor is aligned to its type, then the names in
// alphabetical order; the header is padded to a multiple of 8. What is left
// after an error is for the caller to remove.
func Save(path string, parts []Part) error {
	parts, header, err := layout(parts)
	if err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(path), err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("create weight file: %w", err)
	}
	if err := errors.Join(writeParts(f, header, parts), f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(path), err)
	}
	return nil
}

func writeParts(f io.Writer, header []byte, parts []Part) error {
	w := bufio.NewWriterSize(f, 1<<20)
	if _, err := w.Write(header); err != nil {
		return err
	}
	for _, p := range parts {
		size, err := p.Size()
		if err != nil {
			return err
		}
		c := &counter{w: w}
		if err := p.Write(c); err != nil {
			return err
		}
		if c.n != size {
			return fmt.Errorf("tensor %q: %d bytes written, shape %v of %s has %d", p.Name, c.n, p.Shape, p.Storage, size)
		}
	}
	return w.Flush()
}

type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += int64(n)
	return n, err
}

// layout sorts parts and makes the header with its length before it.
func layout(parts []Part) ([]Part, []byte, error) {
	parts = slices.Clone(parts)
	slices.SortFunc(parts, func(a, b Part) int {
		return cmp.Or(-cmp.Compare(storages[a.Storage].bits, storages[b.Storage].bits), cmp.Compare(a.Name, b.Name))
	})
	type place struct {
		DType   string  `json:"dtype"`
		Shape   []int64 `json:"shape"`
		Offsets []int64 `json:"data_offsets"`
	}
	entries := map[string]any{"__metadata__": formatMetadata} // maps are encoded in the order of their keys
	at := int64(0)
	for _, p := range parts {
		size, err := p.Size()
		if err != nil {
			return nil, nil, err
		}
		if _, twice := entries[p.Name]; twice || p.Name == "" {
			return nil, nil, fmt.Errorf("name %q of a tensor is empty, reserved or given twice", p.Name)
		}
		if size > math.MaxInt64-at {
			return nil, nil, errors.New("the tensors are too large for one file")
		}
		entries[p.Name] = place{p.Storage, append([]int64{}, p.Shape...), []int64{at, at + size}}
		at += size
	}
	text, err := json.Marshal(entries)
	if err != nil {
		return nil, nil, fmt.Errorf("encode the header: %w", err)
	}
	for len(text)%8 != 0 {
		text = append(text, ' ')
	}
	if len(text) > maxHeader || len(parts) > maxTensors {
		return nil, nil, fmt.Errorf("%d tensors need a header of %d bytes, over the limits of the format", len(parts), len(text))
	}
	return parts, append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...), nil
}

// SaveSharded writes parts into the folder dir as Open reads them: one
// model.safetensors when they fit into limit bytes, else numbered shards of at
// most that size, filled in the alphabetical order of names, and their index. A
// tensor larger than limit gets a shard of its own.
func SaveSharded(dir string, parts []Part, limit int64) error {
	parts = slices.Clone(parts)
	slices.SortFunc(parts, func(a, b Part) int { return cmp.Compare(a.Name, b.Name) })
	var shards [][]Part
	total, room := int64(0), int64(0)
	for _, p := range parts {
		size, err := p.Size()
		if err != nil {
			return err
		}
		if len(shards) == 0 || size > room {
			shards, room = append(shards, nil), limit
		}
		last := len(shards) - 1
		shards[last] = append(shards[last], p)
		total, room = total+size, room-size
	}
	if len(shards) > maxShards {
		return fmt.Errorf("%d shards are more than %d", len(shards), maxShards)
	}
	if len(shards) <= 1 {
		return Save(filepath.Join(dir, singleFile), parts)
	}
	index := struct {
		Metadata  map[string]int64  `json:"metadata"`
		WeightMap map[string]string `json:"weight_map"`
	}{map[string]int64{"total_size": total}, map[string]string{}}
	for i, shard := range shards {
		name := fmt.Sprintf("model-%05d-of-%05d%s", i+1, len(shards), suffix)
		for _, p := range shard {
			index.WeightMap[p.Name] = name
		}
		if err := Save(filepath.Join(dir, name), shard); err != nil {
			return err
		}
	}
	text, err := json.MarshalIndent(index, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the shard index: %w", err)
	}
	return durable.WriteFile(filepath.Join(dir, indexFile), append(text, '\n'))
}
