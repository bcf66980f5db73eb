package weights

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"athanor/engine/tensor"
)

// Names of the files that Open looks for.
const (
	singleFile = "model.safetensors"
	indexFile  = "model.safetensors.index.json"
	suffix     = ".safetensors"
)

// Archive is the set of tensors of a model folder, mapped read-only. Its
// methods are safe for concurrent use until Close.
type Archive struct {
	entries map[string]Entry
	names   []string
	maps    []*mapping
}

// Entry is one stored tensor.
type Entry struct {
	Name    string
	DType   tensor.DType // Invalid when Athanor cannot compute with Storage
	Storage string       // the file's own name of the type, e.g. "BF16"
	Shape   []int64      // nil for a scalar
	File    string       // base name of its file
	Offset  int64        // byte in the file
	data    []byte
	from    *mapping
}

// Bytes is the tensor in the mapped file, little-endian, valid until the
// Archive is closed and never to be written. See Guard for files that shrink.
func (e Entry) Bytes() []byte { return e.data }

// Open maps the weights in dir: model.safetensors, else the shards of
// model.safetensors.index.json, else the only *.safetensors file. Errors about
// a file are *Error; ErrPickle and ErrNoWeights say that there is none to use.
func Open(dir string) (*Archive, error) {
	return open(func(a *Archive) error { return a.open(dir) })
}

// OpenFile maps one safetensors file of a folder. Errors are as for Open.
func OpenFile(dir, name string) (*Archive, error) {
	return open(func(a *Archive) error { return a.addFile(dir, name, nil) })
}

func open(add func(*Archive) error) (*Archive, error) {
	a := &Archive{entries: map[string]Entry{}}
	if err := add(a); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	for name := range a.entries {
		a.names = append(a.names, name)
	}
	slices.Sort(a.names)
	return a, nil
}

func (a *Archive) open(dir string) error {
	if exists(filepath.Join(dir, singleFile)) {
		return a.addFile(dir, singleFile, nil)
	}
	if exists(filepath.Join(dir, indexFile)) {
		return a.addShards(dir)
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("open weights: %w", err)
	}
	var found []string
	pickle := ""
	for _, f := range files {
		if name := f.Name(); strings.HasSuffix(name, suffix) {
			found = append(found, name)
		} else if isPickle(name) {
			pickle = name
		}
	}
	switch {
	case len(found) == 1:
		return a.addFile(dir, found[0], nil)
	case len(found) > 1:
		return fmt.Errorf("%s holds %d %s files and no %s that says which belong to the model: %w", dir, len(found), suffix, indexFile, ErrNoWeights)
	case pickle != "":
		return &Error{File: pickle, Offset: -1, Reason: "save the model as safetensors", Err: ErrPickle}
	}
	return fmt.Errorf("%s: %w: no %s", dir, ErrNoWeights, singleFile)
}

// isPickle knows the names under which PyTorch saves Python objects.
func isPickle(name string) bool {
	switch filepath.Ext(name) {
	case ".bin":
		return strings.HasPrefix(name, "pytorch_model")
	case ".pt", ".pth", ".ckpt", ".pkl", ".pickle":
		return true
	}
	return false
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// addShards reads the index and every shard that it names.
func (a *Archive) addShards(dir string) error {
	shards, err := readIndex(filepath.Join(dir, indexFile))
	if err != nil {
		return err
	}
	for _, s := range shards {
		if err := a.addFile(dir, s.file, s.tensors); err != nil {
			return err
		}
	}
	return nil
}

// addFile maps one file and adds its tensors: those in want, or all when want
// is nil.
func (a *Archive) addFile(dir, name string, want []string) error {
	m, records, start, err := mapFile(dir, name)
	if err != nil {
		return err
	}
	a.maps = append(a.maps, m)
	here := make(map[string]Entry, len(records))
	for _, r := range records {
		offset := start + r.begin
		here[r.name] = Entry{
			Name: r.name, DType: storages[r.storage].dtype, Storage: r.storage, Shape: r.shape,
			File: name, Offset: offset, data: m.bytes[offset : start+r.end : start+r.end], from: m,
		}
	}
	if want == nil {
		a.entries = here
		return nil
	}
	for _, w := range want {
		e, ok := here[w]
		if !ok {
			return &Error{File: name, Tensor: w, Offset: -1, Reason: "is not in this shard, where " + indexFile + " says it is"}
		}
		a.entries[w] = e
	}
	return nil
}

// Names lists the tensors in alphabetical order. The caller must not change it.
func (a *Archive) Names() []string { return a.names }

// Tensor finds a tensor by the name in the file.
func (a *Archive) Tensor(name string) (Entry, bool) {
	e, ok := a.entries[name]
	return e, ok
}

// Close unmaps the files. The bytes of all entries are invalid afterwards.
func (a *Archive) Close() error {
	var errs []error
	for _, m := range a.maps {
		errs = append(errs, m.close())
	}
	a.maps = nil
	return errors.Join(errs...)
}
