package api

import "slices"

// ListEndpointsRequest is GET /endpoints with its three filters.
type ListEndpointsRequest struct {
	Type      string `json:"-" query:"type"`       // dedicated or serverless
	UsageType string `json:"-" query:"usage_type"` // on-demand or reserved
	Mine      *bool  `json:"-" query:"mine"`       // only endpoints of the caller's project
}

// Validate checks the filters.
func (r *ListEndpointsRequest) Validate() error {
	if r.Type != "" && !slices.Contains([]string{"dedicated", "serverless"}, r.Type) {
		return Invalid("type", `type must be "dedicated" or "serverless", got %q`, r.Type)
	}
	if r.UsageType != "" && !slices.Contains([]string{"on-demand", "reserved"}, r.UsageType) {
		return Invalid("usage_type", `usage_type must be "on-demand" or "reserved", got %q`, r.UsageType)
	}
	return nil
}

// EndpointList is a list of endpoints.
type EndpointList struct {
	Object string     `json:"object"`
	Data   []Endpoint `json:"data"`
}

// Endpoint is where a model is served.
type Endpoint struct {
	Object    string `json:"object"`
	ID        string `json:"id"`
	Name      string `json:"name"`
	Model     string `json:"model"`
	Type      string `json:"type"`
	Owner     string `json:"owner"`
	State     string `json:"state"`
	CreatedAt string `json:"created_at"` // ISO 8601, UTC, milliseconds
}
