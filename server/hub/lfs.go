package hub

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sort"
	"strconv"
)

const (
	lfsType  = "application/vnd.git-lfs+json"
	maxParts = 10000 // of one file
)

// lfsObject is what the hub says about one large file. (Git LFS batch API; the
// transfer "multipart" is the hub's own: part URLs stand in the header of upload.)
type lfsObject struct {
	OID   string `json:"oid"`
	Size  int64  `json:"size"`
	Error *struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
	Actions struct {
		Upload *lfsAction `json:"upload"`
		Verify *lfsAction `json:"verify"`
	} `json:"actions"`
}

type lfsAction struct {
	Href   string                     `json:"href"`
	Header map[string]json.RawMessage `json:"header"`
}

// largeFiles uploads the content of the large files that the hub does not have.
func (p *push) largeFiles(ctx context.Context, files []*upload) error {
	var large []*upload
	for _, f := range files {
		if f.lfs && !f.ignore {
			if err := p.digest(ctx, f); err != nil {
				return err
			}
			large = append(large, f)
			p.told.total += f.size
		}
	}
	for _, batch := range batches(large) {
		objects, err := p.batch(ctx, batch)
		if err != nil {
			return err
		}
		for _, f := range batch {
			o, found := objects[f.sha256]
			if !found {
				return fmt.Errorf("the hub did not say where to send %s", f.path)
			}
			if err := p.send(ctx, f, o); err != nil {
				return fmt.Errorf("send %s: %w", f.path, err)
			}
		}
	}
	return nil
}

func (p *push) digest(ctx context.Context, f *upload) error {
	r, err := p.root.Open(f.path)
	if err != nil {
		return err
	}
	defer r.Close()
	h := sha256.New()
	n, err := io.Copy(h, &reader{ctx, r})
	if err == nil && n != f.size {
		err = fmt.Errorf("%s changed while it was read", f.path)
	}
	f.sha256 = hex.EncodeToString(h.Sum(nil))
	return err
}

// batch asks where large files go.
func (p *push) batch(ctx context.Context, files []*upload) (map[string]lfsObject, error) {
	type wanted struct {
		OID  string `json:"oid"`
		Size int64  `json:"size"`
	}
	objects := []wanted{}
	for _, f := range files {
		objects = append(objects, wanted{f.sha256, f.size})
	}
	data, err := json.Marshal(map[string]any{"operation": "upload", "transfers": []string{"basic", "multipart"}, "objects": objects,
		"hash_algo": "sha256", "ref": map[string]string{"name": branch}})
	if err != nil {
		return nil, err
	}
	r := request{method: http.MethodPost, url: p.client.base + "/" + p.repo + ".git/info/lfs/objects/batch", token: p.token}
	r.payload(lfsType, data)
	r.header["Accept"] = lfsType
	var out struct {
		Objects []lfsObject `json:"objects"`
	}
	if err := p.client.answer(ctx, r, &out); err != nil {
		return nil, err
	}
	byOID := map[string]lfsObject{}
	for _, o := range out.Objects {
		if o.Error != nil {
			return nil, fmt.Errorf("the hub does not take a large file: %s (%d)", clean(o.Error.Message, p.token), o.Error.Code)
		}
		byOID[o.OID] = o
	}
	return byOID, nil
}

// send uploads one large file in the way that the hub chose, and has it verified.
func (p *push) send(ctx context.Context, f *upload, o lfsObject) error {
	up := o.Actions.Upload
	if up == nil {
		p.told.add(f.size) // the hub has the content
		return nil
	}
	var err error
	if chunk, found := up.Header["chunk_size"]; found {
		err = p.sendParts(ctx, f, up, chunk)
	} else {
		_, err = p.put(ctx, f, up.Href, up.headers(), 0, f.size)
	}
	if err != nil || o.Actions.Verify == nil {
		return err
	}
	v := o.Actions.Verify
	data, err := json.Marshal(map[string]any{"oid": f.sha256, "size": f.size})
	if err != nil {
		return err
	}
	r := request{method: http.MethodPost, url: v.Href, token: p.tokenFor(v.Href), header: v.headers()}
	r.payload(lfsType, data)
	return p.client.answer(ctx, r, nil)
}

// headers are the plain texts among the header of an action.
func (a *lfsAction) headers() map[string]string {
	out := map[string]string{}
	for k, v := range a.Header {
		var s string
		if json.Unmarshal(v, &s) == nil {
			out[k] = s
		}
	}
	return out
}

// tokenFor is the token for URLs of the hub itself, "" for all others.
func (p *push) tokenFor(at string) string {
	a, err1 := url.Parse(at)
	b, err2 := url.Parse(p.client.base)
	if err1 != nil || err2 != nil || a.Scheme != b.Scheme || a.Host != b.Host {
		return ""
	}
	return p.token
}

// sendParts uploads a file in parts of chunk bytes, whose URLs stand under their
// numbers in the header, and completes it at the address of the action.
func (p *push) sendParts(ctx context.Context, f *upload, up *lfsAction, chunk json.RawMessage) error {
	size, err := number(chunk)
	if err != nil || size < 1 {
		return errors.New("the hub gave no size of the parts")
	}
	var parts []int
	urls := map[int]string{}
	for k, v := range up.headers() {
		if n, err := strconv.Atoi(k); err == nil && n > 0 {
			parts = append(parts, n)
			urls[n] = v
		}
	}
	sort.Ints(parts)
	want := (f.size + size - 1) / size
	if want == 0 || int64(len(parts)) != want || len(parts) > maxParts || len(parts) != len(urls) || parts[len(parts)-1] != len(parts) {
		return fmt.Errorf("the hub gave URLs for %d parts of a file that has %d", len(parts), want)
	}
	type done struct {
		Number int    `json:"partNumber"`
		ETag   string `json:"etag"`
	}
	var sent []done
	for _, n := range parts {
		from := int64(n-1) * size
		etag, err := p.put(ctx, f, urls[n], nil, from, min(size, f.size-from))
		if err != nil {
			return fmt.Errorf("part %d: %w", n, err)
		}
		if etag == "" {
			return fmt.Errorf("part %d: the storage did not confirm it", n)
		}
		sent = append(sent, done{n, etag})
	}
	data, err := json.Marshal(map[string]any{"oid": f.sha256, "parts": sent})
	if err != nil {
		return err
	}
	r := request{method: http.MethodPost, url: up.Href, token: p.tokenFor(up.Href)}
	r.payload(lfsType, data)
	r.header["Accept"] = lfsType
	return p.client.answer(ctx, r, nil)
}

// number reads a number that may stand in quotes.
func number(raw json.RawMessage) (int64, error) {
	var s json.Number
	if err := json.Unmarshal(raw, &s); err != nil {
		return 0, err
	}
	return s.Int64()
}

// put sends length bytes of a file from offset on and returns the ETag.
func (p *push) put(ctx context.Context, f *upload, to string, header map[string]string, offset, length int64) (etag string, err error) {
	r := request{method: http.MethodPut, url: to, header: header, size: length}
	r.body = func() (io.ReadCloser, error) {
		file, err := p.root.Open(f.path)
		if err != nil {
			return nil, err
		}
		return struct {
			io.Reader
			io.Closer
		}{io.NewSectionReader(file, offset, length), file}, nil
	}
	err = p.client.retry(ctx, func() (bool, error) {
		resp, err := p.client.do(ctx, r)
		if err != nil {
			return false, err
		}
		etag = resp.Header.Get("ETag")
		return false, resp.Body.Close()
	})
	if err == nil {
		p.told.add(length)
	}
	return etag, err
}
