package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"athanor/server/api"
	"athanor/server/files/dataset"
)

// newJob are the flags of a job to be created. Those that are not given are left
// to the server.
type newJob struct {
	training, validation, model, suffix, batchSize         string
	method, kind, modules, inputs, scheduler               string
	fromCheckpoint, fromHub, hubRevision, hubOutput        string
	hubToken, trackerKey                                   string // names of files
	trackerURL, trackerProject, trackerName, trackerEntity string

	epochs, evals, checkpoints, length, accumulation, rank, alpha, patience, warmupEvals int
	rate, warmup, clip, decay, dropout, minDelta, minRatio, cycles, beta, rpo, gamma     float64
	seed                                                                                 int64
	packing, early, normalize, referenceFree, wait                                       bool
}

func createFineTuneCommand(f *flags) *cobra.Command {
	var n newJob
	cmd := &cobra.Command{
		Use: "create", Short: "Start a training job", Args: cobra.NoArgs,
		Long: "Start a training job. Data files are local paths, which are uploaded first, or ids of uploaded files.\n" +
			"What is not given takes the server's default.",
		Example: "  athanor fine-tunes create --training-file data.jsonl --model my-model --n-epochs 3 --wait",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withClient(f, cmd, func(c *client) error { return c.create(cmd, &n) })
		},
	}
	n.register(cmd)
	return cmd
}

func (n *newJob) register(cmd *cobra.Command) {
	p := cmd.Flags()
	p.StringVar(&n.training, "training-file", "", "data to train on: a path or the id of a file")
	p.StringVar(&n.validation, "validation-file", "", "data for evaluations: a path or the id of a file")
	p.StringVar(&n.model, "model", "", "base model")
	p.StringVar(&n.fromCheckpoint, "from-checkpoint", "", "go on from another job: its id or its result, with :STEP for a checkpoint")
	p.StringVar(&n.suffix, "suffix", "", "part of the name of the result")
	p.StringVar(&n.method, "method", "", "sft or dpo (default sft)")
	p.StringVar(&n.kind, "type", "", "lora or full (default lora)")
	p.IntVar(&n.rank, "lora-r", 0, "rank of the adapter")
	p.IntVar(&n.alpha, "lora-alpha", 0, "scale of the adapter: it counts alpha/rank times")
	p.Float64Var(&n.dropout, "lora-dropout", 0, "share of the adapter's inputs left out at random")
	p.StringVar(&n.modules, "lora-modules", "", "modules that get an adapter, with commas, or all-linear")
	p.StringVar(&n.inputs, "train-on-inputs", "", "learn prompts too: true, false or auto")
	p.IntVar(&n.epochs, "n-epochs", 0, "times that the data is seen")
	p.IntVar(&n.evals, "n-evals", 0, "evaluations on the validation file")
	p.IntVar(&n.checkpoints, "n-checkpoints", 0, "checkpoints to keep")
	p.StringVar(&n.batchSize, "batch-size", "", "samples of one pass, or max")
	p.IntVar(&n.accumulation, "gradient-accumulation-steps", 0, "passes of one step")
	p.Float64Var(&n.rate, "learning-rate", 0, "learning rate after the warm-up")
	p.StringVar(&n.scheduler, "lr-scheduler", "", "linear or cosine")
	p.Float64Var(&n.minRatio, "min-lr-ratio", 0, "last learning rate, as a part of the first")
	p.Float64Var(&n.cycles, "lr-cycles", 0, "waves of the cosine, 0.5 is half a one")
	p.Float64Var(&n.warmup, "warmup-ratio", 0, "part of the steps in which the learning rate rises")
	p.Float64Var(&n.clip, "max-grad-norm", 0, "gradients are clipped at this norm, 0 = not")
	p.Float64Var(&n.decay, "weight-decay", 0, "weight decay of AdamW")
	p.Int64Var(&n.seed, "random-seed", 0, "seed of everything random")
	p.BoolVar(&n.packing, "packing", false, "several samples in one sequence")
	p.IntVar(&n.length, "max-seq-length", 0, "tokens of a sequence; longer samples are cut")
	p.BoolVar(&n.early, "early-stopping", false, "stop when the validation loss does not improve")
	p.IntVar(&n.patience, "early-stopping-patience", 0, "evaluations without improvement that are tolerated")
	p.Float64Var(&n.minDelta, "early-stopping-min-delta", 0, "least improvement that counts")
	p.IntVar(&n.warmupEvals, "early-stopping-warmup-evals", 0, "first evaluations that never stop")
	p.Float64Var(&n.beta, "dpo-beta", 0, "DPO: strength of the pull to the reference")
	p.Float64Var(&n.rpo, "rpo-alpha", 0, "DPO: weight of the likelihood of the preferred answer")
	p.BoolVar(&n.normalize, "dpo-normalize", false, "DPO: divide by the lengths of the answers")
	p.BoolVar(&n.referenceFree, "dpo-reference-free", false, "DPO: without a reference model")
	p.Float64Var(&n.gamma, "simpo-gamma", 0, "DPO: margin of SimPO")
	p.StringVar(&n.fromHub, "from-hf-model", "", "repository of the model hub to start from")
	p.StringVar(&n.hubRevision, "hf-model-revision", "", "branch, tag or commit of it")
	p.StringVar(&n.hubOutput, "hf-output-repo-name", "", "repository of the model hub that gets the result")
	p.StringVar(&n.hubToken, "hf-token-file", "", "file that holds the token of the model hub, - for standard input")
	p.StringVar(&n.trackerKey, "tracker-key-file", "", "file that holds the key of the experiment tracker, - for standard input")
	p.StringVar(&n.trackerURL, "tracker-base-url", "", "address of your experiment tracker")
	p.StringVar(&n.trackerProject, "tracker-project", "", "project of the experiment tracker")
	p.StringVar(&n.trackerName, "tracker-name", "", "name of the run at the experiment tracker")
	p.StringVar(&n.trackerEntity, "tracker-entity", "", "team or user of the experiment tracker")
	p.BoolVar(&n.wait, "wait", false, "watch the job until it ends")
}

