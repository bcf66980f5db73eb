package finetunes

import (
	"context"
	"errors"
	"net/http"

	"athanor/server/api"
	"athanor/server/rest"
	"athanor/store/resource"
)

// messageError is the error body with its message at the top as well, where clients
// of this operation look for it.
type messageError struct {
	Error   *api.Error `json:"error"`
	Message string     `json:"message"`
}

// Limits answers GET /fine-tunes/models/limits.
func (s *Service) Limits(ctx context.Context, r *api.FineTuneLimitsRequest) (*rest.Reply, error) {
	l, err := s.limitsOf(ctx, r.ModelName)
	var refused *api.Error
	if errors.As(err, &refused) && refused.Status == http.StatusNotFound {
		return &rest.Reply{Status: http.StatusNotFound, Value: messageError{refused, refused.Message}}, nil
	}
	if err != nil {
		return nil, err
	}
	return &rest.Reply{Value: l}, nil
}

// limitsOf gives the limits of a model; one that is unknown or cannot be trained is
// an api.Error 404.
func (s *Service) limitsOf(ctx context.Context, name string) (*api.FineTuneLimits, error) {
	m, err := s.Models.Resolve(resource.ProjectID(rest.Caller(ctx).ProjectID), name)
	if err != nil {
		return nil, err
	}
	if m.BaseID != "" {
		return nil, api.New(http.StatusNotFound, api.TypeInvalidRequest, "model_not_trainable", "%.200s is an adapter: it is trained further with from_checkpoint", name).WithParam("model_name")
	}
	traits, err := s.Weights.Traits(ctx, m)
	if errors.Is(err, ErrUntrainable) {
		return nil, api.New(http.StatusNotFound, api.TypeInvalidRequest, "model_not_trainable", "%s", err).WithParam("model_name")
	}
	if err != nil {
		return nil, err
	}
	return limits(m.Name, traits), nil
}

// Supported answers GET /fine-tunes/models/supported.
func (s *Service) Supported(ctx context.Context, _ *rest.None) (*api.FineTuneModels, error) {
	list, err := s.Models.Visible(resource.ProjectID(rest.Caller(ctx).ProjectID))
	if err != nil {
		return nil, err
	}
	out := &api.FineTuneModels{Models: []string{}, DetailedModels: []api.FineTuneModelEntry{}}
	seen := map[string]bool{}
	for _, m := range list {
		if m.BaseID != "" || seen[m.Name] {
			continue
		}
		seen[m.Name] = true
		_, err := s.Weights.Traits(ctx, m)
		if errors.Is(err, ErrUntrainable) {
			continue
		}
		if err != nil {
			return nil, err
		}
		parent := m.Name
		if m.Lineage != nil {
			parent = m.Lineage.Base.Name
		}
		out.Models = append(out.Models, m.Name)
		out.DetailedModels = append(out.DetailedModels, api.FineTuneModelEntry{Name: m.Name, ParentModel: parent})
	}
	return out, nil
}
