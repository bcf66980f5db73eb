package exec

import (
	"errors"
	"slices"

	"athanor/engine/compute"
	"athanor/engine/tensor"
)

// pool holds buffers between passes by what they are for. They grow to the
// largest size that was asked for and keep their content until they do.
type pool struct {
	rt   compute.Runtime
	held map[string]*scratch
}

type scratch struct {
	whole, view compute.Buffer
	size        int // elements of whole
}

// get is a buffer of a shape, whose content is whatever was there.
func (p *pool) get(name string, dtype tensor.DType, shape ...int) (compute.Buffer, error) {
	s := p.held[name]
	n := elements(shape)
	if s != nil && s.size < n {
		delete(p.held, name)
		if err := s.close(); err != nil {
			return nil, err
		}
		s = nil
	}
	if s == nil {
		b, err := p.rt.NewBuffer(dtype, n)
		if err != nil {
			return nil, err
		}
		s = &scratch{whole: b, size: n}
		p.held[name] = s
	}
	if s.view != nil {
		if slices.Equal(s.view.Shape(), shape) {
			return s.view, nil
		}
		old := s.view
		s.view = nil
		if err := old.Close(); err != nil {
			return nil, err
		}
	}
	v, err := s.whole.View(0, shape...)
	if err != nil {
		return nil, err
	}
	s.view = v
	return v, nil
}

func (s *scratch) close() error {
	var err error
	if s.view != nil {
		err = s.view.Close()
	}
	return errors.Join(err, s.whole.Close())
}

func (p *pool) close() error {
	var errs []error
	for _, s := range p.held {
		errs = append(errs, s.close())
	}
	p.held = nil
	return errors.Join(errs...)
}

// floats looks at a float32 buffer.
func floats(b compute.Buffer) []float32 { return tensor.View[float32](b.Bytes()) }
