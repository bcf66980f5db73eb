package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"time"

	"athanor/server/api"
	"athanor/server/jobs"
	"athanor/server/rest"
	"athanor/store"
	"athanor/store/resource"
)

const (
	maxForm   = 1 << 20  // bytes of everything beside the file in a multipart body
	maxField  = 4 << 10  // bytes of one field
	maxFields = 32       // parts of a multipart body
	maxNaming = 64 << 10 // bytes of a body that only names a file
)

// Create answers POST /files. With a multipart body it takes the file; otherwise
// it answers with the link to which the bytes are to be PUT.
func (s *Service) Create(ctx context.Context, r *api.CreateFileRequest, body *rest.Body) (*rest.Reply, error) {
	if body.Type == "multipart/form-data" {
		f, err := s.receive(ctx, api.NewFile{Purpose: r.Purpose, FileName: r.FileName, FileType: r.FileType}, body)
		return &rest.Reply{Value: f}, err
	}
	named, err := naming(r, body)
	if err != nil {
		return nil, err
	}
	now := s.kit.Now()
	f := s.announce(ctx, s.newFile(), &named, now)
	job := s.newJob()
	err = s.db.Update(ctx, func(tx *store.Tx) error {
		if err := store.Files.Insert(tx, string(f.ID), f); err != nil {
			return err
		}
		return jobs.Add(tx, job, kindExpire, string(f.ID), now, now.Add(s.limits.Arrive))
	})
	if err != nil {
		return nil, fmt.Errorf("announce file: %w", err)
	}
	link := s.links.Sign("PUT", "/files/"+string(f.ID)+"/data", now.Add(s.limits.Arrive))
	return rest.Redirect(rest.BaseURL(ctx)+link, map[string]string{"x-together-file-id": string(f.ID)}), nil
}

// naming reads what the file is to be called from the query and from a body that
// is a form or JSON. The same field in both must say the same.
func naming(r *api.CreateFileRequest, body *rest.Body) (named api.NewFile, err error) {
	switch body.Type {
	case "application/json":
		if body.Length != 0 {
			err = body.JSON(maxNaming, &named)
		}
	case "", "application/x-www-form-urlencoded":
		form, ferr := body.Form(maxNaming)
		err = ferr
		named = api.NewFile{Purpose: form.Get("purpose"), FileName: form.Get("file_name"), FileType: form.Get("file_type")}
	default:
		err = api.New(415, api.TypeInvalidRequest, "unsupported_media_type",
			"content-type must be multipart/form-data to send the file, or a form or JSON to name it, got %.80q", body.Type)
	}
	if err != nil {
		return named, err
	}
	for _, f := range []struct {
		name  string
		query string
		body  *string
	}{{"purpose", r.Purpose, &named.Purpose}, {"file_name", r.FileName, &named.FileName}, {"file_type", r.FileType, &named.FileType}} {
		if *f.body != "" && f.query != "" && *f.body != f.query {
			return named, api.Invalid(f.name, "%s differs between the query and the body", f.name)
		}
		if *f.body == "" {
			*f.body = f.query
		}
	}
	return named, named.Validate()
}

// announce makes the record of a file whose bytes are still to come.
func (s *Service) announce(ctx context.Context, id resource.FileID, named *api.NewFile, now time.Time) *resource.File {
	return &resource.File{
		ID: id, ProjectID: resource.ProjectID(rest.Caller(ctx).ProjectID), Name: named.FileName,
		Purpose: resource.FilePurpose(named.Purpose), Type: resource.FileType(named.FileType), Status: resource.FilePending,
		CreatedAt: now, UpdatedAt: now,
	}
}

// Put takes the bytes of a file by its link.
func (s *Service) Put(ctx context.Context, r *api.FileRequest, body *rest.Body) (*rest.Reply, error) {
	var f *resource.File
	gone := api.NotFound("no file %.80q: it was deleted, or its bytes did not come in time", r.ID)
	err := s.db.View(func(tx *store.Tx) (err error) {
		f, err = store.Files.Get(tx, r.ID)
		return err
	})
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, gone
	case err != nil:
		return nil, err
	case f.Status != resource.FilePending || f.UploadID != "":
		return nil, conflict(&resource.BadMove{From: string(f.Status)})
	}
	b, err := s.keep(ctx, s.fileKey(f.ID), body, body.Length, s.limits.of(f.Type))
	if err != nil {
		return nil, err
	}
	now := s.kit.Now()
	err = s.db.Update(ctx, func(tx *store.Tx) error {
		_, err := store.Files.Update(tx, r.ID, func(f *resource.File) error {
			f.ObjectKey, f.Size, f.SHA256 = b.key, b.size, b.sha256
			return errors.Join(s.arrived(tx, f, now), adopt(tx, b.key))
		})
		return err
	})
	if err != nil {
		s.drop(b.key)
		if errors.Is(err, store.ErrNotFound) {
			return nil, gone
		}
		return nil, conflict(err)
	}
	s.queue.Wake()
	return &rest.Reply{Header: map[string]string{"etag": `"` + b.sha256 + `"`}}, nil
}