// create starts a job, after an upload of what it needs.
func (c *client) create(cmd *cobra.Command, n *newJob) error {
	r, err := n.request(cmd)
	if err != nil {
		return err
	}
	if r.TrainingFile, err = c.fileID(cmd, n.training); err != nil {
		return fmt.Errorf("training file: %w", err)
	}
	if n.validation != "" {
		id, err := c.fileID(cmd, n.validation)
		if err != nil {
			return fmt.Errorf("validation file: %w", err)
		}
		r.ValidationFile = &id
	}
	var j api.FineTune
	if err := c.call(cmd.Context(), http.MethodPost, "/fine-tunes", r, &j); err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "created %s: the result will be called %s\n", j.ID, j.ModelOutputName)
	if !n.wait && c.alone {
		fmt.Fprintf(cmd.OutOrStdout(), "no server is running: it trains while athanor serve or athanor fine-tunes watch %s runs\n", j.ID)
		return nil
	}
	if !n.wait {
		fmt.Fprintf(cmd.OutOrStdout(), "watch it with: athanor fine-tunes watch %s\n", j.ID)
		return nil
	}
	return c.watch(cmd.Context(), cmd.OutOrStdout(), j.ID)
}

// fileID is the id of an uploaded file: a local path is uploaded and validated
// first.
func (c *client) fileID(cmd *cobra.Command, name string) (string, error) {
	if _, err := os.Stat(name); err != nil {
		if strings.HasPrefix(name, "file-") && errors.Is(err, os.ErrNotExist) {
			return name, nil
		}
		return "", fmt.Errorf("%w; give a path, or the id of an uploaded file", err)
	}
	file, err := c.upload(cmd, name, dataset.FineTune)
	if err != nil {
		return "", err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "uploaded %s: %s\n", file.ID, file.Filename)
	return file.ID, c.ingested(cmd, file)
}

// request makes the request of the flags that were given, without its files.
func (n *newJob) request(cmd *cobra.Command) (*api.FineTuneRequest, error) {
	given := cmd.Flags().Changed
	if n.training == "" {
		return nil, errors.New("training-file: give the data to train on, as --training-file data.jsonl")
	}
	if n.model == "" && n.fromCheckpoint == "" {
		return nil, errors.New("model: give the base model, as --model NAME; athanor models list shows them")
	}
	r := &api.FineTuneRequest{Model: n.model}
	n.sizes(r, given)
	if err := n.methods(r, given); err != nil {
		return nil, err
	}
	r.LearningRate, r.WarmupRatio = ifGiven(given, "learning-rate", n.rate), ifGiven(given, "warmup-ratio", n.warmup)
	r.MaxGradNorm, r.WeightDecay = ifGiven(given, "max-grad-norm", n.clip), ifGiven(given, "weight-decay", n.decay)
	if given("lr-scheduler") || given("min-lr-ratio") || given("lr-cycles") {
		r.LRScheduler = &api.LRScheduler{Type: n.scheduler, Args: &api.LRSchedulerArgs{
			MinLRRatio: ifGiven(given, "min-lr-ratio", n.minRatio), NumCycles: ifGiven(given, "lr-cycles", n.cycles)}}
		if n.scheduler == "" {
			return nil, errors.New("lr-scheduler: give linear or cosine with --min-lr-ratio and --lr-cycles")
		}
	}
	r.EarlyStoppingEnabled, r.EarlyStoppingPatience = ifGiven(given, "early-stopping", n.early), ifGiven(given, "early-stopping-patience", n.patience)
	r.EarlyStoppingMinDelta = ifGiven(given, "early-stopping-min-delta", n.minDelta)
	r.EarlyStoppingWarmupEvals = ifGiven(given, "early-stopping-warmup-evals", n.warmupEvals)
	r.FromCheckpoint = ifGiven(given, "from-checkpoint", n.fromCheckpoint)
	return r, n.places(r, cmd)
}

// ifGiven is a pointer to v when the flag was given, nil otherwise.
func ifGiven[T any](given func(string) bool, name string, v T) *T {
	if given(name) {
		return &v
	}
	return nil
}

