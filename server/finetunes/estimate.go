package finetunes

import (
	"context"
	"errors"
	"fmt"
	"io"

	"athanor/server/api"
	"athanor/server/rest"
	"athanor/store"
	"athanor/store/resource"
)

// Reasons why there is no estimate.
const (
	reasonMultimodal   = "multimodal_dataset"
	reasonTrainPending = "train_file_not_validated"
	reasonEvalPending  = "eval_file_not_validated"
	reasonTrainInvalid = "train_file_invalid"
	reasonEvalInvalid  = "eval_file_invalid"
)

// bytesPerToken is what a token has on average: the estimate without a model.
const bytesPerToken = 4

// EstimatePrice answers POST /fine-tunes/estimate-price. An appliance charges
// nothing, so what counts are the tokens.
func (s *Service) EstimatePrice(ctx context.Context, r *api.EstimateFineTuneRequest) (*api.FineTunePrice, error) {
	train, eval, reason, err := s.estimated(ctx, r)
	if err != nil {
		return nil, err
	}
	if reason != "" {
		return &api.FineTunePrice{UnavailableReason: reason}, nil
	}
	var o *origin
	if r.Model != "" || r.FromCheckpoint != nil {
		if o, err = s.origin(ctx, &r.FineTuneRequest); err != nil {
			return nil, err
		}
		traits, err := s.Weights.Traits(ctx, o.model)
		if err != nil {
			return nil, untrainable(err, "model")
		}
		if _, err := settings(&r.FineTuneRequest, limits(o.base.Name, traits), o.lora); err != nil {
			return nil, err
		}
	}
	out := &api.FineTunePrice{EstimationAvailable: true, AllowedToProceed: true}
	n, err := s.tokens(ctx, o, r, train)
	if err != nil {
		return nil, err
	}
	out.EstimatedTrainTokenCount = n * int64(api.Or(r.NEpochs, api.DefaultEpochs))
	if evals := api.Or(r.NEvals, 0); eval != nil && evals > 0 {
		if n, err = s.tokens(ctx, o, r, eval); err != nil {
			return nil, err
		}
		out.EstimatedEvalTokenCount = n * int64(evals)
	}
	return out, nil
}

// estimated finds the files, or the reason why nothing can be said about them.
func (s *Service) estimated(ctx context.Context, r *api.EstimateFineTuneRequest) (train, eval *resource.File, reason string, err error) {
	project := resource.ProjectID(rest.Caller(ctx).ProjectID)
	err = s.DB.View(func(tx *store.Tx) (err error) {
		if train, err = estimable(tx, project, "training_file", r.TrainingFile); err == nil && r.ValidationFile != nil {
			eval, err = estimable(tx, project, "validation_file", *r.ValidationFile)
		}
		return err
	})
	if err != nil {
		return nil, nil, "", err
	}
	if reason = obstacle(train, reasonTrainPending, reasonTrainInvalid); reason == "" && eval != nil {
		reason = obstacle(eval, reasonEvalPending, reasonEvalInvalid)
	}
	return train, eval, reason, nil
}

func estimable(tx *store.Tx, project resource.ProjectID, param, id string) (*resource.File, error) {
	f, err := store.Files.Get(tx, id)
	if errors.Is(err, store.ErrNotFound) || err == nil && f.ProjectID != project {
		return nil, api.Invalid(param, "%s: there is no file %.80q in this project", param, id).WithCode("file_not_found")
	}
	if err == nil && f.Purpose != resource.PurposeFineTune {
		return nil, api.Invalid(param, "%s: file %s has the purpose %s, not fine-tune", param, f.ID, f.Purpose)
	}
	return f, err
}

func obstacle(f *resource.File, pending, invalid string) string {
	switch {
	case f.Status == resource.FileInvalid || f.Status == resource.FileFailed:
		return invalid
	case f.Status != resource.FileCompleted:
		return pending
	case f.Report != nil && f.Report.Multimodal:
		return reasonMultimodal
	}
	return ""
}

