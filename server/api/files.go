package api

import (
	"path"
	"strings"
	"unicode"
	"unicode/utf8"
)

// File describes an uploaded file.
type File struct {
	ID               string      `json:"id"`
	Object           string      `json:"object"`     // "file"
	CreatedAt        int64       `json:"created_at"` // Unix seconds
	Filename         string      `json:"filename"`
	Bytes            int64       `json:"bytes"`
	Purpose          string      `json:"purpose"`   // fine-tune, eval or batch-api
	Processed        bool        `json:"Processed"` // its bytes have arrived
	FileType         string      `json:"FileType"`  // jsonl, csv or parquet
	LineCount        int64       `json:"LineCount"` // 0 until validated
	ProcessingStatus string      `json:"processing_status"`
	ExpiresAt        *int64      `json:"expires_at,omitempty"` // Unix seconds; absent: kept
	ValidationReport *FileReport `json:"validation_report,omitempty"`
}

// FileReport is the outcome of a validation. Error is the first reason; Errors
// are the first hundred of ErrorCount, each "Line <n>: <location> <problem>".
type FileReport struct {
	Valid                bool     `json:"valid"`
	DatasetFormat        string   `json:"dataset_format,omitempty"`
	HasSampleWeights     bool     `json:"dataset_has_sample_weights"`
	HasMessageWeights    bool     `json:"dataset_has_message_weights"`
	IsMultimodal         bool     `json:"dataset_is_multimodal"`
	HasTools             bool     `json:"dataset_has_tools"`
	HasParallelToolCalls bool     `json:"dataset_has_parallel_tool_calls"`
	HasReasoning         bool     `json:"dataset_has_reasoning"`
	NLines               int64    `json:"nlines"`
	DuplicateLines       int64    `json:"duplicate_lines"`
	FileID               string   `json:"file_id"`
	ErrorType            string   `json:"error_type,omitempty"` // INVALID_FORMAT
	Error                string   `json:"error,omitempty"`
	Errors               []string `json:"errors,omitempty"`
	ErrorCount           int64    `json:"error_count,omitzero"`
}

// FileList is the list of the files of a project, the newest first.
type FileList struct {
	Object  string `json:"object"` // "list"
	Data    []File `json:"data"`
	HasMore bool   `json:"has_more"`
}

// ListFilesRequest is the query of GET /files. Without a limit the list is whole.
type ListFilesRequest struct {
	Purpose string `query:"purpose" json:"-"`
	After   string `query:"after" json:"-"` // id of the last file of the page before
	Limit   *int   `query:"limit" json:"-"`
}

// MaxFiles bounds one page of the list.
const MaxFiles = 10000

// Validate checks the query.
func (r *ListFilesRequest) Validate() error {
	if r.Limit != nil && (*r.Limit < 1 || *r.Limit > MaxFiles) {
		return Invalid("limit", "limit must be between 1 and %d, got %d", MaxFiles, *r.Limit)
	}
	if r.Purpose != "" {
		return checkPurpose(r.Purpose)
	}
	return nil
}

// FileRequest names a file in the path.
type FileRequest struct {
	ID string `path:"id" json:"-"`
}

// FileDeleted answers a deletion.
type FileDeleted struct {
	ID      string `json:"id"`
	Object  string `json:"object"` // "file"
	Deleted bool   `json:"deleted"`
}

// NewFile is what a client says of a file before or beside its bytes.
type NewFile struct {
	Purpose  string `json:"purpose"`
	FileName string `json:"file_name"`
	FileType string `json:"file_type"` // by the name's ending when absent, else jsonl
}

