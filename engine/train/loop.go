package train

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"athanor/engine"
	"athanor/engine/train/data"
	"athanor/engine/train/optim"
)

// batches are the passes over a dataset: a pure function of epoch and index,
// both from 0. data.Sampler is the real one.
type batches interface {
	Batches() int // of an epoch
	Batch(epoch, index int) (*data.Batch, error)
}

// loop makes the steps of a job.
type loop struct {
	spec      *engine.TrainSpec
	times     timetable
	model     model
	optimizer *optim.AdamW
	objective objective
	train     batches
	eval      batches // nil without evaluations
	store     *store

	checkpoints string // folder
	// export writes the weights as they are now for users, as a whole folder or
	// not at all.
	export func(ctx context.Context, dir string) error
	emit   func(*engine.TrainEvent) error

	now       func() time.Time
	saveEvery time.Duration

	at        state     // after the last complete step
	savedStep int       // of the newest state on disk
	nextSave  time.Time // when a state is due
	began     time.Time
	beganStep int
	passed    int64         // tokens of the steps of this process
	busy      time.Duration // in these steps, without evaluations and saving
}

// cheapState is the size up to which a state is saved when the job is told to
// go: it takes less than a second.
const cheapState = 256 << 20 // bytes

// Prefixes of metrics.
const (
	trainPrefix = "train/"
	evalPrefix  = "eval/"
)

// run makes all steps that are left. Afterwards the model has the weights of
// the last step, or of the best evaluation when the rule ended the job.
func (l *loop) run(ctx context.Context) error {
	l.began, l.beganStep, l.savedStep = l.now(), l.at.Step, l.at.Step
	l.nextSave = l.began.Add(l.saveEvery)
	if l.at.Step == 0 {
		if err := l.emit(&engine.TrainEvent{Type: engine.TrainStarted, Message: fmt.Sprintf("Training of %d steps begins", l.times.steps)}); err != nil {
			return err
		}
	}
	for l.at.Step < l.times.steps && !l.at.Stopped {
		if err := l.step(ctx); err != nil {
			return err
		}
	}
	if err := l.selectBest(ctx); err != nil {
		return err
	}
	return l.emit(&engine.TrainEvent{Type: engine.TrainFinished, Step: l.at.Step, Message: fmt.Sprintf("Training ended after %d steps", l.at.Step)})
}

// restore takes up the newest state on disk, if there is one.
func (l *loop) restore() error {
	st, damaged, found, err := l.store.restore(l.optimizer.States())
	if err != nil {
		return err
	}
	if found {
		l.at = st
	}
	for _, name := range damaged {
		e := &engine.TrainEvent{Type: engine.TrainWarning, Message: fmt.Sprintf("The saved state %s is damaged; training goes on from step %d", name, l.at.Step)}
		if err := l.emit(e); err != nil {
			return err
		}
	}
	return nil
}

// step makes the next step with all that is due at it.
func (l *loop) step(ctx context.Context) error {
	from := l.now()
	next := l.at
	next.Step++
	epoch, first, last := l.times.passes(next.Step)
	t, err := l.gradients(ctx, epoch, first, last)
	if err != nil {
		return l.leave(ctx, err)
	}
	next.Tokens += t.tokens
	metrics, err := l.update(ctx, next.Step, t)
	if err != nil {
		return err
	}
	l.passed, l.busy = l.passed+t.tokens, l.busy+l.now().Sub(from)
	if l.busy > 0 {
		metrics["train/tokens_per_second"] = float64(l.passed) / l.busy.Seconds()
	}
	if err := l.emit(&engine.TrainEvent{Type: engine.TrainStep, Step: next.Step, Metrics: metrics, SecondsLeft: l.secondsLeft(next.Step)}); err != nil {
		return err
	}
	evaluate, checkpoint := l.times.evals[next.Step], l.times.checkpoints[next.Step]
	if evaluate {
		if err := l.evaluate(ctx, &next); err != nil {
			return err
		}
	}
	if checkpoint && !next.Stopped { // else the selected weights become the last one
		if err := l.checkpoint(ctx, next.Step, next.Step == l.times.steps); err != nil {
			return err
		}
	}
	if next.Step%l.times.epoch == 0 {
		e := &engine.TrainEvent{Type: engine.TrainEpoch, Step: next.Step, Epoch: epoch + 1, Message: fmt.Sprintf("Epoch %d is complete", epoch+1)}
		if err := l.emit(e); err != nil {
			return err
		}
	}
	if next.Stopped {
		if err := l.emit(stoppedEvent(&next)); err != nil {
			return err
		}
	}
	l.at = next
	if evaluate || checkpoint || next.Step == l.times.steps || !l.now().Before(l.nextSave) {
		return l.save()
	}
	return nil
}

// gradients runs the passes of a step. On an error the weights are untouched.
func (l *loop) gradients(ctx context.Context, epoch, first, last int) (tally, error) {
	var total tally
	l.model.ZeroGrad()
	for i := first; i < last; i++ {
		if err := ctx.Err(); err != nil {
			return total, err
		}
		b, err := l.train.Batch(epoch, i)
		if err != nil {
			return total, err
		}
		t, err := l.objective.learn(ctx, l.model, b)
		if err != nil {
			return total, err
		}
		total.add(t)
	}
	return total, nil
}

