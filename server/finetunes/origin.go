package finetunes

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"athanor/server/api"
	"athanor/server/rest"
	"athanor/store"
	"athanor/store/resource"
)

// origin is what a job goes on from.
type origin struct {
	base  resource.FineTuneBase
	model *resource.Model        // whose config decides the limits
	lora  *resource.FineTuneLoRA // of the adapter to go on from
}

// origin finds the base model of a request, or the checkpoint.
func (s *Service) origin(ctx context.Context, r *api.FineTuneRequest) (*origin, error) {
	if r.FromCheckpoint != nil {
		return s.fromCheckpoint(ctx, *r.FromCheckpoint, r.Model)
	}
	m, err := s.Models.Resolve(resource.ProjectID(rest.Caller(ctx).ProjectID), r.Model)
	if err != nil {
		return nil, err
	}
	if m.BaseID != "" {
		return nil, api.Invalid("model", "%s is an adapter; name its base model, and give the job that made it as from_checkpoint to go on from it", r.Model)
	}
	return &origin{base: resource.FineTuneBase{ModelID: m.ID, Name: m.Name, Revision: m.Revision}, model: m}, nil
}

const paramCheckpoint = "from_checkpoint"

// fromCheckpoint reads {JOB}, {OUTPUT NAME}, {JOB}:{STEP} or {OUTPUT NAME}:{STEP}.
// model is what the client gave beside it, or "".
func (s *Service) fromCheckpoint(ctx context.Context, text, model string) (*origin, error) {
	name, at, hasStep := strings.Cut(text, ":")
	step := 0
	if hasStep {
		n, err := strconv.Atoi(at)
		if err != nil || n < 1 {
			return nil, api.Invalid(paramCheckpoint, "from_checkpoint has the step %.40q, which must be a number from 1", at)
		}
		step = n
	}
	project := resource.ProjectID(rest.Caller(ctx).ProjectID)
	var o *origin
	err := s.DB.View(func(tx *store.Tx) error {
		f, err := findSource(tx, project, name)
		if err != nil {
			return err
		}
		id, err := checkpointModel(f, step)
		if err != nil {
			return err
		}
		o, err = readOrigin(tx, f, id)
		return err
	})
	if err != nil {
		return nil, err
	}
	if model != "" && model != o.base.Name && model != o.model.Name {
		return nil, api.Invalid("model", "from_checkpoint goes on from %s, not from %.200q; leave model out", o.base.Name, model)
	}
	return o, nil
}

// findSource finds the job behind an id or the name of its model.
func findSource(tx *store.Tx, project resource.ProjectID, name string) (*resource.FineTune, error) {
	f, err := store.FineTunes.Get(tx, name)
	if errors.Is(err, store.ErrNotFound) {
		f, err = store.FineTunes.Lookup(tx, store.ByName, store.Key(string(project), strings.TrimSuffix(name, adapterSuffix)))
	}
	if errors.Is(err, store.ErrNotFound) || err == nil && (f.ProjectID != project || f.Deleted) {
		return nil, api.Invalid(paramCheckpoint, "from_checkpoint: this project has no fine-tuning job with the id or output name %.200q", name)
	}
	return f, err
}

// checkpointModel is the model of a step, or of the end when step is 0.
func checkpointModel(f *resource.FineTune, step int) (resource.ModelID, error) {
	if f.Result != nil && (step == 0 || step == f.Result.Step) {
		return f.Result.ModelID, nil
	}
	if step == 0 {
		return "", api.Invalid(paramCheckpoint, "from_checkpoint: job %s is %s and has no final checkpoint; name a step", f.ID, f.Status)
	}
	var have []string
	for _, c := range f.Checkpoints {
		if c.Step == step && c.ModelID == "" {
			return "", api.Invalid(paramCheckpoint, "from_checkpoint: step %d of job %s can only be downloaded, since its base is not a registered model", step, f.ID)
		}
		if c.Step == step {
			return c.ModelID, nil
		}
		have = append(have, strconv.Itoa(c.Step))
	}
	return "", api.Invalid(paramCheckpoint, "from_checkpoint: job %s has no checkpoint at step %d, only at %s", f.ID, step, orNone(have))
}

func orNone(list []string) string {
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, ", ")
}

// readOrigin describes going on from a model that the job f made.
func readOrigin(tx *store.Tx, f *resource.FineTune, id resource.ModelID) (*origin, error) {
	m, err := store.Models.Get(tx, string(id))
	if err != nil {
		return nil, gone(err, f)
	}
	if m.BaseID == "" {
		return &origin{base: resource.FineTuneBase{ModelID: m.ID, Name: f.Base.Name, Revision: m.Revision}, model: m}, nil
	}
	base, err := store.Models.Get(tx, string(m.BaseID))
	if err != nil {
		return nil, gone(err, f)
	}
	return &origin{
		base: resource.FineTuneBase{
			ModelID: base.ID, Name: base.Name, Revision: base.Revision, AdapterID: m.ID, AdapterRevision: m.Revision,
		},
		model: base, lora: f.Params.LoRA,
	}, nil
}

func gone(err error, f *resource.FineTune) error {
	if errors.Is(err, store.ErrNotFound) {
		return api.Invalid(paramCheckpoint, "from_checkpoint: the model of job %s has been deleted", f.ID)
	}
	return fmt.Errorf("checkpoint of job %s: %w", f.ID, err)
}
