package resource

import (
	"fmt"
	"slices"
	"time"
)

// File is an uploaded file, or one that the appliance made, of one project.
type File struct {
	ID        FileID      `json:"id"`
	ProjectID ProjectID   `json:"project_id"`
	Name      string      `json:"name"` // as uploaded, without directories
	Purpose   FilePurpose `json:"purpose"`
	Type      FileType    `json:"type"`
	Size      int64       `json:"size"`             // bytes
	SHA256    string      `json:"sha256,omitempty"` // hex; "" until the content is in one object
	ObjectKey string      `json:"object_key,omitempty"`
	Parts     []FilePart  `json:"parts,omitempty"`     // of a multi-part upload that is not joined yet
	UploadID  UploadID    `json:"upload_id,omitempty"` // of the multi-part upload that brings it
	Status    FileStatus  `json:"status"`
	Problem   string      `json:"problem,omitempty"` // why it is FAILED
	Report    *FileReport `json:"report,omitempty"`  // nil until validated, and for files that are not
	CreatedAt time.Time   `json:"created_at"`
	UpdatedAt time.Time   `json:"updated_at"`
	ExpiresAt *time.Time  `json:"expires_at,omitempty"` // deleted then; nil: kept
}

// Here reports whether all bytes of the file have arrived.
func (f *File) Here() bool { return f.ObjectKey != "" || len(f.Parts) > 0 }

// FilePart is one stored piece of a file.
type FilePart struct {
	Number    int    `json:"number"` // from 1
	Size      int64  `json:"size"`   // bytes
	SHA256    string `json:"sha256"` // hex
	ObjectKey string `json:"object_key"`
}

// FileReport is what the validation of a file found.
type FileReport struct {
	Valid                bool          `json:"valid"`
	Format               string        `json:"format,omitempty"`
	HasSampleWeights     bool          `json:"has_sample_weights,omitempty"`
	HasMessageWeights    bool          `json:"has_message_weights,omitempty"`
	Multimodal           bool          `json:"multimodal,omitempty"`
	HasTools             bool          `json:"has_tools,omitempty"`
	HasParallelToolCalls bool          `json:"has_parallel_tool_calls,omitempty"`
	HasReasoning         bool          `json:"has_reasoning,omitempty"`
	Lines                int64         `json:"lines"`
	Duplicates           int64         `json:"duplicates,omitempty"`
	Errors               int64         `json:"errors,omitempty"`   // all of them
	Problems             []FileProblem `json:"problems,omitempty"` // the first ones
}

// FileProblem is one line of a file that breaks a rule.
type FileProblem struct {
	Line   int64  `json:"line"`   // from 1
	Reason string `json:"reason"` // location and problem
}

// String is the form in which users see it.
func (p FileProblem) String() string { return fmt.Sprintf("Line %d: %s", p.Line, p.Reason) }

// FilePurpose says what a file is for, in the words of the API.
type FilePurpose string

// The purposes.
const (
	PurposeFineTune FilePurpose = "fine-tune"
	PurposeEval     FilePurpose = "eval"
	PurposeBatch    FilePurpose = "batch-api"
)

// Valid reports whether p is one of the purposes.
func (p FilePurpose) Valid() bool {
	return p == PurposeFineTune || p == PurposeEval || p == PurposeBatch
}

// FileType is the format of a file's bytes.
type FileType string

// The types.
const (
	FileJSONL   FileType = "jsonl"
	FileCSV     FileType = "csv"
	FileParquet FileType = "parquet"
)

// Valid reports whether t is one of the types.
func (t FileType) Valid() bool { return t == FileJSONL || t == FileCSV || t == FileParquet }

// FileStatus is where a file is on its way through ingestion.
type FileStatus string

// The states of a file.
const (
	FilePending   FileStatus = "PENDING"        // announced; its bytes have not arrived
	FileQueued    FileStatus = "QUEUED"         // arrived, waits for ingestion
	FileRunning   FileStatus = "RUNNING"        // being joined or validated
	FileCompleted FileStatus = "COMPLETED"      // ready for use
	FileInvalid   FileStatus = "INVALID_FORMAT" // breaks the rules; the user can mend it
	FileFailed    FileStatus = "FAILED"         // ingestion itself failed
)

// FileMoves is the table of what may follow each state. A file goes back from
// RUNNING to QUEUED when its ingestion is tried again.
var FileMoves = map[FileStatus][]FileStatus{
	FilePending:   {FileQueued, FileCompleted},
	FileQueued:    {FileRunning, FileFailed},
	FileRunning:   {FileRunning, FileQueued, FileCompleted, FileInvalid, FileFailed},
	FileCompleted: {},
	FileInvalid:   {},
	FileFailed:    {},
}

// Final reports whether nothing follows.
func (s FileStatus) Final() bool { return len(FileMoves[s]) == 0 }

// To moves the file on, or returns *BadMove.
func (f *File) To(next FileStatus, now time.Time) error {
	if !slices.Contains(FileMoves[f.Status], next) {
		return &BadMove{Kind: "file", From: string(f.Status), To: string(next)}
	}
	f.Status, f.UpdatedAt = next, now
	return nil
}

// BadMove is returned for a change of state that the table of the record forbids.
type BadMove struct{ Kind, From, To string }

// Error names the states.
func (e *BadMove) Error() string {
	return fmt.Sprintf("a %s that is %s cannot become %s", e.Kind, e.From, e.To)
}
