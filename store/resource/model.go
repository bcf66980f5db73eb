package resource

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Model is weights with everything needed to serve them, imported or trained
// here. One with a BaseID is an adapter: its files are a PEFT folder, and it is
// served on the weights of its base.
type Model struct {
	ID            ModelID      `json:"id"`
	ProjectID     ProjectID    `json:"project_id,omitempty"` // "": visible to every project
	Name          string       `json:"name"`                 // see ValidateModelName; unique in its project
	Aliases       []string     `json:"aliases,omitempty"`    // other names, which are not listed; unique like Name
	DisplayName   string       `json:"display_name,omitempty"`
	BaseID        ModelID      `json:"base_id,omitempty"`
	Type          ModelType    `json:"type"`
	Architecture  string       `json:"architecture"`   // as its config names it, e.g. "LlamaForCausalLM"
	Quantization  Quantization `json:"quantization"`   // of the weights as stored
	ContextLength int          `json:"context_length"` // tokens, prompt and answer together
	Parameters    int64        `json:"parameters"`     // count of weights before quantization
	License       string       `json:"license,omitempty"`
	Files         []ModelFile  `json:"files"`
	SourceKind    string       `json:"source_kind"` // where it came from, e.g. "directory", "builtin"
	Source        string       `json:"source,omitempty"`
	Revision      string       `json:"revision"` // SHA-256 of the manifest of Files, hex
	Builtin       bool         `json:"builtin,omitempty"`
	CreatedAt     time.Time    `json:"created_at"`
	EndpointID    EndpointID   `json:"endpoint_id"`       // of its serverless endpoint
	Lineage       *Lineage     `json:"lineage,omitempty"` // of a model that was trained here
}

// ModelFile is one file of a model.
type ModelFile struct {
	Path      string `json:"path"`       // relative to the model, with slashes
	Size      int64  `json:"size"`       // bytes
	SHA256    string `json:"sha256"`     // hex
	ObjectKey string `json:"object_key"` // in the object store
}

// Size is the sum of the files in bytes.
func (m *Model) Size() int64 {
	var n int64
	for _, f := range m.Files {
		n += f.Size
	}
	return n
}

// Revision is the content identity of a directory of weights: the SHA-256 of its
// manifest, "<sha256> <size> <path>" by line in the order of paths.
func Revision(files []ModelFile) string {
	sorted := slices.Clone(files)
	slices.SortFunc(sorted, func(a, b ModelFile) int {
		return strings.Compare(a.Path, b.Path)
	})
	h := sha256.New()
	for _, f := range sorted {
		fmt.Fprintf(h, "%s %d %s\n", f.SHA256, f.Size, f.Path)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// VisibleTo reports whether the project p may use the model.
func (m *Model) VisibleTo(p ProjectID) bool { return m.ProjectID == "" || m.ProjectID == p }

// ModelType says what a model is for, in the words of the API.
type ModelType string

// The types of models.
const (
	ModelChat       ModelType = "chat"     // answers conversations
	ModelLanguage   ModelType = "language" // continues text
	ModelCode       ModelType = "code"
	ModelImage      ModelType = "image"
	ModelEmbedding  ModelType = "embedding"
	ModelModeration ModelType = "moderation"
	ModelRerank     ModelType = "rerank"
	ModelAudio      ModelType = "audio" // speaks
	ModelVideo      ModelType = "video"
	ModelTranscribe ModelType = "transcribe"
)

// Valid reports whether t is one of the types.
func (t ModelType) Valid() bool {
	switch t {
	case ModelChat, ModelLanguage, ModelCode, ModelImage, ModelEmbedding,
		ModelModeration, ModelRerank, ModelAudio, ModelVideo, ModelTranscribe:
		return true
	}
	return false
}

// Quantization is the number format of a model's weights.
type Quantization string

// The quantizations.
const (
	QuantizationNone Quantization = "none" // 32-bit floats
	QuantizationInt8 Quantization = "int8"
	QuantizationInt4 Quantization = "int4"
)

// Valid reports whether q is one of the quantizations.
func (q Quantization) Valid() bool {
	return q == QuantizationNone || q == QuantizationInt8 || q == QuantizationInt4
}
