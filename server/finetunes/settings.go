package finetunes

import (
	"fmt"
	"slices"
	"strings"

	"athanor/server/api"
	"athanor/store/resource"
)

// Bounds of a batch. The trainer finds out what fits; these keep mistakes away.
const (
	maxBatch    = 1024
	maxBatchDPO = 512
	minBatch    = 1
	minSequence = 16 // tokens, or the context of a smaller model
)

// defaultProject is the project of the tracker for jobs that name none.
const defaultProject = "athanor"

// limits are what the model allows.
func limits(name string, t *Traits) *api.FineTuneLimits {
	batch := api.FullLimits{MaxBatchSize: maxBatch, MaxBatchSizeDPO: maxBatchDPO, MinBatchSize: minBatch}
	l := &api.FineTuneLimits{
		ModelName:    name,
		LoRATraining: api.LoRALimits{FullLimits: batch, MaxRank: api.MaxLoRARank, DefaultRank: api.DefaultLoRARank, TargetModules: t.Modules},
		MaxNumEpochs: api.MaxEpochs, MaxNumEvals: api.MaxEvals, MaxNumCheckpoints: api.MaxCheckpoints,
		MinLearningRate: api.MinLearningRate, MaxLearningRate: api.MaxLearningRate,
		SupportsFull: t.Full, SupportsTools: t.Tools, SupportsReasoning: t.Reasoning, MergeOutputLoRA: true, DefaultGradAccum: 1,
		MinMaxSeqLength: min(minSequence, t.ContextLength), MaxSeqLengthSFT: t.ContextLength, MaxSeqLengthDPO: t.ContextLength,
	}
	if t.Full {
		l.FullTraining = batch
	}
	return l
}

// settings fills the defaults into checked parameters and holds the result against
// the limits. from are the LoRA settings of the adapter to go on from, nil for a
// fresh start.
func settings(r *api.FineTuneRequest, l *api.FineTuneLimits, from *resource.FineTuneLoRA) (*resource.FineTuneParams, error) {
	p := &resource.FineTuneParams{
		Packing: api.Or(r.Packing, true), Epochs: api.Or(r.NEpochs, api.DefaultEpochs), Evals: api.Or(r.NEvals, 0),
		Checkpoints: api.Or(r.NCheckpoints, api.DefaultCheckpoints), LearningRate: api.Or(r.LearningRate, api.DefaultLearningRate),
		Scheduler: scheduler(r.LRScheduler), WarmupRatio: api.Or(r.WarmupRatio, 0), MaxGradNorm: api.Or(r.MaxGradNorm, api.DefaultMaxGradNorm),
		WeightDecay: api.Or(r.WeightDecay, 0), Seed: api.Or(r.RandomSeed, api.DefaultSeed), Suffix: api.Or(r.Suffix, ""),
		GradientAccumulationSteps: api.Or(r.GradientAccumulationSteps, 0), FromCheckpoint: api.Or(r.FromCheckpoint, ""),
		HubModel: api.Or(r.FromHubModel, ""), HubOutput: api.Or(r.HubOutputRepoName, ""),
	}
	if p.GradientAccumulationSteps == 0 {
		p.GradientAccumulationSteps = l.DefaultGradAccum
	}
	if p.HubModel != "" {
		p.HubRevision = api.Or(r.HubModelRevision, "main")
	}
	if api.Or(r.EarlyStoppingEnabled, false) {
		p.EarlyStopping = &resource.FineTuneStopping{
			Patience: api.Or(r.EarlyStoppingPatience, api.DefaultPatience), MinDelta: api.Or(r.EarlyStoppingMinDelta, 0),
			WarmupEvals: api.Or(r.EarlyStoppingWarmupEvals, api.DefaultWarmupEvals),
		}
	}
	method(p, r)
	tracker(p, r)
	if err := loraSettings(p, r.TrainingType, l, from); err != nil {
		return nil, err
	}
	if err := sequence(p, r, l); err != nil {
		return nil, err
	}
	return p, batch(p, r, l)
}

func scheduler(s *api.LRScheduler) resource.FineTuneScheduler {
	out := resource.FineTuneScheduler{Type: "cosine", NumCycles: api.DefaultNumCycles}
	if s == nil {
		return out
	}
	if out.Type = s.Type; s.Args != nil {
		out.MinLRRatio = api.Or(s.Args.MinLRRatio, 0)
		out.NumCycles = api.Or(s.Args.NumCycles, api.DefaultNumCycles)
	}
	if out.Type == "linear" {
		out.NumCycles = 0
	}
	return out
}

func method(p *resource.FineTuneParams, r *api.FineTuneRequest) {
	m := r.TrainingMethod
	if m == nil || m.Method == api.MethodSFT {
		inputs := api.Or(r.TrainOnInputs, "auto")
		if m != nil {
			inputs = api.Or(m.TrainOnInputs, inputs)
		}
		p.SFT = &resource.FineTuneSFT{TrainOnInputs: string(inputs)}
		return
	}
	p.DPO = &resource.FineTuneDPO{
		Beta: api.Or(m.DPOBeta, api.DefaultDPOBeta), RPOAlpha: api.Or(m.RPOAlpha, 0), SimPOGamma: api.Or(m.SimPOGamma, 0),
	}
	simpo := p.DPO.SimPOGamma != 0
	p.DPO.NormalizeByLength, p.DPO.ReferenceFree = api.Or(m.NormalizeByLength, simpo), api.Or(m.ReferenceFree, simpo)
}