// tokens counts the tokens of one pass over a file, or estimates them without a
// model.
func (s *Service) tokens(ctx context.Context, o *origin, r *api.EstimateFineTuneRequest, f *resource.File) (tokens int64, err error) {
	if o == nil || s.Previewer == nil || f.Report == nil || f.Report.Lines == 0 {
		return f.Size / bytesPerToken, nil
	}
	opt := PreviewOptions{
		Type: string(f.Type), MaxSeqLength: api.Or(r.MaxSeqLength, 0),
		Preference: r.TrainingMethod != nil && r.TrainingMethod.Method == api.MethodDPO,
	}
	err = s.tokenized(ctx, o.model, f, func(dir string, content io.Reader) error {
		tokens, err = s.Previewer.Tokens(ctx, dir, content, f.Report.Lines, opt)
		return err
	})
	return tokens, err
}

// Preview answers POST /fine-tunes/preview.
func (s *Service) Preview(ctx context.Context, r *api.PreviewFineTuneRequest) (*api.FineTunePreview, error) {
	if s.Previewer == nil {
		return nil, api.New(501, api.TypeServer, "not_available", "this server cannot preview datasets")
	}
	project := resource.ProjectID(rest.Caller(ctx).ProjectID)
	m, err := s.Models.Resolve(project, r.Model)
	if err != nil {
		return nil, err
	}
	if m.BaseID != "" {
		return nil, api.Invalid("model", "%s is an adapter; name its base model", r.Model)
	}
	var f *resource.File
	err = s.DB.View(func(tx *store.Tx) (err error) {
		if f, err = store.Files.Get(tx, r.TrainingFile); errors.Is(err, store.ErrNotFound) || err == nil && f.ProjectID != project {
			return api.NotFound("no file %.80q", r.TrainingFile).WithParam("training_file")
		}
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case f.Purpose != resource.PurposeFineTune || f.Status != resource.FileCompleted:
		return nil, api.Invalid("training_file", "training_file: file %s is %s with the purpose %s; a validated file for fine-tune is needed", f.ID, f.Status, f.Purpose)
	case f.Report != nil && f.Report.Format == formatPreference:
		return nil, api.Invalid("training_file", "training_file: file %s has preference data; only the method sft can be previewed", f.ID)
	}
	p, err := s.preview(ctx, m, f, PreviewOptions{
		Type: string(f.Type), Rows: api.Or(r.TopK, 5), TrainOnInputs: api.Or(r.TrainOnInputs, false), MaxSeqLength: m.ContextLength,
	})
	if err != nil {
		return nil, err
	}
	p.Model, p.MaxSeqLength, p.TrainOnInputs = m.Name, m.ContextLength, api.Or(r.TrainOnInputs, false)
	return p, nil
}

// preview tokenizes the first rows of a file for a model.
func (s *Service) preview(ctx context.Context, m *resource.Model, f *resource.File, opt PreviewOptions) (p *api.FineTunePreview, err error) {
	err = s.tokenized(ctx, m, f, func(dir string, content io.Reader) error {
		p, err = s.Previewer.Preview(ctx, dir, content, opt)
		return err
	})
	return p, err
}

// tokenized hands the directory of a model and the content of a file to read, whose
// errors are about the file.
func (s *Service) tokenized(ctx context.Context, m *resource.Model, f *resource.File, read func(dir string, content io.Reader) error) error {
	dir, err := s.Weights.Directory(ctx, m)
	if err != nil {
		return fmt.Errorf("model of a preview: %w", err)
	}
	r, _, err := s.Objects.Get(ctx, f.ObjectKey, 0, -1)
	if err != nil {
		return fmt.Errorf("file of a preview: %w", err)
	}
	if err := errors.Join(read(dir, r), r.Close()); err != nil {
		return dataProblem(err, "training_file")
	}
	return nil
}
