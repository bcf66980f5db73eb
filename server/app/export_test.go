package app

import (
	"context"
	"os"

	"athanor/engine/host"
	"athanor/server/finetunes"
	"athanor/server/identity"
	"athanor/server/models"
	"athanor/server/rest"
	"athanor/store"
	"athanor/store/resource"
)

// Identity gives tests the service that makes keys with any roles.
func (a *App) Identity() *identity.Service { return a.identity }

// DB gives tests the store, to lay down what no operation makes yet.
func (a *App) DB() *store.DB { return a.db }

// Previewer is what tokenizes datasets for the slice of fine-tuning.
func Previewer() finetunes.Previewer { return previewer{} }

// AdminServer is the admin socket's table behind keys instead of the socket.
func (a *App) AdminServer() (*rest.Server, error) { return a.newServer(a.identity, a.adminOps()) }

// EnsureDemo brings the embedded model up to date, as Open does.
func (a *App) EnsureDemo(ctx context.Context) error { return a.ensureDemo(ctx) }

// Install stores and registers a model whose files lie in dir, as the end of an
// import or of a training job does.
func (a *App) Install(ctx context.Context, m *resource.Model, dir string) error {
	fsys := os.DirFS(dir)
	var err error
	if m.Files, err = listModel(fsys); err != nil {
		return err
	}
	return a.install(ctx, m, fsys, quiet, nil)
}

// Workers describes the engine's processes.
func (a *App) Workers() []host.Status { return a.host.Snapshot() }

// Wake has the runner of jobs look at a clock that a test has moved on.
func (a *App) Wake() { a.jobs.Wake() }

// Models gives tests the records of models.
func (a *App) Models() *models.Service { return a.models }
