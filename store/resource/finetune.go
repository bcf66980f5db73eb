package resource

import (
	"encoding/json"
	"slices"
	"time"
)

// FineTune is one fine-tuning job of a project. Its log of FineTuneEvents is kept
// under FineTuneLog, its rows of metrics in a table of their own, and what must
// not be seen in FineTuneSecrets.
type FineTune struct {
	ID           FineTuneID     `json:"id"`
	ProjectID    ProjectID      `json:"project_id"`
	UserID       UserID         `json:"user_id,omitempty"`
	OwnerAddress string         `json:"owner_address,omitempty"` // how people call the owner
	Status       FineTuneStatus `json:"status"`
	Problem      string         `json:"problem,omitempty"` // why it ended in FineTuneError
	CreatedAt    time.Time      `json:"created_at"`
	UpdatedAt    time.Time      `json:"updated_at"`
	StartedAt    time.Time      `json:"started_at,omitzero"` // of the current stage
	// Stages are the times at which each state was entered last.
	Stages map[FineTuneStatus]time.Time `json:"stages,omitempty"`
	// DeleteWhenFinal is set by a forced deletion of a job that runs.
	DeleteWhenFinal bool `json:"delete_when_final,omitempty"`
	// Deleted jobs are not shown any more; Leftover are files of theirs that may have
	// to be deleted.
	Deleted  bool        `json:"deleted,omitempty"`
	Leftover []ModelFile `json:"leftover,omitempty"`

	Params     FineTuneParams `json:"params"`
	OutputName string         `json:"output_name"` // name of the model that comes of it, see ValidateModelName
	Base       FineTuneBase   `json:"base"`
	TrainFile  FineTuneFile   `json:"train_file"`
	EvalFile   *FineTuneFile  `json:"eval_file,omitempty"`

	// Reported are the names of events that come once in a job, so that what a
	// resumed run reports again is not noted twice.
	Reported  []string         `json:"reported,omitempty"`
	Tries     int              `json:"tries,omitempty"`      // runs in a row that ended without a step more
	TriedStep int              `json:"tried_step,omitempty"` // the highest step before them
	Progress  FineTuneProgress `json:"progress"`

	TrackerURL  string               `json:"tracker_url,omitempty"`
	Tokenized   *FineTuneArchive     `json:"tokenized,omitempty"`
	Checkpoints []FineTuneCheckpoint `json:"checkpoints,omitempty"` // in order of their steps
	Result      *FineTuneResult      `json:"result,omitempty"`      // of a completed job
}

// FineTuneLog is the kind of the event log of fine-tuning jobs.
const FineTuneLog = "finetune"

// FineTuneBase is what the training goes on from.
type FineTuneBase struct {
	ModelID  ModelID `json:"model_id"` // whose weights are resident when the result is an adapter
	Name     string  `json:"name"`     // as the API shows it
	Revision string  `json:"revision"`
	// AdapterID is the adapter to go on from; its model is ModelID.
	AdapterID       ModelID `json:"adapter_id,omitempty"`
	AdapterRevision string  `json:"adapter_revision,omitempty"`
}

// FineTuneFile is a dataset as it was when the job was created.
type FineTuneFile struct {
	ID     FileID   `json:"id"`
	Type   FileType `json:"type"`
	Size   int64    `json:"size"` // bytes
	Lines  int64    `json:"lines"`
	SHA256 string   `json:"sha256"` // hex
}

