package api

import "path/filepath"

// ImportModelRequest is POST /admin/models/import, which only the admin socket
// has: it reads a directory of this machine.
type ImportModelRequest struct {
	Path         string `json:"path"` // absolute
	Name         string `json:"name"`
	Quantization string `json:"quantization"` // none, int8 or int4
}

// Validate checks the form; the content is checked by the import itself.
func (r *ImportModelRequest) Validate() error {
	if !filepath.IsAbs(r.Path) {
		return Invalid("path", "path must be absolute, got %q", r.Path)
	}
	if r.Name == "" {
		return Invalid("name", "name is required")
	}
	switch r.Quantization {
	case "none", "int8", "int4":
		return nil
	}
	return Invalid("quantization", "quantization must be none, int8 or int4, got %q", r.Quantization)
}

// ImportEvent is one event of an import: progress, and at the end the model.
type ImportEvent struct {
	Phase string `json:"phase,omitempty"`
	Done  int64  `json:"done,omitempty"`  // of Total
	Total int64  `json:"total,omitempty"` // 0 when unknown
	Model *Model `json:"model,omitempty"`
}

// ModelDirectoryRequest is the query of GET /admin/models/directory, which only the
// admin socket has: whoever opens it may read the files of this machine.
type ModelDirectoryRequest struct {
	Model string `query:"model" json:"-"`
}

// Validate checks that there is a name.
func (r *ModelDirectoryRequest) Validate() error {
	if r.Model == "" {
		return Invalid("model", "model is required")
	}
	return nil
}

// ModelDirectory says where the files of a model lie, in the layout of Hugging Face.
type ModelDirectory struct {
	Model         string `json:"model"`
	Directory     string `json:"directory"`      // absolute
	ContextLength int    `json:"context_length"` // tokens that the server lets it read
}
