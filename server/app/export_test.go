package app

import (
	"context"

	"athanor/server/identity"
	"athanor/server/rest"
	"athanor/store"
)

// Identity gives tests the service that makes keys with any roles.
func (a *App) Identity() *identity.Service { return a.identity }

// DB gives tests the store, to lay down what no operation makes yet.
func (a *App) DB() *store.DB { return a.db }

// AdminServer is the admin socket's table behind keys instead of the socket.
func (a *App) AdminServer() (*rest.Server, error) { return a.newServer(a.identity, a.adminOps()) }

// EnsureDemo brings the embedded model up to date, as Open does.
func (a *App) EnsureDemo(ctx context.Context) error { return a.ensureDemo(ctx) }
