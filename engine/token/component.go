package token

import (
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Bounds on the tree of components. Published files have at most a dozen.
const (
	maxDepth      = 8
	maxComponents = 64
)

// component is one {"type": …} object of the file, or nothing (kind "").
type component struct {
	room string // where it stands: normalizer, pre_tokenizer …
	kind string
	raw  jsontext.Value
}

// parseComponent reads the type of a component; JSON null and an absent field
// are the empty component.
func parseComponent(room string, raw jsontext.Value) (component, error) {
	if len(raw) == 0 || raw.Kind() == 'n' {
		return component{room: room}, nil
	}
	var head struct{ Type string }
	if err := json.Unmarshal(raw, &head, fieldOptions); err != nil {
		return component{}, malformed("%s: %v", room, err)
	}
	if head.Type == "" {
		return component{}, malformed("%s: no type", room)
	}
	return component{room, head.Type, raw}, nil
}

// options decodes the fields of the component into v, over its defaults.
func (c component) options(v any) error {
	if err := json.Unmarshal(c.raw, v, fieldOptions); err != nil {
		return malformed("%s %s: %v", c.room, c.kind, err)
	}
	return nil
}

// flatten calls visit for each leaf, in order, through nested Sequences whose
// members stand in the named field.
func (c component) flatten(room, field string, visit func(component) error) error {
	left := maxComponents
	return c.walk(room, field, 0, &left, visit)
}

func (c component) walk(room, field string, depth int, left *int, visit func(component) error) error {
	if c.kind == "" {
		return nil
	}
	if *left--; *left < 0 {
		return malformed("%s: more than %d components", room, maxComponents)
	}
	if c.kind != "Sequence" {
		return visit(c)
	}
	if depth == maxDepth {
		return malformed("%s: sequences nested more than %d deep", room, maxDepth)
	}
	var members map[string]jsontext.Value
	if err := c.options(&members); err != nil {
		return err
	}
	var list []jsontext.Value
	if raw, ok := members[field]; !ok {
		return malformed("%s: Sequence without %q", room, field)
	} else if err := json.Unmarshal(raw, &list); err != nil {
		return malformed("%s.%s: %v", room, field, err)
	}
	for i, raw := range list {
		m, err := parseComponent(fmt.Sprintf("%s.%s[%d]", c.room, field, i), raw)
		if err != nil {
			return err
		}
		if err := m.walk(room, field, depth+1, left, visit); err != nil {
			return err
		}
	}
	return nil
}

// fieldOptions reads snake_case fields whatever the case of the Go field.
var fieldOptions = json.MatchCaseInsensitiveNames(true)
