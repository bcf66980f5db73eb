package servertest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"testing"

	"athanor/server/kit"
	"athanor/server/rest"
)

// Main is for a TestMain: it serves one request outside every bubble of
// synthetic time and then runs the tests.
func Main(m *testing.M) {
	if err := warm(); err != nil {
		fmt.Fprintln(os.Stderr, "servertest:", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func warm() error {
	s, err := rest.New(rest.Config{Auth: nobody{}, Kit: kit.New(slog.New(slog.DiscardHandler))})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "http://x/healthz", nil)
	if err != nil {
		return err
	}
	resp, err := s.Test(req)
	if err != nil {
		return err
	}
	return errors.Join(resp.Body.Close(), s.Shutdown(context.Background()))
}

// nobody authenticates nobody.
type nobody struct{}

var _ rest.Authenticator = nobody{}

func (nobody) Authenticate(context.Context, string) (*rest.Principal, error) {
	return nil, errors.New("there are no keys here")
}
