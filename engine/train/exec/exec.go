package exec

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"

	"athanor/engine"
	"athanor/engine/compute"
	"athanor/engine/family"
	"athanor/engine/family/decoder"
	"athanor/engine/peft"
	"athanor/engine/tensor"
	"athanor/engine/weights"
)

// Config is what an Executor is made from.
type Config struct {
	ModelDir string        // base model in Hugging Face layout
	LoRA     *engine.LoRA  // nil trains all weights
	Adapter  *peft.Adapter // to start from, whose rank, factor and modules count then; nil for a fresh one
	// BaseFormat is how a frozen base is kept: none (float32), bf16, int8 or
	// int4; "" as the checkpoint has it, which costs no memory of its own.
	BaseFormat string
	Threads    int    // 0 = physical cores
	Seed       uint64 // of a fresh adapter and of dropout
	Layered    bool   // layer by layer, whatever the size
	Recompute  bool   // and every layer a second time in the backward pass, whatever memory there is
}

// Param is a trainable tensor. The optimiser changes Value in place and reads
// Grad; both are float32.
type Param struct {
	Name        string // "layers.0.self_attn.q_proj.lora_A", or the name in the checkpoint
	Shape       []int
	Value, Grad compute.Buffer
	Decay       bool // weight decay is meant for it: a matrix
}

// Info describes an Executor.
type Info struct {
	Parameters int64  // of the base, a shared matrix once
	Trainable  int64  // elements of Params
	Whole      bool   // batches run as one program; false = layer by layer
	BaseFormat string // of the matrices: f32, bf16, f16, int8, int4, or several joined by "+"
}

// Executor computes training passes. It belongs to one goroutine at a time.
type Executor struct {
	rt      compute.Runtime
	cfg     Config
	d       decoder.Decoder
	archive *weights.Archive
	info    Info
	way     way

	base     map[string]*stored // by canonical name
	adapters map[string]*adapter
	params   []Param
	byName   map[string]int              // index in params by canonical name
	keys     [][]string                  // canonical names of the params of each layer, in order
	bound    []map[string]compute.Buffer // weights of each layer by part
	clean    map[string]bool             // gradients that are zero: the next one is written, not added

	programs map[string]*program
	divided  map[string]*divided
	handed   map[string][]kept // what layers keep, by signature
	lives    map[string]*lives // of graphs, for estimates
	pool     pool
	angles   angles
}

// New opens the model and prepares the trainable tensors. Programs are compiled
// when they are first needed. A module that the model does not have gives an
// *engine.RequestError, a model that cannot be trained the error of
// family.Open or weights.Open.
func New(ctx context.Context, rt compute.Runtime, cfg Config) (*Executor, error) {
	e := &Executor{
		rt: rt, cfg: cfg, base: map[string]*stored{}, adapters: map[string]*adapter{}, byName: map[string]int{},
		clean: map[string]bool{}, programs: map[string]*program{}, lives: map[string]*lives{}, divided: map[string]*divided{}, handed: map[string][]kept{}, pool: pool{rt: rt, held: map[string]*scratch{}},
	}
	if err := e.open(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("prepare training: %w", err), e.Close())
	}
	return e, nil
}

func (e *Executor) open(ctx context.Context) error {
	f, err := family.Open(os.DirFS(e.cfg.ModelDir))
	if err != nil {
		return err
	}
	e.d, e.info.Parameters = f.Decoder(), f.Parameters()
	e.keys = make([][]string, e.d.Layers)
	if e.archive, err = weights.Open(e.cfg.ModelDir); err != nil {
		return err
	}
	list, err := e.d.Weights(e.archive)
	if err != nil {
		return err
	}
	if e.full() {
		err = e.openFull(ctx, list)
	} else {
		err = e.openFrozen(ctx, list)
	}
	if err != nil {
		return err
	}
	e.bound = make([]map[string]compute.Buffer, e.d.Layers)
	for i := range e.bound {
		e.bound[i] = e.bindLayer(i)
	}
	for _, p := range e.params {
		e.info.Trainable += int64(elements(p.Shape))
	}
	e.Choose(1, 1, 0)
	return nil
}

// full says whether all weights are trained.
func (e *Executor) full() bool { return e.cfg.LoRA == nil && e.cfg.Adapter == nil }

// Params lists the trainable tensors in a fixed order. The buffers belong to
// the Executor.
func (e *Executor) Params() []Param { return e.params }

// Info says what was opened.
func (e *Executor) Info() Info { return e.info }

// addParam makes a trainable tensor and its gradient.
func (e *Executor) addParam(layer int, key, name string, shape []int) (*Param, error) {
	p := Param{Name: name, Shape: shape, Decay: len(shape) > 1}
	var err error
	if p.Value, err = e.rt.NewBuffer(tensor.F32, shape...); err != nil {
		return nil, err
	}
	if p.Grad, err = e.rt.NewBuffer(tensor.F32, shape...); err != nil {
		return nil, errors.Join(err, p.Value.Close())
	}
	e.byName[key] = len(e.params)
	e.clean[key] = true
	if layer >= 0 {
		e.keys[layer] = append(e.keys[layer], key)
	}
	e.params = append(e.params, p)
	return &e.params[len(e.params)-1], nil
}

// ZeroGrad sets all gradients to zero.
func (e *Executor) ZeroGrad() {
	for key, i := range e.byName {
		if !e.clean[key] {
			clear(e.params[i].Grad.Bytes())
			e.clean[key] = true
		}
	}
}

// Close frees everything. Buffers of Params are invalid afterwards.
func (e *Executor) Close() error {
	var errs []error
	for _, p := range e.programs {
		errs = append(errs, p.Close())
	}
	for _, s := range e.base {
		errs = append(errs, s.close())
	}
	for _, p := range e.params {
		errs = append(errs, p.Value.Close(), p.Grad.Close())
	}
	errs = append(errs, e.pool.close())
	if e.archive != nil {
		errs = append(errs, e.archive.Close())
	}
	e.programs, e.base, e.params, e.archive = nil, nil, nil, nil
	return errors.Join(errs...)
}

func elements(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

// layerPrefix is what stands before the parts of a layer.
func layerPrefix(i int) string { return "layers." + strconv.Itoa(i) + "." }