func (s *Service) fileKey(id resource.FileID) string {
	return "files/" + string(id) + "/" + s.kit.NewID("object")
}

// Upload answers POST /files/upload.
func (s *Service) Upload(ctx context.Context, r *api.CreateFileRequest, body *rest.Body) (*api.File, error) {
	return s.receive(ctx, api.NewFile{Purpose: r.Purpose, FileName: r.FileName, FileType: r.FileType}, body)
}

// receive takes a multipart body with the file and its fields in any order: the
// bytes are stored as they come, and given up if what is said of them is wrong.
func (s *Service) receive(ctx context.Context, named api.NewFile, body *rest.Body) (*api.File, error) {
	parts, err := body.Parts()
	if err != nil {
		return nil, err
	}
	id := s.newFile()
	got, err := s.readParts(ctx, id, parts, &named)
	if err == nil {
		err = named.Validate()
	}
	// The type may have come behind the bytes, which were taken up to either limit.
	if most := s.limits.of(resource.FileType(named.FileType)); err == nil && got.size > most {
		err = api.TooLarge(most)
	}
	if err != nil {
		if got != nil {
			s.drop(got.key)
		}
		return nil, err
	}
	now := s.kit.Now()
	f := s.announce(ctx, id, &named, now)
	f.ObjectKey, f.Size, f.SHA256 = got.key, got.size, got.sha256
	var out api.File
	err = s.db.Update(ctx, func(tx *store.Tx) error {
		stored := *f
		if err := errors.Join(s.arrived(tx, &stored, now), adopt(tx, got.key)); err != nil {
			return err
		}
		out = wire(&stored)
		return store.Files.Insert(tx, string(id), &stored)
	})
	if err != nil {
		s.drop(got.key)
		return nil, fmt.Errorf("record file: %w", err)
	}
	s.queue.Wake()
	return &out, nil
}

// readParts reads fields into named and stores the file. Whatever the error, the
// blob is given when it is there.
func (s *Service) readParts(ctx context.Context, id resource.FileID, parts *multipart.Reader, named *api.NewFile) (got *blob, _ error) {
	fields := map[string]*string{"purpose": &named.Purpose, "file_name": &named.FileName, "file_type": &named.FileType}
	given := map[string]bool{}
	var fallback string
	for n := 0; ; n++ {
		p, err := parts.NextPart()
		if err == io.EOF {
			break
		}
		if err != nil {
			return got, rest.PartError(err)
		}
		name := p.FormName()
		if n >= maxFields {
			return got, api.Invalid("", "the multipart body has more than %d parts", maxFields)
		}
		if given[name] {
			return got, api.Invalid(name, "%.80q is given twice", name)
		}
		given[name] = true
		if name == "file" {
			fallback = p.FileName()
			if got, err = s.keep(ctx, s.fileKey(id), partReader{p}, -1, max(s.limits.File, s.limits.Parquet)); err != nil {
				return nil, err
			}
			continue
		}
		value, err := io.ReadAll(io.LimitReader(p, maxField+1))
		if err != nil {
			return got, rest.PartError(err)
		}
		if len(value) > maxField {
			return got, api.Invalid(name, "the field %.80q is longer than %d bytes", name, maxField)
		}
		if field := fields[name]; field != nil {
			*field = string(value)
		}
	}
	if got == nil {
		return nil, api.Invalid("file", "the multipart body has no part named file")
	}
	if named.FileName == "" {
		named.FileName = fallback
	}
	return got, nil
}

// partReader makes the errors of a part what clients are told.
type partReader struct{ p *multipart.Part }

func (r partReader) Read(b []byte) (int, error) {
	n, err := r.p.Read(b)
	if err != nil && err != io.EOF {
		err = rest.PartError(err)
	}
	return n, err
}