// FineTuneParams are the parameters of a job with every default filled in.
type FineTuneParams struct {
	Packing                   bool               `json:"packing"`
	MaxSeqLength              int                `json:"max_seq_length"` // tokens
	Epochs                    int                `json:"epochs"`
	Checkpoints               int                `json:"checkpoints"`
	Evals                     int                `json:"evals"`
	BatchSize                 int                `json:"batch_size"` // 0: as many as fit
	GradientAccumulationSteps int                `json:"gradient_accumulation_steps"`
	LearningRate              float64            `json:"learning_rate"`
	Scheduler                 FineTuneScheduler  `json:"scheduler"`
	WarmupRatio               float64            `json:"warmup_ratio"`
	MaxGradNorm               float64            `json:"max_grad_norm"`
	WeightDecay               float64            `json:"weight_decay"`
	Seed                      int64              `json:"seed"`
	EarlyStopping             *FineTuneStopping  `json:"early_stopping,omitempty"`
	SFT                       *FineTuneSFT       `json:"sft,omitempty"` // exactly one of SFT and DPO
	DPO                       *FineTuneDPO       `json:"dpo,omitempty"`
	LoRA                      *FineTuneLoRA      `json:"lora,omitempty"` // nil: all weights
	Suffix                    string             `json:"suffix,omitempty"`
	FromCheckpoint            string             `json:"from_checkpoint,omitempty"` // as the client wrote it
	HubModel                  string             `json:"hub_model,omitempty"`       // repository to start from
	HubRevision               string             `json:"hub_revision,omitempty"`
	HubOutput                 string             `json:"hub_output,omitempty"` // repository that gets the result
	Tracker                   FineTuneTrackerRun `json:"tracker,omitzero"`
}

// FineTuneScheduler is the learning rate after the warm-up.
type FineTuneScheduler struct {
	Type       string  `json:"type"` // linear or cosine
	MinLRRatio float64 `json:"min_lr_ratio"`
	NumCycles  float64 `json:"num_cycles,omitempty"` // of cosine
}

// FineTuneStopping ends a job whose validation loss stops improving.
type FineTuneStopping struct {
	Patience    int     `json:"patience"`
	MinDelta    float64 `json:"min_delta"`
	WarmupEvals int     `json:"warmup_evals"`
}

// FineTuneSFT is supervised fine-tuning.
type FineTuneSFT struct {
	TrainOnInputs string `json:"train_on_inputs"` // true, false or auto
}

// FineTuneDPO is direct preference optimisation.
type FineTuneDPO struct {
	Beta              float64 `json:"beta"`
	RPOAlpha          float64 `json:"rpo_alpha"`
	NormalizeByLength bool    `json:"normalize_by_length"`
	ReferenceFree     bool    `json:"reference_free"`
	SimPOGamma        float64 `json:"simpo_gamma"`
}

// FineTuneLoRA is a low-rank adapter.
type FineTuneLoRA struct {
	Rank    int      `json:"rank"`
	Alpha   int      `json:"alpha"`
	Dropout float64  `json:"dropout"`
	Modules []string `json:"modules,omitempty"` // empty: all linear ones
}

// FineTuneTrackerRun says where the metrics are sent beside our own store. It is
// zero without a tracker.
type FineTuneTrackerRun struct {
	BaseURL string `json:"base_url,omitempty"`
	Project string `json:"project,omitempty"`
	Name    string `json:"name,omitempty"`
	Entity  string `json:"entity,omitempty"`
}

// FineTuneSecrets are kept apart from the job, under its id, and deleted when it
// is final.
type FineTuneSecrets struct {
	HubToken   string `json:"hub_token,omitempty"`
	TrackerKey string `json:"tracker_key,omitempty"`
}

// FineTuneProgress is how far a job is.
type FineTuneProgress struct {
	Step             int       `json:"step,omitempty"`
	TotalSteps       int       `json:"total_steps,omitempty"`
	EpochsCompleted  int       `json:"epochs_completed,omitempty"`
	Tokens           int64     `json:"tokens,omitempty"`     // trained on; of the plan until the end
	Parameters       int64     `json:"parameters,omitempty"` // of the model
	Trainable        int64     `json:"trainable,omitempty"`
	BatchSize        int       `json:"batch_size,omitempty"` // that was found to fit
	EvalEvery        int       `json:"eval_every,omitempty"` // steps
	ExpectedAt       time.Time `json:"expected_at,omitzero"` // end of the training, when known
	EarlyStopped     bool      `json:"early_stopped,omitempty"`
	BestStep         int       `json:"best_step,omitempty"`
	BestMetric       *float64  `json:"best_metric,omitempty"`
	QueuedBecause    string    `json:"queued_because,omitempty"` // of a job that has to wait for the machine
	MemoryBytes      int64     `json:"memory_bytes,omitempty"`
	TruncatedSamples int64     `json:"truncated_samples,omitempty"`
}

