package finetunes

import (
	"encoding/json"
	"fmt"
	"strings"

	"athanor/store"
	"athanor/store/resource"
)

// Types of events, in the words of the API.
const (
	eventPending           = "job_pending"
	eventStart             = "job_start"
	eventStopped           = "job_stopped"
	eventComplete          = "job_complete"
	eventError             = "job_error"
	eventCancel            = "cancel_requested"
	eventRestarted         = "job_restarted"
	eventModelDownloading  = "model_downloading"
	eventModelDownloaded   = "model_download_complete"
	eventCompressing       = "model_compressing"
	eventCompressed        = "model_compression_complete"
	eventUploading         = "model_uploading"
	eventUploaded          = "model_upload_complete"
	eventTrainDownloading  = "training_data_downloading"
	eventTrainDownloaded   = "training_data_download_complete"
	eventEvalDownloading   = "validation_data_downloading"
	eventEvalDownloaded    = "validation_data_download_complete"
	eventTokenizedUploaded = "tokenized_dataset_upload_complete"
	eventTracker           = "tracker_init"
	eventTrainingStart     = "training_start"
	eventCheckpoint        = "checkpoint_save"
	eventEpoch             = "epoch_complete"
	eventTrainingComplete  = "training_complete"
	eventEarlyStopped      = "early_stopped"
	eventWarning           = "warning"
)

// Levels of events.
const (
	levelInfo    = "info"
	levelWarning = "warning"
	levelError   = "error"
)

// maxMessage bounds the text of an event in bytes.
const maxMessage = 2000

// appendEvent writes an event into the log of a job.
func appendEvent(tx *store.Tx, id resource.FineTuneID, e *resource.FineTuneEvent) error {
	if len(e.Message) > maxMessage {
		e.Message = clip(e.Message, maxMessage) + "..."
	}
	data, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encode event: %w", err)
	}
	_, err = store.AppendEvent(tx, resource.FineTuneLog, string(id), data)
	return err
}

// clip is at most the first n bytes of a text, and whole characters: what is stored
// must come back the same.
func clip(s string, n int) string { return strings.ToValidUTF8(s[:min(len(s), n)], "") }

// readEvents lists all events of a job in the order of time.
func readEvents(tx *store.Tx, id resource.FineTuneID) ([]resource.FineTuneEvent, error) {
	out := []resource.FineTuneEvent{}
	for after := uint64(0); ; {
		page, err := store.Events(tx, resource.FineTuneLog, string(id), after, 1000)
		if err != nil || len(page) == 0 {
			return out, err
		}
		for _, raw := range page {
			var e resource.FineTuneEvent
			if err := json.Unmarshal(raw.Data, &e); err != nil {
				return nil, fmt.Errorf("event %d of %s: %w", raw.Seq, id, err)
			}
			out = append(out, e)
			after = raw.Seq
		}
	}
}
