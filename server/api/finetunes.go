package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"time"
)

// FineTune describes a fine-tuning job. Create, list and cancel answer with the
// truncated form, which leaves the fields of the last group out.
type FineTune struct {
	ID           string          `json:"id"`
	Status       string          `json:"status"`
	CreatedAt    time.Time       `json:"created_at"`
	UpdatedAt    time.Time       `json:"updated_at"`
	StartedAt    *time.Time      `json:"started_at,omitempty"` // of the current stage
	UserID       string          `json:"user_id"`
	OwnerAddress string          `json:"owner_address"`
	TotalPrice   int64           `json:"total_price"`
	TokenCount   int64           `json:"token_count"`
	Events       []FineTuneEvent `json:"events"`

	TrainingFile    string  `json:"training_file"`
	ValidationFile  *string `json:"validation_file,omitempty"`
	Packing         bool    `json:"packing"`
	MaxSeqLength    int     `json:"max_seq_length"`
	Model           string  `json:"model"`
	ModelOutputName string  `json:"model_output_name"`
	Suffix          *string `json:"suffix,omitempty"`
	NEpochs         int     `json:"n_epochs"`
	NEvals          int     `json:"n_evals"`
	NCheckpoints    int     `json:"n_checkpoints"`
	// BatchSize is absent in the truncated form until "max" is a number.
	BatchSize                 *BatchSize      `json:"batch_size,omitempty"`
	GradientAccumulationSteps int             `json:"gradient_accumulation_steps"`
	TrainingType              *TrainingType   `json:"training_type"`
	TrainingMethod            *TrainingMethod `json:"training_method"`
	LearningRate              float64         `json:"learning_rate"`
	LRScheduler               *LRScheduler    `json:"lr_scheduler"`
	WarmupRatio               float64         `json:"warmup_ratio"`
	MaxGradNorm               float64         `json:"max_grad_norm"`
	WeightDecay               float64         `json:"weight_decay"`
	RandomSeed                *int64          `json:"random_seed"`
	EarlyStoppingEnabled      bool            `json:"early_stopping_enabled"`
	EarlyStoppingPatience     *int            `json:"early_stopping_patience,omitempty"`
	EarlyStoppingMinDelta     *float64        `json:"early_stopping_min_delta,omitempty"`
	EarlyStoppingWarmupEvals  *int            `json:"early_stopping_warmup_evals,omitempty"`
	FromCheckpoint            *string         `json:"from_checkpoint,omitempty"`

	// One value under each of two names.
	TrackerProjectName *string `json:"tracker_project_name,omitempty"`
	WandbProjectName   *string `json:"wandb_project_name,omitempty"`
	TrackerName        *string `json:"tracker_name,omitempty"`
	WandbName          *string `json:"wandb_name,omitempty"`
	FromHubModel       *string `json:"from_hub_model,omitempty"`
	FromHFModel        *string `json:"from_hf_model,omitempty"`
	HubModelRevision   *string `json:"hub_model_revision,omitempty"`
	HFModelRevision    *string `json:"hf_model_revision,omitempty"`

	Progress                FineTuneProgress `json:"progress"`
	EarlyStopped            bool             `json:"early_stopped"`
	EarlyStoppingBestStep   *int             `json:"early_stopping_best_step,omitempty"`
	EarlyStoppingBestMetric *float64         `json:"early_stopping_best_metric"` // null when no evaluation improved

	ModelObjectID           string `json:"model_object_id,omitempty"`
	ModelObjectRevisionID   string `json:"model_object_revision_id,omitempty"`
	AdapterObjectID         string `json:"adapter_object_id,omitempty"`
	AdapterObjectRevisionID string `json:"adapter_object_revision_id,omitempty"`
	ErrorMessage            string `json:"error_message,omitempty"` // of a job that ended in error

	*FineTuneDetails
}