// FineTuneArchive is an object that belongs to a job.
type FineTuneArchive struct {
	ObjectKey string    `json:"object_key"`
	Size      int64     `json:"size"` // bytes
	SHA256    string    `json:"sha256"`
	CreatedAt time.Time `json:"created_at"`
}

// FineTuneCheckpoint is a state of the weights that was saved on the way.
type FineTuneCheckpoint struct {
	Step      int       `json:"step"`
	ModelID   ModelID   `json:"model_id,omitempty"` // "" when only its files are kept
	Name      string    `json:"name"`               // of that model
	Revision  string    `json:"revision"`
	Adapter   bool      `json:"adapter,omitempty"` // a PEFT folder
	CreatedAt time.Time `json:"created_at"`
	// Files are those of the checkpoint when it has no model.
	Files []ModelFile `json:"files,omitempty"`
}

// FineTuneResult is what a completed job has made.
type FineTuneResult struct {
	ModelID  ModelID `json:"model_id"` // what answers under OutputName: the adapter of a LoRA job, on its base
	Revision string  `json:"revision"`
	Steps    int     `json:"steps"`
	Epochs   int     `json:"epochs"`
	Step     int     `json:"step"` // of the selected weights
	// Merged are the files of the base with the adapter in it, or none.
	Merged         []ModelFile `json:"merged,omitempty"`
	MergedRevision string      `json:"merged_revision,omitempty"`
	// Adapter are the files of the adapter when the model is not the adapter.
	Adapter         []ModelFile `json:"adapter,omitempty"`
	AdapterRevision string      `json:"adapter_revision,omitempty"`
}

// FineTuneStatus is where a job is on its way.
type FineTuneStatus string

// The states of a job, in the words of the API.
const (
	FineTunePending         FineTuneStatus = "pending"          // created
	FineTuneQueued          FineTuneStatus = "queued"           // waits for the machine
	FineTuneRunning         FineTuneStatus = "running"          // fetches its data and trains
	FineTuneCompressing     FineTuneStatus = "compressing"      // the weights are merged and written
	FineTuneUploading       FineTuneStatus = "uploading"        // the results are stored
	FineTuneCancelRequested FineTuneStatus = "cancel_requested" // will stop soon
	FineTuneCancelled       FineTuneStatus = "cancelled"
	FineTuneError           FineTuneStatus = "error"
	FineTuneCompleted       FineTuneStatus = "completed"
)

// FineTuneMoves is the table of what may follow each state. A job goes back from
// running to queued when the process that trained went away. One that is to be
// cancelled may still complete, when the work was done already.
var FineTuneMoves = map[FineTuneStatus][]FineTuneStatus{
	FineTunePending:         {FineTuneQueued, FineTuneCancelRequested, FineTuneError},
	FineTuneQueued:          {FineTuneRunning, FineTuneCancelRequested, FineTuneError},
	FineTuneRunning:         {FineTuneCompressing, FineTuneQueued, FineTuneCancelRequested, FineTuneError},
	FineTuneCompressing:     {FineTuneUploading, FineTuneCancelRequested, FineTuneError},
	FineTuneUploading:       {FineTuneCompleted, FineTuneCancelRequested, FineTuneError},
	FineTuneCancelRequested: {FineTuneCancelled, FineTuneCompleted, FineTuneError},
	FineTuneCancelled:       {},
	FineTuneError:           {},
	FineTuneCompleted:       {},
}

// Final reports whether nothing follows.
func (s FineTuneStatus) Final() bool { return len(FineTuneMoves[s]) == 0 }

