package finetunes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"athanor/engine"
	"athanor/server/jobs"
	"athanor/store"
	"athanor/store/resource"
)

// Forms of the weights that a job keeps beside its model.
const (
	artifactMerged  = "merged"
	artifactAdapter = "adapter"
)

// checkpoint stores a state of the weights and registers it as a model, unless it
// is that of the end, which comes with the result.
func (r *run) checkpoint(ctx context.Context, e *engine.TrainEvent) error {
	c := e.Checkpoint
	if c == nil {
		return errors.New("the engine reports a checkpoint without one")
	}
	key := fmt.Sprintf("%s %d", eventCheckpoint, c.Step)
	event := &resource.FineTuneEvent{Type: eventCheckpoint, Message: fmt.Sprintf("Checkpoint of step %d saved", c.Step), Step: c.Step}
	if c.Final {
		return r.report(ctx, key, event)
	}
	if r.reported(key) {
		return nil
	}
	m, err := r.modelOf(c.Dir, fmt.Sprintf("%s-%d", r.f.OutputName, c.Step))
	if err != nil {
		return err
	}
	err = r.s.Weights.Publish(ctx, []string{c.Dir}, func(stored []Stored) error {
		return r.update(ctx, func(tx *store.Tx, f *resource.FineTune, now time.Time) error {
			saved := resource.FineTuneCheckpoint{Step: c.Step, Revision: stored[0].Revision, Adapter: f.Params.LoRA != nil, CreatedAt: now}
			if m == nil {
				saved.Files = stored[0].Files
			} else {
				m.Files, m.Revision, m.CreatedAt = stored[0].Files, stored[0].Revision, now
				m.Lineage = r.lineage(f, nil, now)
				saved.ModelID, saved.Name = m.ID, m.Name
				if err := store.Models.Insert(tx, string(m.ID), m); err != nil {
					return err
				}
			}
			f.Checkpoints = append(f.Checkpoints, saved)
			event.Checkpoint = modelPath(saved.Revision)
			return note(tx, f, key, event, now)
		})
	})
	r.s.Models.Changed()
	return err
}

// modelOf drafts the record of weights that this job made: an adapter of the base,
// or a model of its own. It is nil for an adapter whose base is not registered.
func (r *run) modelOf(dir, name string) (*resource.Model, error) {
	adapter := r.f.Params.LoRA != nil
	if adapter && r.f.Params.HubModel != "" {
		return nil, nil
	}
	base, err := r.model(r.f.Base.ModelID, r.f.Base.Revision)
	if err != nil {
		return nil, err
	}
	m := &resource.Model{
		Type: base.Type, Architecture: base.Architecture, Quantization: base.Quantization, ContextLength: base.ContextLength,
		Parameters: base.Parameters, BaseID: base.ID,
	}
	if !adapter {
		if m, err = r.s.Weights.Describe(dir); err != nil {
			return nil, fmt.Errorf("the trained model: %w", err)
		}
		m.Quantization = base.Quantization
	}
	r.name(m, name, base)
	return m, nil
}

// name gives a draft the rest of its fields.
func (r *run) name(m *resource.Model, name string, base *resource.Model) {
	m.ID, m.EndpointID = resource.ModelID(r.s.Kit.NewID("model")), resource.EndpointID(r.s.Kit.NewID("endpoint"))
	m.ProjectID, m.Name, m.License = r.f.ProjectID, name, base.License
	m.SourceKind, m.Source = "fine-tune", string(r.id)
}

// publish stores the results and completes the job.
func (r *run) publish(ctx context.Context, spec *engine.TrainSpec, result *engine.TrainResult) error {
	for _, check := range []*engine.ExportCheck{result.Export, result.Quantized} {
		if err := r.compared(ctx, check); err != nil {
			return err
		}
	}
	if err := r.push(ctx, result); err != nil {
		return err
	}
	dirs := []string{result.ModelDir}
	if result.AdapterDir != "" {
		dirs = append(dirs, result.AdapterDir)
	}
	m, err := r.resultModel(result)
	if err != nil {
		return err
	}
	err = r.s.Weights.Publish(ctx, dirs, func(stored []Stored) error { return r.complete(ctx, m, spec, result, stored) })
	r.s.Models.Changed()
	return err
}

