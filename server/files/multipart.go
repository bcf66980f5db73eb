package files

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"athanor/server/api"
	"athanor/server/jobs"
	"athanor/server/rest"
	"athanor/store"
	"athanor/store/resource"
)

// Initiate answers POST /files/multipart/initiate with a link for each part.
func (s *Service) Initiate(ctx context.Context, r *api.InitiateUploadRequest) (*api.Upload, error) {
	if most := s.limits.of(resource.FileType(r.FileType)); r.FileSize > most {
		return nil, api.Invalid("file_size", "file_size must be at most %d, got %d", most, r.FileSize)
	}
	now := s.kit.Now()
	f := s.announce(ctx, s.newFile(), &r.NewFile, now)
	f.Size = r.FileSize
	f.UploadID = resource.UploadID(s.kit.NewID("upload"))
	u := &resource.Upload{ID: f.UploadID, FileID: f.ID, ProjectID: f.ProjectID, Size: r.FileSize, NumParts: r.NumParts, CreatedAt: now}
	job := s.newJob()
	err := s.db.Update(ctx, func(tx *store.Tx) error {
		return errors.Join(
			store.Files.Insert(tx, string(f.ID), f),
			store.Uploads.Insert(tx, string(u.ID), u),
			jobs.Add(tx, job, kindExpire, string(f.ID), now, now.Add(s.limits.Arrive)),
		)
	})
	if err != nil {
		return nil, fmt.Errorf("begin upload: %w", err)
	}
	return s.wireUpload(ctx, u), nil
}

// wireUpload tells what has arrived and gives links for every part.
func (s *Service) wireUpload(ctx context.Context, u *resource.Upload) *api.Upload {
	out := &api.Upload{UploadID: string(u.ID), FileID: string(u.FileID)}
	base, expires := rest.BaseURL(ctx), u.CreatedAt.Add(s.limits.Arrive)
	for n := 1; n <= u.NumParts; n++ {
		path := "/files/multipart/" + string(u.ID) + "/parts/" + strconv.Itoa(n)
		out.Parts = append(out.Parts, api.UploadPart{PartNumber: n, URL: base + s.links.Sign("PUT", path, expires), Headers: map[string]string{}})
	}
	for _, p := range u.Parts {
		out.Parts[p.Number-1].ETag, out.Parts[p.Number-1].Size = etag(p), p.Size
	}
	return out
}

func etag(p resource.FilePart) string { return `"` + p.SHA256 + `"` }

// upload reads an upload of the caller's project.
func upload(tx *store.Tx, id, project string) (*resource.Upload, error) {
	u, err := store.Uploads.Get(tx, id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, api.NotFound("no upload %.80q", id)
	case err == nil && string(u.ProjectID) != project:
		return nil, errOther
	}
	return u, err
}

// Progress answers GET /files/multipart/{upload_id}: which parts have arrived,
// and the links of all, so that an upload can go on after a break.
func (s *Service) Progress(ctx context.Context, r *api.UploadRequest) (*api.Upload, error) {
	var u *resource.Upload
	err := s.db.View(func(tx *store.Tx) (err error) {
		u, err = upload(tx, r.UploadID, rest.Caller(ctx).ProjectID)
		return err
	})
	if err != nil {
		return nil, err
	}
	return s.wireUpload(ctx, u), nil
}

