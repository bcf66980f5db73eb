package app

import (
	"context"
	"fmt"
	"math"
	"path"
	"strings"
	"time"

	"athanor/server/config"
	"athanor/server/egress"
	"athanor/server/finetunes"
	"athanor/server/hub"
)

// modelHub is the configured model hub, reached through the gate.
type modelHub struct {
	gate *egress.Gate
	base string // URL
}

var _ finetunes.Hub = modelHub{}

func newModelHub(cfg config.Config, gate *egress.Gate) modelHub { return modelHub{gate, cfg.Hub} }

// Allowed says whether the owner of the machine lets it reach the hub; the error
// names the setting.
func (h modelHub) Allowed() error { return h.gate.Check(h.base) }

// client makes a client for one fetch or push. The hub bounds files by what it
// announced, so answers need no other bound. done closes its connections.
func (h modelHub) client(purpose string, limits hub.Limits) (c *hub.Client, done func()) {
	web := h.gate.Client(egress.Options{Purpose: purpose, MaxBody: math.MaxInt64 - 1, Idle: 2 * time.Minute})
	return hub.New(hub.Config{BaseURL: h.base, HTTP: web, Keep: hubFile, Limits: limits}), web.CloseIdleConnections
}

// hubFile reports whether a file of a repository belongs to the model: those at the
// top, without a second copy of the weights in another layout.
func hubFile(name string) bool {
	return !strings.Contains(name, "/") && modelFile(name) && !strings.HasPrefix(name, "consolidated")
}

// Fetch brings the files of a model into dir; see hub.Client.
func (h modelHub) Fetch(ctx context.Context, repo, revision, token, dir string, most int64) (commit string, err error) {
	c, done := h.client("fetch of "+path.Clean(repo), hub.Limits{Bytes: most})
	defer done()
	return c.Fetch(ctx, repo, revision, token, dir, nil)
}

// Push sends the files of dir to a repository; see hub.Client.
func (h modelHub) Push(ctx context.Context, repo, token, dir, message string) (page string, err error) {
	if token == "" {
		return "", fmt.Errorf("push to %s: a token of the hub is needed", repo)
	}
	c, done := h.client("push to "+path.Clean(repo), hub.Limits{})
	defer done()
	return c.Push(ctx, repo, token, dir, message, nil)
}