// To moves the job on and notes the time, or returns *BadMove.
func (f *FineTune) To(next FineTuneStatus, now time.Time) error {
	if !slices.Contains(FineTuneMoves[f.Status], next) {
		return &BadMove{Kind: "fine-tuning job", From: string(f.Status), To: string(next)}
	}
	if f.Stages == nil {
		f.Stages = map[FineTuneStatus]time.Time{}
	}
	f.Status, f.UpdatedAt, f.StartedAt = next, now, now
	f.Stages[next] = now
	return nil
}

// Files are those that the job keeps itself, beside those of models.
func (f *FineTune) Files() []ModelFile {
	var files []ModelFile
	for _, c := range f.Checkpoints {
		files = append(files, c.Files...)
	}
	if f.Result != nil {
		files = slices.Concat(files, f.Result.Merged, f.Result.Adapter)
	}
	return files
}

// Report notes that the event named key is about to be reported and returns false
// when it was before.
func (f *FineTune) Report(key string) bool {
	if slices.Contains(f.Reported, key) {
		return false
	}
	f.Reported = append(f.Reported, key)
	return true
}

// FineTuneEvent is one entry in the log of a job.
type FineTuneEvent struct {
	Type          string    `json:"type"`
	Level         string    `json:"level,omitempty"` // info, warning or error
	Message       string    `json:"message"`
	At            time.Time `json:"at"`
	Parameters    int64     `json:"param_count,omitempty"`
	Tokens        int64     `json:"token_count,omitempty"`
	TotalSteps    int       `json:"total_steps,omitempty"`
	TrackerURL    string    `json:"tracker_url,omitempty"`
	Step          int       `json:"step,omitempty"`
	Checkpoint    string    `json:"checkpoint_path,omitempty"`
	Model         string    `json:"model_path,omitempty"`
	TokenizedPath string    `json:"tokenized_dataset_path,omitempty"`
	BestStep      *int      `json:"best_step,omitempty"` // only of early_stopped
	BestMetric    *float64  `json:"best_metric,omitempty"`
}

// FineTuneMetrics is one row of metrics: of an optimiser step, or of an
// evaluation. A row that is reported again replaces the one before.
type FineTuneMetrics struct {
	Job    FineTuneID         `json:"job"`
	Step   int                `json:"step"`
	Eval   bool               `json:"eval,omitempty"`
	At     time.Time          `json:"at"`
	Values map[string]float64 `json:"values"`
}

// Lineage says what a model was made of. It is written once, with the model.
type Lineage struct {
	Job         FineTuneID        `json:"job"`
	Base        LineageModel      `json:"base"`
	Adapter     *LineageModel     `json:"adapter,omitempty"` // that the training went on from
	Datasets    []LineageDataset  `json:"datasets"`
	Config      json.RawMessage   `json:"config"`       // the effective settings of the training, without paths
	CodeVersion string            `json:"code_version"` // of the program that trained
	Checkpoints []LineageModel    `json:"checkpoints,omitempty"`
	Export      *LineageExport    `json:"export,omitempty"`    // the merged model against the base with the adapter
	Quantized   *LineageExport    `json:"quantized,omitempty"` // as it is served against float32
	Artifacts   map[string]string `json:"artifacts,omitempty"` // revisions of other forms: merged, adapter
	CreatedAt   time.Time         `json:"created_at"`
}

// LineageModel names weights by their content.
type LineageModel struct {
	ID       ModelID `json:"id,omitempty"`
	Name     string  `json:"name"`
	Revision string  `json:"revision"`
	Step     int     `json:"step,omitempty"` // of a checkpoint
}

// LineageDataset names a file by its content.
type LineageDataset struct {
	Role   string `json:"role"` // training or validation
	FileID FileID `json:"file_id"`
	Size   int64  `json:"size"` // bytes
	SHA256 string `json:"sha256"`
}

// LineageExport compares two forms of the model on the same prompts.
type LineageExport struct {
	Prompts    int     `json:"prompts"`
	Positions  int     `json:"positions"`
	MaxLogit   float64 `json:"max_logit"`
	MeanKL     float64 `json:"mean_kl"` // nats per position
	TopMatches float64 `json:"top_matches"`
	Warning    string  `json:"warning,omitempty"`
}
