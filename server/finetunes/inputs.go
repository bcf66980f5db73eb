package finetunes

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"athanor/engine"
	"athanor/server/finetunes/snapshot"
	"athanor/store"
	"athanor/store/object"
	"athanor/store/resource"
)

// Roles of datasets.
const (
	roleTraining   = "training"
	roleValidation = "validation"
)

// dataFile is where a dataset of a job lies.
func dataFile(dir, role string, f *resource.FineTuneFile) engine.DataFile {
	return engine.DataFile{Path: filepath.Join(dir, role+"."+string(f.Type)), Type: string(f.Type), SHA256: f.SHA256}
}

// prepare brings everything that the training reads to the local disk.
func (r *run) prepare(ctx context.Context) (*engine.TrainSpec, error) {
	dir := r.s.dir(r.id)
	if err := os.MkdirAll(filepath.Join(dir, "work"), 0o700); err != nil {
		return nil, fmt.Errorf("directory of job %s: %w", r.id, err)
	}
	err := r.simple(ctx, eventModelDownloading, "Fetching the model "+r.startsFrom())
	if err != nil {
		return nil, err
	}
	modelDir, adapterDir, err := r.weights(ctx)
	if err == nil {
		err = r.simple(ctx, eventModelDownloaded, "The model is here")
	}
	if err != nil {
		return nil, err
	}
	if err := r.fetch(ctx, roleTraining, &r.f.TrainFile, eventTrainDownloading, eventTrainDownloaded); err != nil {
		return nil, err
	}
	if r.f.EvalFile != nil {
		if err := r.fetch(ctx, roleValidation, r.f.EvalFile, eventEvalDownloading, eventEvalDownloaded); err != nil {
			return nil, err
		}
	}
	// The result is served as its base is.
	base, err := r.model(r.f.Base.ModelID, r.f.Base.Revision)
	if err != nil {
		return nil, err
	}
	spec := r.spec(modelDir, adapterDir)
	if base.Quantization != resource.QuantizationNone {
		spec.Quantization = string(base.Quantization)
	}
	return spec, nil
}

// startsFrom names what the training goes on from.
func (r *run) startsFrom() string {
	switch p := &r.f.Params; {
	case p.HubModel != "":
		return p.HubModel + ", revision " + p.HubRevision
	case p.FromCheckpoint != "":
		return r.f.Base.Name + ", checkpoint " + p.FromCheckpoint
	}
	return r.f.Base.Name
}

// weights brings the base model, and the adapter to go on from, to the local disk.
func (r *run) weights(ctx context.Context) (modelDir, adapterDir string, err error) {
	base, err := r.model(r.f.Base.ModelID, r.f.Base.Revision)
	if err != nil {
		return "", "", err
	}
	if r.f.Params.HubModel != "" {
		modelDir, err = r.fromHub(ctx, base)
		return modelDir, "", err
	}
	if modelDir, err = r.s.Weights.Directory(ctx, base); err != nil {
		return "", "", fmt.Errorf("base model: %w", err)
	}
	if r.f.Base.AdapterID == "" {
		return modelDir, "", nil
	}
	adapter, err := r.model(r.f.Base.AdapterID, r.f.Base.AdapterRevision)
	if err != nil {
		return "", "", err
	}
	if adapterDir, err = r.s.Weights.Directory(ctx, adapter); err != nil {
		return "", "", fmt.Errorf("checkpoint: %w", err)
	}
	return modelDir, adapterDir, nil
}

// model reads the record of weights that must not have changed since the creation.
func (r *run) model(id resource.ModelID, revision string) (m *resource.Model, err error) {
	err = r.s.DB.View(func(tx *store.Tx) (err error) {
		m, err = store.Models.Get(tx, string(id))
		return err
	})
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, &problemError{message: "The model that the job goes on from has been deleted"}
	case err == nil && m.Revision != revision:
		return nil, &problemError{message: "The model " + m.Name + " has been replaced since the job was created"}
	}
	return m, err
}

// fromHub fetches the repository to start from and holds it against the base.
func (r *run) fromHub(ctx context.Context, base *resource.Model) (string, error) {
	p := &r.f.Params
	dir, mark := filepath.Join(r.s.dir(r.id), "base"), filepath.Join(r.s.dir(r.id), "base.commit")
	point, err := os.ReadFile(mark) // written when everything was there
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(point) == 0 {
		var commit string
		commit, err = r.s.Hub.Fetch(ctx, p.HubModel, p.HubRevision, r.secrets.HubToken, dir, hubBytes(base))
		if err != nil && ctx.Err() == nil {
			return "", &problemError{message: fmt.Sprintf("The model cannot be fetched from the hub: %s", err)}
		}
		if err == nil {
			point, err = []byte(commit), os.WriteFile(mark, []byte(commit), 0o600)
		}
	}
	if err != nil {
		return "", err
	}
	r.hubPoint = string(point)
	m, err := r.s.Weights.Describe(dir)
	if err != nil {
		return "", &problemError{message: fmt.Sprintf("The model %s from the hub cannot be used: %s", p.HubModel, err)}
	}
	if m.Architecture != base.Architecture || m.Parameters != base.Parameters {
		return "", &problemError{message: fmt.Sprintf("The model %s from the hub is a %s with %d parameters, and %s is a %s with %d",
			p.HubModel, m.Architecture, m.Parameters, base.Name, base.Architecture, base.Parameters)}
	}
	return dir, nil
}

