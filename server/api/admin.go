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