// update changes the weights and returns the metrics of the step.
func (l *loop) update(ctx context.Context, step int, t tally) (map[string]float64, error) {
	share := 0.0 // of a step in which nothing carries loss
	if t.count > 0 {
		share = 1 / t.count
	}
	norm := l.optimizer.Norm() * share
	if !finite(norm) {
		return nil, refuse("learning_rate", "is too high: at step %d the gradient is no finite number any more", step)
	}
	rate := l.spec.LearningRate * rateAt(l.spec.Schedule, l.spec.WarmupRatio, l.times.steps, step)
	// Half an update would be neither this step nor the one before.
	if err := l.optimizer.Step(context.WithoutCancel(ctx), step, rate, share*optim.Clip(norm, l.spec.MaxGradNorm)); err != nil {
		return nil, err
	}
	metrics := map[string]float64{
		"train/global_step":   float64(step),
		"train/loss":          t.mean(),
		"train/learning_rate": rate,
		"train/grad_norm":     norm,
		"train/epoch":         float64(step) / float64(l.times.epoch),
		"train/tokens":        float64(t.tokens),
	}
	l.objective.report(t, trainPrefix, metrics)
	return onlyFinite(metrics), nil
}

// evaluate measures the evaluation set and tells the early-stopping rule.
func (l *loop) evaluate(ctx context.Context, next *state) error {
	var total tally
	for i := range l.eval.Batches() {
		if err := ctx.Err(); err != nil {
			return err
		}
		b, err := l.eval.Batch(0, i)
		if err != nil {
			return err
		}
		t, err := l.objective.measure(ctx, l.model, b)
		if err != nil {
			return err
		}
		total.add(t)
	}
	metrics := map[string]float64{"eval/global_step": float64(next.Step), "eval/loss": total.mean()}
	l.objective.report(total, evalPrefix, metrics)
	if err := l.emit(&engine.TrainEvent{Type: engine.TrainEval, Step: next.Step, Metrics: onlyFinite(metrics)}); err != nil {
		return err
	}
	if l.spec.EarlyStopping == nil {
		return nil
	}
	improved, stop := next.Stopping.observe(*l.spec.EarlyStopping, next.Step, total.mean())
	next.Stopped = stop
	if improved {
		return l.store.keepBest(next.Step, l.optimizer.States())
	}
	return nil
}

// selectBest puts the weights of the best evaluation into the model when the
// rule ended the job; they are its final checkpoint.
func (l *loop) selectBest(ctx context.Context) error {
	if !l.at.Stopped {
		return nil
	}
	step := l.at.selected()
	if step != l.at.Step {
		if err := l.store.restoreBest(step, l.optimizer.States()); err != nil {
			return err
		}
	}
	return l.checkpoint(ctx, step, true)
}

// selected is the step whose weights are the result.
func (s *state) selected() int {
	if s.Stopped && s.Stopping.Best != nil {
		return s.Stopping.BestStep
	}
	return s.Step
}

func stoppedEvent(s *state) *engine.TrainEvent {
	e := &engine.TrainEvent{Type: engine.TrainEarlyStopped, Step: s.Step, BestStep: s.selected(), BestMetric: s.Stopping.Best}
	e.Message = fmt.Sprintf("The validation loss stopped improving; training ends at step %d", s.Step)
	if s.Stopping.Best != nil {
		e.Message += fmt.Sprintf(" with the weights of step %d, whose loss is %.4f", s.Stopping.BestStep, *s.Stopping.Best)
	}
	return e
}

// checkpoint makes the weights as they are available to users. A folder that is
// there is whole, and holds the same.
func (l *loop) checkpoint(ctx context.Context, step int, final bool) error {
	dir := filepath.Join(l.checkpoints, "step-"+strconv.Itoa(step))
	if !exists(dir) {
		if err := l.export(ctx, dir); err != nil {
			return err
		}
	}
	return l.emit(&engine.TrainEvent{
		Type: engine.TrainCheckpoint, Step: step, Message: fmt.Sprintf("Checkpoint of step %d saved", step),
		Checkpoint: &engine.Checkpoint{Step: step, Dir: dir, Final: final},
	})
}

// save writes the state. A machine with a slow disk spends at most a tenth of
// its time on it.
func (l *loop) save() error {
	from := l.now()
	if err := l.store.save(l.at, l.optimizer.States()); err != nil {
		return err
	}
	l.savedStep = l.at.Step
	l.nextSave = l.now().Add(max(l.saveEvery, 10*l.now().Sub(from)))
	return nil
}

// leave ends a job whose weights are those of its last complete step. When it
// was told to go, these are kept if that is quick.
func (l *loop) leave(ctx context.Context, err error) error {
	size := 0
	for _, t := range l.optimizer.States() {
		size += 3 * len(t.Value)
	}
	if ctx.Err() == nil || size > cheapState || l.savedStep == l.at.Step {
		return err
	}
	return errors.Join(err, l.save())
}

// secondsLeft follows from the average of this process.
func (l *loop) secondsLeft(step int) float64 {
	return l.now().Sub(l.began).Seconds() / float64(step-l.beganStep) * float64(l.times.steps-step)
}

// onlyFinite leaves out what JSON cannot carry.
func onlyFinite(metrics map[string]float64) map[string]float64 {
	for name, v := range metrics {
		if !finite(v) {
			delete(metrics, name)
		}
	}
	return metrics
}
