package finetunes

import (
	"context"
	"errors"
	"fmt"
	"time"

	"athanor/server/api"
	"athanor/server/jobs"
	"athanor/server/rest"
	"athanor/store"
	"athanor/store/resource"
)

// Create answers POST /fine-tunes.
func (s *Service) Create(ctx context.Context, r *api.FineTuneRequest) (*api.FineTune, error) {
	caller := rest.Caller(ctx)
	o, err := s.origin(ctx, r)
	if err != nil {
		return nil, err
	}
	traits, err := s.Weights.Traits(ctx, o.model)
	if err != nil {
		return nil, untrainable(err, "model")
	}
	p, err := settings(r, limits(o.base.Name, traits), o.lora)
	if err != nil {
		return nil, err
	}
	if err := s.reachable(p, r); err != nil {
		return nil, err
	}
	now := s.Kit.Now()
	f := &resource.FineTune{
		ID: resource.FineTuneID(s.Kit.NewID("ft")), ProjectID: resource.ProjectID(caller.ProjectID), UserID: resource.UserID(caller.UserID),
		OwnerAddress: caller.OrganizationName, Status: resource.FineTunePending, CreatedAt: now, UpdatedAt: now, StartedAt: now,
		Stages: map[resource.FineTuneStatus]time.Time{resource.FineTunePending: now}, Params: *p, Base: o.base,
	}
	f.OutputName = outputName(caller.ProjectSlug, o.base.Name, p.Suffix, f.ID)
	if err := resource.ValidateModelName(f.OutputName); err != nil {
		return nil, api.Invalid("suffix", "the model could not be named: %s", err)
	}
	secrets := &resource.FineTuneSecrets{HubToken: api.Or(r.HubAPIToken, ""), TrackerKey: api.Or(r.TrackerAPIKey, "")}
	if p.HubModel == "" && p.HubOutput == "" {
		secrets.HubToken = ""
	}
	if err := s.insert(ctx, f, r, secrets); err != nil {
		return nil, err
	}
	s.queue.Wake()
	s.Kit.Log.Info("fine-tuning job created", "job", f.ID, "model", f.Base.Name)
	return s.answer(ctx, f)
}

// reachable refuses what needs services that this server does not use.
func (s *Service) reachable(p *resource.FineTuneParams, r *api.FineTuneRequest) error {
	for _, f := range []struct{ name, repo string }{{"from_hub_model", p.HubModel}, {"hub_output_repo_name", p.HubOutput}} {
		if f.repo == "" {
			continue
		}
		if s.Hub == nil {
			return api.Unsupported(f.name)
		}
		if err := s.Hub.Allowed(); err != nil {
			return api.Invalid(f.name, "%s: %s", f.name, err).WithCode("hub_not_allowed")
		}
	}
	if r.TrackerAPIKey != nil && s.Tracker == nil {
		return api.Unsupported("tracker_api_key")
	}
	return nil
}

// insert writes the job, its first event and its entry in the queue.
func (s *Service) insert(ctx context.Context, f *resource.FineTune, r *api.FineTuneRequest, secrets *resource.FineTuneSecrets) error {
	admission := s.newJob()
	err := s.DB.Update(ctx, func(tx *store.Tx) error {
		if err := useFiles(tx, f, r); err != nil {
			return err
		}
		if err := store.FineTunes.Insert(tx, string(f.ID), f); err != nil {
			return err
		}
		if *secrets != (resource.FineTuneSecrets{}) {
			if err := store.FineTuneSecrets.Insert(tx, string(f.ID), secrets); err != nil {
				return err
			}
		}
		ahead, err := ahead(tx, "")
		if err != nil {
			return err
		}
		message := "Fine-tuning request created"
		switch {
		case ahead == 1:
			message += "; 1 job comes before it"
		case ahead > 1:
			message += fmt.Sprintf("; %d jobs come before it", ahead)
		}
		err = appendEvent(tx, f.ID, &resource.FineTuneEvent{Type: eventPending, Level: levelInfo, Message: message, At: f.CreatedAt})
		if err != nil {
			return err
		}
		return jobs.Add(tx, admission, kindAdmit, string(f.ID), f.CreatedAt, f.CreatedAt)
	})
	var clash *store.UniqueError
	if errors.As(err, &clash) {
		return api.Conflict("a job makes a model named %s already, try again", f.OutputName)
	}
	return err
}

// useFiles checks the datasets and notes what they are.
func useFiles(tx *store.Tx, f *resource.FineTune, r *api.FineTuneRequest) error {
	train, err := dataset(tx, f, "training_file", r.TrainingFile)
	if err != nil {
		return err
	}
	f.TrainFile = *train
	if r.ValidationFile != nil {
		f.EvalFile, err = dataset(tx, f, "validation_file", *r.ValidationFile)
	}
	return err
}

// dataset finds a file that the job can train on.
func dataset(tx *store.Tx, f *resource.FineTune, param, id string) (*resource.FineTuneFile, error) {
	file, err := store.Files.Get(tx, id)
	if errors.Is(err, store.ErrNotFound) || err == nil && file.ProjectID != f.ProjectID {
		return nil, api.Invalid(param, "%s: there is no file %.80q in this project", param, id).WithCode("file_not_found")
	}
	if err != nil {
		return nil, err
	}
	if file.Purpose != resource.PurposeFineTune {
		return nil, api.Invalid(param, "%s: file %s has the purpose %s, not fine-tune", param, file.ID, file.Purpose)
	}
	switch file.Status {
	case resource.FileCompleted:
	case resource.FileInvalid:
		reason := "it breaks the rules of its format"
		if file.Report != nil && len(file.Report.Problems) > 0 {
			reason = file.Report.Problems[0].String()
		}
		return nil, api.Invalid(param, "%s: file %s is invalid: %s", param, file.ID, reason).WithCode("file_invalid")
	case resource.FileFailed:
		return nil, api.Invalid(param, "%s: file %s could not be processed", param, file.ID).WithCode("file_invalid")
	default:
		return nil, api.Invalid(param, "%s: file %s is not validated yet: it is %s", param, file.ID, file.Status).WithCode("file_not_validated")
	}
	if err := matches(f, param, file); err != nil {
		return nil, err
	}
	out := &resource.FineTuneFile{ID: file.ID, Type: file.Type, Size: file.Size, SHA256: file.SHA256}
	if file.Report != nil {
		out.Lines = file.Report.Lines
	}
	return out, nil
}

// formatPreference is the format of pairs of answers, as reports of files name it.
const formatPreference = "preference_openai"

// matches holds the format of a dataset against the method of training.
func matches(f *resource.FineTune, param string, file *resource.File) error {
	if file.Report == nil {
		return nil
	}
	switch r := file.Report; {
	case r.Multimodal:
		return api.Invalid(param, "%s: file %s has images, which cannot be trained on by this server", param, file.ID)
	case f.Params.DPO != nil && r.Format != "" && r.Format != formatPreference:
		return api.Invalid(param, "%s: the method dpo needs preference data, and file %s has the format %s", param, file.ID, r.Format)
	case f.Params.DPO == nil && r.Format == formatPreference:
		return api.Invalid(param, "%s: file %s has preference data, which is for the method dpo", param, file.ID)
	}
	return nil
}

// untrainable turns the reasons of Traits into what a client is told.
func untrainable(err error, param string) error {
	if errors.Is(err, ErrUntrainable) {
		return api.Invalid(param, "%s", err).WithCode("model_not_trainable")
	}
	return err
}

func (s *Service) newJob() resource.JobID { return resource.JobID(s.Kit.NewID("job")) }
