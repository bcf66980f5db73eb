package estimate

import (
	"io/fs"

	"athanor/engine/family"
	"athanor/engine/train/data"
)

// Model describes the model in a folder, of which only the config is read. Errors
// are those of family.Open.
func Model(fsys fs.FS) (family.Decoder, error) {
	f, err := family.Open(fsys)
	if err != nil {
		return family.Decoder{}, err
	}
	return f.Decoder(), nil
}

// Job is what decides how long a job takes.
type Job struct {
	Model family.Decoder
	Rank  int // of adapters on all linear modules, 0 = all weights are trained

	Train  data.Epoch
	Epochs int
	Eval   data.Epoch // the zero value without evaluations
	Evals  int
	// References are for preference optimisation: before the first step the model
	// goes once over all data.
	References bool
	// Accumulation is passes of a step, 0 = 1.
	Accumulation int
}

// What a job does besides matrix products. The numbers are from passes of one row of
// 16 positions to eight of 64 and one of 1024, with adapters and with all weights,
// of random models with a hidden size of 256 (the shape of the embedded model), 512
// and 1024, against the speed measured within the same seconds, on two cores of a
// Cascade Lake processor. Whole jobs on the embedded model, on the same machine at
// work for others too, were said to take 30, 10, 10 and 90 s and took 27, 15, 14 and
// 86 s between the first step and the last checkpoint.
const (
	// valueCost is the time of one value in all elementwise operators that it goes
	// through, as operations of products that take as long: 170 to 600, less for
	// wide models and a quiet machine.
	valueCost = 300
	// updateCost is the same for one trained weight in the optimiser: 6 to 9 ns at
	// 70 to 120 billion operations a second.
	updateCost = 700
	// layerSeconds is the time of a pass, for each layer, that does not depend on
	// the size: calls, copies, and what threads wait for each other. It is what
	// decides for models as small as the embedded one.
	layerSeconds = 0.003
)

// Operations counts what the job makes, in float32 operations of matrix products.
func (j *Job) Operations() float64 {
	train := float64(j.Epochs) * j.learned(j.Train)
	train += float64(j.Steps()) * float64(j.trained()) * updateCost
	read := float64(j.Evals) * j.read(j.Eval)
	if j.References {
		read += j.read(j.Train) + j.read(j.Eval)
	}
	return train + read
}

// Seconds is how long the job takes on a machine that makes so many operations a
// second, without its beginning and its end.
func (j *Job) Seconds(speed float64) float64 {
	passes := float64(j.Epochs)*float64(j.Train.Batches) + float64(j.Evals)*float64(j.Eval.Batches)
	if j.References {
		passes += float64(j.Train.Batches + j.Eval.Batches)
	}
	return j.Operations()/speed + passes*float64(j.Model.Layers)*layerSeconds
}

// Steps is the number of optimiser steps of the job.
func (j *Job) Steps() int64 {
	n := int64(max(1, j.Accumulation))
	return int64(j.Epochs) * ((j.Train.Batches + n - 1) / n)
}

// forward is a forward pass over an epoch by what its products are.
type forward struct {
	linear, adapters, scores, head, values float64
}

func (j *Job) forward(e data.Epoch) (f forward) {
	d := &j.Model
	layers, wide := float64(d.Layers), 0.0 // wide: values of a position that the modules of a layer make
	for _, l := range d.Linears() {
		f.linear += 2 * e.Positions * layers * float64(l.Out) * float64(l.In)
		f.adapters += 2 * e.Positions * layers * float64(j.Rank) * float64(l.Out+l.In)
		wide += float64(l.Out)
	}
	scores := e.Squares * layers * float64(d.Heads)
	f.scores = 2 * 2 * scores * float64(d.HeadDim)
	// The output projection sees only positions that carry loss.
	f.head = 2 * float64(e.Trained) * float64(d.Vocabulary) * float64(d.Hidden)
	f.values = e.Positions*layers*wide + scores + float64(e.Trained)*float64(d.Vocabulary)
	return f
}

// read is a forward pass alone.
func (j *Job) read(e data.Epoch) float64 {
	f := j.forward(e)
	return f.linear + f.adapters + f.scores + f.head + f.values*valueCost
}

// learned is forward and backward: a product has two gradients, of which frozen
// matrices need one. Elementwise operators have as many as products.
func (j *Job) learned(e data.Epoch) float64 {
	f := j.forward(e)
	frozen := 2.0
	if j.Rank == 0 {
		frozen = 3
	}
	return frozen*(f.linear+f.head) + 3*(f.adapters+f.scores+f.values*valueCost)
}

// trained is the number of weights that are trained, but for norms and biases.
func (j *Job) trained() (n int64) {
	d := &j.Model
	for _, l := range d.Linears() {
		if j.Rank > 0 {
			n += int64(j.Rank) * int64(l.Out+l.In)
		} else {
			n += int64(l.Out) * int64(l.In)
		}
	}
	n *= int64(d.Layers)
	if j.Rank == 0 {
		tables := int64(2)
		if d.Tied {
			tables = 1
		}
		n += tables * int64(d.Vocabulary) * int64(d.Hidden)
	}
	return n
}