// resultModel drafts the model that a job is for.
func (r *run) resultModel(result *engine.TrainResult) (*resource.Model, error) {
	m, err := r.modelOf(result.ModelDir, r.f.OutputName)
	if err != nil || m != nil {
		if m != nil && m.BaseID != "" {
			m.Aliases = []string{m.Name + adapterSuffix}
		}
		return m, err
	}
	base, err := r.model(r.f.Base.ModelID, r.f.Base.Revision)
	if err != nil {
		return nil, err
	}
	if m, err = r.s.Weights.Describe(result.ModelDir); err != nil {
		return nil, fmt.Errorf("the trained model: %w", err)
	}
	m.Quantization = base.Quantization
	r.name(m, r.f.OutputName, base)
	return m, nil
}

// complete is the transaction in which a job ends well: from then on its model is
// there, and before it is not. stored are the model and, with LoRA, the adapter. A
// job that is to be cancelled completes too: the work is done.
func (r *run) complete(ctx context.Context, m *resource.Model, spec *engine.TrainSpec, result *engine.TrainResult, stored []Stored) error {
	if err := r.recorder.flush(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	return r.s.DB.Update(context.WithoutCancel(ctx), func(tx *store.Tx) error {
		now := r.s.Kit.Now()
		f, err := store.FineTunes.Get(tx, string(r.id))
		if errors.Is(err, store.ErrNotFound) {
			return errGone
		}
		if err != nil {
			return err
		}
		if f.Status.Final() {
			return jobs.ErrCancelled
		}
		out := results(m, result, stored)
		m.CreatedAt, m.Lineage = now, r.lineage(f, spec, now)
		m.Lineage.Export, m.Lineage.Quantized, m.Lineage.Artifacts = exported(result.Export), exported(result.Quantized), artifacts(out)
		if err := store.Models.Insert(tx, string(m.ID), m); err != nil {
			return fmt.Errorf("register the model: %w", err)
		}
		err = appendEvent(tx, f.ID, &resource.FineTuneEvent{
			Type: eventUploaded, Level: levelInfo, Message: "The model is stored", Model: modelPath(m.Revision), At: now,
		})
		if err != nil {
			return err
		}
		_, err = r.s.finish(tx, f.ID, resource.FineTuneCompleted, "", func(f *resource.FineTune) {
			f.Result = out
			p := &f.Progress
			p.Step, p.EpochsCompleted = result.Steps, max(p.EpochsCompleted, result.Epochs)
			if result.Tokens > 0 {
				p.Tokens = result.Tokens
			}
			if result.EarlyStopped {
				p.EarlyStopped, p.BestStep, p.BestMetric = true, out.Step, result.BestMetric
			}
		})
		return err
	})
}

// results puts the stored directories into their places: the model that is served
// gets its files, the other form is kept with the job.
func results(m *resource.Model, result *engine.TrainResult, stored []Stored) *resource.FineTuneResult {
	out := &resource.FineTuneResult{ModelID: m.ID, Steps: result.Steps, Epochs: result.Epochs, Step: result.Steps}
	if result.EarlyStopped && result.BestStep > 0 {
		out.Step = result.BestStep
	}
	served := stored[0]
	if len(stored) > 1 && m.BaseID != "" {
		served, out.Merged, out.MergedRevision = stored[1], stored[0].Files, stored[0].Revision
	} else if len(stored) > 1 {
		out.Adapter, out.AdapterRevision = stored[1].Files, stored[1].Revision
	}
	m.Files, m.Revision, out.Revision = served.Files, served.Revision, served.Revision
	return out
}

func artifacts(out *resource.FineTuneResult) map[string]string {
	list := map[string]string{}
	if out.MergedRevision != "" {
		list[artifactMerged] = out.MergedRevision
	}
	if out.AdapterRevision != "" {
		list[artifactAdapter] = out.AdapterRevision
	}
	return list
}

func exported(e *engine.ExportCheck) *resource.LineageExport {
	if e == nil {
		return nil
	}
	return &resource.LineageExport{
		Prompts: e.Prompts, Positions: e.Positions, MaxLogit: e.MaxLogit, MeanKL: e.MeanKL, TopMatches: e.TopMatches, Warning: e.Warning,
	}
}

// lineage says what the job's weights are made of so far. Without a spec, that of
// the settings is taken, as for a checkpoint.
func (r *run) lineage(f *resource.FineTune, spec *engine.TrainSpec, now time.Time) *resource.Lineage {
	if spec == nil {
		spec = r.spec("", "")
	}
	l := &resource.Lineage{
		Job: f.ID, Base: resource.LineageModel{ID: f.Base.ModelID, Name: f.Base.Name, Revision: f.Base.Revision},
		Config: config(spec), CodeVersion: r.s.Version, CreatedAt: now,
		Datasets: []resource.LineageDataset{{Role: roleTraining, FileID: f.TrainFile.ID, Size: f.TrainFile.Size, SHA256: f.TrainFile.SHA256}},
	}
	if f.Params.HubModel != "" {
		l.Base = resource.LineageModel{Name: f.Params.HubModel, Revision: r.hubPoint}
	}
	if f.Base.AdapterID != "" {
		l.Adapter = &resource.LineageModel{ID: f.Base.AdapterID, Name: f.Params.FromCheckpoint, Revision: f.Base.AdapterRevision}
	}
	if e := f.EvalFile; e != nil {
		l.Datasets = append(l.Datasets, resource.LineageDataset{Role: roleValidation, FileID: e.ID, Size: e.Size, SHA256: e.SHA256})
	}
	for _, c := range f.Checkpoints {
		if c.ModelID != "" {
			l.Checkpoints = append(l.Checkpoints, resource.LineageModel{ID: c.ModelID, Name: c.Name, Revision: c.Revision, Step: c.Step})
		}
	}
	return l
}

// config is a spec without what belongs to this machine.
func config(spec *engine.TrainSpec) json.RawMessage {
	c := *spec
	c.ModelDir, c.AdapterDir, c.WorkDir = "", "", ""
	c.TrainFile.Path = ""
	if c.EvalFile != nil {
		e := *c.EvalFile
		e.Path = ""
		c.EvalFile = &e
	}
	data, err := json.Marshal(&c)
	if err != nil { // numbers that JSON does not have; creation refuses them
		return json.RawMessage("{}")
	}
	return data
}

// config is what an experiment tracker shows as the settings of the run.
func (r *run) config() map[string]any {
	out := map[string]any{}
	if err := json.Unmarshal(config(r.spec("", "")), &out); err != nil {
		return nil
	}
	return out
}

// compared warns when the forms of the result differ by more than they should.
func (r *run) compared(ctx context.Context, e *engine.ExportCheck) error {
	if e == nil || e.Warning == "" {
		return nil
	}
	return r.warn(ctx, e.Warning)
}

// push sends the merged model to the hub, if that was asked for. A hub that does
// not take it is a warning: the model is here.
func (r *run) push(ctx context.Context, result *engine.TrainResult) error {
	const key = "hub push"
	repo := r.f.Params.HubOutput
	if repo == "" || r.reported(key) {
		return nil
	}
	if r.s.Hub == nil {
		return r.warn(ctx, "The model is not sent to the hub: none is configured")
	}
	page, err := r.s.Hub.Push(ctx, repo, r.secrets.HubToken, result.ModelDir, "Fine-tuned from "+r.f.Base.Name)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return r.warn(ctx, fmt.Sprintf("The model could not be sent to the hub: %s", err))
	}
	return r.report(ctx, key, &resource.FineTuneEvent{Type: eventUploading, Message: "The model is at " + page})
}
