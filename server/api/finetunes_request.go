package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// FineTuneRequest is the body of POST /fine-tunes. Absent and null are the same.
// Fields that come under two names are merged by Validate into the first.
type FineTuneRequest struct {
	TrainingFile              string       `json:"training_file"`
	ValidationFile            *string      `json:"validation_file"`
	Model                     string       `json:"model"`
	Packing                   *bool        `json:"packing"`
	MaxSeqLength              *int         `json:"max_seq_length"`
	NEpochs                   *int         `json:"n_epochs"`
	NCheckpoints              *int         `json:"n_checkpoints"`
	NEvals                    *int         `json:"n_evals"`
	BatchSize                 *BatchSize   `json:"batch_size"`
	GradientAccumulationSteps *int         `json:"gradient_accumulation_steps"`
	LearningRate              *float64     `json:"learning_rate"`
	LRScheduler               *LRScheduler `json:"lr_scheduler"`
	WarmupRatio               *float64     `json:"warmup_ratio"`
	MaxGradNorm               *float64     `json:"max_grad_norm"`
	WeightDecay               *float64     `json:"weight_decay"`
	RandomSeed                *int64       `json:"random_seed"`
	Suffix                    *string      `json:"suffix"`

	EarlyStoppingEnabled     *bool    `json:"early_stopping_enabled"`
	EarlyStoppingPatience    *int     `json:"early_stopping_patience"`
	EarlyStoppingMinDelta    *float64 `json:"early_stopping_min_delta"`
	EarlyStoppingWarmupEvals *int     `json:"early_stopping_warmup_evals"`

	TrainOnInputs    *TrainOnInputs    `json:"train_on_inputs"` // deprecated place
	TrainingMethod   *TrainingMethod   `json:"training_method"`
	TrainingType     *TrainingType     `json:"training_type"`
	MultimodalParams *MultimodalParams `json:"multimodal_params"`
	FlatLoRA

	FromCheckpoint *string `json:"from_checkpoint"`
	NamedTwice
}

// FlatLoRA are the fields of TrainingType beside it instead of inside.
type FlatLoRA struct {
	LoRAR                *int     `json:"lora_r"`
	LoRAAlpha            *int     `json:"lora_alpha"`
	LoRADropout          *float64 `json:"lora_dropout"`
	LoRATrainableModules *string  `json:"lora_trainable_modules"`
}

// NamedTwice are the parameters that have two names, one neutral and one with the
// name of a vendor.
type NamedTwice struct {
	FromHubModel       *string `json:"from_hub_model"`
	FromHFModel        *string `json:"from_hf_model"`
	HubModelRevision   *string `json:"hub_model_revision"`
	HFModelRevision    *string `json:"hf_model_revision"`
	HubAPIToken        *string `json:"hub_api_token"`
	HFAPIToken         *string `json:"hf_api_token"`
	HubOutputRepoName  *string `json:"hub_output_repo_name"`
	HFOutputRepoName   *string `json:"hf_output_repo_name"`
	TrackerAPIKey      *string `json:"tracker_api_key"`
	WandbAPIKey        *string `json:"wandb_api_key"`
	WandbKey           *string `json:"wandb_key"` // as older Python clients have it
	TrackerBaseURL     *string `json:"tracker_base_url"`
	WandbBaseURL       *string `json:"wandb_base_url"`
	TrackerProjectName *string `json:"tracker_project_name"`
	WandbProjectName   *string `json:"wandb_project_name"`
	TrackerName        *string `json:"tracker_name"`
	WandbName          *string `json:"wandb_name"`
	TrackerEntity      *string `json:"tracker_entity"`
	WandbEntity        *string `json:"wandb_entity"`
}

