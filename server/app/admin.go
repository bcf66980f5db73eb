package app

import (
	"context"
	"errors"
	"net"
	"time"

	"athanor/engine/worker"
	"athanor/server/config"
	"athanor/server/rest"
)

// local authenticates everyone who can open the admin socket, which is the OS
// user that owns the data directory, as the administrator.
type local struct{ app *App }

func (l local) Authenticate(ctx context.Context, _ string) (*rest.Principal, error) {
	return l.app.identity.Owner(ctx)
}

// adminOps is the table of the admin socket: the API and what needs this
// machine's files.
func (a *App) adminOps() []rest.Op {
	return append(a.Ops(),
		rest.PostStream("/admin/models/import", "admin", rest.OrgAdmin, a.importModel),
		rest.Get("/admin/models/directory", "admin", rest.OrgAdmin, a.modelDirectory),
	)
}

// ServeAdmin serves the API with the operations of the administrator on the
// admin socket, and returns what stops it.
func (a *App) ServeAdmin() (stop func(), err error) {
	server, err := a.newServer(local{a}, a.adminOps())
	if err != nil {
		return nil, err
	}
	ln, err := worker.Listen(a.cfg.AdminSocket())
	if err != nil {
		return nil, err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := server.Serve(ln); err != nil && !errors.Is(err, rest.ErrClosed) && !errors.Is(err, net.ErrClosed) {
			a.kit.Log.Error("admin socket", "error", err)
		}
	}()
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(a.cfg.Drain))
		defer cancel()
		if err := server.Shutdown(ctx); err != nil {
			a.kit.Log.Warn("admin socket", "error", err)
		}
		<-done
	}, nil
}

// DialAdmin connects to the admin socket of the server that has cfg's data
// directory open.
func DialAdmin(ctx context.Context, cfg config.Config) (net.Conn, error) {
	return worker.DialSocket(ctx, cfg.AdminSocket())
}