// FineTuneDetails is what only GET /fine-tunes/{id} tells.
type FineTuneDetails struct {
	JobID                string            `json:"job_id"`
	ModelObjectName      string            `json:"model_object_name,omitempty"`
	AdapterObjectName    string            `json:"adapter_object_name,omitempty"`
	ModelOutputPath      string            `json:"model_output_path,omitempty"`
	AdapterOutputName    string            `json:"adapter_output_name,omitempty"`
	TokenizedDatasetPath string            `json:"tokenized_dataset_path,omitempty"`
	TokenizedDatasetAt   *time.Time        `json:"tokenized_dataset_uploaded_at,omitempty"`
	TrainingFileNumLines int64             `json:"trainingfile_numlines"`
	TrainingFileSize     int64             `json:"trainingfile_size"`
	TrainingFileLines    int64             `json:"TrainingFileNumLines"` // as the older Python client reads it
	TrainingFileBytes    int64             `json:"TrainingFileSize"`
	EvalSteps            int               `json:"eval_steps"`
	TrainOnInputs        *TrainOnInputs    `json:"train_on_inputs,omitempty"`
	MultimodalParams     *MultimodalParams `json:"multimodal_params,omitempty"`
	ParamCount           int64             `json:"param_count"`
	EpochsCompleted      int               `json:"epochs_completed"`
	Step                 int               `json:"step"`
	TotalSteps           int               `json:"total_steps"`
	QueueDepth           int               `json:"queue_depth"` // jobs that come before this one
	TrackerURL           *string           `json:"tracker_url,omitempty"`
	WandbURL             *string           `json:"wandb_url,omitempty"`
}

// FineTuneProgress estimates the time to the next state.
type FineTuneProgress struct {
	EstimateAvailable bool  `json:"estimate_available"`
	SecondsRemaining  int64 `json:"seconds_remaining"`
}

// FineTuneEvent is one event of a job.
type FineTuneEvent struct {
	Object               string   `json:"object"` // "fine-tune-event"
	CreatedAt            string   `json:"created_at"`
	Level                *string  `json:"level"`
	Message              string   `json:"message"`
	Type                 string   `json:"type"`
	ParamCount           int64    `json:"param_count,omitzero"`
	TokenCount           int64    `json:"token_count,omitzero"`
	TotalSteps           int      `json:"total_steps,omitzero"`
	TrackerURL           string   `json:"tracker_url,omitempty"`
	WandbURL             string   `json:"wandb_url,omitempty"` // the same
	Step                 int      `json:"step,omitzero"`
	CheckpointPath       string   `json:"checkpoint_path,omitempty"`
	ModelPath            string   `json:"model_path,omitempty"`
	TokenizedDatasetPath string   `json:"tokenized_dataset_path,omitempty"`
	BestStep             *int     `json:"early_stopping_best_step,omitempty"`        // of early_stopped
	BestMetricValue      NullReal `json:"early_stopping_best_metric_value,omitzero"` // as above; null when no evaluation improved
}

// NullReal is a number that is absent, null or given: nil, a pointer to nil, or a
// pointer to the number.
type NullReal = **float64

// FineTuneList answers GET /fine-tunes, the newest job first.
type FineTuneList struct {
	Data []FineTune `json:"data"`
}

// FineTuneEventList answers GET /fine-tunes/{id}/events in the order of time.
type FineTuneEventList struct {
	Data []FineTuneEvent `json:"data"`
}

// FineTuneCheckpoint is a state of the weights that was kept.
type FineTuneCheckpoint struct {
	Step             int    `json:"step"`
	CreatedAt        string `json:"created_at"`
	Path             string `json:"path"`
	CheckpointType   string `json:"checkpoint_type"` // for people, e.g. "Intermediate Adapter (step 10)"
	Checkpoint       string `json:"checkpoint"`      // model or adapter
	ObjectID         string `json:"object_id,omitempty"`
	ObjectRevisionID string `json:"object_revision_id,omitempty"`
	ObjectName       string `json:"object_name,omitempty"`
}

