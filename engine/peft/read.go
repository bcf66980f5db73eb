package peft

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"athanor/engine/weights"
)

// Bounds of the tensors.
const (
	maxValues  = 1 << 30 // 4 GiB of float32
	maxModules = 1 << 14
	maxMatches = 1 << 20 // patterns tried on modules; bounds the time
)

// Read reads the adapter in the folder dir. All values are in memory, as
// float32, afterwards. Errors about a file are *Error or *weights.Error; the
// caller compares with the base model, see Adapter.CheckBase.
func Read(dir string) (*Adapter, error) {
	text, err := readConfig(dir)
	if err != nil {
		return nil, err
	}
	d, err := parseConfig(text)
	if err != nil {
		return nil, err
	}
	if err := refuseOthers(dir); err != nil {
		return nil, err
	}
	a, err := weights.OpenFile(dir, WeightsFile)
	if err != nil {
		return nil, err
	}
	defer a.Close()
	modules, err := d.modules(a)
	if err != nil {
		return nil, err
	}
	return &Adapter{Config: d.Config, Modules: modules}, nil
}

func readConfig(dir string) ([]byte, error) {
	path := filepath.Join(dir, ConfigFile)
	// Stat first: opening a FIFO would wait for its writer.
	if info, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("read adapter: %w", err)
	} else if !info.Mode().IsRegular() {
		return nil, &Error{File: ConfigFile, Reason: "is not a regular file"}
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read adapter: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxConfig+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", ConfigFile, err)
	}
	return text, nil
}

// refuseOthers explains a folder that has weights in another form only.
func refuseOthers(dir string) error {
	_, err := os.Stat(filepath.Join(dir, WeightsFile))
	if !errors.Is(err, fs.ErrNotExist) {
		return nil // what else is wrong with it, its reader says
	}
	const pickle = "adapter_model.bin"
	if _, err := os.Stat(filepath.Join(dir, pickle)); err == nil {
		return fmt.Errorf("%w", &weights.Error{File: pickle, Offset: -1, Reason: "save the adapter as safetensors", Err: weights.ErrPickle})
	}
	return fmt.Errorf("read adapter: %w", &weights.Error{File: WeightsFile, Offset: -1, Reason: "is missing", Err: weights.ErrNoWeights})
}

// Names of tensors: base_model.model.<module>.lora_A.weight, with the name that
// some trainers give an adapter, lora_A.default.weight, as an option.
const outerPrefix = "base_model.model."

// innerPrefixes stand between outerPrefix and "layers.".
var innerPrefixes = []string{"model.", "", "language_model.model.", "model.language_model."}

var halves = []struct {
	infix  string
	second bool
}{{".lora_A.", false}, {".lora_B.", true}}

// split takes the name of a tensor apart: the module's whole name in the base
// model, its canonical name, and which of the two matrices it is.
func split(tensor string) (module, canonical string, second bool, err error) {
	fail := func(reason string) (string, string, bool, error) {
		return "", "", false, &Error{File: WeightsFile, Field: tensor, Reason: reason}
	}
	switch {
	case strings.Contains(tensor, "lora_embedding_"):
		return fail("adapters of embeddings are not supported")
	case strings.Contains(tensor, "lora_magnitude_vector"):
		return fail("weight-decomposed adapters (DoRA) are not supported")
	case strings.Contains(tensor, "modules_to_save") || !strings.Contains(tensor, ".lora_"):
		return fail("is no part of a low-rank adapter; whole tensors beside it are not supported")
	}
	name := strings.TrimPrefix(tensor, outerPrefix)
	for _, h := range halves {
		before, rest, found := strings.Cut(name, h.infix)
		if !found {
			continue
		}
		if rest != "weight" && rest != "default.weight" {
			return fail("does not end in weight or default.weight")
		}
		for _, p := range innerPrefixes {
			if after, ok := strings.CutPrefix(before, p); ok && strings.HasPrefix(after, "layers.") {
				return before, after, h.second, nil
			}
		}
		return fail("its module is in no layer of the model; only linear modules of layers are supported")
	}
	return fail("is neither lora_A nor lora_B")
}