// PutPart takes the bytes of one part by its link. Sent again, the part is
// replaced.
func (s *Service) PutPart(ctx context.Context, r *api.PutPartRequest, body *rest.Body) (*rest.Reply, error) {
	var u *resource.Upload
	gone := api.NotFound("no upload %.80q: it has ended, or did not end in time", r.UploadID)
	err := s.db.View(func(tx *store.Tx) (err error) {
		u, err = store.Uploads.Get(tx, r.UploadID)
		return err
	})
	if errors.Is(err, store.ErrNotFound) {
		return nil, gone
	}
	if err != nil {
		return nil, err
	}
	if r.Number < 1 || r.Number > u.NumParts {
		return nil, api.Invalid("number", "the upload has parts 1 to %d, not %d", u.NumParts, r.Number)
	}
	key := fmt.Sprintf("uploads/%s/%d/%s", u.ID, r.Number, s.kit.NewID("object"))
	b, err := s.keep(ctx, key, body, body.Length, min(u.Size, s.limits.Part))
	if err != nil {
		return nil, err
	}
	part := resource.FilePart{Number: r.Number, Size: b.size, SHA256: b.sha256, ObjectKey: b.key}
	now := s.kit.Now()
	err = s.db.Update(ctx, func(tx *store.Tx) error {
		_, err := store.Uploads.Update(tx, r.UploadID, func(u *resource.Upload) error {
			if old := u.Put(part); old != nil {
				return s.discard(tx, now, old.ObjectKey)
			}
			return nil
		})
		return errors.Join(err, adopt(tx, b.key))
	})
	if err != nil {
		s.drop(b.key)
		if errors.Is(err, store.ErrNotFound) {
			return nil, gone
		}
		return nil, err
	}
	s.queue.Wake()
	return &rest.Reply{Header: map[string]string{"etag": etag(part)}}, nil
}

// Complete answers POST /files/multipart/complete. The parts become the file at
// once; joining them is part of ingestion. Asked again, it gives the same answer.
func (s *Service) Complete(ctx context.Context, r *api.CompleteUploadRequest) (*api.CompletedUpload, error) {
	project, now := rest.Caller(ctx).ProjectID, s.kit.Now()
	var done *resource.File
	err := s.db.Update(ctx, func(tx *store.Tx) error {
		u, err := upload(tx, r.UploadID, project)
		if err != nil {
			if f, ferr := find(tx, r.FileID, project); ferr == nil && string(f.UploadID) == r.UploadID && f.Here() {
				done = f
				return nil
			}
			return err
		}
		if r.FileID != "" && r.FileID != string(u.FileID) {
			return api.Invalid("file_id", "the upload brings the file %s, not %.80q", u.FileID, r.FileID)
		}
		if err := whole(u, r.Parts); err != nil {
			return err
		}
		done, err = store.Files.Update(tx, string(u.FileID), func(f *resource.File) error {
			f.Parts = u.Parts
			return s.arrived(tx, f, now)
		})
		if err != nil {
			return conflict(err)
		}
		return store.Uploads.Delete(tx, string(u.ID))
	})
	if err != nil {
		return nil, err
	}
	s.queue.Wake()
	return &api.CompletedUpload{File: wire(done)}, nil
}

// whole checks that the client and the server have the same parts, all of them.
func whole(u *resource.Upload, parts []api.CompletedPart) error {
	tags := map[int]string{}
	for i, p := range parts {
		if p.PartNumber < 1 || p.PartNumber > u.NumParts || tags[p.PartNumber] != "" {
			return api.Invalid(fmt.Sprintf("parts.%d.part_number", i), "part_number must be between 1 and %d, each once, got %d", u.NumParts, p.PartNumber)
		}
		tags[p.PartNumber] = `"` + strings.Trim(p.ETag, `"`) + `"`
	}
	var size int64
	for n, i := 1, 0; n <= u.NumParts; n, i = n+1, i+1 {
		if i >= len(u.Parts) || u.Parts[i].Number != n {
			return api.Invalid("parts", "part %d has not arrived", n)
		}
		if tags[n] != etag(u.Parts[i]) {
			return api.Invalid("parts", "the etag of part %d is %.80q, and %s arrived", n, tags[n], etag(u.Parts[i]))
		}
		size += u.Parts[i].Size
	}
	if size != u.Size {
		return api.Invalid("parts", "the parts have %d bytes together, %d were announced", size, u.Size)
	}
	return nil
}

// Abort answers POST /files/multipart/abort.
func (s *Service) Abort(ctx context.Context, r *api.AbortUploadRequest) (*api.AbortedUpload, error) {
	project, now := rest.Caller(ctx).ProjectID, s.kit.Now()
	out := &api.AbortedUpload{UploadID: r.UploadID, Aborted: true}
	err := s.db.Update(ctx, func(tx *store.Tx) error {
		u, err := upload(tx, r.UploadID, project)
		if err != nil {
			return err
		}
		f, err := store.Files.Get(tx, string(u.FileID))
		if err == nil {
			out.FileID = string(f.ID)
			_, err = s.remove(tx, f, now)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	s.queue.Wake()
	return out, nil
}
