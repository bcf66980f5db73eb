package api

import (
	"math"
	"net/url"
	"strings"
	"unicode/utf8"
)

// Limits of fine-tuning that do not depend on the model.
const (
	MaxEpochs           = 1000
	MaxEvals            = 1000
	MaxCheckpoints      = 10
	MinLearningRate     = 1e-8
	MaxLearningRate     = 1.0
	MaxLoRARank         = 128
	DefaultLoRARank     = 64
	MaxLoRAAlpha        = 4096
	MaxAccumulation     = 4096
	MaxSuffix           = 64 // characters
	MaxSecret           = 4096
	DefaultSeed         = 42
	DefaultLearningRate = 1e-5
	DefaultMaxGradNorm  = 1.0
	DefaultPatience     = 2
	DefaultWarmupEvals  = 1
	DefaultDPOBeta      = 0.1
	DefaultNumCycles    = 0.5
	DefaultEpochs       = 1
	DefaultCheckpoints  = 1
)

// AllModules stands for every linear module of a model.
const AllModules = "all-linear"

// Validate checks what can be known without the model and the files, and merges
// the fields that have two names.
func (r *FineTuneRequest) Validate() error {
	if err := r.merge(); err != nil {
		return err
	}
	if r.FromCheckpoint != nil && *r.FromCheckpoint == "" {
		r.FromCheckpoint = nil
	}
	if r.Model == "" && r.FromCheckpoint == nil {
		return Invalid("model", "model is required unless from_checkpoint is given")
	}
	return r.validate()
}

// Validate checks a request for an estimate, which may lack the model.
func (r *EstimateFineTuneRequest) Validate() error {
	if err := r.merge(); err != nil {
		return err
	}
	return r.validate()
}

func (r *FineTuneRequest) validate() error {
	if r.TrainingFile == "" {
		return Invalid("training_file", "training_file is required: the id of an uploaded file")
	}
	if r.ValidationFile != nil && *r.ValidationFile == "" {
		r.ValidationFile = nil
	}
	for _, check := range []func() error{
		r.validateCounts, r.validateRates, r.validateScheduler, r.validateMethod, r.validateType, r.validateStopping,
		r.validateSource, r.validateTracker, r.validateSuffix,
	} {
		if err := check(); err != nil {
			return err
		}
	}
	if m := r.MultimodalParams; m != nil && m.TrainVision != nil && *m.TrainVision {
		return Unsupported("multimodal_params.train_vision")
	}
	return nil
}

func (r *FineTuneRequest) validateCounts() error {
	for _, c := range []struct {
		name      string
		value     *int
		low, high int
	}{
		{"max_seq_length", r.MaxSeqLength, 2, math.MaxInt32},
		{"n_epochs", r.NEpochs, 1, MaxEpochs},
		{"n_checkpoints", r.NCheckpoints, 1, MaxCheckpoints},
		{"n_evals", r.NEvals, 0, MaxEvals},
		{"gradient_accumulation_steps", r.GradientAccumulationSteps, 0, MaxAccumulation},
	} {
		if c.value == nil {
			continue
		}
		if err := between(c.name, *c.value, c.low, c.high); err != nil {
			return err
		}
	}
	if r.NEvals != nil && *r.NEvals > 0 && r.ValidationFile == nil {
		return Invalid("validation_file", "n_evals is %d, which needs a validation_file", *r.NEvals)
	}
	return nil
}

func (r *FineTuneRequest) validateRates() error {
	for _, c := range []struct {
		name      string
		value     *float64
		low, high float64
	}{
		{"learning_rate", r.LearningRate, MinLearningRate, MaxLearningRate},
		{"warmup_ratio", r.WarmupRatio, 0, 1},
		{"max_grad_norm", r.MaxGradNorm, 0, 1e9},
		{"weight_decay", r.WeightDecay, 0, 1e3},
	} {
		if c.value == nil {
			continue
		}
		if err := between(c.name, *c.value, c.low, c.high); err != nil {
			return err
		}
	}
	return nil
}