// Validate checks the fields together, fills in the type and takes directories off
// the name: clients send the whole path.
func (f *NewFile) Validate() error {
	if f.Purpose == "" {
		return Invalid("purpose", "purpose is required: fine-tune, eval or batch-api")
	}
	if err := checkPurpose(f.Purpose); err != nil {
		return err
	}
	f.FileName = path.Base("/" + strings.ReplaceAll(f.FileName, `\`, "/"))
	const most = 255
	switch {
	case f.FileName == "/" || f.FileName == "..":
		return Invalid("file_name", "file_name is required")
	case len(f.FileName) > most:
		return Invalid("file_name", "file_name must have at most %d bytes, got %d", most, len(f.FileName))
	case !utf8.ValidString(f.FileName) || strings.ContainsFunc(f.FileName, unicode.IsControl):
		return Invalid("file_name", "file_name must be text without control characters")
	}
	if f.FileType == "" {
		f.FileType = "jsonl"
		if ext := strings.TrimPrefix(strings.ToLower(path.Ext(f.FileName)), "."); ext == "csv" || ext == "parquet" {
			f.FileType = ext
		}
	}
	return checkFileType(f.FileType, f.Purpose)
}

func checkPurpose(p string) error {
	switch p {
	case "fine-tune", "eval", "batch-api":
		return nil
	}
	return Invalid("purpose", "purpose must be fine-tune, eval or batch-api, got %.80q", p)
}

func checkFileType(t, purpose string) error {
	switch {
	case t != "jsonl" && t != "csv" && t != "parquet":
		return Invalid("file_type", "file_type must be jsonl, csv or parquet, got %.80q", t)
	case t == "parquet" && purpose != "fine-tune":
		return Invalid("file_type", "Parquet files are only for the purpose fine-tune, not for %s", purpose)
	case t == "csv" && purpose != "eval":
		return Invalid("file_type", "CSV files are only for the purpose eval, not for %s", purpose)
	}
	return nil
}

// CreateFileRequest is the query of POST /files, which names the file in the
// query, in a form or in JSON, or brings it along as multipart.
type CreateFileRequest struct {
	Purpose  string `query:"purpose" json:"-"`
	FileName string `query:"file_name" json:"-"`
	FileType string `query:"file_type" json:"-"`
}

// InitiateUploadRequest begins a multi-part upload.
type InitiateUploadRequest struct {
	NewFile
	FileSize int64 `json:"file_size"` // bytes
	NumParts int   `json:"num_parts"`
}

// MaxParts bounds the parts of an upload.
const MaxParts = 1000

// Validate checks the request; the bound of the size is the server's.
func (r *InitiateUploadRequest) Validate() error {
	if err := r.NewFile.Validate(); err != nil {
		return err
	}
	if r.FileSize < 1 {
		return Invalid("file_size", "file_size must be at least 1, got %d", r.FileSize)
	}
	if r.NumParts < 1 || r.NumParts > MaxParts || int64(r.NumParts) > r.FileSize {
		return Invalid("num_parts", "num_parts must be between 1 and %d and not above file_size, got %d", MaxParts, r.NumParts)
	}
	return nil
}

// UploadPart says where to PUT one part.
type UploadPart struct {
	PartNumber int               `json:"PartNumber"` // from 1
	URL        string            `json:"URL"`
	Headers    map[string]string `json:"Headers"`        // to send with it
	ETag       string            `json:"ETag,omitempty"` // of a part that has arrived
	Size       int64             `json:"Size,omitzero"`  // as above, bytes
}

// Upload is a multi-part upload under way.
type Upload struct {
	UploadID string       `json:"upload_id"`
	FileID   string       `json:"file_id"`
	Parts    []UploadPart `json:"parts"`
}

// UploadRequest names an upload in the path.
type UploadRequest struct {
	UploadID string `path:"upload_id" json:"-"`
}

// PutPartRequest names a part in the path.
type PutPartRequest struct {
	UploadID string `path:"upload_id" json:"-"`
	Number   int    `path:"number" json:"-"`
}

// CompleteUploadRequest ends a multi-part upload.
type CompleteUploadRequest struct {
	UploadID string          `json:"upload_id"`
	FileID   string          `json:"file_id"`
	Parts    []CompletedPart `json:"parts"`
}

// CompletedPart is a part with the ETag that its PUT got.
type CompletedPart struct {
	PartNumber int    `json:"part_number"`
	ETag       string `json:"etag"`
}

// Validate checks the ids and the number of parts.
func (r *CompleteUploadRequest) Validate() error {
	if r.UploadID == "" {
		return Invalid("upload_id", "upload_id is required")
	}
	if len(r.Parts) == 0 || len(r.Parts) > MaxParts {
		return Invalid("parts", "parts must list between 1 and %d parts, got %d", MaxParts, len(r.Parts))
	}
	return nil
}

// CompletedUpload answers a completion.
type CompletedUpload struct {
	File File `json:"file"`
}

// AbortUploadRequest gives a multi-part upload up.
type AbortUploadRequest struct {
	UploadID string `json:"upload_id"`
	FileID   string `json:"file_id"`
}

// Validate checks the id.
func (r *AbortUploadRequest) Validate() error {
	if r.UploadID == "" {
		return Invalid("upload_id", "upload_id is required")
	}
	return nil
}

// AbortedUpload answers an abortion.
type AbortedUpload struct {
	UploadID string `json:"upload_id"`
	FileID   string `json:"file_id"`
	Aborted  bool   `json:"aborted"`
}
