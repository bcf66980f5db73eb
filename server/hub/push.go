package hub

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"strings"
)

const (
	sampleSize   = 512       // bytes of a file that the hub looks at to choose its kind
	filesPerCall = 100       // in one question to the hub
	maxRegular   = 10 << 20  // bytes of a file that goes into the commit itself
	maxCommit    = 256 << 20 // bytes of all such files
	branch       = "main"
)

// upload is one file on its way to the hub.
type upload struct {
	path   string
	size   int64
	lfs    bool
	ignore bool   // the repository's rules leave it out
	sha256 string // hex, of lfs files
}

// Push uploads every file below dir as one commit to the main branch of repo, which
// is made, closed to the public, if it does not exist, and returns its page. A repo
// without an owner belongs to the owner of the token. Content that the hub has
// already is not sent again. progress may be nil; it counts bytes of large files.
//
// Errors wrap ErrAuth or ErrNotFound, or are an *egress.Denied.
func (c *Client) Push(ctx context.Context, repo, token, dir, message string, progress Progress) (page string, err error) {
	if err := ValidateRepo(repo); err != nil {
		return "", err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", err
	}
	defer root.Close()
	files, err := c.walk(ctx, root)
	if err != nil {
		return "", fmt.Errorf("read what is to be pushed: %w", err)
	}
	if repo, err = c.create(ctx, repo, token); err != nil {
		return "", fmt.Errorf("make repository %s: %w", repo, err)
	}
	p := &push{client: c, root: root, repo: repo, token: token, told: &teller{tell: progress}}
	if err := p.run(ctx, files, message); err != nil {
		return "", fmt.Errorf("push to %s: %w", repo, err)
	}
	return c.base + "/" + repo, nil
}

// walk lists the regular files below root in order of their paths.
func (c *Client) walk(ctx context.Context, root *os.Root) (files []*upload, err error) {
	err = fs.WalkDir(root.FS(), ".", func(p string, d fs.DirEntry, err error) error {
		if err = errors.Join(err, ctx.Err()); err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() {
			return fmt.Errorf("%s is not a regular file", p)
		}
		if files = append(files, &upload{path: p, size: info.Size()}); len(files) > c.limits.Files {
			return fmt.Errorf("more than the %d files allowed", c.limits.Files)
		}
		return nil
	})
	if err == nil && len(files) == 0 {
		err = errors.New("there are no files")
	}
	return files, err
}

// create makes the repository and returns its full name.
func (c *Client) create(ctx context.Context, repo, token string) (string, error) {
	owner, name, found := strings.Cut(repo, "/")
	if !found {
		var me struct{ Name string }
		if err := c.call(ctx, http.MethodGet, c.base+"/api/whoami-v2", token, nil, &me); err != nil {
			return repo, err
		}
		owner, name = me.Name, repo
		if err := ValidateRepo(owner + "/" + name); err != nil {
			return repo, fmt.Errorf("the hub did not name the owner of the token: %w", err)
		}
	}
	// Hubs of different age know one of the two names.
	in := map[string]any{"type": "model", "name": name, "organization": owner, "private": true, "visibility": "private"}
	err := c.call(ctx, http.MethodPost, c.base+"/api/repos/create", token, in, nil)
	if s, found := errors.AsType[*statusError](err); found && s.status == http.StatusConflict {
		err = nil // it exists
	}
	return owner + "/" + name, err
}

// push is the upload of one directory.
type push struct {
	client *Client
	root   *os.Root
	repo   string
	token  string
	told   *teller
}

func (p *push) run(ctx context.Context, files []*upload, message string) error {
	if err := p.kinds(ctx, files); err != nil {
		return err
	}
	if err := p.largeFiles(ctx, files); err != nil {
		return err
	}
	return p.commit(ctx, files, message)
}

// kinds asks the hub which files are large ones.
func (p *push) kinds(ctx context.Context, files []*upload) error {
	type asked struct {
		Path   string `json:"path"`
		Sample []byte `json:"sample"` // JSON has it in base64
		Size   int64  `json:"size"`
	}
	for _, batch := range batches(files) {
		var in struct {
			Files []asked `json:"files"`
		}
		byPath := map[string]*upload{}
		for _, f := range batch {
			sample, err := p.read(f, sampleSize)
			if err != nil {
				return err
			}
			in.Files = append(in.Files, asked{f.path, sample, f.size})
			byPath[f.path] = f
		}
		var out struct {
			Files []struct {
				Path         string `json:"path"`
				UploadMode   string `json:"uploadMode"`
				ShouldIgnore bool   `json:"shouldIgnore"`
			} `json:"files"`
		}
		at := p.client.base + "/api/models/" + p.repo + "/preupload/" + branch
		if err := p.client.call(ctx, http.MethodPost, at, p.token, in, &out); err != nil {
			return err
		}
		for _, o := range out.Files {
			if f := byPath[o.Path]; f != nil {
				f.ignore = o.ShouldIgnore
				f.lfs = o.UploadMode == "lfs" || f.size > maxRegular
				delete(byPath, o.Path)
			}
		}
		for missing := range byPath {
			return fmt.Errorf("the hub did not say how to send %s", missing)
		}
	}
	return nil
}

func batches(files []*upload) (list [][]*upload) {
	for len(files) > 0 {
		n := min(len(files), filesPerCall)
		list = append(list, files[:n])
		files = files[n:]
	}
	return list
}

// read gives at most the first n bytes of a file.
func (p *push) read(f *upload, n int64) ([]byte, error) {
	r, err := p.root.Open(f.path)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(io.LimitReader(r, n))
}

// commit makes the files part of the repository, all or none.
func (p *push) commit(ctx context.Context, files []*upload, message string) error {
	var body bytes.Buffer
	lines := json.NewEncoder(&body)
	line := func(key string, value any) error {
		if body.Len() > maxCommit {
			return fmt.Errorf("the small files have more than %d bytes", maxCommit)
		}
		return lines.Encode(map[string]any{"key": key, "value": value})
	}
	summary, description, _ := strings.Cut(message, "\n")
	if err := line("header", map[string]string{"summary": summary, "description": strings.TrimSpace(description)}); err != nil {
		return err
	}
	for _, f := range files {
		var err error
		switch {
		case f.ignore:
		case f.lfs:
			err = line("lfsFile", map[string]any{"path": f.path, "algo": "sha256", "oid": f.sha256, "size": f.size})
		default:
			var content []byte
			if content, err = p.read(f, maxRegular+1); err == nil && int64(len(content)) != f.size {
				err = fmt.Errorf("%s changed while it was pushed", f.path)
			}
			if err == nil {
				err = line("file", map[string]string{"path": f.path, "encoding": "base64", "content": base64.StdEncoding.EncodeToString(content)})
			}
		}
		if err != nil {
			return err
		}
	}
	var out struct {
		CommitOID string `json:"commitOid"`
	}
	r := request{method: http.MethodPost, url: p.client.base + "/api/models/" + p.repo + "/commit/" + branch, token: p.token}
	r.payload("application/x-ndjson", body.Bytes())
	if err := p.client.answer(ctx, r, &out); err != nil {
		return err
	}
	if out.CommitOID == "" {
		return errors.New("the hub did not confirm the commit")
	}
	return nil
}
