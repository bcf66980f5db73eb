package finetunes

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"athanor/engine"
	"athanor/server/jobs"
	"athanor/store"
	"athanor/store/resource"
)

// run is a job while this process works on it.
type run struct {
	s        *Service
	id       resource.FineTuneID
	f        *resource.FineTune // as it was taken up; what never changes is read here
	secrets  resource.FineTuneSecrets
	recorder *recorder
	tracking TrackerSession // nil without a tracker
	hubPoint string         // commit of the hub repository that the job starts from
}

func (s *Service) newRun(_ context.Context, f *resource.FineTune) (*run, error) {
	r := &run{s: s, id: f.ID, f: f, recorder: &recorder{s: s, id: f.ID}}
	err := s.DB.View(func(tx *store.Tx) error {
		secrets, err := store.FineTuneSecrets.Get(tx, string(f.ID))
		if err == nil {
			r.secrets = *secrets
		}
		return notFound(err)
	})
	return r, err
}

// update changes the record of the job, with everything that waits to be written.
// change may run more than once. A job that is to be cancelled is not changed:
// update returns jobs.ErrCancelled.
func (r *run) update(ctx context.Context, change func(*store.Tx, *resource.FineTune, time.Time) error) error {
	return r.recorder.write(ctx, func(tx *store.Tx, f *resource.FineTune, now time.Time) error {
		if f.Status == resource.FineTuneCancelRequested || f.Status.Final() {
			return jobs.ErrCancelled
		}
		return change(tx, f, now)
	}, true)
}

// report writes an event, once in the life of the job by the name key.
func (r *run) report(ctx context.Context, key string, e *resource.FineTuneEvent) error {
	return r.update(ctx, func(tx *store.Tx, f *resource.FineTune, now time.Time) error { return note(tx, f, key, e, now) })
}

// note writes an event unless it was written before under the name key.
func note(tx *store.Tx, f *resource.FineTune, key string, e *resource.FineTuneEvent, now time.Time) error {
	if !f.Report(key) {
		return nil
	}
	e.At = now
	if e.Level == "" {
		e.Level = levelInfo
	}
	return appendEvent(tx, f.ID, e)
}

// simple reports an event that has only words, under the name of its type.
func (r *run) simple(ctx context.Context, typ, message string) error {
	return r.report(ctx, typ, &resource.FineTuneEvent{Type: typ, Message: message})
}

// enter brings the job to a state that it may be in already, with an event.
func (r *run) enter(ctx context.Context, next resource.FineTuneStatus, typ, message string) error {
	return r.update(ctx, func(tx *store.Tx, f *resource.FineTune, now time.Time) error {
		if later(f.Status, next) {
			return nil
		}
		if f.Status != next {
			if err := f.To(next, now); err != nil {
				return err
			}
		}
		return note(tx, f, typ, &resource.FineTuneEvent{Type: typ, Message: message}, now)
	})
}

// later reports whether a job in the state has is behind next already: what comes
// after the training may be done again without going back.
func later(has, next resource.FineTuneStatus) bool {
	order := map[resource.FineTuneStatus]int{
		resource.FineTuneQueued: 1, resource.FineTuneRunning: 2, resource.FineTuneCompressing: 3, resource.FineTuneUploading: 4,
	}
	return order[has] > order[next]
}

// attempt does the whole job, or what is left of it.
func (r *run) attempt(ctx context.Context) error {
	if err := r.enter(ctx, resource.FineTuneRunning, eventStart, "Job started"); err != nil {
		return err
	}
	spec, err := r.prepare(ctx)
	if err != nil {
		return err
	}
	result, err := r.s.Trainer.Train(ctx, spec, func(e *engine.TrainEvent) error { return r.hear(ctx, e) })
	if err := errors.Join(err, r.recorder.flush(context.WithoutCancel(ctx))); err != nil {
		return err
	}
	// An engine that has nothing left to train may say no more than the result.
	err = r.enter(ctx, resource.FineTuneCompressing, eventCompressing, "Merging and writing the weights")
	if err == nil {
		err = r.simple(ctx, eventCompressed, "The weights are written")
	}
	if err == nil {
		err = r.enter(ctx, resource.FineTuneUploading, eventUploading, "Storing the results")
	}
	if err != nil {
		return err
	}
	return r.publish(ctx, spec, result)
}