// sizes fills in how much is trained.
func (n *newJob) sizes(r *api.FineTuneRequest, given func(string) bool) {
	r.NEpochs, r.NEvals, r.NCheckpoints = ifGiven(given, "n-epochs", n.epochs), ifGiven(given, "n-evals", n.evals), ifGiven(given, "n-checkpoints", n.checkpoints)
	r.Packing, r.MaxSeqLength = ifGiven(given, "packing", n.packing), ifGiven(given, "max-seq-length", n.length)
	r.GradientAccumulationSteps = ifGiven(given, "gradient-accumulation-steps", n.accumulation)
	r.RandomSeed, r.Suffix = ifGiven(given, "random-seed", n.seed), ifGiven(given, "suffix", n.suffix)
}

// methods fills in what is trained and how.
func (n *newJob) methods(r *api.FineTuneRequest, given func(string) bool) error {
	if given("batch-size") {
		r.BatchSize = &api.BatchSize{Max: n.batchSize == "max"}
		if !r.BatchSize.Max {
			var err error
			if r.BatchSize.N, err = strconv.Atoi(n.batchSize); err != nil {
				return fmt.Errorf("batch-size: must be a whole number or max, got %q", n.batchSize)
			}
		}
	}
	switch strings.ToLower(n.kind) {
	case "", "lora":
	case "full":
		r.TrainingType = &api.TrainingType{Type: api.TrainingFull}
	default:
		return fmt.Errorf("type: must be lora or full, got %q", n.kind)
	}
	r.LoRAR, r.LoRAAlpha = ifGiven(given, "lora-r", n.rank), ifGiven(given, "lora-alpha", n.alpha)
	r.LoRADropout, r.LoRATrainableModules = ifGiven(given, "lora-dropout", n.dropout), ifGiven(given, "lora-modules", n.modules)

	m := &api.TrainingMethod{Method: api.MethodSFT,
		DPOBeta: ifGiven(given, "dpo-beta", n.beta), RPOAlpha: ifGiven(given, "rpo-alpha", n.rpo), SimPOGamma: ifGiven(given, "simpo-gamma", n.gamma),
		NormalizeByLength: ifGiven(given, "dpo-normalize", n.normalize), ReferenceFree: ifGiven(given, "dpo-reference-free", n.referenceFree)}
	if n.method != "" {
		m.Method = n.method
	}
	if given("train-on-inputs") {
		if n.inputs != "true" && n.inputs != "false" && n.inputs != "auto" {
			return fmt.Errorf("train-on-inputs: must be true, false or auto, got %q", n.inputs)
		}
		m.TrainOnInputs = (*api.TrainOnInputs)(&n.inputs)
	}
	if *m != (api.TrainingMethod{Method: api.MethodSFT}) || n.method != "" {
		r.TrainingMethod = m
	}
	return nil
}

// places fills in the model hub and the experiment tracker.
func (n *newJob) places(r *api.FineTuneRequest, cmd *cobra.Command) (err error) {
	given := cmd.Flags().Changed
	r.FromHubModel, r.HubModelRevision = ifGiven(given, "from-hf-model", n.fromHub), ifGiven(given, "hf-model-revision", n.hubRevision)
	r.HubOutputRepoName = ifGiven(given, "hf-output-repo-name", n.hubOutput)
	r.TrackerBaseURL, r.TrackerProjectName = ifGiven(given, "tracker-base-url", n.trackerURL), ifGiven(given, "tracker-project", n.trackerProject)
	r.TrackerName, r.TrackerEntity = ifGiven(given, "tracker-name", n.trackerName), ifGiven(given, "tracker-entity", n.trackerEntity)
	if n.hubToken == "-" && n.trackerKey == "-" {
		return errors.New("hf-token-file and tracker-key-file: only one of them can be standard input")
	}
	if r.HubAPIToken, err = secret(cmd, "hf-token-file", n.hubToken); err != nil {
		return err
	}
	r.TrackerAPIKey, err = secret(cmd, "tracker-key-file", n.trackerKey)
	return err
}

// secret reads a secret from a file, so that it does not stand in the list of
// processes; nil when no file is named.
func secret(cmd *cobra.Command, flag, name string) (*string, error) {
	if name == "" {
		return nil, nil
	}
	in := cmd.InOrStdin()
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", flag, err)
		}
		defer file.Close()
		in = file
	}
	data, err := io.ReadAll(io.LimitReader(in, 4<<10))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	text := strings.TrimSpace(string(data))
	if text == "" {
		return nil, fmt.Errorf("%s: %s is empty", flag, name)
	}
	return &text, nil
}

// poll is how often a job is asked for what is new.
func (c *client) poll() time.Duration {
	if c.every > 0 {
		return c.every
	}
	return time.Second
}

// watch shows a job until it ends; see watching.
func (c *client) watch(ctx context.Context, out io.Writer, id string) error {
	w := &watching{client: c, id: id, out: out, terminal: terminal(out)}
	return w.run(ctx)
}
