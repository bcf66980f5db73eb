package engine

import (
	"context"
	"errors"
)

// Trainer runs training jobs.
type Trainer interface {
	// Train runs spec to its end and reports progress through emit, in order and
	// from one goroutine at a time. What an earlier run left under spec.WorkDir
	// is taken up: the result is the same, byte for byte, as that of a run that
	// was never interrupted, and events from the last saved state on are
	// reported again. An error from emit ends the run with that error. When ctx
	// ends, Train returns its error, nothing runs on, and WorkDir can be taken
	// up later or deleted.
	//
	// Errors: *DataError for a file, *RequestError for a parameter that cannot
	// be honoured, ErrNoMemory, *BusyError when the job fits but not now,
	// ErrUnavailable when the process that trained went away. Of these only the
	// last two are worth another try as it is, and a busy machine is no failure
	// of the job.
	Train(ctx context.Context, spec *TrainSpec, emit func(*TrainEvent) error) (*TrainResult, error)
}

// ErrNoMemory is returned for a job that does not fit this machine, in the
// smallest form that its parameters allow.
var ErrNoMemory = errors.New("not enough memory to train")

// BusyError is returned for a job that has to wait: for other work on this
// machine, or for something that the machine lacks. Nothing of it runs; it should
// be tried again later.
type BusyError struct {
	Reason string // in words for the user, names no other job
}

func (e *BusyError) Error() string { return "the job has to wait: " + e.Reason }

// DataError is a sample that cannot be trained on, in words for the user.
type DataError struct {
	File    string // training or validation
	Line    int64  // from 1, 0 for the whole file
	Message string
}

func (e *DataError) Error() string { return e.Message }

// TrainSpec is everything that decides the result of a training job. Paths are
// absolute.
type TrainSpec struct {
	Job       string `json:"job"`        // for logs
	ModelName string `json:"model_name"` // of the base, written into the results
	ModelDir  string `json:"model_dir"`  // base model in Hugging Face layout
	// AdapterDir is a PEFT folder to go on from, "" for a fresh adapter. Its rank,
	// alpha and modules then count.
	AdapterDir string `json:"adapter_dir,omitempty"`
	WorkDir    string `json:"work_dir"` // belongs to this job alone; survives restarts

	TrainFile DataFile  `json:"train_file"`
	EvalFile  *DataFile `json:"eval_file,omitempty"`

	// Exactly one of SFT and DPO is set; LoRA nil trains all weights.
	SFT  *SFT  `json:"sft,omitempty"`
	DPO  *DPO  `json:"dpo,omitempty"`
	LoRA *LoRA `json:"lora,omitempty"`

	Packing      bool `json:"packing,omitempty"`
	MaxSeqLength int  `json:"max_seq_length,omitempty"` // tokens, 0 = the model's context
	Epochs       int  `json:"epochs"`
	Checkpoints  int  `json:"checkpoints"` // 1..10, the last one is the end
	Evals        int  `json:"evals,omitempty"`
	// BatchSize is sequences (rows, when packed) per forward pass, 0 = as many as
	// fit; GradientAccumulation is passes per optimiser step, 0 = 1.
	BatchSize            int            `json:"batch_size,omitempty"`
	GradientAccumulation int            `json:"gradient_accumulation,omitempty"`
	LearningRate         float64        `json:"learning_rate"`
	Schedule             Schedule       `json:"schedule"`
	WarmupRatio          float64        `json:"warmup_ratio,omitempty"`
	MaxGradNorm          float64        `json:"max_grad_norm,omitempty"` // 0 = no clipping
	WeightDecay          float64        `json:"weight_decay,omitempty"`
	Seed                 uint64         `json:"seed"`
	EarlyStopping        *EarlyStopping `json:"early_stopping,omitempty"`

	// BaseFormat is how the frozen base is kept in memory: none (float32), bf16,
	// int8 or int4; "" = as the checkpoint has it, which needs no memory of its
	// own. Full training keeps float32.
	BaseFormat string `json:"base_format,omitempty"`
	// Quantization is the form in which the result will be served, which it is
	// compared in at the end: int8 or int4; "" and none are float32, with nothing
	// to compare. It has no part in the weights.
	Quantization string `json:"quantization,omitempty"`
	Device       string `json:"device,omitempty"`       // cpu, cuda or the ID of a device, "" = cpu
	Threads      int    `json:"threads,omitempty"`      // 0 = physical cores
	MemoryBytes  int64  `json:"memory_bytes,omitempty"` // what the job may use, 0 = half of what is free at its start
}

// DataFile is a dataset on the local disk.
type DataFile struct {
	Path   string `json:"path"`
	Type   string `json:"type"`   // jsonl or parquet
	SHA256 string `json:"sha256"` // hex; the identity of the content
}

// SFT is supervised fine-tuning.
type SFT struct {
	// TrainOnInputs says whether prompts and the turns of others carry loss:
	// "true", "false", or "auto" (no for conversations and instructions).
	TrainOnInputs string `json:"train_on_inputs"`
}

// DPO is direct preference optimisation. (Rafailov and others 2023,
// arXiv:2305.18290.)
type DPO struct {
	Beta              float64 `json:"beta"`
	RPOAlpha          float64 `json:"rpo_alpha,omitempty"` // weight of the likelihood of the chosen answer
	NormalizeByLength bool    `json:"normalize_by_length,omitempty"`
	ReferenceFree     bool    `json:"reference_free,omitempty"`
	SimPOGamma        float64 `json:"simpo_gamma,omitempty"` // margin; not 0 implies both of the above (arXiv:2405.14734)
}

