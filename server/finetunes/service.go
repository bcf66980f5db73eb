package finetunes

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"athanor/engine"
	"athanor/server/api"
	"athanor/server/kit"
	"athanor/server/rest"
	"athanor/store"
	"athanor/store/object"
	"athanor/store/resource"
)

// Models is what the slice needs of the registry of models.
type Models interface {
	// Resolve finds a model as a project sees it; the record is only read.
	Resolve(p resource.ProjectID, name string) (*resource.Model, error)
	// Visible lists the models that a project may use.
	Visible(p resource.ProjectID) ([]*resource.Model, error)
	// Changed is called after models were written or deleted.
	Changed()
}

// Weights keeps the bytes of models.
type Weights interface {
	// Directory makes the files of m lie in a local directory, only for reading.
	Directory(ctx context.Context, m *resource.Model) (string, error)
	// Describe drafts the record of a model in a local directory: what the config
	// says, without names and files. Its errors are for the user.
	Describe(dir string) (*resource.Model, error)
	// Traits tells what training needs to know of m. An error for the user says why
	// it cannot be trained; it wraps ErrUntrainable.
	Traits(ctx context.Context, m *resource.Model) (*Traits, error)
	// Publish stores the files of directories by content and calls commit with what
	// they are, in the same order; commit writes the records that name them. When it
	// fails, or the process dies before, what was stored is taken back.
	Publish(ctx context.Context, dirs []string, commit func([]Stored) error) error
	// Release deletes the objects of files that no record names any more.
	Release(ctx context.Context, files []resource.ModelFile) error
}

// Stored is a directory of weights in the object store.
type Stored struct {
	Files    []resource.ModelFile
	Revision string // SHA-256 of the manifest, hex
}

// ErrUntrainable is wrapped by the reasons why a model cannot be trained.
var ErrUntrainable = errors.New("the model cannot be trained")

// Traits are what training needs to know of a model.
type Traits struct {
	Modules       []string // linear modules that LoRA can change, such as q_proj
	ContextLength int      // tokens
	Full          bool     // all weights can be trained on this machine
	Tools         bool     // the chat template knows tools
	Reasoning     bool     // the chat template knows reasoning
}

// Previewer tokenizes samples of a dataset as the training would.
type Previewer interface {
	// Preview reads samples of a file of type typ from r, at most rows, with the
	// tokenizer and template in modelDir. Errors are *engine.DataError or
	// *engine.RequestError where the user can mend them.
	Preview(ctx context.Context, modelDir string, r io.Reader, opt PreviewOptions) (*api.FineTunePreview, error)
	// Tokens counts the tokens of all of the file's lines likewise. It is quick: of a
	// large file it reads the beginning and concludes from that. Rows does not matter.
	Tokens(ctx context.Context, modelDir string, r io.Reader, lines int64, opt PreviewOptions) (int64, error)
}

// PreviewOptions decide what a preview shows.
type PreviewOptions struct {
	Type          string // jsonl or parquet
	Rows          int
	TrainOnInputs bool
	Preference    bool // pairs of answers; only their tokens are counted
	MaxSeqLength  int
}

// Hub is a model hub. Its errors are for the user and hold no token.
type Hub interface {
	// Allowed says whether the owner of the machine lets it be reached.
	Allowed() error
	// Fetch brings a revision of a repository, of at most so many bytes, into dir and
	// returns its commit. What is there already is not fetched again.
	Fetch(ctx context.Context, repo, revision, token, dir string, most int64) (commit string, err error)
	// Push sends the files of dir to a repository and returns the page of it.
	Push(ctx context.Context, repo, token, dir, message string) (page string, err error)
}

// Tracker is an experiment tracker. Nothing about it blocks or fails a job.
type Tracker interface {
	// Start begins a run, or goes on with the one of the same ID, in the background.
	// It returns at once; ctx bounds the whole run.
	Start(ctx context.Context, run TrackerRun) TrackerSession
}

// TrackerRun describes the run of a job.
type TrackerRun struct {
	ID      string // of the job
	APIKey  string
	BaseURL string // "" for the tracker's own default
	Project string
	Name    string
	Entity  string
	Config  map[string]any // the settings
	// Started is called at most once, from another goroutine, when the tracker has
	// accepted the run; Failed likewise when it is given up, with words for the user.
	Started func(url string)
	Failed  func(reason string)
}

// TrackerSession takes the metrics of a run. Its methods return at once.
type TrackerSession interface {
	Log(step int, at time.Time, values map[string]float64)
	// Finish ends the run; what waits is sent in the background for a bounded time.
	Finish(succeeded bool)
}

// Queue is what the service needs of the runner of its jobs.
type Queue interface {
	Wake()
	Interrupt(ids ...resource.JobID)
}

// Config is everything that the service works with. Hub, Tracker and Previewer may
// be nil: what needs them is then refused by name.
type Config struct {
	Kit       kit.Kit
	DB        *store.DB
	Objects   object.Store
	Models    Models
	Weights   Weights
	Trainer   engine.Trainer
	Previewer Previewer
	Hub       Hub
	Tracker   Tracker
	Links     *rest.Links // of the server, for links to downloads
	Dir       string      // absolute; holds a directory for each job that is not final
	Version   string      // of the program, for lineages
	Workers   int         // jobs that train at once, default 1
	// Backoff is the pause before a job is tried again whose worker went away, which
	// doubles up to a minute, default a second.
	Backoff time.Duration
	// Flush is how long rows of metrics may wait to be written, default a second.
	Flush time.Duration
}

// Service answers the operations of this slice and does its jobs. Its methods may
// be called by any goroutine.
type Service struct {
	Config
	queue Queue

	mu      sync.Mutex // guards what follows
	running map[resource.FineTuneID]context.CancelCauseFunc
}

// New makes a Service.
func New(cfg Config) *Service {
	if cfg.Backoff == 0 {
		cfg.Backoff = time.Second
	}
	if cfg.Flush == 0 {
		cfg.Flush = time.Second
	}
	return &Service{Config: cfg, queue: idle{}, running: map[resource.FineTuneID]context.CancelCauseFunc{}}
}

// Use tells the service the runner of its Kinds; before it jobs wait.
func (s *Service) Use(q Queue) { s.queue = q }

// idle is the queue before Use.
type idle struct{}

var _ Queue = idle{}

func (idle) Wake() {}

func (idle) Interrupt(...resource.JobID) {}

// Job reads a job of the caller's project; an unknown one is an api.Error 404.
func (s *Service) Job(ctx context.Context, id string) (f *resource.FineTune, err error) {
	err = s.DB.View(func(tx *store.Tx) (err error) {
		f, err = find(tx, id, rest.Caller(ctx).ProjectID)
		return err
	})
	return f, err
}

// find reads a job of a project. That of another project cannot be told from one
// that does not exist.
func find(tx *store.Tx, id, project string) (*resource.FineTune, error) {
	f, err := store.FineTunes.Get(tx, id)
	if errors.Is(err, store.ErrNotFound) || err == nil && (f.Deleted || string(f.ProjectID) != project) {
		return nil, api.NotFound("no fine-tuning job %.80q", id)
	}
	return f, err
}
