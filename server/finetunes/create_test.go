package finetunes_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"

	"athanor/server/api"
	"athanor/store/resource"
)

// refusal is a request that must get a 400 naming a parameter.
type refusal struct {
	name  string
	with  fields
	param string
	says  string
}

func lora(more fields) fields {
	out := fields{"type": "Lora"}
	maps.Copy(out, more)
	return fields{"training_type": out}
}

func dpo(more fields) fields {
	out := fields{"method": "dpo"}
	maps.Copy(out, more)
	return fields{"training_method": out}
}

// refusals are those that need no special files; $EVAL is a good validation file.
var refusals = []refusal{
	{"no file", fields{"training_file": nil}, "training_file", "is required"},
	{"file is a number", fields{"training_file": 5}, "training_file", "must be a string"},
	{"no model", fields{"model": nil}, "model", "unless from_checkpoint"},
	{"packing is text", fields{"packing": "yes"}, "packing", "must be a boolean"},
	{"sequence of 1", fields{"max_seq_length": 1}, "max_seq_length", "between 2"},
	{"sequence too short", fields{"max_seq_length": 15}, "max_seq_length", "between 16 and 512"},
	{"sequence too long", fields{"max_seq_length": 513}, "max_seq_length", "between 16 and 512"},
	{"sequence is a fraction", fields{"max_seq_length": 20.5}, "max_seq_length", "must be an integer"},
	{"no epochs", fields{"n_epochs": 0}, "n_epochs", "between 1"},
	{"too many epochs", fields{"n_epochs": 1001}, "n_epochs", "between 1 and 1000"},
	{"no checkpoints", fields{"n_checkpoints": 0}, "n_checkpoints", "between 1 and 10"},
	{"too many checkpoints", fields{"n_checkpoints": 11}, "n_checkpoints", "between 1 and 10"},
	{"negative evals", fields{"n_evals": -1}, "n_evals", "between 0"},
	{"too many evals", fields{"n_evals": 1001, "validation_file": "$EVAL"}, "n_evals", "between 0"},
	{"evals without a file", fields{"n_evals": 3}, "validation_file", "needs a validation_file"},
	{"batch of 0", fields{"batch_size": 0}, "batch_size", "between 1 and 1024"},
	{"batch too large", fields{"batch_size": 1025}, "batch_size", "between 1 and 1024"},
	{"batch too large for dpo", fields{"batch_size": 513, "training_method": "dpo"}, "batch_size", "between 1 and 512"},
	{"batch is text", fields{"batch_size": "min"}, "batch_size", `an integer or "max"`},
	{"negative accumulation", fields{"gradient_accumulation_steps": -1}, "gradient_accumulation_steps", "between 0"},
	{"learning rate of 0", fields{"learning_rate": 0}, "learning_rate", "between 1e-08 and 1"},
	{"negative learning rate", fields{"learning_rate": -1e-5}, "learning_rate", "between"},
	{"learning rate above 1", fields{"learning_rate": 1.5}, "learning_rate", "between"},
	{"learning rate is text", fields{"learning_rate": "1e-5"}, "learning_rate", "must be a number"},
	{"unknown scheduler", fields{"lr_scheduler": fields{"lr_scheduler_type": "step"}}, "lr_scheduler.lr_scheduler_type", "linear or cosine"},
	{"scheduler without a type", fields{"lr_scheduler": fields{}}, "lr_scheduler.lr_scheduler_type", "linear or cosine"},
	{"scheduler is text", fields{"lr_scheduler": "linear"}, "lr_scheduler", "must be an object"},
	{"ratio above 1", fields{"lr_scheduler": fields{"lr_scheduler_type": "linear", "lr_scheduler_args": fields{"min_lr_ratio": 1.1}}}, "lr_scheduler.lr_scheduler_args.min_lr_ratio", "between 0 and 1"},
	{"cycles of linear", fields{"lr_scheduler": fields{"lr_scheduler_type": "linear", "lr_scheduler_args": fields{"num_cycles": 1}}}, "lr_scheduler.lr_scheduler_args.num_cycles", "only for the cosine"},
	{"no cycles", fields{"lr_scheduler": fields{"lr_scheduler_type": "cosine", "lr_scheduler_args": fields{"num_cycles": 0}}}, "lr_scheduler.lr_scheduler_args.num_cycles", "above 0"},
	{"warm-up above 1", fields{"warmup_ratio": 1.01}, "warmup_ratio", "between 0 and 1"},
	{"negative warm-up", fields{"warmup_ratio": -0.1}, "warmup_ratio", "between 0 and 1"},
	{"negative norm", fields{"max_grad_norm": -1}, "max_grad_norm", "between 0"},
	{"negative decay", fields{"weight_decay": -0.1}, "weight_decay", "between 0"},
	{"seed is text", fields{"random_seed": "x"}, "random_seed", "must be an integer"},
	{"seed out of range", fields{"random_seed": json.Number("92233720368547758080")}, "random_seed", "out of range"},
	{"stopping without a file", fields{"early_stopping_enabled": true, "n_evals": 9}, "validation_file", "needs a validation_file"},
	{"stopping without evals", fields{"early_stopping_enabled": true, "validation_file": "$EVAL"}, "n_evals", "= 4, got 0"},
	{"stopping with the defaults", fields{"early_stopping_enabled": true, "validation_file": "$EVAL", "n_evals": 3}, "n_evals", "= 4, got 3"},
	{"stopping with patience", fields{"early_stopping_enabled": true, "early_stopping_patience": 5, "validation_file": "$EVAL", "n_evals": 6}, "n_evals", "= 7, got 6"},
	{"stopping without warm-up", fields{"early_stopping_enabled": true, "early_stopping_warmup_evals": 0, "validation_file": "$EVAL", "n_evals": 2}, "n_evals", "= 3, got 2"},
	{"patience of 0", fields{"early_stopping_patience": 0}, "early_stopping_patience", "between 1"},
	{"negative delta", fields{"early_stopping_min_delta": -0.1}, "early_stopping_min_delta", "between 0"},
	{"negative warm-up evals", fields{"early_stopping_warmup_evals": -1}, "early_stopping_warmup_evals", "between 0"},
	{"long suffix", fields{"suffix": strings.Repeat("a", 65)}, "suffix", "at most 64 characters, got 65"},
	{"suffix with a slash", fields{"suffix": "a/b"}, "suffix", "may hold letters"},
	{"suffix with a space", fields{"suffix": "a b"}, "suffix", "may hold letters"},
	{"unknown method", fields{"training_method": fields{"method": "ppo"}}, "training_method.method", "sft or dpo"},
	{"method without a name", fields{"training_method": fields{}}, "training_method.method", "sft or dpo"},
	{"method is a number", fields{"training_method": 3}, "training_method", "a string or an object"},
	{"beta for sft", fields{"training_method": fields{"method": "sft", "dpo_beta": 0.1}}, "training_method.dpo_beta", "only for the method dpo"},
	{"inputs twice", fields{"train_on_inputs": true, "training_method": fields{"method": "sft", "train_on_inputs": "auto"}}, "train_on_inputs", "differ"},
	{"inputs are text", fields{"train_on_inputs": "maybe"}, "train_on_inputs", "a boolean or"},
	{"inputs for dpo", dpo(fields{"train_on_inputs": true}), "training_method.train_on_inputs", "only for the method sft"},
	{"top inputs for dpo", fields{"train_on_inputs": true, "training_method": "dpo"}, "train_on_inputs", "only for the method sft"},
	{"beta of 0", dpo(fields{"dpo_beta": 0}), "training_method.dpo_beta", "above 0"},
	{"beta is text", dpo(fields{"dpo_beta": "x"}), "training_method.dpo_beta", "must be a"},
	{"negative rpo", dpo(fields{"rpo_alpha": -1}), "training_method.rpo_alpha", "between 0"},
	{"negative gamma", dpo(fields{"simpo_gamma": -1}), "training_method.simpo_gamma", "between 0"},
	{"gamma with a reference", dpo(fields{"simpo_gamma": 1, "dpo_reference_free": false}), "training_method.dpo_reference_free", "needs"},
	{"gamma without lengths", dpo(fields{"simpo_gamma": 1, "dpo_normalize_logratios_by_length": false}), "training_method.dpo_normalize_logratios_by_length", "needs"},
	{"unknown type", fields{"training_type": fields{"type": "Half"}}, "training_type.type", "Full or Lora"},
	{"rank of 0", lora(fields{"lora_r": 0}), "training_type.lora_r", "between 1 and 128"},
	{"rank too high", lora(fields{"lora_r": 129}), "training_type.lora_r", "between 1 and 128"},
	{"flat rank too high", fields{"lora_r": 129}, "training_type.lora_r", "between 1 and 128"},
	{"two ranks", fields{"lora_r": 8, "training_type": fields{"type": "Lora", "lora_r": 16}}, "training_type.lora_r", "differ"},
	{"alpha of 0", lora(fields{"lora_alpha": 0}), "training_type.lora_alpha", "between 1"},
	{"alpha is a fraction", lora(fields{"lora_alpha": 1.5}), "training_type.lora_alpha", "must be"},
	{"dropout of 1", lora(fields{"lora_dropout": 1}), "training_type.lora_dropout", "below 1"},
	{"unknown module", lora(fields{"lora_trainable_modules": "q_proj,x_proj"}), "training_type.lora_trainable_modules", `no module "x_proj"; it has q_proj, v_proj`},
	{"modules of experts", lora(fields{"lora_trainable_modules": "w_up,w_gate"}), "training_type.lora_trainable_modules", "no module"},
	{"empty module", lora(fields{"lora_trainable_modules": "q_proj,,v_proj"}), "training_type.lora_trainable_modules", "empty name"},
	{"rank for full", fields{"training_type": fields{"type": "Full", "lora_r": 8}}, "training_type.lora_r", "only for the training type Lora"},
	{"flat dropout for full", fields{"training_type": "Full", "lora_dropout": 0.1}, "training_type.lora_dropout", "only for the training type Lora"},
	{"full on a LoRA-only model", fields{"model": "lab/lora-only", "training_type": "Full"}, "training_type", "LoRA only"},
	{"vision", fields{"multimodal_params": fields{"train_vision": true}}, "multimodal_params.train_vision", "not supported"},
	{"two tokens", fields{"hub_api_token": "a", "hf_api_token": "b"}, "hub_api_token", "differ"},
	{"two keys", fields{"wandb_key": "a", "wandb_api_key": "b"}, "tracker_api_key", "differ"},
	{"two projects", fields{"tracker_project_name": "a", "wandb_project_name": "b"}, "tracker_project_name", "differ"},
	{"key with a line break", fields{"wandb_api_key": "a\nb"}, "tracker_api_key", "printable"},
	{"tracker is no URL", fields{"wandb_base_url": "tracker"}, "tracker_base_url", "must be a URL"},
	{"tracker with a user", fields{"wandb_base_url": "https://me@x.example"}, "tracker_base_url", "without a user"},
	{"project with a slash", fields{"wandb_project_name": "a/b"}, "tracker_project_name", "none of"},
	{"no tracker", fields{"wandb_api_key": "key"}, "tracker_api_key", "not supported"},
	{"no hub", fields{"from_hf_model": "a/b"}, "from_hub_model", "not supported"},
	{"tracker with a query", fields{"wandb_base_url": "https://x.example/?a=b"}, "tracker_base_url", "a query"},
	{"tracker with an empty query", fields{"wandb_base_url": "https://x.example?"}, "tracker_base_url", "a query"},
	{"tracker with a fragment", fields{"wandb_base_url": "https://x.example/#a"}, "tracker_base_url", "a query"},
	{"tracker of another scheme", fields{"wandb_base_url": "ftp://x.example"}, "tracker_base_url", "must be a URL"},
	{"repository of three parts", fields{"from_hf_model": "a/b/c"}, "from_hub_model", "owner/name"},
	{"repository that no hub can have", fields{"hf_output_repo_name": "a/" + strings.Repeat("b", 97), "hf_api_token": "x"}, "hub_output_repo_name", "owner/name"},
	{"revision that climbs", fields{"from_hf_model": "a/b", "hf_model_revision": "a/../b"}, "hub_model_revision", "a branch, a tag or a commit"},
	{"revision too long", fields{"from_hf_model": "a/b", "hf_model_revision": strings.Repeat("b", 257)}, "hub_model_revision", "a branch"},
	{"repository that climbs", fields{"hf_output_repo_name": "a/../b", "hf_api_token": "x"}, "hub_output_repo_name", "owner/name"},
	{"output without a token", fields{"hf_output_repo_name": "a/b"}, "hub_api_token", "needs hub_api_token"},
	{"revision alone", fields{"hf_model_revision": "main"}, "hub_model_revision", "needs from_hub_model"},
	{"hub and checkpoint", fields{"from_hf_model": "a/b", "from_checkpoint": "ft-1"}, "from_hub_model", "exclude"},
	{"unknown checkpoint", fields{"from_checkpoint": "ft-9"}, "from_checkpoint", "no fine-tuning job"},
	{"step is text", fields{"from_checkpoint": "ft-1:last"}, "from_checkpoint", "must be a number"},
	{"model that is odd", fields{"model": "lab/odd"}, "model", "cannot be trained"},
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	good, eval := w.file(sample, nil), w.file(sample, nil)
	state := func(change func(*resource.File)) string { return w.file(sample, change) }
	list := append([]refusal{
		{"unknown file", fields{"training_file": "file-99"}, "training_file", "no file"},
		{"unknown validation file", fields{"validation_file": "file-99"}, "validation_file", "no file"},
		{"file of another project", fields{"training_file": state(func(f *resource.File) { f.ProjectID = "proj-2" })}, "training_file", "no file"},
		{"purpose", fields{"training_file": state(func(f *resource.File) { f.Purpose = resource.PurposeEval })}, "training_file", "purpose eval"},
		{"not validated", fields{"training_file": state(func(f *resource.File) { f.Status = resource.FileRunning })}, "training_file", "not validated yet"},
		{"failed", fields{"training_file": state(func(f *resource.File) { f.Status = resource.FileFailed })}, "training_file", "could not be processed"},
		{"invalid", fields{"training_file": state(func(f *resource.File) {
			f.Status = resource.FileInvalid
			f.Report = &resource.FileReport{Problems: []resource.FileProblem{{Line: 7, Reason: "`messages` is empty"}}}
		})}, "training_file", "Line 7: `messages` is empty"},
		{"images", fields{"validation_file": state(func(f *resource.File) { f.Report.Multimodal = true })}, "validation_file", "images"},
		{"preferences for sft", fields{"training_file": state(func(f *resource.File) { f.Report.Format = "preference_openai" })}, "training_file", "for the method dpo"},
		{"conversations for dpo", fields{"training_method": "dpo"}, "training_file", "needs preference data"},
	}, refusals...)
	if len(list) < 60 {
		t.Fatalf("only %d cases", len(list))
	}
	for _, r := range list {
		body := fields{"model": "lab/base", "training_file": good}
		maps.Copy(body, r.with)
		data, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		status, answer := w.send("POST", "/fine-tunes", strings.ReplaceAll(string(data), "$EVAL", eval))
		var e struct{ Error api.Error }
		if err := json.Unmarshal([]byte(answer), &e); err != nil {
			t.Fatalf("%s: %v in %s", r.name, err, answer)
		}
		if status != 400 || api.Or(e.Error.Param, "") != r.param || !strings.Contains(e.Error.Message, r.says) {
			t.Errorf("%s: got %d, param %q: %s; want %q: ...%s...", r.name, status, api.Or(e.Error.Param, ""), e.Error.Message, r.param, r.says)
		}
	}
	var jobs api.FineTuneList
	w.call("GET", "/fine-tunes", nil, &jobs)
	if len(jobs.Data) != 0 {
		t.Errorf("%d jobs came of refused requests", len(jobs.Data))
	}
	if status, _ := w.send("POST", "/fine-tunes", fmt.Sprintf(`{"model":"nobody/nothing","training_file":%q}`, good)); status != 404 {
		t.Errorf("an unknown model: got %d, want 404", status)
	}
}

