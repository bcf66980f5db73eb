package llm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"time"

	"athanor/engine"
	"athanor/engine/compute"
	"athanor/engine/family"
	"athanor/engine/kv"
	"athanor/engine/prompt"
	"athanor/engine/sample"
	"athanor/engine/token"
)

// Quantization says how weights are served: none (float32), int8 or int4.
type Quantization = family.Quantization

// Options says what to load and how.
type Options struct {
	Name         string // for ModelInfo
	Dir          string // model directory in Hugging Face layout
	Quantization Quantization
	BlockSize    int    // values per scale of int8 and int4, 0 = 32
	CacheDir     string // derived files of this very content; created when missing
	Threads      int    // 0 = physical cores
	Context      int    // tokens served, 0 = what Capacity says
	Slots        int    // sequences decoded at the same time, 0 = what Capacity says
	Adapters     bool   // requests may name adapters; costs a little in every step
	Progress     func(done, total int64)
	Log          *slog.Logger
	Now          func() time.Time // for templates that print a date
}

// Model is a loaded decoder; see the package comment for its goroutines.
type Model struct {
	info       engine.ModelInfo
	tokenizer  *token.Tokenizer
	template   *prompt.Template // nil when the model has none
	defaults   sample.Params
	eos        []int32
	bosText    string
	eosText    string
	vocabulary int
	longest    int // bytes of the longest token
	now        func() time.Time

	batch   *batch
	rows    *kv.Rows[*sequence]
	wake    chan struct{}
	stop    context.CancelFunc
	stopped chan struct{}

	mu      sync.Mutex // protects fields below
	waiting []*sequence
	closed  bool
}

// prefillChunk is the most prompt tokens that one step reads.
const prefillChunk = 512

// Load reads a model directory, compiles it on rt (from the cache when that is
// current) and starts its loop. Close stops it.
func Load(ctx context.Context, rt compute.Runtime, opt Options) (*Model, error) {
	fsys := os.DirFS(opt.Dir)
	fam, err := family.Open(fsys)
	if err != nil {
		return nil, err
	}
	m := &Model{now: opt.Now, wake: make(chan struct{}, 1), stopped: make(chan struct{})}
	if err := m.readText(fsys, fam.Decoder()); err != nil {
		return nil, err
	}
	contextLength, slots := capacity(fam.Decoder(), opt)
	opt.Slots = slots
	program, parameters, err := compile(ctx, rt, fam, contextLength, opt)
	if err != nil {
		return nil, err
	}
	m.batch, err = newBatch(rt, program, fam.Decoder(), contextLength, opt)
	if err != nil {
		return nil, errors.Join(err, program.Close())
	}
	m.rows = kv.New[*sequence](slots)
	d := fam.Decoder()
	m.info = engine.ModelInfo{
		Name: opt.Name, Architecture: d.Architecture, Quantization: string(opt.Quantization), ContextLength: contextLength,
		Vocabulary: m.vocabulary, Parameters: parameters, Chat: m.template != nil, Slots: slots, Adapters: opt.Adapters,
	}
	loopCtx, stop := context.WithCancel(context.Background())
	m.stop = stop
	go m.loop(loopCtx)
	return m, nil
}

// capacity is what the options ask for, within what the model can do.
func capacity(d family.Decoder, opt Options) (contextLength, slots int) {
	contextLength, slots = Capacity(d, DefaultKVBudget)
	if opt.Context > 0 {
		contextLength = min(opt.Context, d.ContextLength)
	}
	if opt.Slots > 0 {
		slots = min(opt.Slots, maxSlots)
	}
	return contextLength, slots
}

// readText loads tokenizer, template and generation defaults.
func (m *Model) readText(fsys fs.FS, d family.Decoder) error {
	var err error
	if m.tokenizer, err = token.LoadDir(fsys); err != nil {
		return err
	}
	m.template, err = prompt.Load(fsys)
	if err != nil && !errors.Is(err, prompt.ErrNoTemplate) {
		return err
	}
	gen, err := family.Generation(fsys)
	if err != nil {
		return err
	}
	m.defaults = defaults(gen)
	m.vocabulary = min(m.tokenizer.Size(), d.Vocabulary)
	m.longest = 1
	for id := range m.vocabulary {
		m.longest = max(m.longest, len(m.tokenizer.Bytes(int32(id))))
	}
	m.eos = d.EOS
	if id, ok := m.tokenizer.EOS(); ok {
		m.eos = append(m.eos[:len(m.eos):len(m.eos)], id)
		m.eosText, _ = m.tokenizer.Token(id)
	}
	if id, ok := m.tokenizer.BOS(); ok {
		m.bosText, _ = m.tokenizer.Token(id)
	}
	return nil
}

// Close stops the loop, ends what is running with engine.ErrUnavailable, and
// frees the program and its memory.
func (m *Model) Close() error {
	m.stop()
	<-m.stopped
	m.batch.close()
	if err := m.batch.program.Close(); err != nil {
		return fmt.Errorf("close the program: %w", err)
	}
	return nil
}
