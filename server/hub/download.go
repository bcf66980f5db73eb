package hub

import (
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"strconv"
	"strings"
)

// download fetches one file.
type download struct {
	client *Client
	root   *os.Root
	file   file
	url    string
	token  string
	told   *teller

	part    *os.File
	have    int64     // bytes in part, all of them in hash
	hash    hash.Hash // nil when the hub gave no digest
	etag    string    // of what part holds, "" = unknown
	corrupt int       // how often the whole file was wrong
}

// run makes the file be there and whole. Unfinished bytes are named after commit
// and path, so they are of the same content.
func (d *download) run(ctx context.Context, commit string) error {
	if whole, err := d.present(ctx); whole || err != nil {
		return err
	}
	sum := sha256.Sum256([]byte(commit + "\n" + d.file.path))
	name := path.Join(partDir, hex.EncodeToString(sum[:]))
	part, err := d.root.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	d.part = part
	if err := d.load(ctx); err != nil {
		return errors.Join(err, part.Close())
	}
	err = d.client.retry(ctx, func() (bool, error) {
		before := d.have
		err := d.piece(ctx)
		return err == nil || d.have > before, err
	})
	if err == nil {
		err = part.Sync()
	}
	if err = errors.Join(err, part.Close()); err != nil {
		return err
	}
	if err := makeDirs(d.root, d.file.path); err != nil {
		return err
	}
	return d.root.Rename(name, d.file.path)
}