// spec is the job in the words of the engine.
func (r *run) spec(modelDir, adapterDir string) *engine.TrainSpec {
	f, p, dir := r.f, &r.f.Params, r.s.dir(r.id)
	spec := &engine.TrainSpec{
		Job: string(f.ID), ModelName: f.Base.Name, ModelDir: modelDir, AdapterDir: adapterDir, WorkDir: filepath.Join(dir, "work"),
		TrainFile: dataFile(dir, roleTraining, &f.TrainFile), Packing: p.Packing, MaxSeqLength: p.MaxSeqLength, Epochs: p.Epochs,
		Checkpoints: p.Checkpoints, Evals: p.Evals, BatchSize: p.BatchSize, GradientAccumulation: p.GradientAccumulationSteps,
		LearningRate: p.LearningRate, Schedule: engine.Schedule{Type: p.Scheduler.Type, MinLRRatio: p.Scheduler.MinLRRatio, NumCycles: p.Scheduler.NumCycles},
		WarmupRatio: p.WarmupRatio, MaxGradNorm: p.MaxGradNorm, WeightDecay: p.WeightDecay, Seed: uint64(p.Seed),
	}
	if p.HubModel != "" {
		spec.ModelName = p.HubModel
	}
	if f.EvalFile != nil {
		eval := dataFile(dir, roleValidation, f.EvalFile)
		spec.EvalFile = &eval
	}
	if e := p.EarlyStopping; e != nil {
		spec.EarlyStopping = &engine.EarlyStopping{Patience: e.Patience, MinDelta: e.MinDelta, WarmupEvals: e.WarmupEvals}
	}
	if d := p.DPO; d != nil {
		spec.DPO = &engine.DPO{
			Beta: d.Beta, RPOAlpha: d.RPOAlpha, NormalizeByLength: d.NormalizeByLength, ReferenceFree: d.ReferenceFree, SimPOGamma: d.SimPOGamma,
		}
	} else {
		spec.SFT = &engine.SFT{TrainOnInputs: p.SFT.TrainOnInputs}
	}
	if l := p.LoRA; l != nil {
		spec.LoRA = &engine.LoRA{Rank: l.Rank, Alpha: float64(l.Alpha), Dropout: l.Dropout, Modules: l.Modules}
	}
	return spec
}

// hear takes one piece of progress from the engine.
func (r *run) hear(ctx context.Context, e *engine.TrainEvent) error {
	switch e.Type {
	case engine.TrainPlanned:
		return r.planned(ctx, e.Plan)
	case engine.TrainStarted:
		return r.update(ctx, func(tx *store.Tx, f *resource.FineTune, now time.Time) error {
			p := f.Progress
			return note(tx, f, eventTrainingStart, &resource.FineTuneEvent{
				Type: eventTrainingStart, Message: fmt.Sprintf("Training started: %d steps", p.TotalSteps), Parameters: p.Parameters,
				Tokens: p.Tokens, TotalSteps: p.TotalSteps,
			}, now)
		})
	case engine.TrainStep, engine.TrainEval:
		return r.measured(e)
	case engine.TrainCheckpoint:
		return r.checkpoint(ctx, e)
	case engine.TrainEpoch:
		return r.epoch(ctx, e)
	case engine.TrainEarlyStopped:
		return r.earlyStopped(ctx, e)
	case engine.TrainFinished:
		return r.finished(ctx, e)
	case engine.TrainWarning:
		return r.warn(ctx, e.Message)
	}
	return fmt.Errorf("the engine reports %q, which is not known", e.Type)
}

// planned notes what the data and the machine make of the job.
func (r *run) planned(ctx context.Context, p *engine.TrainPlan) error {
	if p == nil {
		return errors.New("the engine reports a plan without one")
	}
	err := r.update(ctx, func(_ *store.Tx, f *resource.FineTune, _ time.Time) error {
		q := &f.Progress
		q.TotalSteps, q.Parameters, q.Trainable, q.BatchSize, q.EvalEvery = p.Steps, p.Parameters, p.Trainable, p.BatchSize, p.EvalEvery
		q.Tokens = p.TrainTokens * int64(f.Params.Epochs)
		q.MemoryBytes, q.TruncatedSamples, q.QueuedBecause = p.MemoryBytes, p.Truncated, ""
		return nil
	})
	if err == nil && p.Truncated > 0 {
		err = r.warn(ctx, fmt.Sprintf("%d of %d samples are longer than %d tokens and are cut off there", p.Truncated, p.TrainSamples+p.EvalSamples, p.MaxSeqLength))
	}
	if err == nil {
		err = r.archive(ctx, p.TokenizedDir)
	}
	if err == nil {
		r.track(ctx)
	}
	return err
}

