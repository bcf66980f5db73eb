package files

import (
	"context"
	"fmt"
	"io"

	"athanor/server/api"
	"athanor/server/rest"
	"athanor/store"
	"athanor/store/resource"
)

// Ops are the operations of this slice.
func (s *Service) Ops() []rest.Op {
	const tag = "files"
	whole := rest.BodyLimit(max(s.limits.File, s.limits.Parquet) + maxForm)
	return []rest.Op{
		rest.Get("/files", tag, rest.AnyKey, s.List),
		rest.Get("/files/:id", tag, rest.AnyKey, s.Retrieve),
		rest.Get("/files/:id/content", tag, rest.AnyKey, s.Content),
		rest.Delete("/files/:id", tag, rest.ProjectEditor, s.Delete),
		rest.PostBody("/files", tag, rest.ProjectEditor, s.Create, whole),
		rest.PostBody("/files/upload", tag, rest.ProjectEditor, s.Upload, whole),
		rest.PutBody("/files/:id/data", tag, rest.Signed, s.Put, whole),
		rest.Post("/files/:id/preprocess", tag, rest.ProjectEditor, s.Preprocess),
		rest.Post("/files/multipart/initiate", tag, rest.ProjectEditor, s.Initiate),
		rest.Get("/files/multipart/:upload_id", tag, rest.ProjectEditor, s.Progress),
		rest.PutBody("/files/multipart/:upload_id/parts/:number", tag, rest.Signed, s.PutPart, rest.BodyLimit(s.limits.Part)),
		rest.Post("/files/multipart/complete", tag, rest.ProjectEditor, s.Complete),
		rest.Post("/files/multipart/abort", tag, rest.ProjectEditor, s.Abort),
	}
}

// List answers GET /files.
func (s *Service) List(ctx context.Context, r *api.ListFilesRequest) (*api.FileList, error) {
	project := rest.Caller(ctx).ProjectID
	limit := api.MaxFiles
	if r.Limit != nil {
		limit = *r.Limit
	}
	out := &api.FileList{Object: "list", Data: []api.File{}}
	err := s.db.View(func(tx *store.Tx) error {
		if r.After != "" {
			if _, err := find(tx, r.After, project); err != nil {
				return api.Invalid("after", "after must be the id of a file of the project, got %.80q", r.After)
			}
		}
		passed := r.After == ""
		page := store.Page{Prefix: store.Key(project, ""), Limit: 1000, Reverse: true}
		for {
			list, next, err := store.Files.List(tx, store.ByProject, page)
			if err != nil {
				return fmt.Errorf("list files: %w", err)
			}
			for _, f := range list {
				switch {
				case !passed:
					passed = string(f.ID) == r.After
				case r.Purpose != "" && string(f.Purpose) != r.Purpose:
				case len(out.Data) == limit:
					out.HasMore = true
					return nil
				default:
					out.Data = append(out.Data, wire(f))
				}
			}
			if page.After = next; next == "" {
				return nil
			}
		}
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// Retrieve answers GET /files/{id}.
func (s *Service) Retrieve(ctx context.Context, r *api.FileRequest) (*api.File, error) {
	f, err := s.get(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	out := wire(f)
	return &out, nil
}

// Preprocess answers POST /files/{id}/preprocess, by which clients say that they
// have sent all bytes. Ingestion has begun by itself, so it only tells how it is.
func (s *Service) Preprocess(ctx context.Context, r *api.FileRequest) (*api.File, error) {
	f, err := s.get(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	if !f.Here() {
		return nil, api.Invalid("id", "the bytes of file %s have not arrived", f.ID)
	}
	out := wire(f)
	return &out, nil
}

// Delete answers DELETE /files/{id}.
func (s *Service) Delete(ctx context.Context, r *api.FileRequest) (*api.FileDeleted, error) {
	caller, now := rest.Caller(ctx), s.kit.Now()
	var interrupted []resource.JobID
	err := s.db.Update(ctx, func(tx *store.Tx) error {
		f, err := find(tx, r.ID, caller.ProjectID)
		if err == nil {
			interrupted, err = s.remove(tx, f, now)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	s.queue.Interrupt(interrupted...)
	s.queue.Wake()
	return &api.FileDeleted{ID: r.ID, Object: "file", Deleted: true}, nil
}

// Content answers GET /files/{id}/content with the bytes as they were uploaded.
func (s *Service) Content(ctx context.Context, r *api.FileRequest) (*rest.Reply, error) {
	f, err := s.get(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	if !f.Here() {
		return nil, api.NotFound("the bytes of file %s have not arrived", f.ID)
	}
	c := &rest.Content{Size: f.Size, ETag: f.SHA256, Open: func(ctx context.Context, offset, length int64) (io.ReadCloser, error) {
		return s.open(ctx, f, offset, length)
	}}
	return &rest.Reply{Content: c}, nil
}
