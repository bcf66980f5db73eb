package models

import (
	"sync"

	"athanor/store/resource"
)

// cache remembers what names stand for, because every request asks: decoding a
// record was a sixth of the work of a short answer. Its models are only read.
// Writers call forget after their commit.
type cache struct {
	mu         sync.RWMutex // protects fields below
	generation int
	models     map[name]*resource.Model
	adapted    map[resource.ModelID]base // the models that have adapters; nil when not looked up
}

// name is a model's name as one project sees it.
type name struct {
	project resource.ProjectID
	model   string
}

// get returns the model, nil when it is not known, and the generation that put
// wants back.
func (c *cache) get(n name) (*resource.Model, int) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.models[n], c.generation
}

// put remembers m unless something was written since get.
func (c *cache) put(n name, m *resource.Model, generation int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.generation == generation {
		c.models[n] = m
	}
}

// bases are the models that have adapters, nil when they are not known, and the
// generation that putBases wants back.
func (c *cache) bases() (map[resource.ModelID]base, int) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.adapted, c.generation
}

// putBases remembers them unless something was written since bases.
func (c *cache) putBases(adapted map[resource.ModelID]base, generation int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.generation == generation {
		c.adapted = adapted
	}
}

// forget drops everything.
func (c *cache) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.generation++
	c.models, c.adapted = map[name]*resource.Model{}, nil
}