// LoRA is a low-rank adapter. (Hu and others 2021, arXiv:2106.09685.)
type LoRA struct {
	Rank    int      `json:"rank"` // 1..128
	Alpha   float64  `json:"alpha"`
	Dropout float64  `json:"dropout,omitempty"`
	Modules []string `json:"modules,omitempty"` // names such as q_proj; empty = all linear ones
}

// Schedule is the learning rate after the warm-up.
type Schedule struct {
	Type       string  `json:"type"` // linear or cosine
	MinLRRatio float64 `json:"min_lr_ratio,omitempty"`
	NumCycles  float64 `json:"num_cycles,omitempty"` // cosine, 0.5 is one half wave
}

// EarlyStopping ends a job whose validation loss stops improving.
type EarlyStopping struct {
	Patience    int     `json:"patience"` // evaluations in a row without improvement
	MinDelta    float64 `json:"min_delta,omitempty"`
	WarmupEvals int     `json:"warmup_evals,omitempty"` // first evaluations that set the best but never stop
}

// TrainEvent is one piece of progress. Step counts optimiser steps from 1.
type TrainEvent struct {
	Type    TrainEventType     `json:"type"`
	Step    int                `json:"step,omitempty"`
	Message string             `json:"message,omitempty"` // for people
	Plan    *TrainPlan         `json:"plan,omitempty"`    // of TrainPlanned
	Metrics map[string]float64 `json:"metrics,omitempty"` // of TrainStep and TrainEval, by the names of the API, e.g. "train/loss"
	// Checkpoint of TrainCheckpoint; Epoch, from 1, of TrainEpoch.
	Checkpoint *Checkpoint `json:"checkpoint,omitempty"`
	Epoch      int         `json:"epoch,omitempty"`
	// Of TrainEarlyStopped, as in TrainResult.
	BestStep   int      `json:"best_step,omitempty"`
	BestMetric *float64 `json:"best_metric,omitempty"`
	// SecondsLeft estimates the rest of the job, 0 = unknown.
	SecondsLeft float64 `json:"seconds_left,omitempty"`
}

// TrainEventType says what happened.
type TrainEventType string

// The events of a job, in the order of their first appearance.
const (
	TrainPlanned      TrainEventType = "planned"       // the data is tokenized, the sizes are known
	TrainStarted      TrainEventType = "started"       // the first step begins
	TrainStep         TrainEventType = "step"          // an optimiser step is done
	TrainEval         TrainEventType = "eval"          // an evaluation is done
	TrainCheckpoint   TrainEventType = "checkpoint"    // a checkpoint is on disk
	TrainEpoch        TrainEventType = "epoch"         // an epoch is done
	TrainEarlyStopped TrainEventType = "early_stopped" // the rule fired
	TrainFinished     TrainEventType = "finished"      // the last step is done; exports follow
	TrainWarning      TrainEventType = "warning"
)

// TrainPlan is what the data and the machine make of a spec.
type TrainPlan struct {
	TrainSamples  int64  `json:"train_samples"`
	TrainTokens   int64  `json:"train_tokens"` // of one epoch
	EvalSamples   int64  `json:"eval_samples,omitempty"`
	EvalTokens    int64  `json:"eval_tokens,omitempty"`
	Truncated     int64  `json:"truncated,omitempty"` // samples cut at MaxSeqLength
	Steps         int    `json:"steps"`               // of the whole job
	EvalEvery     int    `json:"eval_every,omitempty"`
	BatchSize     int    `json:"batch_size"` // what "as many as fit" became
	MaxSeqLength  int    `json:"max_seq_length"`
	Parameters    int64  `json:"parameters"`
	Trainable     int64  `json:"trainable"`
	MemoryBytes   int64  `json:"memory_bytes"`    // estimate of the peak
	TokenizedDir  string `json:"tokenized_dir"`   // files of the tokenized dataset, see Tokenized
	ResumedAtStep int    `json:"resumed_at_step"` // 0 for a fresh run
}

// Checkpoint is a state of the weights that users can use.
type Checkpoint struct {
	Step  int    `json:"step"`
	Dir   string `json:"dir"`   // a PEFT folder, or a model in Hugging Face layout
	Final bool   `json:"final"` // of the last step
}

// TrainResult is what a finished job leaves in its WorkDir.
type TrainResult struct {
	Steps  int   `json:"steps"`  // done
	Epochs int   `json:"epochs"` // completed
	Tokens int64 `json:"tokens"` // trained on, over all epochs

	EarlyStopped bool     `json:"early_stopped,omitempty"`
	BestStep     int      `json:"best_step,omitempty"`   // with EarlyStopped: the step of the selected weights
	BestMetric   *float64 `json:"best_metric,omitempty"` // the best validation loss, nil when none improved

	AdapterDir string `json:"adapter_dir,omitempty"` // with LoRA: the selected adapter in PEFT layout
	ModelDir   string `json:"model_dir"`             // the selected model, merged when trained with LoRA
	// Difference between base plus adapter and the merged model on a probe set;
	// nil without LoRA.
	Export *ExportCheck `json:"export,omitempty"`
	// Difference between the result in float32 and in TrainSpec.Quantization: of
	// the base with the adapter, or of the model. nil without a quantisation.
	Quantized *ExportCheck `json:"quantized,omitempty"`
}

// ExportCheck compares two forms of one model on the same prompts.
type ExportCheck struct {
	Prompts    int     `json:"prompts"`
	Positions  int     `json:"positions"`   // logit rows compared
	MaxLogit   float64 `json:"max_logit"`   // largest absolute difference of a logit
	MeanKL     float64 `json:"mean_kl"`     // nats, Kullback-Leibler divergence per position
	TopMatches float64 `json:"top_matches"` // share of positions with the same most likely token
	Warning    string  `json:"warning,omitempty"`
}
