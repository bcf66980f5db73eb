package finetunes

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"athanor/server/api"
	"athanor/server/rest"
	"athanor/store"
	"athanor/store/object"
	"athanor/store/resource"
)

// States of a link of a lineage.
const (
	linkVerified = "verified" // its bytes were read again and have the hash
	linkChanged  = "changed"  // they have another one
	linkGone     = "gone"     // they are not here any more
	linkUnknown  = "unknown"  // it was not looked at, or never was here
)

// Lineage answers GET /fine-tunes/lineage: what a model was made of. Unless told
// otherwise it reads every byte again, which takes as long as that takes.
func (s *Service) Lineage(ctx context.Context, r *api.LineageRequest) (*api.FineTuneLineage, error) {
	m, err := s.Models.Resolve(resource.ProjectID(rest.Caller(ctx).ProjectID), r.Model)
	if err != nil {
		return nil, err
	}
	l := m.Lineage
	if l == nil {
		return nil, api.NotFound("model %s was not trained here: it has no lineage", m.Name)
	}
	v := &verifier{s: s, read: api.Or(r.Verify, true)}
	out := &api.FineTuneLineage{
		Model: m.Name, ModelID: string(m.ID), Revision: m.Revision, Job: string(l.Job), CodeVersion: l.CodeVersion,
		CreatedAt: l.CreatedAt, Config: l.Config, Export: (*api.LineageExport)(l.Export), Quantized: (*api.LineageExport)(l.Quantized),
	}
	for _, d := range l.Datasets {
		v.dataset(ctx, d)
	}
	if err := v.chain(ctx, m, l); err != nil {
		return nil, err
	}
	out.Chain, out.Verified = v.links, v.read
	for _, link := range v.links {
		out.Verified = out.Verified && link.State == linkVerified
	}
	return out, ctx.Err()
}

// verifier builds the links of one lineage.
type verifier struct {
	s     *Service
	read  bool // the bytes
	links []api.LineageLink
}

func (v *verifier) chain(ctx context.Context, m *resource.Model, l *resource.Lineage) error {
	if err := v.model(ctx, "base", l.Base); err != nil {
		return err
	}
	if l.Adapter != nil {
		if err := v.model(ctx, "adapter", *l.Adapter); err != nil {
			return err
		}
	}
	for _, c := range l.Checkpoints {
		if err := v.model(ctx, "checkpoint", c); err != nil {
			return err
		}
	}
	v.artifacts(ctx, l)
	own := resource.LineageModel{ID: m.ID, Name: m.Name, Revision: m.Revision}
	v.add(v.files(ctx, api.LineageLink{Kind: "model", ID: string(m.ID), Name: own.Name, Hash: own.Revision}, m.Files))
	return nil
}

// artifacts adds the files that a job keeps beside its model.
func (v *verifier) artifacts(ctx context.Context, l *resource.Lineage) {
	if len(l.Artifacts) == 0 {
		return
	}
	var result *resource.FineTuneResult
	err := v.s.DB.View(func(tx *store.Tx) error {
		f, err := store.FineTunes.Get(tx, string(l.Job))
		if err == nil {
			result = f.Result
		}
		return notFound(err)
	})
	for _, kind := range slices.Sorted(maps.Keys(l.Artifacts)) {
		revision := l.Artifacts[kind]
		link := api.LineageLink{Kind: kind, Name: string(l.Job), Hash: revision}
		switch {
		case err != nil || result == nil:
			link.State, link.Reason = linkGone, "the job has been deleted"
		case kind == artifactMerged:
			link = v.files(ctx, link, result.Merged)
		default:
			link = v.files(ctx, link, result.Adapter)
		}
		v.add(link)
	}
}

func (v *verifier) add(l api.LineageLink) { v.links = append(v.links, l) }

// dataset looks at a file that was trained on.
func (v *verifier) dataset(ctx context.Context, d resource.LineageDataset) {
	link := api.LineageLink{Kind: "dataset", Role: d.Role, ID: string(d.FileID), Name: string(d.FileID), Hash: d.SHA256, State: linkUnknown}
	var f *resource.File
	err := v.s.DB.View(func(tx *store.Tx) (err error) {
		f, err = store.Files.Get(tx, string(d.FileID))
		return err
	})
	switch {
	case errors.Is(err, store.ErrNotFound):
		link.State, link.Reason = linkGone, "the file has been deleted"
	case err != nil:
		link.Reason = "the record of the file cannot be read"
	case v.read:
		link.Name = f.Name
		link.Bytes, link.State, link.Reason = v.object(ctx, f.ObjectKey, d.SHA256)
	default:
		link.Name = f.Name
	}
	v.add(link)
}

// model looks at weights that have a record.
func (v *verifier) model(ctx context.Context, kind string, l resource.LineageModel) error {
	link := api.LineageLink{Kind: kind, ID: string(l.ID), Name: l.Name, Step: l.Step, Hash: l.Revision, State: linkUnknown}
	if l.ID == "" {
		link.Reason = "it was never registered here"
		v.add(link)
		return nil
	}
	var m *resource.Model
	err := v.s.DB.View(func(tx *store.Tx) (err error) {
		m, err = store.Models.Get(tx, string(l.ID))
		return err
	})
	switch {
	case errors.Is(err, store.ErrNotFound):
		link.State, link.Reason = linkGone, "the model has been deleted"
	case err != nil:
		return fmt.Errorf("lineage of %s: %w", l.Name, err)
	case m.Revision != l.Revision:
		link.State, link.Reason = linkChanged, "the model has another content now"
	default:
		link = v.files(ctx, link, m.Files)
	}
	v.add(link)
	return nil
}

// files reads files again and holds them against their own hashes and against that
// of their manifest.
func (v *verifier) files(ctx context.Context, link api.LineageLink, files []resource.ModelFile) api.LineageLink {
	link.State = linkUnknown
	if !v.read {
		return link
	}
	if len(files) == 0 {
		link.State, link.Reason = linkGone, "its files have been deleted"
		return link
	}
	if got := resource.Revision(files); got != link.Hash {
		link.State, link.Reason = linkChanged, "the manifest has the hash "+got
		return link
	}
	link.State = linkVerified
	for _, f := range files {
		n, state, reason := v.object(ctx, f.ObjectKey, f.SHA256)
		link.Bytes += n
		if state != linkVerified {
			link.State, link.Reason = state, f.Path+": "+reason
			return link
		}
	}
	return link
}

// object reads an object again.
func (v *verifier) object(ctx context.Context, key, want string) (n int64, state, reason string) {
	r, _, err := v.s.Objects.Get(ctx, key, 0, -1)
	if errors.Is(err, object.ErrNotFound) {
		return 0, linkGone, "its bytes are not in the object store"
	}
	h := sha256.New()
	if err == nil {
		n, err = io.Copy(h, r)
		err = errors.Join(err, r.Close())
	}
	if err != nil {
		v.s.Kit.Log.Warn("an object cannot be verified", "key", key, "error", err)
		return n, linkUnknown, "its bytes cannot be read"
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != want {
		return n, linkChanged, "it has the hash " + got
	}
	return n, linkVerified, ""
}
