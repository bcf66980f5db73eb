// Package train runs training jobs: it turns an engine.TrainSpec into a plan,
// runs the optimiser steps, evaluates, stops early, keeps checkpoints and
// leaves a finished adapter and model.
//
//	data ── batches ──> objective ── weights of log-probabilities ──> exec ── gradients ──> optim
//	                                                                             │
//	       state, best weights, checkpoints, metrics <── loop, after every step <┘
//
// # Words
//
//   - A pass is one batch through the model; a step is one update of the weights
//     after GradientAccumulation passes. Steps count from 1 over the whole job.
//   - The last step of an epoch takes the batches that are left.
//   - The state is what a later process needs to go on after a step as if nothing
//     had happened. A state belongs to the end of a step: everything about this
//     step has been reported and written.
//
// # The loss of a step
//
// It is one mean over all passes of the step, not a mean of means: supervised,
// the sum of weighted negative log-probabilities by the sum of the weights;
// with preferences, the weighted sum over pairs by their weights. So packing, batch size
// and accumulation change neither the loss nor the gradient of the same samples.
//
// # The work directory
//
//	plan.json            decided once: key of the job, batch size, way of computing, threads
//	data/train, data/eval  tokenized datasets
//	references.bin       log-probabilities of the starting weights, for preferences
//	state/step-N.bin     two newest states
//	state/best-N.bin     weights of the best evaluation
//	checkpoints/step-N   for users: a PEFT folder or a model
//	result/adapter, result/model
//
// # Invariants
//
//   - The weights after step N are a function of the spec, the files it names and
//     the machine alone. Time, goroutines, map order and where a process died have
//     no part in them; when a state is saved changes nothing.
//   - A file or folder with its final name is whole. Two states are kept, so that
//     a damaged one costs time only.
//   - A work directory whose plan has another key is refused.
//   - Events of a step are reported before the state of this step is saved, so
//     that none is lost; after a crash those since the last state come again.
package train