func (r *FineTuneRequest) validateScheduler() error {
	s := r.LRScheduler
	if s == nil {
		return nil
	}
	if s.Type != "linear" && s.Type != "cosine" {
		return Invalid("lr_scheduler.lr_scheduler_type", "lr_scheduler_type must be linear or cosine, got %.80q", s.Type)
	}
	if s.Args == nil {
		return nil
	}
	if s.Args.MinLRRatio != nil {
		if err := between("lr_scheduler.lr_scheduler_args.min_lr_ratio", *s.Args.MinLRRatio, 0, 1); err != nil {
			return err
		}
	}
	if n := s.Args.NumCycles; n != nil {
		const name = "lr_scheduler.lr_scheduler_args.num_cycles"
		if s.Type == "linear" {
			return Invalid(name, "num_cycles is only for the cosine scheduler")
		}
		if *n <= 0 {
			return Invalid(name, "%s must be above 0, got %g", name, *n)
		}
		return between(name, *n, 0, 1000)
	}
	return nil
}

func (r *FineTuneRequest) validateMethod() error {
	m := r.TrainingMethod
	if m == nil {
		return nil
	}
	switch m.Method {
	case MethodSFT:
		for _, f := range []struct {
			name  string
			given bool
		}{
			{"dpo_beta", m.DPOBeta != nil}, {"rpo_alpha", m.RPOAlpha != nil}, {"simpo_gamma", m.SimPOGamma != nil},
			{"dpo_normalize_logratios_by_length", m.NormalizeByLength != nil}, {"dpo_reference_free", m.ReferenceFree != nil},
		} {
			if f.given {
				return Invalid("training_method."+f.name, "%s is only for the method dpo", f.name)
			}
		}
		if r.TrainOnInputs != nil && m.TrainOnInputs != nil && *r.TrainOnInputs != *m.TrainOnInputs {
			return Invalid("train_on_inputs", "train_on_inputs and training_method.train_on_inputs differ; give the latter alone")
		}
		return nil
	case MethodDPO:
		return r.validateDPO(m)
	}
	return Invalid("training_method.method", "the training method must be sft or dpo, got %.80q", m.Method)
}

func (r *FineTuneRequest) validateDPO(m *TrainingMethod) error {
	if m.TrainOnInputs != nil {
		return Invalid("training_method.train_on_inputs", "train_on_inputs is only for the method sft")
	}
	if r.TrainOnInputs != nil && *r.TrainOnInputs != "auto" {
		return Invalid("train_on_inputs", "train_on_inputs is only for the method sft")
	}
	if m.DPOBeta != nil && *m.DPOBeta == 0 {
		return Invalid("training_method.dpo_beta", "dpo_beta must be above 0")
	}
	for _, f := range []struct {
		name  string
		value *float64
	}{{"dpo_beta", m.DPOBeta}, {"rpo_alpha", m.RPOAlpha}, {"simpo_gamma", m.SimPOGamma}} {
		if f.value == nil {
			continue
		}
		if err := between("training_method."+f.name, *f.value, 0, 1e6); err != nil {
			return err
		}
	}
	if m.SimPOGamma == nil || *m.SimPOGamma == 0 {
		return nil
	}
	// The margin is that of a loss without a reference, per token.
	if m.ReferenceFree != nil && !*m.ReferenceFree {
		return Invalid("training_method.dpo_reference_free", "simpo_gamma needs dpo_reference_free, which is false")
	}
	if m.NormalizeByLength != nil && !*m.NormalizeByLength {
		return Invalid("training_method.dpo_normalize_logratios_by_length", "simpo_gamma needs dpo_normalize_logratios_by_length, which is false")
	}
	return nil
}

