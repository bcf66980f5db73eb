package rest

import (
	"bytes"
	"net/http"

	"github.com/gofiber/fiber/v2"

	"athanor/server/api"
)

// probes adds the routes of the administrator: they need no key and are not
// part of the API.
func (s *Server) probes(cfg Config) {
	type state struct {
		Status string `json:"status"`
	}
	s.app.Get("/healthz", func(c *fiber.Ctx) error {
		s.exchange(c).reply(http.StatusOK, state{"ok"})
		return nil
	})
	s.app.Get("/readyz", func(c *fiber.Ctx) error {
		x := s.exchange(c)
		_, failure := x.protect(func() (any, error) {
			switch {
			case s.isDraining():
				return nil, errDraining
			case cfg.Ready == nil:
				return nil, nil
			}
			if err := cfg.Ready(x.ctx); err != nil {
				return nil, api.Overloaded(0, "not ready: %v", err)
			}
			return nil, nil
		})
		if failure != nil {
			x.fail(failure)
			return nil
		}
		x.reply(http.StatusOK, state{"ready"})
		return nil
	})
	if cfg.Page != nil {
		s.app.Get("/", func(c *fiber.Ctx) error {
			s.exchange(c).raw(http.StatusOK, "text/html; charset=utf-8", cfg.Page)
			return nil
		})
	}
	if cfg.Metrics == nil {
		return
	}
	s.app.Get("/metrics", func(c *fiber.Ctx) error {
		x := s.exchange(c)
		var buf bytes.Buffer
		ctype, failure := x.protect(func() (any, error) { return cfg.Metrics(&buf) })
		if failure != nil {
			x.fail(failure)
			return nil
		}
		x.raw(http.StatusOK, ctype.(string), buf.Bytes())
		return nil
	})
}
