package cli

import (
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"

	"github.com/spf13/cobra"

	"athanor/engine/demo"
	"athanor/server/api"
)

// baseModel is a model whose text files are read.
type baseModel struct {
	files   fs.FS
	context int // tokens that the server lets it read, 0 = as its own files say
}

// openModel finds a model by its directory, the embedded one by its name without
// anything on this machine, and others by their names in the data directory or its
// running server.
func openModel(f *flags, cmd *cobra.Command, name string) (*baseModel, error) {
	if info, err := os.Stat(name); err == nil && info.IsDir() {
		return &baseModel{files: os.DirFS(name)}, nil
	}
	if name == demo.Name {
		return &baseModel{files: demo.FS()}, nil
	}
	c, err := f.config(cmd)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(c.Database()); err != nil {
		// Opening the data directory would make one.
		return nil, fmt.Errorf("model: %s is neither a directory nor %s, and there are no other models: %w", name, demo.Name, err)
	}
	var found api.ModelDirectory
	err = withClient(f, cmd, func(c *client) error {
		return c.call(cmd.Context(), http.MethodGet, "/admin/models/directory?model="+url.QueryEscape(name), nil, &found)
	})
	if err != nil {
		return nil, fmt.Errorf("model: %s is neither a directory nor a model of %s: %w", name, c.Data, err)
	}
	return &baseModel{files: os.DirFS(found.Directory), context: found.ContextLength}, nil
}
