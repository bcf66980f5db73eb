package models

import (
	"strings"

	"athanor/server/api"
	"athanor/store/resource"
)

// wire is the record as the API shows it. The organisation is the part of the
// name before the first slash.
func wire(m *resource.Model) api.Model {
	organization, _, found := strings.Cut(m.Name, "/")
	if !found {
		organization = ""
	}
	display := m.DisplayName
	if display == "" {
		display = m.Name
	}
	return api.Model{
		ID: m.Name, Object: "model", Created: m.CreatedAt.Unix(), Type: string(m.Type), DisplayName: display,
		Organization: organization, OwnedBy: organization, License: m.License, ContextLength: m.ContextLength,
	}
}
