package models

import "athanor/server/rest"

// Ops are the operations of this slice. Names of models hold slashes, so the
// last segment takes the rest of the path.
func (s *Service) Ops() []rest.Op {
	return []rest.Op{
		rest.Get("/models", "models", rest.AnyKey, s.List),
		rest.Get("/models/*id", "models", rest.AnyKey, s.Get),
	}
}
