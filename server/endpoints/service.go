package endpoints

import (
	"context"

	"athanor/server/api"
	"athanor/server/rest"
	"athanor/store/resource"
)

// Catalogue lists the models that a project may use.
type Catalogue interface {
	Visible(p resource.ProjectID) ([]*resource.Model, error)
}

// Service answers the endpoint operations. Safe for concurrent use.
type Service struct {
	catalogue Catalogue
	owner     string
}

// New makes a Service; owner names the appliance as the owner of shared models.
func New(c Catalogue, owner string) *Service { return &Service{catalogue: c, owner: owner} }

// Ops are the operations of this slice.
func (s *Service) Ops() []rest.Op {
	return []rest.Op{rest.Get("/endpoints", "endpoints", rest.AnyKey, s.List, rest.Strict())}
}

// List answers GET /endpoints. Serverless endpoints are used on demand.
func (s *Service) List(ctx context.Context, r *api.ListEndpointsRequest) (*api.EndpointList, error) {
	out := &api.EndpointList{Object: "list", Data: []api.Endpoint{}}
	if r.Type == "dedicated" || r.UsageType == "reserved" {
		return out, nil
	}
	caller := rest.Caller(ctx)
	list, err := s.catalogue.Visible(resource.ProjectID(caller.ProjectID))
	if err != nil {
		return nil, err
	}
	for _, m := range list {
		owner := s.owner
		if m.ProjectID != "" {
			owner = caller.ProjectSlug
		} else if r.Mine != nil && *r.Mine {
			continue
		}
		out.Data = append(out.Data, wire(m, owner))
	}
	return out, nil
}

func wire(m *resource.Model, owner string) api.Endpoint {
	return api.Endpoint{
		Object: "endpoint", ID: string(m.EndpointID), Name: m.Name, Model: m.Name, Type: "serverless", Owner: owner,
		State: "STARTED", CreatedAt: m.CreatedAt.UTC().Format("2006-01-02T15:04:05.000Z"),
	}
}
