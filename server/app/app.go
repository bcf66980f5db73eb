package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"athanor/engine"
	"athanor/engine/demo"
	"athanor/engine/host"
	"athanor/engine/ort"
	"athanor/gpu"
	"athanor/gpu/nvml"
	"athanor/server/chat"
	"athanor/server/config"
	"athanor/server/egress"
	"athanor/server/endpoints"
	"athanor/server/files"
	"athanor/server/finetunes"
	"athanor/server/identity"
	"athanor/server/jobs"
	"athanor/server/kit"
	"athanor/server/models"
	"athanor/server/rest"
	"athanor/store"
	"athanor/store/object"
	"athanor/web"
)

// DemoModel is the name of the embedded model.
const DemoModel = demo.Name

// Options are what the caller of Open decides beside the configuration.
type Options struct {
	Log *slog.Logger // nil means slog.Default()
	Kit *kit.Kit     // nil means the real clock and ids
	// Generator answers for every registered model in place of its worker; for
	// tests and for measuring the control plane alone.
	Generator engine.Generator
	// Trainer runs training jobs in place of worker processes; for tests.
	Trainer engine.Trainer
}

// App is an open appliance. Open, then Run or ServeAdmin, then Close.
type App struct {
	cfg       config.Config
	kit       kit.Kit
	db        *store.DB
	objects   object.Store
	artifacts *artifacts
	identity  *identity.Service
	models    *models.Service
	links     *rest.Links
	files     *files.Service
	finetunes *finetunes.Service
	jobs      *jobs.Runner
	host      *host.Host
	gate      *egress.Gate    // the way out of the machine
	trackers  *trackers       // of running jobs
	plans     plans           // what the workers of models will need
	gpus      *nvml.Inventory // nil without a driver
	library   string
	noLibrary error // why library is ""
	metrics   *metrics
	mock      engine.Generator
	trainer   engine.Trainer // for the jobs of slices; see train.go
	firstKey  string
	server    *rest.Server
	importing chan struct{} // holds a value while an import runs
	replacing chan struct{} // holds a value while a worker is replaced; see lease.go

	drainOnce sync.Once
	drainTime context.Context // of the shutdown, see drain
	drainEnd  context.CancelFunc
	closeOnce sync.Once
	closeErr  error
}

// Open opens the data directory, creating what is missing, and wires
// everything; nothing listens yet. On a fresh directory FirstKey has the key.
func Open(ctx context.Context, cfg config.Config, opt Options) (_ *App, err error) {
	if opt.Log == nil {
		opt.Log = slog.Default()
	}
	// Workers are told paths below it.
	if cfg.Data, err = filepath.Abs(cfg.Data); err != nil {
		return nil, err
	}
	a := &App{cfg: cfg, kit: kit.New(opt.Log), mock: opt.Generator, importing: make(chan struct{}, 1), replacing: make(chan struct{}, 1)}
	if opt.Kit != nil {
		a.kit = *opt.Kit
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, a.Close())
		}
	}()
	if a.gate, err = egress.New(cfg.AllowEgress, a.kit.Log); err != nil {
		return nil, err
	}
	a.trackers = newTrackers(a.gate)
	if err := cfg.EnsureData(); err != nil {
		return nil, err
	}
	if err := a.openStores(ctx); err != nil {
		return nil, err
	}
	a.identity = identity.New(a.kit, a.db)
	if _, a.firstKey, err = a.identity.Bootstrap(ctx); err != nil {
		return nil, fmt.Errorf("first start: %w", err)
	}
	a.models = models.New(a.kit, a.db)
	if err := a.openHost(ctx); err != nil {
		return nil, err
	}
	a.trainer = a.newTrainer(opt.Trainer)
	if err := a.openJobs(ctx); err != nil {
		return nil, err
	}
	a.metrics = newMetrics(a.host)
	if err := a.recoverImports(ctx); err != nil {
		a.kit.Log.Warn("not everything that a killed import left behind is gone, the next start tries again", "error", err)
	}
	if err := a.ensureDemo(ctx); err != nil {
		return nil, err
	}
	if a.server, err = a.newServer(a.identity, a.Ops()); err != nil {
		return nil, err
	}
	return a, a.jobs.Start(ctx)
}

// openJobs makes the slices that have jobs, and the runner of all jobs, which
// begins to work at the end of Open.
func (a *App) openJobs(ctx context.Context) (err error) {
	if a.links, err = files.Links(ctx, a.kit, a.db); err != nil {
		return err
	}
	a.files = files.New(a.kit, a.db, a.objects, a.links, files.Limits{})
	if err := a.files.Sweep(ctx); err != nil {
		return fmt.Errorf("sweep files: %w", err)
	}
	if a.finetunes, err = a.newFineTunes(ctx); err != nil {
		return err
	}
	if a.jobs, err = jobs.New(a.kit, a.db, slices.Concat(a.files.Kinds(), a.finetunes.Kinds())...); err != nil {
		return err
	}
	a.files.Use(a.jobs)
	a.finetunes.Use(a.jobs)
	return nil
}