// merge takes the second names over into the first and refuses two values.
func (n *NamedTwice) merge() error {
	for _, p := range []struct {
		name        string
		first       **string
		second      *string
		secondNamed string
	}{
		{"from_hub_model", &n.FromHubModel, n.FromHFModel, "from_hf_model"},
		{"hub_model_revision", &n.HubModelRevision, n.HFModelRevision, "hf_model_revision"},
		{"hub_api_token", &n.HubAPIToken, n.HFAPIToken, "hf_api_token"},
		{"hub_output_repo_name", &n.HubOutputRepoName, n.HFOutputRepoName, "hf_output_repo_name"},
		{"tracker_api_key", &n.TrackerAPIKey, n.WandbAPIKey, "wandb_api_key"},
		{"tracker_api_key", &n.TrackerAPIKey, n.WandbKey, "wandb_key"},
		{"tracker_base_url", &n.TrackerBaseURL, n.WandbBaseURL, "wandb_base_url"},
		{"tracker_project_name", &n.TrackerProjectName, n.WandbProjectName, "wandb_project_name"},
		{"tracker_name", &n.TrackerName, n.WandbName, "wandb_name"},
		{"tracker_entity", &n.TrackerEntity, n.WandbEntity, "wandb_entity"},
	} {
		first, second := given(*p.first), given(p.second)
		if first != nil && second != nil && *first != *second {
			return Invalid(p.name, "%s and %s differ; give one of them", p.name, p.secondNamed)
		}
		if *p.first = first; first == nil {
			*p.first = second
		}
	}
	return nil
}

// given is nil for "", which clients send for what their users left out.
func given(s *string) *string {
	if s != nil && *s == "" {
		return nil
	}
	return s
}

// TrainingType is {"type": "Full"} or {"type": "Lora", ...}; requests may also
// have the bare type.
type TrainingType struct {
	Type                 string   `json:"type"`
	LoRAR                *int     `json:"lora_r,omitempty"`
	LoRAAlpha            *int     `json:"lora_alpha,omitempty"`
	LoRADropout          *float64 `json:"lora_dropout,omitempty"`
	LoRATrainableModules *string  `json:"lora_trainable_modules,omitempty"`
}

// The types of training.
const (
	TrainingFull = "Full"
	TrainingLoRA = "Lora"
)

// UnmarshalJSON reads the object or the bare type.
func (t *TrainingType) UnmarshalJSON(data []byte) error {
	type object TrainingType
	return unmarshalNamed(data, &t.Type, (*object)(t))
}

// TrainingMethod is {"method": "sft", ...} or {"method": "dpo", ...}; requests may
// also have the bare method.
type TrainingMethod struct {
	Method            string         `json:"method"`
	TrainOnInputs     *TrainOnInputs `json:"train_on_inputs,omitempty"`
	DPOBeta           *float64       `json:"dpo_beta,omitempty"`
	RPOAlpha          *float64       `json:"rpo_alpha,omitempty"`
	NormalizeByLength *bool          `json:"dpo_normalize_logratios_by_length,omitempty"`
	ReferenceFree     *bool          `json:"dpo_reference_free,omitempty"`
	SimPOGamma        *float64       `json:"simpo_gamma,omitempty"`
}

// The methods of training.
const (
	MethodSFT = "sft"
	MethodDPO = "dpo"
)

// UnmarshalJSON reads the object or the bare method.
func (m *TrainingMethod) UnmarshalJSON(data []byte) error {
	type object TrainingMethod
	return unmarshalNamed(data, &m.Method, (*object)(m))
}

// unmarshalNamed reads a JSON string into name, or an object into o.
func unmarshalNamed(data []byte, name *string, o any) error {
	if len(data) > 0 && data[0] == '"' {
		return json.Unmarshal(data, name)
	}
	if len(data) == 0 || data[0] != '{' {
		return errors.New("must be a string or an object")
	}
	err := json.Unmarshal(data, o)
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) && wrong.Field != "" {
		return Invalid(wrong.Field, "%s must be a %s, got %s", wrong.Field, wrong.Type, wrong.Value)
	}
	return err
}

// LRScheduler is the learning rate after the warm-up.
type LRScheduler struct {
	Type string           `json:"lr_scheduler_type"` // linear or cosine
	Args *LRSchedulerArgs `json:"lr_scheduler_args"`
}

// LRSchedulerArgs are the arguments of a scheduler.
type LRSchedulerArgs struct {
	MinLRRatio *float64 `json:"min_lr_ratio,omitempty"`
	NumCycles  *float64 `json:"num_cycles,omitempty"` // of cosine
}

// MultimodalParams are for models that see.
type MultimodalParams struct {
	TrainVision *bool `json:"train_vision,omitempty"`
}

// EstimateFineTuneRequest is the body of POST /fine-tunes/estimate-price: the
// parameters of a job, of which only the training file is required.
type EstimateFineTuneRequest struct {
	FineTuneRequest
}