// validateType checks the type of training and merges the flat LoRA fields into it.
func (r *FineTuneRequest) validateType() error {
	t := r.TrainingType
	if t == nil {
		t = &TrainingType{Type: TrainingLoRA}
	}
	switch {
	case strings.EqualFold(t.Type, TrainingFull):
		t.Type = TrainingFull
	case strings.EqualFold(t.Type, TrainingLoRA):
		t.Type = TrainingLoRA
	default:
		return Invalid("training_type.type", "the training type must be Full or Lora, got %.80q", t.Type)
	}
	r.TrainingType = t
	flat := r.FlatLoRA
	for _, f := range []error{
		mergeFlat("lora_r", &t.LoRAR, flat.LoRAR), mergeFlat("lora_alpha", &t.LoRAAlpha, flat.LoRAAlpha),
		mergeFlat("lora_dropout", &t.LoRADropout, flat.LoRADropout),
		mergeFlat("lora_trainable_modules", &t.LoRATrainableModules, flat.LoRATrainableModules),
	} {
		if f != nil {
			return f
		}
	}
	if t.Type == TrainingFull {
		return t.refuseLoRA()
	}
	return t.validateLoRA()
}

// mergeFlat takes a flat field over into the nested one, and refuses two values.
func mergeFlat[T comparable](name string, nested **T, flat *T) error {
	if *nested != nil && flat != nil && **nested != *flat {
		return Invalid("training_type."+name, "%s and training_type.%s differ; give one of them", name, name)
	}
	if *nested == nil {
		*nested = flat
	}
	return nil
}

func (t *TrainingType) refuseLoRA() error {
	for _, f := range []struct {
		name  string
		given bool
	}{
		{"lora_r", t.LoRAR != nil}, {"lora_alpha", t.LoRAAlpha != nil},
		{"lora_dropout", t.LoRADropout != nil}, {"lora_trainable_modules", t.LoRATrainableModules != nil},
	} {
		if f.given {
			return Invalid("training_type."+f.name, "%s is only for the training type Lora", f.name)
		}
	}
	return nil
}

func (t *TrainingType) validateLoRA() error {
	if t.LoRAR != nil {
		if err := between("training_type.lora_r", *t.LoRAR, 1, MaxLoRARank); err != nil {
			return err
		}
	}
	if t.LoRAAlpha != nil {
		if err := between("training_type.lora_alpha", *t.LoRAAlpha, 1, MaxLoRAAlpha); err != nil {
			return err
		}
	}
	if t.LoRADropout != nil && !(*t.LoRADropout >= 0 && *t.LoRADropout < 1) {
		return Invalid("training_type.lora_dropout", "lora_dropout must be at least 0 and below 1, got %g", *t.LoRADropout)
	}
	if m := t.LoRATrainableModules; m != nil {
		const most = 64
		names := strings.Split(*m, ",")
		if len(names) > most {
			return Invalid("training_type.lora_trainable_modules", "lora_trainable_modules takes at most %d modules, got %d", most, len(names))
		}
		for _, n := range names {
			if strings.TrimSpace(n) == "" {
				return Invalid("training_type.lora_trainable_modules", "lora_trainable_modules has an empty name; give %s or names joined by commas", AllModules)
			}
		}
	}
	return nil
}

func (r *FineTuneRequest) validateStopping() error {
	if p := r.EarlyStoppingPatience; p != nil {
		if err := between("early_stopping_patience", *p, 1, MaxEvals); err != nil {
			return err
		}
	}
	if d := r.EarlyStoppingMinDelta; d != nil {
		if err := between("early_stopping_min_delta", *d, 0, math.MaxFloat64); err != nil {
			return err
		}
	}
	if w := r.EarlyStoppingWarmupEvals; w != nil {
		if err := between("early_stopping_warmup_evals", *w, 0, MaxEvals); err != nil {
			return err
		}
	}
	if r.EarlyStoppingEnabled == nil || !*r.EarlyStoppingEnabled {
		return nil
	}
	if r.ValidationFile == nil {
		return Invalid("validation_file", "early_stopping_enabled needs a validation_file")
	}
	need := Or(r.EarlyStoppingPatience, DefaultPatience) + Or(r.EarlyStoppingWarmupEvals, DefaultWarmupEvals) + 1
	if got := Or(r.NEvals, 0); got < need {
		return Invalid("n_evals", "early stopping needs n_evals to be at least early_stopping_patience + early_stopping_warmup_evals + 1 = %d, got %d", need, got)
	}
	return nil
}

