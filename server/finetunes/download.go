package finetunes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"athanor/server/api"
	"athanor/server/rest"
	"athanor/store"
	"athanor/store/object"
	"athanor/store/resource"
)

const (
	linkTime     = time.Hour // a link to an archive works so long
	archiveType  = "application/zstd"
	archiveExt   = ".tar.zst"
	archivePath  = "tokenized-dataset" + archiveExt
	downloadsTag = "fine-tuning"
)

// downloadOps are the operations that hand out what jobs leave: the tokenized
// dataset and the weights.
func (s *Service) downloadOps() []rest.Op {
	return []rest.Op{
		rest.Get("/fine-tunes/:id/download-tokenized-dataset", downloadsTag, rest.AnyKey, s.TokenizedLink),
		rest.Get("/fine-tunes/:id/"+archivePath, downloadsTag, rest.Signed, s.Tokenized),
		rest.Get("/finetune/download", downloadsTag, rest.AnyKey, s.Download),
	}
}

// tokenized is the archive of a job's tokenized dataset.
func tokenized(f *resource.FineTune) (*resource.FineTuneArchive, error) {
	if f.Tokenized == nil {
		return nil, api.NotFound("the tokenized dataset of job %s has not been uploaded: it appears when the job has tokenized its data", f.ID)
	}
	return f.Tokenized, nil
}

// TokenizedLink answers GET /fine-tunes/{id}/download-tokenized-dataset with a URL that
// works without a key for an hour: of the object store when that can give one, of
// this server otherwise.
func (s *Service) TokenizedLink(ctx context.Context, r *api.FineTuneIDRequest) (*api.TokenizedDataset, error) {
	f, err := s.Job(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	a, err := tokenized(f)
	if err != nil {
		return nil, err
	}
	expires := s.Kit.Now().Add(linkTime).Truncate(time.Second)
	out := &api.TokenizedDataset{Filename: r.ID + "-" + archivePath, Size: a.Size, ContentType: archiveType, ExpiresAt: expires}
	if p, ok := s.Objects.(object.Presigner); ok {
		if out.URL, err = p.PresignGet(ctx, a.ObjectKey, linkTime); err != nil {
			return nil, fmt.Errorf("sign a link: %w", err)
		}
		return out, nil
	}
	out.URL = rest.BaseURL(ctx) + s.Links.Sign("GET", "/fine-tunes/"+r.ID+"/"+archivePath, expires)
	return out, nil
}

// Tokenized serves the archive to whoever has the link.
func (s *Service) Tokenized(_ context.Context, r *api.FineTuneIDRequest) (*rest.Reply, error) {
	var a *resource.FineTuneArchive
	err := s.DB.View(func(tx *store.Tx) error {
		f, err := store.FineTunes.Get(tx, r.ID)
		if errors.Is(err, store.ErrNotFound) || err == nil && f.Deleted {
			return api.NotFound("no fine-tuning job %.80q", r.ID)
		}
		if err == nil {
			a, err = tokenized(f)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	open := func(ctx context.Context, offset, length int64) (io.ReadCloser, error) {
		body, _, err := s.Objects.Get(ctx, a.ObjectKey, offset, length)
		return body, err
	}
	return attachment(r.ID+"-"+archivePath, &rest.Content{Type: archiveType, Size: a.Size, ETag: a.SHA256, Open: open}), nil
}

// attachment lets a browser save what it gets.
func attachment(name string, c *rest.Content) *rest.Reply {
	return &rest.Reply{Content: c, Header: map[string]string{"content-disposition": `attachment; filename="` + name + `"`}}
}

// Download answers GET /finetune/download with a .tar.zst of the result or of a
// checkpoint.
func (s *Service) Download(ctx context.Context, r *api.DownloadFineTuneRequest) (*rest.Reply, error) {
	var files []resource.ModelFile
	name := r.FineTuneID
	err := s.DB.View(func(tx *store.Tx) error {
		f, err := find(tx, r.FineTuneID, rest.Caller(ctx).ProjectID)
		if err != nil {
			return err
		}
		if r.Step != nil && *r.Step > 0 {
			name = fmt.Sprintf("%s-step-%d", name, *r.Step)
			files, err = checkpointFiles(tx, f, *r.Step, r.Checkpoint)
		} else {
			files, err = resultFiles(tx, f, r.Checkpoint)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	a, err := newArchive(s.Objects, files)
	if err != nil {
		return nil, err
	}
	return attachment(name+archiveExt, &rest.Content{Type: archiveType, Size: a.size(), ETag: a.etag, Open: a.open}), nil
}

// resultFiles are the files of a completed job in the form that was asked for.
func resultFiles(tx *store.Tx, f *resource.FineTune, form string) ([]resource.ModelFile, error) {
	if f.Result == nil {
		return nil, api.NotFound("job %s has no result: its status is %s. A checkpoint can be had by checkpoint_step", f.ID, f.Status)
	}
	adapter := f.Params.LoRA != nil
	if form == api.DownloadAdapter && !adapter {
		return nil, api.Invalid("checkpoint", "job %s trained all weights and has no adapter: use checkpoint=model_output_path", f.ID)
	}
	switch {
	case form == api.DownloadAdapter && len(f.Result.Adapter) > 0:
		return f.Result.Adapter, nil
	case form != api.DownloadAdapter && len(f.Result.Merged) > 0:
		return f.Result.Merged, nil
	}
	m, err := model(tx, f.Result.ModelID, f.OutputName)
	if err != nil {
		return nil, err
	}
	if served := m.BaseID != ""; adapter && form != "" && served != (form == api.DownloadAdapter) {
		return nil, api.NotFound("the result of job %s is not kept in the form %s", f.ID, form)
	}
	return m.Files, nil
}

// checkpointFiles are the files of a checkpoint, which has one form only.
func checkpointFiles(tx *store.Tx, f *resource.FineTune, step int, form string) ([]resource.ModelFile, error) {
	for _, c := range f.Checkpoints {
		switch {
		case c.Step != step:
		case form == api.DownloadAdapter && !c.Adapter:
			return nil, api.Invalid("checkpoint", "the checkpoint of step %d is a whole model: use checkpoint=model_output_path", step)
		case form == api.DownloadMerged && c.Adapter && f.Result != nil && f.Result.Step == step && len(f.Result.Merged) > 0:
			return f.Result.Merged, nil
		case form == api.DownloadMerged && c.Adapter:
			return nil, api.Invalid("checkpoint", "the checkpoint of step %d is an adapter, only the result is merged: use checkpoint=adapter", step)
		case c.ModelID == "":
			return c.Files, nil
		default:
			m, err := model(tx, c.ModelID, c.Name)
			if err != nil {
				return nil, err
			}
			return m.Files, nil
		}
	}
	return nil, api.NotFound("job %s has no checkpoint of step %d", f.ID, step)
}

// model reads a model that a job has made.
func model(tx *store.Tx, id resource.ModelID, name string) (*resource.Model, error) {
	m, err := store.Models.Get(tx, string(id))
	if errors.Is(err, store.ErrNotFound) {
		return nil, api.NotFound("the model %s has been deleted", name)
	}
	return m, err
}