// FineTuneIDRequest names a job in the path.
type FineTuneIDRequest struct {
	ID string `path:"id" json:"-"`
}

// DeleteFineTuneRequest is DELETE /fine-tunes/{id}.
type DeleteFineTuneRequest struct {
	ID    string `path:"id" json:"-"`
	Force bool   `query:"force" json:"-"` // cancel the job if it runs
}

// FineTuneLimitsRequest is the query of GET /fine-tunes/models/limits.
type FineTuneLimitsRequest struct {
	ModelName string `query:"model_name" json:"-"`
}

// Validate checks that there is a name.
func (r *FineTuneLimitsRequest) Validate() error {
	if r.ModelName == "" {
		return Invalid("model_name", "model_name is required")
	}
	return nil
}

// FineTuneMetricsRequest is GET /fine-tunes/{id}/metrics.
type FineTuneMetricsRequest struct {
	ID         string     `path:"id" json:"-"`
	StepFrom   *int       `query:"global_step_from" json:"-"`
	StepTo     *int       `query:"global_step_to" json:"-"`
	LoggedFrom *time.Time `query:"logged_at_from" json:"-"`
	LoggedTo   *time.Time `query:"logged_at_to" json:"-"`
	Resolution *int       `query:"resolution" json:"-"` // most rows of training; those of evaluations all come
}

// Validate checks the filters.
func (r *FineTuneMetricsRequest) Validate() error {
	switch {
	case r.StepFrom != nil && *r.StepFrom < 0:
		return Invalid("global_step_from", "global_step_from must not be negative, got %d", *r.StepFrom)
	case r.StepTo != nil && *r.StepTo < 0:
		return Invalid("global_step_to", "global_step_to must not be negative, got %d", *r.StepTo)
	case r.StepFrom != nil && r.StepTo != nil && *r.StepFrom > *r.StepTo:
		return Invalid("global_step_to", "global_step_to must not be below global_step_from")
	case r.LoggedFrom != nil && r.LoggedTo != nil && r.LoggedFrom.After(*r.LoggedTo):
		return Invalid("logged_at_to", "logged_at_to must not be before logged_at_from")
	case r.Resolution != nil && *r.Resolution < 1:
		return Invalid("resolution", "resolution must be at least 1, got %d", *r.Resolution)
	}
	return nil
}

// PreviewFineTuneRequest is the body of POST /fine-tunes/preview.
type PreviewFineTuneRequest struct {
	Model          string          `json:"model"`
	TrainingFile   string          `json:"training_file"`
	TrainingMethod *TrainingMethod `json:"training_method"`
	TrainOnInputs  *bool           `json:"train_on_inputs"`
	TopK           *int            `json:"top_k"`
}

// MaxPreview bounds the rows of a preview.
const MaxPreview = 50

// Validate checks the form.
func (r *PreviewFineTuneRequest) Validate() error {
	switch {
	case r.Model == "":
		return Invalid("model", "model is required")
	case r.TrainingFile == "":
		return Invalid("training_file", "training_file is required")
	case r.TrainingMethod != nil && r.TrainingMethod.Method != MethodSFT:
		return Invalid("training_method", "only sft can be previewed, got %.80q", r.TrainingMethod.Method)
	case r.TopK != nil && (*r.TopK < 1 || *r.TopK > MaxPreview):
		return Invalid("top_k", "top_k must be between 1 and %d, got %d", MaxPreview, *r.TopK)
	}
	return nil
}

// LineageRequest is the query of GET /fine-tunes/lineage.
type LineageRequest struct {
	Model  string `query:"model" json:"-"`
	Verify *bool  `query:"verify" json:"-"` // read all bytes again; true when absent
}

// Validate checks that there is a name.
func (r *LineageRequest) Validate() error {
	if r.Model == "" {
		return Invalid("model", "model is required")
	}
	return nil
}

// between is the 400 for a number out of its range.
func between[N int | float64](name string, v, low, high N) error {
	if v >= low && v <= high { // false for a NaN
		return nil
	}
	return Invalid(name, "%s must be between %s and %s, got %s", name, number(low), number(high), number(v))
}

func number[N int | float64](v N) string { return fmt.Sprintf("%v", v) }