// present reports whether the file is there already, with the right content. One
// whose digest is not known is fetched again.
func (d *download) present(ctx context.Context) (bool, error) {
	h := d.file.newHash()
	info, err := d.root.Lstat(d.file.path)
	if h == nil || errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() != d.file.size {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	f, err := d.root.Open(d.file.path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	if _, err := io.Copy(h, &reader{ctx, f}); err != nil {
		return false, err
	}
	if d.file.right(h) {
		d.told.add(d.file.size)
		return true, nil
	}
	return false, nil
}

// load takes up what an earlier run left.
func (d *download) load(ctx context.Context) error {
	if d.hash = d.file.newHash(); d.hash == nil {
		return d.restart() // nothing would tell whether the bytes still fit
	}
	n, err := io.Copy(d.hash, &reader{ctx, d.part})
	if err != nil {
		return err
	}
	if d.have = n; n > d.file.size {
		return d.restart()
	}
	d.told.add(n)
	return nil
}

// restart forgets what is there.
func (d *download) restart() error {
	if d.have > 0 {
		d.told.add(-d.have)
	}
	d.have, d.etag, d.hash = 0, "", d.file.newHash()
	if err := d.part.Truncate(0); err != nil {
		return permanent{err}
	}
	_, err := d.part.Seek(0, io.SeekStart)
	return err
}

// piece asks for what is missing and checks the whole once it is there.
func (d *download) piece(ctx context.Context) error {
	if d.have == 0 || d.have < d.file.size || d.file.size < 0 {
		if err := d.receive(ctx); err != nil {
			return err
		}
	}
	if d.hash == nil || d.file.right(d.hash) {
		return nil
	}
	if err := d.restart(); err != nil {
		return err
	}
	err := fmt.Errorf("%w: its digest is wrong", ErrCorrupt)
	if d.corrupt++; d.corrupt > 1 {
		return permanent{err}
	}
	return err
}

// receive makes one request for the rest of the file and appends what comes.
func (d *download) receive(ctx context.Context) error {
	header := map[string]string{}
	if d.have > 0 {
		header["Range"] = "bytes=" + strconv.FormatInt(d.have, 10) + "-"
		if d.etag != "" {
			header["If-Range"] = d.etag
		}
	}
	resp, err := d.client.do(ctx, request{method: http.MethodGet, url: d.url, token: d.token, header: header})
	if s, found := errors.AsType[*statusError](err); found && s.status == http.StatusRequestedRangeNotSatisfiable {
		return errors.Join(d.restart(), errors.New("the hub cannot go on where the file was cut"))
	}
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := d.accept(resp); err != nil {
		return err
	}
	return d.append(ctx, resp)
}

// accept checks that the answer continues what is there, and starts over where it
// does not.
func (d *download) accept(resp *http.Response) error {
	total := int64(-1)
	switch resp.StatusCode {
	case http.StatusOK:
		if d.have > 0 {
			if err := d.restart(); err != nil {
				return err
			}
		}
		total = resp.ContentLength
	case http.StatusPartialContent:
		from, all, ok := contentRange(resp.Header.Get("Content-Range"))
		if !ok || from != d.have {
			return errors.Join(d.restart(), errors.New("the hub sent another part than was asked for"))
		}
		total = all
	default:
		return permanent{fmt.Errorf("the hub answered %d to a download", resp.StatusCode)}
	}
	if total >= 0 && d.file.size >= 0 && total != d.file.size {
		return permanent{fmt.Errorf("%w: %d bytes instead of %d", ErrCorrupt, total, d.file.size)}
	}
	if tag := resp.Header.Get("ETag"); strings.HasPrefix(tag, `"`) {
		d.etag = tag // only a strong one may stand in If-Range
	}
	return nil
}

// append writes the body to the end of part.
func (d *download) append(ctx context.Context, resp *http.Response) error {
	if _, err := d.part.Seek(d.have, io.SeekStart); err != nil {
		return permanent{err}
	}
	buf := make([]byte, 256<<10)
	for {
		n, err := (&reader{ctx, resp.Body}).Read(buf)
		if d.have+int64(n) > d.file.limit(d.client) {
			return permanent{fmt.Errorf("%w: more than %d bytes came", ErrCorrupt, d.file.limit(d.client))}
		}
		if _, werr := d.part.Write(buf[:n]); werr != nil {
			return permanent{werr}
		}
		if d.have += int64(n); d.hash != nil {
			d.hash.Write(buf[:n])
		}
		d.told.add(int64(n))
		switch {
		case errors.Is(err, io.EOF) && d.file.size >= 0 && d.have < d.file.size:
			return fmt.Errorf("the hub ended the file after %d of %d bytes", d.have, d.file.size)
		case err == io.EOF:
			return nil
		case err != nil:
			return fmt.Errorf("the connection broke after %d bytes: %w", d.have, withoutURL(err))
		}
	}
}

// contentRange reads "bytes FROM-TO/TOTAL"; the total is -1 for "*".
func contentRange(s string) (from, total int64, ok bool) {
	spec, found := strings.CutPrefix(s, "bytes ")
	span, all, found2 := strings.Cut(spec, "/")
	first, last, found3 := strings.Cut(span, "-")
	a, err1 := strconv.ParseUint(first, 10, 62)
	b, err2 := strconv.ParseUint(last, 10, 62)
	if !found || !found2 || !found3 || err1 != nil || err2 != nil || b < a {
		return 0, 0, false
	}
	if all == "*" {
		return int64(a), -1, true
	}
	n, err := strconv.ParseUint(all, 10, 62)
	return int64(a), int64(n), err == nil && b < n
}

// newHash makes the hash that the digest of the file is of, nil when there is none.
func (f file) newHash() hash.Hash {
	switch {
	case f.sha256 != "":
		return sha256.New()
	case f.blob != "" && f.size >= 0:
		h := sha1.New() // the identity of a git blob, not a secret
		fmt.Fprintf(h, "blob %d\x00", f.size)
		return h
	}
	return nil
}

// right reports whether h, after the whole content, is the digest of the file.
func (f file) right(h hash.Hash) bool {
	got := hex.EncodeToString(h.Sum(nil))
	return got == f.sha256 || f.sha256 == "" && got == f.blob
}

// reader ends with its context.
type reader struct {
	ctx context.Context
	r   io.Reader
}

func (r *reader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.r.Read(p)
}