// Or is the value of a parameter, or its default.
func Or[T any](v *T, otherwise T) T {
	if v == nil {
		return otherwise
	}
	return *v
}

func (r *FineTuneRequest) validateSource() error {
	if r.FromHubModel != nil && r.FromCheckpoint != nil {
		return Invalid("from_hub_model", "from_hub_model and from_checkpoint exclude each other")
	}
	if r.HubModelRevision != nil && r.FromHubModel == nil {
		return Invalid("hub_model_revision", "hub_model_revision needs from_hub_model")
	}
	for _, f := range []text{{"from_hub_model", r.FromHubModel}, {"hub_output_repo_name", r.HubOutputRepoName}} {
		if f.value != nil && !repository(*f.value) {
			return Invalid(f.name, "%s must be the name of a repository, like owner/name or name, got %.200q", f.name, *f.value)
		}
	}
	if v := r.HubModelRevision; v != nil && (!line(*v) || len(*v) > maxRevision || strings.Contains(*v, "..") || strings.Contains(*v, `\`)) {
		return Invalid("hub_model_revision", "hub_model_revision must be a branch, a tag or a commit, got %.200q", *v)
	}
	if t := r.HubAPIToken; t != nil && !line(*t) {
		return Invalid("hub_api_token", "hub_api_token must be printable text of at most %d bytes without spaces", MaxSecret)
	}
	if r.HubOutputRepoName != nil && r.HubAPIToken == nil {
		return Invalid("hub_api_token", "hub_output_repo_name needs hub_api_token")
	}
	return nil
}

// text is a parameter that is a string.
type text struct {
	name  string
	value *string
}

// Limits of what a hub has names for, in bytes.
const (
	maxRepository = 96 // of an owner or a name
	maxRevision   = 256
)

// repository reports whether s looks like owner/name or name.
func repository(s string) bool {
	owner, name, found := strings.Cut(s, "/")
	return plain(owner) && (!found || plain(name))
}

func plain(s string) bool {
	for _, c := range s {
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_' || c == '.') {
			return false
		}
	}
	return s != "" && len(s) <= maxRepository && s[0] != '.' && !strings.Contains(s, "..")
}

// line reports whether s can be part of a header: visible ASCII.
func line(s string) bool {
	for _, c := range s {
		if c <= ' ' || c > '~' {
			return false
		}
	}
	return len(s) <= MaxSecret
}

func (r *FineTuneRequest) validateTracker() error {
	if r.TrackerAPIKey != nil && !line(*r.TrackerAPIKey) {
		return Invalid("tracker_api_key", "tracker_api_key must be printable text of at most %d bytes without spaces", MaxSecret)
	}
	if b := r.TrackerBaseURL; b != nil {
		u, err := url.Parse(*b)
		// Paths are put behind it, which a query or a fragment would swallow.
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || len(*b) > 1000 || strings.ContainsAny(*b, "?#") {
			return Invalid("tracker_base_url", "tracker_base_url must be a URL like https://tracker.example.com, without a user and a query")
		}
	}
	const most = 128
	for _, f := range []text{
		{"tracker_project_name", r.TrackerProjectName}, {"tracker_name", r.TrackerName}, {"tracker_entity", r.TrackerEntity},
	} {
		v := f.value
		if v != nil && (!utf8.ValidString(*v) || utf8.RuneCountInString(*v) > most || strings.ContainsAny(*v, "/\\#?%:\r\n\t\x00")) {
			return Invalid(f.name, `%s must have at most %d characters and none of / \ # ? %% :`, f.name, most)
		}
	}
	return nil
}

func (r *FineTuneRequest) validateSuffix() error {
	if r.Suffix == nil {
		return nil
	}
	s := *r.Suffix
	if n := utf8.RuneCountInString(s); n > MaxSuffix {
		return Invalid("suffix", "suffix must have at most %d characters, got %d", MaxSuffix, n)
	}
	if s == "" {
		r.Suffix = nil
		return nil
	}
	for _, c := range s {
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_' || c == '.') {
			return Invalid("suffix", `suffix may hold letters, digits, ".", "_" and "-", got %q`, c)
		}
	}
	return nil
}
