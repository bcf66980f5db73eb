package export

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"athanor/engine/family"
	"athanor/engine/family/decoder"
	"athanor/engine/peft"
	"athanor/engine/tensor"
	"athanor/engine/weights"
)

// shardBytes is the most that one file of weights holds.
const shardBytes = 5_000_000_000

// Adapter writes a in PEFT layout as the folder dir, in float32.
func Adapter(dir string, a *peft.Adapter) error {
	if err := create(dir, func(tmp string) error { return peft.Write(tmp, a) }); err != nil {
		return fmt.Errorf("export the adapter: %w", err)
	}
	return nil
}

// CheckAdapter compares the modules of an adapter with those of the model that
// it is to be applied to.
func CheckAdapter(d decoder.Decoder, a *peft.Adapter) error { return a.CheckBase(d.Linear) }

// Merged writes the model in baseDir with the adapter added to its weights,
// W + scale * B A in float32, as the folder dir.
func Merged(ctx context.Context, baseDir string, a *peft.Adapter, dir string) error {
	err := write(ctx, baseDir, dir, func(d *decoder.Decoder, w decoder.Weight, base weights.Matrix) (values, error) {
		m := a.Modules[strings.TrimSuffix(w.Name, ".weight")]
		if m == nil {
			return nil, nil
		}
		return merger{base: base, m: m, scale: float32(a.Config.Scale(m))}.read, nil
	}, func(d *decoder.Decoder) error { return CheckAdapter(*d, a) })
	if err != nil {
		return fmt.Errorf("export the merged model: %w", err)
	}
	return nil
}

// Full writes the model in baseDir with new weights as the folder dir.
//
// tensor gives the values of a weight by its canonical name, as
// decoder.Decoder.Weights lists them, row by row; nil keeps the base's. It is
// called once for each stored tensor, in the order of the files (twice for a
// shared matrix that the base stores twice), and the values are not kept.
func Full(ctx context.Context, baseDir string, tensor func(name string) ([]float32, error), dir string) error {
	err := write(ctx, baseDir, dir, func(d *decoder.Decoder, w decoder.Weight, base weights.Matrix) (values, error) {
		var all []float32
		return func(dst []float32, first int64) error {
			if first == 0 {
				var err error
				if all, err = tensor(w.Name); err != nil {
					return err
				}
				if want := base.Rows * base.Cols; all != nil && len(all) != want {
					return fmt.Errorf("weight %q has %d values, want %d", w.Name, len(all), want)
				}
			}
			if all == nil {
				return base.Read(dst, int(first)/base.Cols)
			}
			if copy(dst, all[first:]); int(first)+len(dst) == len(all) {
				all = nil // memory for the next one
			}
			return nil
		}, nil
	}, nil)
	if err != nil {
		return fmt.Errorf("export the model: %w", err)
	}
	return nil
}

// values fills dst with the values of a weight from element first on; whole
// rows, in order.
type values = func(dst []float32, first int64) error

// write writes the base model with the weights that change gives instead of the
// base's; nil values keep them, byte for byte. check is called first and may be
// nil.
func write(ctx context.Context, baseDir, dir string, change func(*decoder.Decoder, decoder.Weight, weights.Matrix) (values, error), check func(*decoder.Decoder) error) error {
	fam, err := family.Open(os.DirFS(baseDir))
	if err != nil {
		return err
	}
	d := fam.Decoder()
	if check != nil {
		if err := check(&d); err != nil {
			return err
		}
	}
	archive, err := weights.Open(baseDir)
	if err != nil {
		return err
	}
	defer archive.Close()
	stored, err := storedWeights(&d, archive)
	if err != nil {
		return err
	}
	var parts []weights.Part
	for _, name := range archive.Names() {
		part, err := archive.Part(name)
		if err != nil {
			return err
		}
		if w, ok := stored[name]; ok {
			base, err := archive.Matrix(name)
			if err != nil {
				return err
			}
			read, err := change(&d, w, base)
			if err != nil {
				return err
			}
			if read != nil {
				e, _ := archive.Tensor(name)
				part = floats(ctx, e, read)
			}
		}
		parts = append(parts, part)
	}
	return create(dir, func(tmp string) error {
		if err := copyCompanions(baseDir, tmp); err != nil {
			return err
		}
		return weights.SaveSharded(tmp, parts, shardBytes)
	})
}

// storedWeights finds what each tensor of the archive is. Tensors that are not
// in the result are no weights that the model uses.
func storedWeights(d *decoder.Decoder, a *weights.Archive) (map[string]decoder.Weight, error) {
	list, err := d.Weights(a)
	if err != nil {
		return nil, err
	}
	stored := map[string]decoder.Weight{}
	head := false
	for _, w := range list {
		stored[w.Stored] = w
		head = head || w.Name == decoder.HeadName
	}
	// A second copy of a shared matrix changes with it.
	embed, _ := a.Tensor(list[0].Stored)
	for _, name := range a.Names() {
		e, _ := a.Tensor(name)
		if _, ok := stored[name]; !ok && !head && strings.HasSuffix("."+name, "."+decoder.HeadName) && slices.Equal(e.Shape, embed.Shape) {
			stored[name] = list[0]
		}
	}
	return stored, nil
}

// floats stores values in the type of the base's tensor e, or float32 where
// that is wider. Values that do not fit are an error.
func floats(ctx context.Context, e weights.Entry, read values) weights.Part {
	d := e.DType
	if d == tensor.F64 {
		d = tensor.F32
	}
	return weights.Floats(e.Name, d, e.Shape, func(dst []float32, first int64) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := read(dst, first); err != nil {
			return err
		}
		for i, v := range dst {
			if v-v != 0 || d == tensor.F16 && (v >= maxHalf || v <= -maxHalf) {
				return fmt.Errorf("weight %q: element %d is %g, which %s cannot hold", e.Name, first+int64(i), v, d)
			}
		}
		return nil
	})
}

// maxHalf is where rounding to half precision gives infinity.
const maxHalf = 65520