func (a *App) openStores(ctx context.Context) (err error) {
	a.db, err = store.Open(a.cfg.Database(), store.Options{})
	if errors.Is(err, store.ErrLocked) {
		return fmt.Errorf("another process has %s open; is a server running?", a.cfg.Data)
	}
	if err != nil {
		return err
	}
	if s := a.cfg.S3; s.Endpoint != "" {
		a.objects, err = object.OpenS3(ctx, object.S3Config{
			Endpoint: s.Endpoint, Bucket: s.Bucket, Prefix: s.Prefix, Region: s.Region,
			AccessKey: s.AccessKey, SecretKey: s.SecretKey, Insecure: s.Insecure,
		})
	} else {
		a.objects, err = object.OpenLocal(a.cfg.Objects())
	}
	a.artifacts = &artifacts{objects: a.objects, cache: a.cfg.Cache()}
	return err
}

// openHost finds the devices and the library. A missing library does not stop
// the control plane: it makes it not ready, and says why.
func (a *App) openHost(ctx context.Context) error {
	inventory := gpu.All{gpu.NewHost()}
	if n, err := nvml.Open(); err == nil {
		a.gpus = n
		inventory = append(inventory, n)
	}
	devices, err := inventory.Devices(ctx)
	if err != nil {
		a.kit.Log.Warn("not every device answers", "error", err)
	}
	if a.library, a.noLibrary = ort.Locate(a.cfg.ONNXRuntime, a.cfg.Data); a.noLibrary != nil && a.mock == nil {
		a.kit.Log.Error("no model can be loaded", "error", a.noLibrary)
	}
	a.host, err = host.New(host.Config{
		Args:   func(host.Spec) []string { return []string{"worker", "--library", a.library} },
		Env:    config.WorkerEnv(),
		RunDir: a.cfg.Run(), Ledger: gpu.NewLedger(devices...), KeepAlive: time.Duration(a.cfg.KeepAlive),
		DrainTimeout: time.Duration(a.cfg.Drain), Log: a.kit.Log,
		Inventory: inventory, TrainingJobs: a.cfg.TrainingJobs, TrainMemory: int64(a.cfg.Memory),
		TrainStop: time.Duration(a.cfg.Drain) / 2,
	})
	return err
}

// FirstKey is the admin key that Open made, "" unless the directory was fresh.
func (a *App) FirstKey() string { return a.firstKey }

// Ops is the table of all operations of the public API.
func (a *App) Ops() []rest.Op {
	var ops []rest.Op
	ops = append(ops, a.identity.Ops()...)
	ops = append(ops, a.models.Ops()...)
	ops = append(ops, endpoints.New(a.models, "athanor").Ops()...)
	ops = append(ops, a.files.Ops()...)
	ops = append(ops, a.finetunes.Ops()...)
	ops = append(ops, chat.New(a.kit, a, a.metrics).Ops()...)
	return ops
}

func (a *App) newServer(auth rest.Authenticator, ops []rest.Op) (*rest.Server, error) {
	return rest.New(rest.Config{
		Ops: ops, Auth: auth, Kit: a.kit, Links: a.links, Observe: a.metrics.observe, MapError: mapError,
		Ready: a.ready, Metrics: a.metrics.write, Page: web.Index(),
		// The rest of the time is for cut streams and for the workers.
		Limits: rest.Limits{Drain: time.Duration(a.cfg.Drain) * 3 / 4},
	})
}

// ready says why the appliance cannot serve: the store does not answer, or no
// model can ever be loaded.
func (a *App) ready(context.Context) error {
	if err := errors.Join(a.db.View(func(*store.Tx) error { return nil }), a.db.Present()); err != nil {
		a.kit.Log.Error("not ready", "error", err)
		return errors.New("the data directory does not answer; the log says why")
	}
	if a.noLibrary != nil && a.mock == nil {
		return errors.New("ONNX Runtime was not found; athanor doctor says where it was looked for")
	}
	return nil
}

// drain is the time that a shutdown has, as a context; it begins with the first
// call and is one for all that has to end: requests, jobs and workers.
func (a *App) drain() context.Context {
	a.drainOnce.Do(func() {
		a.drainTime, a.drainEnd = context.WithTimeout(context.Background(), time.Duration(a.cfg.Drain))
	})
	return a.drainTime
}

// Close ends workers and closes everything; it may be called more than once.
func (a *App) Close() error {
	a.closeOnce.Do(func() {
		a.drain()
		defer a.drainEnd()
		var errs []error
		if a.jobs != nil {
			a.jobs.Stop()
		}
		if a.trackers != nil {
			a.trackers.wait(a.drain())
		}
		if a.host != nil {
			errs = append(errs, a.host.Close(a.drain()))
		}
		if a.gpus != nil {
			errs = append(errs, a.gpus.Close())
		}
		if a.identity != nil {
			errs = append(errs, a.identity.Close())
		}
		if a.objects != nil {
			errs = append(errs, a.objects.Close())
		}
		if a.db != nil {
			errs = append(errs, a.db.Close())
		}
		a.closeErr = errors.Join(errs...)
	})
	return a.closeErr
}
