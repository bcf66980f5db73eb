package kit

import (
	"log/slog"
	"time"

	"github.com/google/uuid"
)

// Kit carries the injected clock, ids and log.
type Kit struct {
	Now   func() time.Time           // UTC
	NewID func(prefix string) string // "prefix-" + a time-ordered UUID; only the UUID when prefix is ""
	Log   *slog.Logger
}

// New is the real Kit.
func New(log *slog.Logger) Kit {
	return Kit{Now: func() time.Time { return time.Now().UTC() }, NewID: newID, Log: log}
}

func newID(prefix string) string {
	id := uuid.Must(uuid.NewV7()).String()
	if prefix == "" {
		return id
	}
	return prefix + "-" + id
}