func tracker(p *resource.FineTuneParams, r *api.FineTuneRequest) {
	p.Tracker = resource.FineTuneTrackerRun{
		BaseURL: api.Or(r.TrackerBaseURL, ""), Project: api.Or(r.TrackerProjectName, ""),
		Name: api.Or(r.TrackerName, ""), Entity: api.Or(r.TrackerEntity, ""),
	}
	if r.TrackerAPIKey != nil && p.Tracker.Project == "" {
		p.Tracker.Project = defaultProject
	}
}

// loraSettings fills in the type of training. An adapter to go on from decides its
// own form; asking for another is refused.
func loraSettings(p *resource.FineTuneParams, t *api.TrainingType, l *api.FineTuneLimits, from *resource.FineTuneLoRA) error {
	if t.Type == api.TrainingFull {
		if from != nil {
			return api.Invalid("training_type", "from_checkpoint is an adapter, which only the training type Lora can go on from")
		}
		if !l.SupportsFull {
			return api.Invalid("training_type", "the model %s can be trained with LoRA only on this machine", l.ModelName)
		}
		return nil
	}
	if from != nil {
		if err := sameForm(t, from); err != nil {
			return err
		}
		lora := *from
		lora.Dropout = api.Or(t.LoRADropout, from.Dropout)
		p.LoRA = &lora
		return nil
	}
	rank := api.Or(t.LoRAR, l.LoRATraining.DefaultRank)
	if rank > l.LoRATraining.MaxRank {
		return api.Invalid("training_type.lora_r", "lora_r must be at most %d for this model, got %d", l.LoRATraining.MaxRank, rank)
	}
	list, err := modules(t.LoRATrainableModules, l.LoRATraining.TargetModules)
	p.LoRA = &resource.FineTuneLoRA{Rank: rank, Alpha: api.Or(t.LoRAAlpha, 2*rank), Dropout: api.Or(t.LoRADropout, 0), Modules: list}
	return err
}

// sameForm refuses to go on from an adapter in another form.
func sameForm(t *api.TrainingType, from *resource.FineTuneLoRA) error {
	const why = "%s is %v in the checkpoint to go on from, which decides it"
	if t.LoRAR != nil && *t.LoRAR != from.Rank {
		return api.Invalid("training_type.lora_r", why, "lora_r", from.Rank)
	}
	if t.LoRAAlpha != nil && *t.LoRAAlpha != from.Alpha {
		return api.Invalid("training_type.lora_alpha", why, "lora_alpha", from.Alpha)
	}
	if t.LoRATrainableModules == nil {
		return nil
	}
	list := split(*t.LoRATrainableModules)
	if len(from.Modules) == 0 && len(list) == 1 && list[0] == api.AllModules || slices.Equal(list, from.Modules) {
		return nil
	}
	return api.Invalid("training_type.lora_trainable_modules", why, "lora_trainable_modules", moduleNames(from))
}

// split lists names joined by commas, sorted and without doubles.
func split(names string) []string {
	var list []string
	for n := range strings.SplitSeq(names, ",") {
		list = append(list, strings.TrimSpace(n))
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// modules checks the modules to train against those of the model; nil means all.
func modules(asked *string, have []string) ([]string, error) {
	if asked == nil {
		return nil, nil
	}
	list := split(*asked)
	if slices.Contains(list, api.AllModules) {
		return nil, nil
	}
	for _, n := range list {
		if !slices.Contains(have, n) {
			return nil, api.Invalid("training_type.lora_trainable_modules", "the model has no module %.80q; it has %s", n, strings.Join(have, ", "))
		}
	}
	return list, nil
}

// moduleNames is the list as the API shows it.
func moduleNames(l *resource.FineTuneLoRA) string {
	if len(l.Modules) == 0 {
		return api.AllModules
	}
	return strings.Join(l.Modules, ",")
}

func sequence(p *resource.FineTuneParams, r *api.FineTuneRequest, l *api.FineTuneLimits) error {
	most := l.MaxSeqLengthSFT
	if p.DPO != nil {
		most = l.MaxSeqLengthDPO
	}
	p.MaxSeqLength = api.Or(r.MaxSeqLength, most)
	if p.MaxSeqLength < l.MinMaxSeqLength || p.MaxSeqLength > most {
		return api.Invalid("max_seq_length", "max_seq_length must be between %d and %d for %s, got %d", l.MinMaxSeqLength, most, l.ModelName, p.MaxSeqLength)
	}
	return nil
}

func batch(p *resource.FineTuneParams, r *api.FineTuneRequest, l *api.FineTuneLimits) error {
	if r.BatchSize == nil || r.BatchSize.Max {
		return nil
	}
	bounds := l.LoRATraining.FullLimits
	if p.LoRA == nil {
		bounds = l.FullTraining
	}
	most := bounds.MaxBatchSize
	if p.DPO != nil {
		most = bounds.MaxBatchSizeDPO
	}
	if n := r.BatchSize.N; n < bounds.MinBatchSize || n > most {
		return api.Invalid("batch_size", `batch_size must be "max" or between %d and %d, got %d`, bounds.MinBatchSize, most, n)
	}
	p.BatchSize = r.BatchSize.N
	return nil
}

// outputName is the name of the model that a job makes: the project, the base, the
// suffix, and the end of the job's id, which makes it one of its kind.
func outputName(slug, base, suffix string, id resource.FineTuneID) string {
	_, short, _ := strings.Cut(string(id), "-")
	if len(short) > shortID {
		short = short[len(short)-shortID:]
	}
	base = base[strings.LastIndexByte(base, '/')+1:]
	const most = 50 // bytes: with the longest slug and suffix, and a step, the whole stays within 200
	parts := []string{base[:min(len(base), most)]}
	if suffix != "" {
		parts = append(parts, suffix)
	}
	return fmt.Sprintf("%s/%s-%s", slug, strings.Join(parts, "-"), short)
}

// shortID is how many characters of an id are enough to tell jobs apart in names.
const shortID = 8
