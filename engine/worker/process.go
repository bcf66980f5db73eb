package worker

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"athanor/engine"
)

// Spec says which model a worker loads and what it may use.
type Spec struct {
	Name         string `json:"name"`                   // ModelInfo.Name
	Dir          string `json:"dir"`                    // folder of the model
	Quantization string `json:"quantization,omitempty"` // none, int8 or int4; "" leaves it to the model
	CacheDir     string `json:"cache_dir,omitempty"`    // folder for derived files, "" for none
	Device       string `json:"device,omitempty"`       // gpu.Device.ID, "" is the CPU
	Threads      int    `json:"threads,omitempty"`      // 0 means physical cores
	MemoryBytes  int64  `json:"memory_bytes,omitempty"` // memory planned for it, 0 means unknown
	Slots        int    `json:"slots,omitempty"`        // sequences at the same time, 0 leaves it to the engine
	Context      int    `json:"context,omitempty"`      // tokens per sequence, 0 means the model's own
	Adapters     bool   `json:"adapters,omitempty"`     // requests may name adapters
}

// Launch is what a parent tells its child on standard input.
type Launch struct {
	Socket       string        `json:"socket"`
	DrainTimeout time.Duration `json:"drain_timeout"` // nanoseconds
	Spec         Spec          `json:"spec"`
	// Train makes the child run one training job instead of serving; the fields
	// above then have no meaning.
	Train *engine.TrainSpec `json:"train,omitempty"`
}

// WriteTo writes l as the one line that a child expects.
func (l Launch) WriteTo(w io.Writer) (int64, error) {
	line, err := json.Marshal(l)
	if err != nil {
		return 0, fmt.Errorf("encode launch: %w", err)
	}
	n, err := w.Write(append(line, '\n'))
	return int64(n), err
}

// announcement is what a child says on descriptor 3, once.
type announcement struct {
	Ready *engine.ModelInfo `json:"ready,omitempty"`
	Error *wireError        `json:"error,omitempty"`
}

// LoadError is a child's own account of why it could not load its model.
type LoadError struct{ Message string }

func (e *LoadError) Error() string { return "load model: " + e.Message }

// AwaitReady reads a child's announcement from r and returns a client of the
// worker at socket. A child that could not load gives *LoadError; one that died
// gives io.ErrUnexpectedEOF. The caller bounds the time by closing r.
func AwaitReady(r io.Reader, socket string) (*Client, error) {
	line, err := readLine(bufio.NewReader(io.LimitReader(r, maxControl)), maxControl)
	if err != nil {
		return nil, fmt.Errorf("wait for the worker: %w", err)
	}
	var a announcement
	if err := json.Unmarshal(line, &a); err != nil {
		return nil, fmt.Errorf("wait for the worker: bad announcement: %w", err)
	}
	switch {
	case a.Error != nil:
		return nil, &LoadError{Message: a.Error.Message}
	case a.Ready != nil:
		return newClient(socket, *a.Ready), nil
	default:
		return nil, errors.New("wait for the worker: empty announcement")
	}
}

// Loader loads the model of a worker. A result that is also an io.Closer is
// closed after the last request.
type Loader func(ctx context.Context, spec Spec) (engine.Generator, error)

// readyFD is where a child announces itself.
const readyFD = 3

// exitOrphan is the exit status of a child that lost its parent.
const exitOrphan = 4

// Run is the whole life of a worker process: it takes its Launch from standard
// input, loads, announces itself, serves until SIGTERM and drains; or it trains
// until the job is done or SIGTERM ends the job's context. When standard input
// ends the process exits at once.
func Run(ctx context.Context, load Loader, train TrainFunc) error {
	var st syscall.Stat_t
	if err := syscall.Fstat(readyFD, &st); err != nil || st.Mode&syscall.S_IFMT != syscall.S_IFIFO {
		return errors.New("a worker is started by its server, not by hand")
	}
	syscall.CloseOnExec(readyFD)
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM)
	defer stop()
	// A terminal's interrupt reaches the whole session; the parent decides.
	signal.Ignore(syscall.SIGINT, syscall.SIGHUP)
	c := child{in: os.Stdin, ready: os.NewFile(readyFD, "ready"), beatEvery: beatEvery, orphaned: func() { os.Exit(exitOrphan) }}
	return c.run(ctx, load, train)
}

// child is Run with its surroundings handed in.
type child struct {
	in        io.Reader
	ready     io.WriteCloser
	beatEvery time.Duration
	orphaned  func() // called when in ends
}

func (c child) run(ctx context.Context, load Loader, train TrainFunc) error {
	launch, err := c.launch()
	if err != nil {
		return c.refuse(err)
	}
	if launch.Train != nil {
		return c.train(ctx, launch.Train, train)
	}
	return c.serve(ctx, launch, load)
}

func (c child) serve(ctx context.Context, launch Launch, load Loader) (err error) {
	ln, err := Listen(launch.Socket)
	if err != nil {
		return c.refuse(err)
	}
	gen, err := load(ctx, launch.Spec)
	if err != nil {
		return errors.Join(c.refuse(err), ln.Close())
	}
	if closer, ok := gen.(io.Closer); ok {
		defer func() { err = errors.Join(err, closer.Close()) }()
	}
	info := gen.Model()
	if err := c.announce(announcement{Ready: &info}); err != nil {
		return errors.Join(err, ln.Close())
	}
	srv := &Server{Generator: gen, DrainTimeout: launch.DrainTimeout}
	return srv.Serve(ctx, ln)
}

// launch reads the first line of standard input and watches for its end.
func (c child) launch() (Launch, error) {
	var l Launch
	in := bufio.NewReader(c.in)
	line, err := readLine(in, maxControl)
	if err != nil {
		return l, fmt.Errorf("read launch: %w", err)
	}
	if err := json.Unmarshal(line, &l); err != nil {
		return l, fmt.Errorf("read launch: %w", err)
	}
	// The goroutine lives as long as the process: only its parent ends it.
	go func() {
		_, _ = io.Copy(io.Discard, in)
		c.orphaned()
	}()
	return l, nil
}

// refuse tells the parent why there will be no worker.
func (c child) refuse(err error) error {
	return errors.Join(err, c.announce(announcement{Error: toWire(err)}))
}

func (c child) announce(a announcement) error {
	line, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("announce: %w", err)
	}
	if _, err := c.ready.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("announce: %w", err)
	}
	return c.ready.Close()
}