// measured notes a row of metrics.
func (r *run) measured(e *engine.TrainEvent) error {
	now := r.s.Kit.Now()
	row := resource.FineTuneMetrics{Job: r.id, Step: e.Step, Eval: e.Type == engine.TrainEval, At: now, Values: e.Metrics}
	if r.tracking != nil {
		r.tracking.Log(e.Step, now, e.Metrics)
	}
	if row.Eval {
		return r.recorder.add(row, nil)
	}
	step, left := e.Step, e.SecondsLeft
	return r.recorder.add(row, func(p *resource.FineTuneProgress) {
		p.Step, p.ExpectedAt = step, time.Time{}
		if left > 0 {
			p.ExpectedAt = now.Add(time.Duration(left * float64(time.Second)))
		}
	})
}

func (r *run) epoch(ctx context.Context, e *engine.TrainEvent) error {
	return r.update(ctx, func(tx *store.Tx, f *resource.FineTune, now time.Time) error {
		if e.Epoch <= f.Progress.EpochsCompleted {
			return nil
		}
		f.Progress.EpochsCompleted = e.Epoch
		return appendEvent(tx, f.ID, &resource.FineTuneEvent{
			Type: eventEpoch, Level: levelInfo, Message: fmt.Sprintf("Epoch %d of %d completed", e.Epoch, f.Params.Epochs), Step: e.Step, At: now,
		})
	})
}

func (r *run) earlyStopped(ctx context.Context, e *engine.TrainEvent) error {
	return r.update(ctx, func(tx *store.Tx, f *resource.FineTune, now time.Time) error {
		p := &f.Progress
		p.EarlyStopped, p.BestStep, p.BestMetric = true, e.BestStep, e.BestMetric
		if e.BestMetric == nil {
			p.BestStep = e.Step
		}
		message := fmt.Sprintf("Stopped at step %d: the validation loss did not improve any more", e.Step)
		if e.BestMetric != nil {
			message += fmt.Sprintf("; the best was %.4g at step %d", *e.BestMetric, p.BestStep)
		}
		best := p.BestStep
		return note(tx, f, eventEarlyStopped, &resource.FineTuneEvent{
			Type: eventEarlyStopped, Message: message, Step: e.Step, BestStep: &best, BestMetric: p.BestMetric,
		}, now)
	})
}

func (r *run) finished(ctx context.Context, e *engine.TrainEvent) error {
	err := r.report(ctx, eventTrainingComplete, &resource.FineTuneEvent{
		Type: eventTrainingComplete, Message: fmt.Sprintf("Training completed after %d steps", e.Step), Step: e.Step,
	})
	if err != nil {
		return err
	}
	return r.enter(ctx, resource.FineTuneCompressing, eventCompressing, "Merging and writing the weights")
}

// maxWarnings bounds the warnings of a job.
const maxWarnings = 100

// warn reports a warning, the same words once.
func (r *run) warn(ctx context.Context, message string) error {
	return r.update(ctx, func(tx *store.Tx, f *resource.FineTune, now time.Time) error {
		if len(f.Reported) >= maxWarnings {
			return nil
		}
		return note(tx, f, eventWarning+" "+clip(message, 200), &resource.FineTuneEvent{Type: eventWarning, Level: levelWarning, Message: message}, now)
	})
}

// trackerTime bounds what a note from the tracker may wait for the store.
const trackerTime = 10 * time.Second

// track begins to report to the experiment tracker, once in a run.
func (r *run) track(ctx context.Context) {
	if r.secrets.TrackerKey == "" || r.s.Tracker == nil || r.tracking != nil {
		return
	}
	t := r.f.Params.Tracker
	// The tracker calls from goroutines of its own, at times of its own.
	tell := func(do func(ctx context.Context) error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), trackerTime)
		defer cancel()
		if err := do(ctx); err != nil {
			r.s.Kit.Log.Warn("a note of the experiment tracker is lost", "job", r.id, "error", err)
		}
	}
	name := t.Name
	if name == "" {
		name = string(r.id)
	}
	r.tracking = r.s.Tracker.Start(ctx, TrackerRun{
		ID: string(r.id), APIKey: r.secrets.TrackerKey, BaseURL: t.BaseURL, Project: t.Project, Name: name, Entity: t.Entity, Config: r.config(),
		Started: func(url string) {
			tell(func(ctx context.Context) error {
				return r.update(ctx, func(tx *store.Tx, f *resource.FineTune, now time.Time) error {
					f.TrackerURL = url
					return note(tx, f, eventTracker, &resource.FineTuneEvent{Type: eventTracker, Message: "Metrics are shown at " + url, TrackerURL: url}, now)
				})
			})
		},
		Failed: func(reason string) {
			tell(func(ctx context.Context) error { return r.warn(ctx, "The experiment tracker gets no metrics: "+reason) })
		},
	})
}

// session ends what is reported to the tracker.
func (r *run) session(exitCode int) {
	if r.tracking != nil {
		r.tracking.Finish(exitCode == 0)
	}
}