// TestBothSpellings asks for the same in each way, and expects one outcome.
func TestBothSpellings(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	pairs := w.file(sample, func(f *resource.File) { f.Report.Format = "preference_openai" })
	for name, tt := range map[string]struct {
		forms []fields
		check func(f api.FineTune) bool
	}{
		"defaults": {[]fields{{}, {"training_type": nil, "training_method": nil, "batch_size": nil, "random_seed": nil, "lr_scheduler": nil, "suffix": ""}, {"training_type": fields{"type": "Lora"}, "batch_size": "max"}}, func(f api.FineTune) bool {
			tt := f.TrainingType
			return *tt.LoRAR == 64 && *tt.LoRAAlpha == 128 && *tt.LoRATrainableModules == "all-linear" && *f.RandomSeed == 42 && f.BatchSize == nil && f.Packing &&
				f.MaxSeqLength == 512 && f.NEpochs == 1 && f.NCheckpoints == 1 && f.LearningRate == 1e-5 && f.MaxGradNorm == 1 && f.LRScheduler.Type == "cosine" &&
				f.TrainingMethod.Method == "sft" && *f.TrainingMethod.TrainOnInputs == "auto" && f.GradientAccumulationSteps == 1
		}},
		"lora": {[]fields{{"lora_r": 8, "lora_dropout": 0.1, "lora_trainable_modules": "v_proj, q_proj"}, lora(fields{"lora_r": 8, "lora_dropout": 0.1, "lora_trainable_modules": "q_proj,v_proj"}),
			{"training_type": "lora", "lora_r": 8, "lora_dropout": 0.1, "lora_trainable_modules": "q_proj,v_proj"}, {"lora_r": 8, "lora_dropout": 0.1, "training_type": fields{"type": "Lora", "lora_r": 8, "lora_trainable_modules": "q_proj,v_proj"}}},
			func(f api.FineTune) bool {
				return *f.TrainingType.LoRAR == 8 && *f.TrainingType.LoRAAlpha == 16 && *f.TrainingType.LoRATrainableModules == "q_proj,v_proj"
			}},
		"full": {[]fields{{"training_type": "Full"}, {"training_type": fields{"type": "Full"}}, {"training_type": "full"}}, func(f api.FineTune) bool { return f.TrainingType.Type == "Full" && f.TrainingType.LoRAR == nil }},
		"inputs": {[]fields{{"train_on_inputs": true}, {"training_method": fields{"method": "sft", "train_on_inputs": true}}, {"training_method": "sft", "train_on_inputs": true}},
			func(f api.FineTune) bool { return *f.TrainingMethod.TrainOnInputs == "true" }},
		"dpo": {[]fields{{"training_file": pairs, "training_method": "dpo"}, {"training_file": pairs, "training_method": fields{"method": "dpo", "dpo_beta": 0.1}, "train_on_inputs": "auto"}},
			func(f api.FineTune) bool {
				return f.TrainingMethod.Method == "dpo" && *f.TrainingMethod.DPOBeta == 0.1 && !*f.TrainingMethod.ReferenceFree
			}},
		"simpo": {[]fields{{"training_file": pairs, "training_method": fields{"method": "dpo", "simpo_gamma": 0.5}}},
			func(f api.FineTune) bool {
				return *f.TrainingMethod.SimPOGamma == 0.5 && *f.TrainingMethod.ReferenceFree && *f.TrainingMethod.NormalizeByLength
			}},
		"tracker": {[]fields{{"tracker_project_name": "p", "tracker_name": "n"}, {"wandb_project_name": "p", "wandb_name": "n"}, {"wandb_project_name": "p", "tracker_project_name": "p", "wandb_name": "n"},
			{"tracker_project_name": "", "wandb_project_name": "p", "tracker_name": "n", "wandb_name": ""}},
			func(f api.FineTune) bool {
				return *f.TrackerProjectName == "p" && *f.WandbProjectName == "p" && *f.TrackerName == "n" && *f.WandbName == "n"
			}},
		"stopping": {[]fields{{"early_stopping_enabled": true, "n_evals": 4, "validation_file": "$EVAL"}}, func(f api.FineTune) bool {
			return f.EarlyStoppingEnabled && *f.EarlyStoppingPatience == 2 && *f.EarlyStoppingWarmupEvals == 1 && *f.EarlyStoppingMinDelta == 0
		}},
		"suffix": {[]fields{{"suffix": strings.Repeat("a", 64)}}, func(f api.FineTune) bool {
			return strings.HasPrefix(f.ModelOutputName, "acme/base-"+strings.Repeat("a", 64)+"-")
		}},
		"scheduler": {[]fields{{"lr_scheduler": fields{"lr_scheduler_type": "linear", "lr_scheduler_args": fields{"min_lr_ratio": 0.1}}}}, func(f api.FineTune) bool {
			return *f.LRScheduler.Args.MinLRRatio == 0.1 && f.LRScheduler.Args.NumCycles == nil
		}},
		"unknown":    {[]fields{{"unknown_field": 1}}, func(f api.FineTune) bool { return f.Status == "pending" }},
		"vision off": {[]fields{{"multimodal_params": fields{"train_vision": false}}}, func(f api.FineTune) bool { return true }},
	} {
		for _, form := range tt.forms {
			body := maps.Clone(form)
			if body["validation_file"] == "$EVAL" {
				body["validation_file"] = w.file(sample, nil)
			}
			if f := w.create(body); !tt.check(f) {
				data, _ := json.Marshal(f)
				t.Errorf("%s %v: got %s", name, form, data)
			}
		}
	}
}

