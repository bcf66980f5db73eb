package finetunes

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"athanor/server/api"
	"athanor/server/rest"
	"athanor/store"
	"athanor/store/resource"
)

// timeFormat is how events and checkpoints write times: with milliseconds, in UTC.
const timeFormat = "2006-01-02T15:04:05.000Z"

// adapterSuffix is behind the name of a job's model for its adapter alone.
const adapterSuffix = "-adapter"

// wire renders the truncated form of a job, without its events.
func (s *Service) wire(f *resource.FineTune) *api.FineTune {
	p := &f.Params
	out := &api.FineTune{
		ID: string(f.ID), Status: string(f.Status), CreatedAt: f.CreatedAt, UpdatedAt: f.UpdatedAt, UserID: string(f.UserID),
		OwnerAddress: f.OwnerAddress, TokenCount: f.Progress.Tokens, Events: []api.FineTuneEvent{}, TrainingFile: string(f.TrainFile.ID),
		Packing: p.Packing, MaxSeqLength: p.MaxSeqLength, Model: f.Base.Name, ModelOutputName: f.OutputName, Suffix: given(p.Suffix),
		NEpochs: p.Epochs, NEvals: p.Evals, NCheckpoints: p.Checkpoints, BatchSize: batchSize(f), LearningRate: p.LearningRate,
		GradientAccumulationSteps: p.GradientAccumulationSteps, TrainingType: wireType(p.LoRA), TrainingMethod: wireMethod(p),
		LRScheduler: wireScheduler(p.Scheduler), WarmupRatio: p.WarmupRatio, MaxGradNorm: p.MaxGradNorm, WeightDecay: p.WeightDecay,
		RandomSeed: &p.Seed, FromCheckpoint: given(p.FromCheckpoint), Progress: progress(f, s.Kit.Now()), ErrorMessage: f.Problem,
		TrackerProjectName: given(p.Tracker.Project), WandbProjectName: given(p.Tracker.Project),
		TrackerName: given(p.Tracker.Name), WandbName: given(p.Tracker.Name), FromHubModel: given(p.HubModel), FromHFModel: given(p.HubModel),
		HubModelRevision: given(p.HubRevision), HFModelRevision: given(p.HubRevision),
		EarlyStopped: f.Progress.EarlyStopped, EarlyStoppingBestMetric: f.Progress.BestMetric,
	}
	if !f.StartedAt.IsZero() {
		out.StartedAt = &f.StartedAt
	}
	if f.EvalFile != nil {
		out.ValidationFile = given(string(f.EvalFile.ID))
	}
	if e := p.EarlyStopping; e != nil {
		out.EarlyStoppingEnabled, out.EarlyStoppingPatience = true, &e.Patience
		out.EarlyStoppingMinDelta, out.EarlyStoppingWarmupEvals = &e.MinDelta, &e.WarmupEvals
	}
	if f.Progress.EarlyStopped {
		out.EarlyStoppingBestStep = &f.Progress.BestStep
	}
	if r := f.Result; r != nil {
		out.ModelObjectID, out.ModelObjectRevisionID = string(r.ModelID), r.Revision
		if p.LoRA != nil && r.AdapterRevision == "" {
			out.AdapterObjectID, out.AdapterObjectRevisionID = string(r.ModelID), r.Revision
		}
	}
	return out
}

