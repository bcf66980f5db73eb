package train

import (
	"fmt"
	"math"
	"slices"

	"athanor/engine"
	"athanor/engine/family/decoder"
)

// maxCheckpoints is the most that a job can keep for its user.
const maxCheckpoints = 10

// quantizations are the forms in which results are served.
var quantizations = []string{"", string(decoder.None), string(decoder.Int8), string(decoder.Int4)}

// validate refuses what cannot be honoured, by the name that the API gives it.
func validate(s *engine.TrainSpec) error {
	if (s.SFT == nil) == (s.DPO == nil) {
		return refuse("training_method", "exactly one of supervised and preference training must be chosen")
	}
	for _, c := range []struct {
		param string
		ok    bool
		rule  string
	}{
		{"n_epochs", s.Epochs >= 1, "must be at least 1"},
		{"n_checkpoints", s.Checkpoints >= 1 && s.Checkpoints <= maxCheckpoints, fmt.Sprintf("must be from 1 to %d", maxCheckpoints)},
		{"n_evals", s.Evals >= 0, "must not be negative"},
		{"n_evals", s.Evals == 0 || s.EvalFile != nil, "needs a validation file"},
		{"batch_size", s.BatchSize >= 0, "must not be negative"},
		{"quantization", slices.Contains(quantizations, s.Quantization), "must be none, int8 or int4"},
		{"gradient_accumulation_steps", s.GradientAccumulation >= 0, "must not be negative"},
		{"max_seq_length", s.MaxSeqLength == 0 || s.MaxSeqLength >= 2, "must be at least 2"},
		{"learning_rate", finite(s.LearningRate) && s.LearningRate > 0, "must be a positive number"},
		{"warmup_ratio", s.WarmupRatio >= 0 && s.WarmupRatio <= 1, "must be from 0 to 1"},
		{"max_grad_norm", finite(s.MaxGradNorm) && s.MaxGradNorm >= 0, "must not be negative"},
		{"weight_decay", finite(s.WeightDecay) && s.WeightDecay >= 0, "must not be negative"},
		{"lr_scheduler.lr_scheduler_type", s.Schedule.Type == scheduleLinear || s.Schedule.Type == scheduleCosine, "must be linear or cosine"},
		{"lr_scheduler.lr_scheduler_args.min_lr_ratio", s.Schedule.MinLRRatio >= 0 && s.Schedule.MinLRRatio <= 1, "must be from 0 to 1"},
		{"lr_scheduler.lr_scheduler_args.num_cycles", finite(s.Schedule.NumCycles) && s.Schedule.NumCycles >= 0, "must not be negative"},
	} {
		if !c.ok {
			return refuse(c.param, "%s", c.rule)
		}
	}
	if err := validateStopping(s); err != nil {
		return err
	}
	return validateDPO(s.DPO)
}

func validateStopping(s *engine.TrainSpec) error {
	e := s.EarlyStopping
	switch {
	case e == nil:
		return nil
	case s.EvalFile == nil:
		return refuse("validation_file", "is needed for early stopping")
	case e.Patience < 1:
		return refuse("early_stopping_patience", "must be at least 1")
	case !finite(e.MinDelta) || e.MinDelta < 0:
		return refuse("early_stopping_min_delta", "must not be negative")
	case e.WarmupEvals < 0:
		return refuse("early_stopping_warmup_evals", "must not be negative")
	case s.Evals < e.Patience+e.WarmupEvals+1:
		return refuse("n_evals", "must be at least %d for this patience and warm-up of early stopping", e.Patience+e.WarmupEvals+1)
	}
	return nil
}

func validateDPO(d *engine.DPO) error {
	switch {
	case d == nil:
		return nil
	case !finite(d.Beta) || d.Beta <= 0:
		return refuse("training_method.dpo_beta", "must be a positive number")
	case !finite(d.RPOAlpha) || d.RPOAlpha < 0:
		return refuse("training_method.rpo_alpha", "must not be negative")
	case !finite(d.SimPOGamma) || d.SimPOGamma < 0:
		return refuse("training_method.simpo_gamma", "must not be negative")
	}
	return nil
}

func refuse(param, format string, args ...any) error {
	return &engine.RequestError{Param: param, Message: param + " " + fmt.Sprintf(format, args...)}
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
