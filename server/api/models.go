package api

import "encoding/json"

// ListModelsRequest is GET /models.
type ListModelsRequest struct {
	Dedicated *bool `json:"-" query:"dedicated"` // only models on dedicated endpoints
}

// GetModelRequest is GET /models/{id}.
type GetModelRequest struct {
	ID string `json:"-" path:"id"`
}

// Model describes a model that can be called.
type Model struct {
	ID            string  `json:"id"`
	Object        string  `json:"object"`
	Created       int64   `json:"created"` // Unix seconds
	Type          string  `json:"type"`    // chat or language
	DisplayName   string  `json:"display_name"`
	Organization  string  `json:"organization"`
	OwnedBy       string  `json:"owned_by"` // the same, for OpenAI clients
	Link          string  `json:"link"`
	License       string  `json:"license"`
	ContextLength int     `json:"context_length"` // tokens that are really served
	Pricing       Pricing `json:"pricing"`
}

// Pricing is in USD per million tokens, hourly in USD; a fresh appliance
// charges nothing.
type Pricing struct {
	Base        float64 `json:"base"`
	Finetune    float64 `json:"finetune"`
	Hourly      float64 `json:"hourly"`
	Input       float64 `json:"input"`
	Output      float64 `json:"output"`
	CachedInput float64 `json:"cached_input"`
}

// ModelList is the form of GET /models for OpenAI clients.
type ModelList struct {
	Object string  `json:"object"`
	Data   []Model `json:"data"`
}

// Models is the answer of GET /models: a bare array, or a list object when
// Wrapped, because OpenAI clients read the array from under "data".
type Models struct {
	Data    []Model
	Wrapped bool
}

// MarshalJSON renders the form that the caller reads.
func (m Models) MarshalJSON() ([]byte, error) {
	if m.Wrapped {
		return json.Marshal(ModelList{Object: "list", Data: m.Data})
	}
	return json.Marshal(m.Data)
}