// hubBytes bounds a repository that should hold the weights of m, in bytes: numbers of
// eight bytes at most, and what else lies beside weights.
func hubBytes(m *resource.Model) int64 { return 8*m.Parameters + 1<<30 }

// fetch brings a dataset to the local disk.
func (r *run) fetch(ctx context.Context, role string, f *resource.FineTuneFile, begin, end string) error {
	if err := r.simple(ctx, begin, fmt.Sprintf("Fetching the %s file %s", role, f.ID)); err != nil {
		return err
	}
	to := dataFile(r.s.dir(r.id), role, f).Path
	if _, err := os.Stat(to); errors.Is(err, fs.ErrNotExist) {
		if err := r.place(ctx, role, f, to); err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	return r.simple(ctx, end, fmt.Sprintf("The %s file is here", role))
}

// place links the content of a file, where the object store is on the same disk, or
// copies it. It appears under its name only when it is whole.
func (r *run) place(ctx context.Context, role string, f *resource.FineTuneFile, to string) error {
	var file *resource.File
	err := r.s.DB.View(func(tx *store.Tx) (err error) {
		file, err = store.Files.Get(tx, string(f.ID))
		return err
	})
	if errors.Is(err, store.ErrNotFound) {
		return &problemError{message: fmt.Sprintf("The %s file %s has been deleted", role, f.ID)}
	}
	if err != nil {
		return err
	}
	if filer, ok := r.s.Objects.(object.Filer); ok {
		if from, err := filer.Path(file.ObjectKey); err == nil && os.Link(from, to) == nil {
			return nil
		}
	}
	body, _, err := r.s.Objects.Get(ctx, file.ObjectKey, 0, -1)
	if errors.Is(err, object.ErrNotFound) {
		return &problemError{message: fmt.Sprintf("The %s file %s has been deleted", role, f.ID)}
	}
	if err != nil {
		return fmt.Errorf("%s file: %w", role, err)
	}
	defer body.Close()
	w, err := os.Create(to + ".new")
	if err != nil {
		return err
	}
	h := sha256.New()
	_, err = io.Copy(io.MultiWriter(w, h), body)
	if err == nil {
		err = w.Sync() // its name says that it is whole, also after a loss of power
	}
	if err := errors.Join(err, w.Close()); err != nil {
		return fmt.Errorf("copy the %s file: %w", role, err)
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != f.SHA256 {
		return fmt.Errorf("the %s file has SHA-256 %s, want %s", role, got, f.SHA256)
	}
	return os.Rename(w.Name(), to)
}

// Rows of the tokenized datasets that the engine leaves for people to look at,
// below TrainPlan.TokenizedDir.
var (
	trainRows = filepath.Join("train", "snapshot.jsonl")
	evalRows  = filepath.Join("eval", "snapshot.jsonl")
)

// archive stores the first rows as the training sees them.
func (r *run) archive(ctx context.Context, dir string) error {
	if dir == "" || r.reported(eventTokenizedUploaded) {
		return nil
	}
	train, err := os.Open(filepath.Join(dir, trainRows))
	if errors.Is(err, fs.ErrNotExist) {
		r.s.Kit.Log.Warn("the engine left no tokenized rows", "job", r.id, "dir", dir)
		return nil
	}
	if err != nil {
		return fmt.Errorf("tokenized dataset: %w", err)
	}
	defer train.Close()
	var eval io.Reader
	if f, err := os.Open(filepath.Join(dir, evalRows)); err == nil {
		defer f.Close()
		eval = f
	} else if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("tokenized dataset: %w", err)
	}
	packed, w := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.CloseWithError(snapshot.Write(w, train, eval))
	}()
	info, err := r.s.Objects.Put(ctx, archiveKey(r.id), packed, -1)
	packed.CloseWithError(err) // ends the writer when the store gave up
	<-done
	if err != nil {
		return fmt.Errorf("store the tokenized dataset: %w", err)
	}
	return r.update(ctx, func(tx *store.Tx, f *resource.FineTune, now time.Time) error {
		f.Tokenized = &resource.FineTuneArchive{ObjectKey: info.Key, Size: info.Size, SHA256: info.SHA256, CreatedAt: now}
		return note(tx, f, eventTokenizedUploaded, &resource.FineTuneEvent{
			Type: eventTokenizedUploaded, TokenizedPath: info.Key,
			Message: "The tokenized dataset is stored; athanor fine-tunes download " + string(f.ID) + " --tokenized fetches it",
		}, now)
	})
}

// archiveKey is the key of the tokenized dataset of a job.
func archiveKey(id resource.FineTuneID) string {
	return "fine-tunes/" + strings.ToLower(string(id)) + "/tokenized_dataset.tar.zst"
}

// reported says whether an event was written already.
func (r *run) reported(key string) (yes bool) {
	err := r.s.DB.View(func(tx *store.Tx) error {
		f, err := store.FineTunes.Get(tx, string(r.id))
		if err == nil {
			copied := *f
			yes = !copied.Report(key)
		}
		return err
	})
	return yes && err == nil
}