// TestFromCheckpoint goes on from each spelling.
func TestFromCheckpoint(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := w.create(fields{"n_checkpoints": 2, "lora_r": 8, "lora_trainable_modules": "q_proj"})
	for _, early := range []string{f.ID, f.ID + ":4"} {
		if code, body := w.send("POST", "/fine-tunes", fmt.Sprintf(`{"training_file":%q,"from_checkpoint":%q}`, f.TrainingFile, early)); code != 400 || !strings.Contains(body, "from_checkpoint") {
			t.Errorf("%s before it is there: %d %s", early, code, body)
		}
	}
	w.settle()
	final, middle := w.job(f.ID).ModelObjectID, w.model(f.ModelOutputName+"-4").ID
	for from, adapter := range map[string]resource.ModelID{
		f.ID: resource.ModelID(final), f.ModelOutputName: resource.ModelID(final), f.ModelOutputName + "-adapter": resource.ModelID(final),
		f.ID + ":8": resource.ModelID(final), f.ID + ":4": middle, f.ModelOutputName + ":4": middle,
	} {
		g := w.create(fields{"model": nil, "from_checkpoint": from})
		w.settle()
		specs := w.trainer.Specs()
		last := specs[len(specs)-1]
		got := w.job(g.ID)
		m := w.model(g.ModelOutputName)
		if got.Status != "completed" || got.Model != "lab/base" || last.AdapterDir == "" || *got.TrainingType.LoRAR != 8 || m.Lineage.Adapter == nil || m.Lineage.Adapter.ID != adapter || m.BaseID != "model-base-1" {
			t.Errorf("from %s: %s (%s), spec %+v, lineage %+v", from, got.Status, got.ErrorMessage, last, m.Lineage)
		}
	}
	for name, tt := range map[string]struct {
		with  fields
		param string
	}{
		"another rank":    {fields{"from_checkpoint": f.ID, "lora_r": 16}, "training_type.lora_r"},
		"other modules":   {fields{"from_checkpoint": f.ID, "lora_trainable_modules": "all-linear"}, "training_type.lora_trainable_modules"},
		"full":            {fields{"from_checkpoint": f.ID, "training_type": "Full"}, "training_type"},
		"another model":   {fields{"from_checkpoint": f.ID, "model": "lab/other"}, "model"},
		"unknown step":    {fields{"from_checkpoint": f.ID + ":5"}, "from_checkpoint"},
		"adapter as base": {fields{"model": f.ModelOutputName}, "model"},
	} {
		tt.with["training_file"] = f.TrainingFile
		data, err := json.Marshal(tt.with)
		if err != nil {
			t.Fatal(err)
		}
		if code, body := w.send("POST", "/fine-tunes", string(data)); code != 400 || !strings.Contains(body, fmt.Sprintf(`"param":%q`, tt.param)) {
			t.Errorf("%s: %d %s", name, code, body)
		}
	}
	full := w.create(fields{"training_type": "Full"})
	w.settle()
	w.create(fields{"model": "lab/base", "from_checkpoint": full.ID, "lora_r": 4})
	w.settle()
	specs := w.trainer.Specs()
	if last := specs[len(specs)-1]; last.AdapterDir != "" || !strings.Contains(last.ModelDir, w.model(full.ModelOutputName).Revision) {
		t.Errorf("from a whole model: %+v", last)
	}
}