// FineTuneCheckpointList answers GET /fine-tunes/{id}/checkpoints.
type FineTuneCheckpointList struct {
	Data []FineTuneCheckpoint `json:"data"`
}

// FineTuneMetrics answers GET /fine-tunes/{id}/metrics: flat rows of numbers.
type FineTuneMetrics struct {
	Metrics []map[string]float64 `json:"metrics"`
}

// FineTuneDeleted answers a deletion.
type FineTuneDeleted struct {
	Message string `json:"message"`
}

// FineTunePrice answers POST /fine-tunes/estimate-price. Without an estimate the
// other fields are 0 or false.
type FineTunePrice struct {
	EstimationAvailable      bool    `json:"estimation_available"`
	UnavailableReason        string  `json:"unavailable_reason,omitempty"`
	EstimatedTotalPrice      float64 `json:"estimated_total_price"` // USD
	AllowedToProceed         bool    `json:"allowed_to_proceed"`
	UserLimit                float64 `json:"user_limit"` // USD
	EstimatedTrainTokenCount int64   `json:"estimated_train_token_count"`
	EstimatedEvalTokenCount  int64   `json:"estimated_eval_token_count"`
}

// FineTuneLimits answers GET /fine-tunes/models/limits.
type FineTuneLimits struct {
	ModelName         string     `json:"model_name"`
	FullTraining      FullLimits `json:"full_training"` // zeros for a model that trains with LoRA only
	LoRATraining      LoRALimits `json:"lora_training"`
	MaxNumEpochs      int        `json:"max_num_epochs"`
	MaxNumEvals       int        `json:"max_num_evals"`
	MaxLearningRate   float64    `json:"max_learning_rate"`
	MinLearningRate   float64    `json:"min_learning_rate"`
	SupportsFull      bool       `json:"supports_full_training"`
	SupportsVision    bool       `json:"supports_vision"`
	SupportsTools     bool       `json:"supports_tools"`
	SupportsReasoning bool       `json:"supports_reasoning"`
	MergeOutputLoRA   bool       `json:"merge_output_lora"`
	DefaultGradAccum  int        `json:"default_gradient_accumulation_steps"`
	MaxNumCheckpoints int        `json:"max_num_checkpoints"`
	MinMaxSeqLength   int        `json:"min_max_seq_length"`
	MaxSeqLengthSFT   int        `json:"max_seq_length_sft"`
	MaxSeqLengthDPO   int        `json:"max_seq_length_dpo"`
}

// FullLimits bound full training.
type FullLimits struct {
	MaxBatchSize    int `json:"max_batch_size"`
	MaxBatchSizeDPO int `json:"max_batch_size_dpo"`
	MinBatchSize    int `json:"min_batch_size"`
}

// LoRALimits bound training of adapters.
type LoRALimits struct {
	FullLimits
	MaxRank       int      `json:"max_rank"`
	DefaultRank   int      `json:"default_rank"`
	TargetModules []string `json:"target_modules"`
}

// FineTuneModels answers GET /fine-tunes/models/supported.
type FineTuneModels struct {
	Models         []string             `json:"models"`
	DetailedModels []FineTuneModelEntry `json:"detailed_models"`
}

// FineTuneModelEntry is a model with the one that its weights belong to.
type FineTuneModelEntry struct {
	Name        string `json:"name"`
	ParentModel string `json:"parent_model"`
}

// FineTunePreview answers POST /fine-tunes/preview.
type FineTunePreview struct {
	Model         string               `json:"model"`
	DatasetFormat string               `json:"dataset_format"` // general, conversation or instruction
	MaxSeqLength  int                  `json:"max_seq_length"`
	TrainOnInputs bool                 `json:"train_on_inputs"`
	Rows          []FineTunePreviewRow `json:"rows"`
}

