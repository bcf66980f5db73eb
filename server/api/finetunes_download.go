package api

import "time"

// TokenizedDataset answers GET /fine-tunes/{id}/download-tokenized-dataset: where
// the archive can be fetched, without a key, until ExpiresAt.
type TokenizedDataset struct {
	URL         string    `json:"url"`
	Filename    string    `json:"filename"`
	Size        int64     `json:"size"` // bytes
	ContentType string    `json:"content_type"`
	ExpiresAt   time.Time `json:"expires_at"`
}

// The forms of a result that can be downloaded.
const (
	DownloadMerged  = "merged"            // the base with the adapter in it
	DownloadAdapter = "adapter"           // the adapter of a LoRA job
	DownloadModel   = "model_output_path" // what the job made: the model, of a LoRA job merged
)

// DownloadFineTuneRequest is the query of GET /finetune/download.
type DownloadFineTuneRequest struct {
	FineTuneID string `query:"ft_id" json:"-"`
	Step       *int   `query:"checkpoint_step" json:"-"` // absent or 0: the result
	Checkpoint string `query:"checkpoint" json:"-"`      // "" chooses by the kind of the job
}

// Validate checks the query.
func (r *DownloadFineTuneRequest) Validate() error {
	switch {
	case r.FineTuneID == "":
		return Invalid("ft_id", "ft_id is required: the id of a fine-tuning job")
	case r.Step != nil && *r.Step < 0:
		return Invalid("checkpoint_step", "checkpoint_step must not be negative, got %d", *r.Step)
	}
	switch r.Checkpoint {
	case "", DownloadMerged, DownloadAdapter, DownloadModel:
		return nil
	}
	return Invalid("checkpoint", "checkpoint must be merged, adapter or model_output_path, got %.80q", r.Checkpoint)
}