// given is nil for "".
func given(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// batchSize is the number of samples, nil while "max" is not a number yet.
func batchSize(f *resource.FineTune) *api.BatchSize {
	switch {
	case f.Params.BatchSize > 0:
		return &api.BatchSize{N: f.Params.BatchSize}
	case f.Progress.BatchSize > 0:
		return &api.BatchSize{N: f.Progress.BatchSize}
	}
	return nil
}

func wireType(l *resource.FineTuneLoRA) *api.TrainingType {
	if l == nil {
		return &api.TrainingType{Type: api.TrainingFull}
	}
	names := moduleNames(l)
	return &api.TrainingType{Type: api.TrainingLoRA, LoRAR: &l.Rank, LoRAAlpha: &l.Alpha, LoRADropout: &l.Dropout, LoRATrainableModules: &names}
}

func wireMethod(p *resource.FineTuneParams) *api.TrainingMethod {
	if d := p.DPO; d != nil {
		return &api.TrainingMethod{
			Method: api.MethodDPO, DPOBeta: &d.Beta, RPOAlpha: &d.RPOAlpha, NormalizeByLength: &d.NormalizeByLength,
			ReferenceFree: &d.ReferenceFree, SimPOGamma: &d.SimPOGamma,
		}
	}
	inputs := api.TrainOnInputs(p.SFT.TrainOnInputs)
	return &api.TrainingMethod{Method: api.MethodSFT, TrainOnInputs: &inputs}
}

func wireScheduler(s resource.FineTuneScheduler) *api.LRScheduler {
	args := &api.LRSchedulerArgs{MinLRRatio: &s.MinLRRatio}
	if s.Type == "cosine" {
		args.NumCycles = &s.NumCycles
	}
	return &api.LRScheduler{Type: s.Type, Args: args}
}

func progress(f *resource.FineTune, now time.Time) api.FineTuneProgress {
	at := f.Progress.ExpectedAt
	if at.IsZero() || f.Status != resource.FineTuneRunning {
		return api.FineTuneProgress{}
	}
	return api.FineTuneProgress{EstimateAvailable: true, SecondsRemaining: max(0, int64(at.Sub(now)/time.Second))}
}

// details adds what only a retrieval tells.
func (s *Service) details(tx *store.Tx, f *resource.FineTune, out *api.FineTune) (err error) {
	if out.Events, err = wireEvents(tx, f.ID); err != nil {
		return err
	}
	d := &api.FineTuneDetails{
		JobID: string(f.ID), TrainingFileNumLines: f.TrainFile.Lines, TrainingFileSize: f.TrainFile.Size,
		TrainingFileLines: f.TrainFile.Lines, TrainingFileBytes: f.TrainFile.Size, EvalSteps: f.Progress.EvalEvery,
		ParamCount: f.Progress.Parameters, EpochsCompleted: f.Progress.EpochsCompleted, Step: f.Progress.Step,
		TotalSteps: f.Progress.TotalSteps, TrackerURL: given(f.TrackerURL), WandbURL: given(f.TrackerURL),
	}
	if out.BatchSize == nil {
		out.BatchSize = &api.BatchSize{Max: true}
	}
	if f.Params.SFT != nil {
		inputs := api.TrainOnInputs(f.Params.SFT.TrainOnInputs)
		d.TrainOnInputs = &inputs
	}
	if t := f.Tokenized; t != nil {
		d.TokenizedDatasetPath, d.TokenizedDatasetAt = t.ObjectKey, &t.CreatedAt
	}
	if f.Status == resource.FineTunePending || f.Status == resource.FineTuneQueued {
		if d.QueueDepth, err = ahead(tx, f.ID); err != nil {
			return err
		}
	}
	if f.Result != nil {
		if err := s.names(tx, f, out, d); err != nil {
			return err
		}
	}
	out.FineTuneDetails = d
	return nil
}

// names resolves the registry names of what a job made.
func (s *Service) names(tx *store.Tx, f *resource.FineTune, out *api.FineTune, d *api.FineTuneDetails) error {
	name, err := registryName(tx, f, f.Result.ModelID, f.OutputName)
	if err != nil {
		return err
	}
	d.ModelObjectName, d.ModelOutputPath = name, modelPath(f.Result.Revision)
	if out.AdapterObjectID == "" {
		return nil
	}
	d.AdapterObjectName, d.AdapterOutputName = name, f.OutputName+adapterSuffix
	if name != string(f.Result.ModelID) {
		d.AdapterObjectName += adapterSuffix
	}
	return nil
}

// registryName is <project slug>/<name of the model>, or the id of the object when
// the project or the model is gone.
func registryName(tx *store.Tx, f *resource.FineTune, id resource.ModelID, name string) (string, error) {
	p, err := store.Projects.Get(tx, string(f.ProjectID))
	if err == nil {
		_, err = store.Models.Get(tx, string(id))
	}
	if errors.Is(err, store.ErrNotFound) {
		return string(id), nil
	}
	if err != nil {
		return "", err
	}
	return p.Slug + "/" + name[strings.LastIndexByte(name, '/')+1:], nil
}

// modelPath names weights by their content, in events and responses.
func modelPath(revision string) string { return "models/" + revision }

// wireEvents renders the log of a job.
func wireEvents(tx *store.Tx, id resource.FineTuneID) ([]api.FineTuneEvent, error) {
	events, err := readEvents(tx, id)
	out := make([]api.FineTuneEvent, len(events))
	for i := range events {
		out[i] = wireEvent(&events[i])
	}
	return out, err
}

func wireEvent(e *resource.FineTuneEvent) api.FineTuneEvent {
	out := api.FineTuneEvent{
		Object: "fine-tune-event", CreatedAt: e.At.UTC().Format(timeFormat), Level: given(e.Level), Message: e.Message, Type: e.Type,
		ParamCount: e.Parameters, TokenCount: e.Tokens, TotalSteps: e.TotalSteps, TrackerURL: e.TrackerURL, WandbURL: e.TrackerURL,
		Step: e.Step, CheckpointPath: e.Checkpoint, ModelPath: e.Model, TokenizedDatasetPath: e.TokenizedPath,
	}
	if e.Type == eventEarlyStopped {
		out.BestStep, out.BestMetricValue = e.BestStep, &e.BestMetric
	}
	return out
}

// olderPython begins the User-Agent of the older Python client. It takes an event for
// an error of the server unless its type is one of those that it knows, in capitals.
const olderPython = "Together/v1 PythonBindings/"

// spell writes the types of events as the client can read them.
func spell(ctx context.Context, events []api.FineTuneEvent) {
	if !strings.HasPrefix(rest.UserAgent(ctx), olderPython) {
		return
	}
	for i := range events {
		switch t := &events[i].Type; *t {
		case eventTracker:
			*t = "WANDB_INIT"
		case eventCompressing:
			*t = "COMPRESSING_MODEL"
		case eventTokenizedUploaded, eventEarlyStopped: // younger than the client
			*t = strings.ToUpper(eventWarning)
		default:
			*t = strings.ToUpper(*t)
		}
	}
}

// wireCheckpoints lists the intermediate checkpoints and the final one, in order of
// time. names says whether registry names are resolved.
func wireCheckpoints(tx *store.Tx, f *resource.FineTune) ([]api.FineTuneCheckpoint, error) {
	out := []api.FineTuneCheckpoint{}
	for _, c := range f.Checkpoints {
		form := "model"
		if c.Adapter {
			form = "adapter"
		}
		w := api.FineTuneCheckpoint{
			Step: c.Step, CreatedAt: c.CreatedAt.UTC().Format(timeFormat), Path: modelPath(c.Revision), Checkpoint: form,
			CheckpointType: fmt.Sprintf("Intermediate %s (step %d)", title(form), c.Step), ObjectID: string(c.ModelID),
		}
		if c.ModelID != "" {
			name, err := registryName(tx, f, c.ModelID, c.Name)
			if err != nil {
				return nil, err
			}
			w.ObjectRevisionID, w.ObjectName = c.Revision, name
		}
		out = append(out, w)
	}
	r := f.Result
	if r == nil {
		return out, nil
	}
	name, err := registryName(tx, f, r.ModelID, f.OutputName)
	if err != nil {
		return nil, err
	}
	at := f.UpdatedAt.UTC().Format(timeFormat)
	if r.MergedRevision != "" {
		out = append(out, api.FineTuneCheckpoint{
			Step: r.Step, CreatedAt: at, Path: modelPath(r.MergedRevision), Checkpoint: "model", CheckpointType: fmt.Sprintf("Final Merged (step %d)", r.Step),
		})
	}
	last := api.FineTuneCheckpoint{
		Step: r.Step, CreatedAt: at, Path: modelPath(r.Revision), Checkpoint: "model", CheckpointType: fmt.Sprintf("Final Model (step %d)", r.Step),
		ObjectID: string(r.ModelID), ObjectRevisionID: r.Revision, ObjectName: name,
	}
	if r.MergedRevision != "" {
		last.Checkpoint, last.CheckpointType = "adapter", fmt.Sprintf("Final Adapter (step %d)", r.Step)
		if name != string(r.ModelID) {
			last.ObjectName += adapterSuffix
		}
	}
	return append(out, last), nil
}

func title(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