// FineTunePreviewRow is one sample as the training would see it.
type FineTunePreviewRow struct {
	InputIDs         []int32  `json:"input_ids"`
	Tokens           []string `json:"tokens"`
	Labels           []int32  `json:"labels"`        // -100 where there is no loss
	TrainedSpans     [][2]int `json:"trained_spans"` // half open
	NumTokens        int      `json:"num_tokens"`
	NumTrainedTokens int      `json:"num_trained_tokens"`
	Truncated        bool     `json:"truncated"`
}

// FineTuneLineage answers GET /fine-tunes/lineage: what a model was made of, link
// by link, and whether the bytes are still those.
type FineTuneLineage struct {
	Model       string          `json:"model"`
	ModelID     string          `json:"model_id"`
	Revision    string          `json:"revision"`
	Job         string          `json:"job"`
	CodeVersion string          `json:"code_version"`
	CreatedAt   time.Time       `json:"created_at"`
	Config      json.RawMessage `json:"configuration"`
	Export      *LineageExport  `json:"export,omitempty"`    // the merged model against the base with the adapter
	Quantized   *LineageExport  `json:"quantized,omitempty"` // as it is served against float32
	Chain       []LineageLink   `json:"chain"`               // from the datasets and the base to the model
	Verified    bool            `json:"verified"`            // every link is
}

// LineageLink is one thing that went into a model, or came of the job.
type LineageLink struct {
	Kind   string `json:"kind"` // dataset, base, adapter, checkpoint, merged or model
	Role   string `json:"role,omitempty"`
	ID     string `json:"id,omitempty"`
	Name   string `json:"name"`
	Step   int    `json:"step,omitzero"`
	Hash   string `json:"hash"`  // SHA-256 of the file, or of the manifest of the files
	Bytes  int64  `json:"bytes"` // that were read again
	State  string `json:"state"` // verified, changed, gone or unknown
	Reason string `json:"reason,omitempty"`
}

// LineageExport compares two forms of the model on the same prompts.
type LineageExport struct {
	Prompts    int     `json:"prompts"`
	Positions  int     `json:"positions"`
	MaxLogit   float64 `json:"max_logit"`
	MeanKL     float64 `json:"mean_kl"`
	TopMatches float64 `json:"top_matches"`
	Warning    string  `json:"warning,omitempty"`
}

// BatchSize is a number of samples, or "max": as many as fit.
type BatchSize struct {
	Max bool
	N   int
}

// UnmarshalJSON reads an integer or "max".
func (b *BatchSize) UnmarshalJSON(data []byte) error {
	if string(data) == `"max"` {
		*b = BatchSize{Max: true}
		return nil
	}
	n, err := strconv.Atoi(string(data))
	if err != nil {
		return fmt.Errorf(`must be an integer or "max"`)
	}
	*b = BatchSize{N: n}
	return nil
}

// MarshalJSON writes what UnmarshalJSON reads.
func (b BatchSize) MarshalJSON() ([]byte, error) {
	if b.Max {
		return []byte(`"max"`), nil
	}
	return json.Marshal(b.N)
}

// TrainOnInputs is "true", "false" or "auto"; on the wire a boolean or "auto".
type TrainOnInputs string

// UnmarshalJSON reads a boolean or "auto".
func (t *TrainOnInputs) UnmarshalJSON(data []byte) error {
	switch v := string(bytes.TrimSpace(data)); v {
	case "true", "false":
		*t = TrainOnInputs(v)
	case `"auto"`:
		*t = "auto"
	default:
		return fmt.Errorf(`must be a boolean or "auto"`)
	}
	return nil
}

// MarshalJSON writes what UnmarshalJSON reads.
func (t TrainOnInputs) MarshalJSON() ([]byte, error) {
	if t == "auto" {
		return []byte(`"auto"`), nil
	}
	return []byte(t), nil
}
