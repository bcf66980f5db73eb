package hub

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

// partDir is where unfinished files lie in the target directory.
const partDir = ".fetch"

// file is one file of a commit.
type file struct {
	path   string
	size   int64  // -1: the hub did not say
	sha256 string // hex, of LFS files
	blob   string // hex, the git blob id of others
}

var (
	hex40 = regexp.MustCompile(`^[0-9a-f]{40}$`)
	hex64 = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// Fetch downloads the files of a revision that the client keeps into dir, which is
// made if missing, and returns the commit that the revision stood for. Files that
// are there already and whole are left alone, so an interrupted Fetch goes on.
// token may be "". progress may be nil.
//
// Errors wrap ErrAuth, ErrNotFound or ErrCorrupt, or are an *egress.Denied.
func (c *Client) Fetch(ctx context.Context, repo, revision, token, dir string, progress Progress) (commit string, err error) {
	if err := errors.Join(ValidateRepo(repo), validateRevision(revision)); err != nil {
		return "", err
	}
	commit, files, err := c.list(ctx, repo, revision, token)
	if err != nil {
		return "", fmt.Errorf("repository %s, revision %s: %w", repo, revision, err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", err
	}
	defer root.Close()
	if err := root.MkdirAll(partDir, 0o700); err != nil {
		return "", err
	}
	told := &teller{tell: progress}
	for _, f := range files {
		told.total += max(0, f.size)
	}
	for _, f := range files {
		d := &download{client: c, root: root, file: f, token: token, told: told,
			url: c.base + "/" + escape(repo) + "/resolve/" + commit + "/" + escape(f.path)}
		if err := d.run(ctx, commit); err != nil {
			return "", fmt.Errorf("fetch %s of %s: %w", f.path, repo, err)
		}
	}
	return commit, root.RemoveAll(partDir)
}

// list resolves a revision and lists the files that are kept.
func (c *Client) list(ctx context.Context, repo, revision, token string) (commit string, files []file, err error) {
	var info struct {
		SHA      string `json:"sha"`
		Siblings []struct {
			Path   string `json:"rfilename"`
			Size   *int64 `json:"size"`
			BlobID string `json:"blobId"`
			LFS    *struct {
				SHA256 string `json:"sha256"`
				Size   int64  `json:"size"`
			} `json:"lfs"`
		} `json:"siblings"`
	}
	at := c.base + "/api/models/" + escape(repo) + "/revision/" + strings.ReplaceAll(escape(revision), "/", "%2F") + "?blobs=true"
	if err := c.call(ctx, http.MethodGet, at, token, nil, &info); err != nil {
		return "", nil, err
	}
	if !hex40.MatchString(info.SHA) {
		return "", nil, fmt.Errorf("the hub named no commit: %.80q", info.SHA)
	}
	seen, left := map[string]bool{}, c.limits.Bytes
	for _, s := range info.Siblings {
		if !c.keep(s.Path) {
			continue
		}
		if err := validatePath(s.Path); err != nil {
			return "", nil, err
		}
		if seen[s.Path] {
			return "", nil, fmt.Errorf("the hub lists %.200q twice", s.Path)
		}
		seen[s.Path] = true
		f := file{path: s.Path, size: -1}
		if s.Size != nil {
			f.size = *s.Size
		}
		if s.LFS != nil && hex64.MatchString(s.LFS.SHA256) {
			f.sha256, f.size = s.LFS.SHA256, s.LFS.Size
		} else if s.LFS == nil && hex40.MatchString(s.BlobID) {
			f.blob = s.BlobID
		}
		if f.size < -1 || max(0, f.size) > left {
			return "", nil, fmt.Errorf("the files have more than the %d bytes allowed", c.limits.Bytes)
		}
		left -= max(0, f.size)
		if files = append(files, f); len(files) > c.limits.Files {
			return "", nil, fmt.Errorf("more than the %d files allowed", c.limits.Files)
		}
	}
	if len(files) == 0 {
		return "", nil, fmt.Errorf("%w: the repository has none of the files that are needed, such as safetensors", ErrNotFound)
	}
	return info.SHA, files, nil
}

// validatePath refuses every path that could lie outside the target directory, or
// among the unfinished files.
func validatePath(p string) error {
	if !fs.ValidPath(p) || !filepath.IsLocal(p) || len(p) > 1024 || strings.ContainsAny(p, "\\\x00") ||
		p == "." || p == partDir || strings.HasPrefix(p, partDir+"/") {
		return fmt.Errorf("the hub lists the file %.200q, which is not a safe path", p)
	}
	return nil
}

// limit is the most bytes a file may have.
func (f file) limit(c *Client) int64 {
	if f.size >= 0 {
		return f.size
	}
	return min(c.limits.Bytes, math.MaxInt64-1)
}

// teller adds up progress over files.
type teller struct {
	tell        Progress
	done, total int64
}

func (t *teller) add(n int64) {
	t.done += n
	if t.tell != nil {
		t.tell(max(0, t.done), max(t.done, t.total))
	}
}

// makeDirs makes the directories of a file.
func makeDirs(root *os.Root, p string) error {
	if dir := path.Dir(p); dir != "." {
		return root.MkdirAll(dir, 0o700)
	}
	return nil
}