// modules reads and checks all tensors.
func (d *description) modules(a *weights.Archive) (map[string]*Module, error) {
	pairs, err := d.pair(a)
	if err != nil {
		return nil, err
	}
	if n := len(pairs); n > maxModules || n*max(len(d.ranks), len(d.alphas)) > maxMatches {
		return nil, &Error{File: WeightsFile, Reason: fmt.Sprintf("%d modules with %d patterns for their ranks and %d for alpha are too many", n, len(d.ranks), len(d.alphas))}
	}
	out := map[string]*Module{}
	total := 0
	for _, canonical := range slices.Sorted(maps.Keys(pairs)) {
		p := pairs[canonical]
		m, err := d.module(p)
		if err != nil {
			return nil, err
		}
		if total += len(m.A) + len(m.B); total > maxValues {
			return nil, &Error{File: WeightsFile, Reason: fmt.Sprintf("has more than %d values", maxValues)}
		}
		for _, half := range []struct {
			name string
			to   []float32
		}{{p.tensors[0].Name, m.A}, {p.tensors[1].Name, m.B}} {
			if err := a.Float32(half.name, half.to); err != nil {
				return nil, err
			}
			for _, v := range half.to {
				if v-v != 0 {
					return nil, &Error{File: WeightsFile, Field: half.name, Reason: "holds a value that is not finite"}
				}
			}
		}
		out[canonical] = m
	}
	if len(out) == 0 {
		return nil, &Error{File: WeightsFile, Reason: "holds no adapter of any module"}
	}
	return out, d.checkTargets(pairs)
}

// pair is a module with its two tensors.
type pair struct {
	module  string // as the base model names it
	tensors [2]*weights.Entry
}

func (d *description) pair(a *weights.Archive) (map[string]*pair, error) {
	pairs := map[string]*pair{}
	for _, name := range a.Names() {
		module, canonical, second, err := split(name)
		if err != nil {
			return nil, err
		}
		p := pairs[canonical]
		if p == nil {
			p = &pair{module: module}
			pairs[canonical] = p
		}
		i := 0
		if second {
			i = 1
		}
		if p.tensors[i] != nil || p.module != module {
			return nil, &Error{File: WeightsFile, Field: name, Reason: "the module has this matrix twice"}
		}
		e, _ := a.Tensor(name)
		p.tensors[i] = &e
	}
	for _, p := range pairs {
		for i, e := range p.tensors {
			if e == nil {
				return nil, &Error{File: WeightsFile, Field: p.tensors[1-i].Name, Reason: "its other matrix is missing"}
			}
		}
	}
	return pairs, nil
}

// module makes room for a module after checking all its sizes.
func (d *description) module(p *pair) (*Module, error) {
	a, b := p.tensors[0], p.tensors[1]
	for _, e := range p.tensors {
		if err := e.Usable(); err != nil {
			return nil, err
		}
		if len(e.Shape) != 2 || slices.Min(e.Shape) < 1 || slices.Max(e.Shape) > maxValues {
			return nil, &Error{File: WeightsFile, Field: e.Name, Reason: fmt.Sprintf("shape %v is that of no matrix", e.Shape)}
		}
	}
	rank := float64(d.Rank)
	if r, ok := find(d.ranks, p.module); ok {
		rank = r
	}
	if float64(a.Shape[0]) != rank || a.Shape[0] != b.Shape[1] {
		return nil, &Error{File: WeightsFile, Field: a.Name, Reason: fmt.Sprintf("shapes %v and %v do not fit rank %g of the config", a.Shape, b.Shape, rank)}
	}
	m := &Module{In: int(a.Shape[1]), Out: int(b.Shape[0]), Rank: int(rank), Alpha: d.Alpha}
	if alpha, ok := find(d.alphas, p.module); ok {
		m.Alpha = alpha
	}
	values := int64(m.Rank) * (int64(m.In) + int64(m.Out))
	if values > maxValues {
		return nil, &Error{File: WeightsFile, Field: a.Name, Reason: fmt.Sprintf("has more than %d values", maxValues)}
	}
	if s := d.Scale(m); math.IsNaN(s) || math.IsInf(s, 0) {
		return nil, &Error{File: ConfigFile, Field: "lora_alpha", Reason: "is not finite"}
	}
	m.A, m.B = make([]float32, m.Rank*m.In), make([]float32, m.Out*m.Rank)
	return m, nil
}

// checkTargets compares the list of target_modules with the modules that there
// are: each module is on the list, and each entry of it has one.
func (d *description) checkTargets(pairs map[string]*pair) error {
	wanted := map[string]bool{} // by target: whether a module has it
	for _, t := range d.targets {
		wanted[t] = false
	}
	d.Modules = nil
	for canonical, p := range pairs {
		d.Modules = append(d.Modules, canonical[strings.LastIndexByte(canonical, '.')+1:])
		found := d.targets == nil
		// A target is the whole name or an end of it after a dot.
		for end, more := p.module, true; more; _, end, more = strings.Cut(end, ".") {
			if _, ok := wanted[end]; ok {
				wanted[end], found = true, true
			}
		}
		if !found {
			return &Error{File: ConfigFile, Field: "target_modules", Reason: fmt.Sprintf("does not name %s, which %s changes", p.module, WeightsFile)}
		}
	}
	for _, t := range d.targets {
		if !wanted[t] {
			return &Error{File: ConfigFile, Field: "target_modules", Reason: fmt.Sprintf("names %s, of which %s has nothing", brief([]byte(t)), WeightsFile)}
		}
	}
	slices.Sort(d.Modules)
	d.Modules = slices.Compact(d.Modules)
	return nil
}
