package train

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"athanor/engine/train/optim"
)

// state is the header of a saved state.
type state struct {
	Key      string   `json:"key"` // of the plan
	Step     int      `json:"step"`
	Tokens   int64    `json:"tokens"` // trained on so far
	Stopping stopping `json:"stopping"`
	Stopped  bool     `json:"stopped,omitempty"` // the rule has fired
	Names    []string `json:"names"`             // of the tensors, in order
}

// store keeps states and the best weights below one folder.
type store struct {
	disk  disk
	dir   string
	key   string
	saved []state // on disk and whole, the newest last; at most two
}

func openStore(d disk, dir, key string) (*store, error) {
	if err := d.MkdirAll(dir); err != nil {
		return nil, fmt.Errorf("keep states: %w", err)
	}
	s := &store{disk: d, dir: dir, key: key}
	return s, s.removePartial()
}

// removePartial removes what a process was writing when it died. The states of
// the next one may belong to other steps, so that nothing would overwrite it.
func (s *store) removePartial() error {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return fmt.Errorf("list the states: %w", err)
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), partialSuffix) {
			if err := s.disk.Remove(filepath.Join(s.dir, e.Name())); err != nil {
				return fmt.Errorf("remove a state that is not whole: %w", err)
			}
		}
	}
	return nil
}

const recordSuffix = ".bin"

func (s *store) statePath(step int) string { return s.numbered("step", step) }
func (s *store) bestPath(step int) string  { return s.numbered("best", step) }

func (s *store) numbered(kind string, step int) string {
	return filepath.Join(s.dir, fmt.Sprintf("%s-%010d%s", kind, step, recordSuffix))
}

// save writes a state with all tensors and removes what it makes superfluous.
func (s *store) save(st state, tensors []optim.State) error {
	st.Key, st.Names = s.key, names(tensors)
	var blocks [][]byte
	for _, t := range tensors {
		blocks = append(blocks, t.Value, t.FirstMoment, t.SecondMoment)
	}
	if err := writeRecord(s.disk, s.statePath(st.Step), st, blocks); err != nil {
		return fmt.Errorf("save the state: %w", err)
	}
	s.saved = append(s.saved, st)
	if n := len(s.saved); n > 2 {
		s.saved = s.saved[n-2:]
	}
	return s.tidy()
}

// keepBest writes the weights of an improvement at a step; the state that names
// it is saved afterwards.
func (s *store) keepBest(step int, tensors []optim.State) error {
	var blocks [][]byte
	for _, t := range tensors {
		blocks = append(blocks, t.Value)
	}
	if err := writeRecord(s.disk, s.bestPath(step), state{Key: s.key, Step: step, Names: names(tensors)}, blocks); err != nil {
		return fmt.Errorf("keep the best weights: %w", err)
	}
	return nil
}

// restoreBest loads the weights that keepBest wrote.
func (s *store) restoreBest(step int, tensors []optim.State) error {
	_, err := s.load(s.bestPath(step), tensors, func(t optim.State) [][]byte { return [][]byte{t.Value} })
	if err != nil {
		return fmt.Errorf("load the best weights: %w", err)
	}
	return nil
}

// restore loads the newest state that is whole; found is false when there is
// none. damaged are the files that were passed over.
func (s *store) restore(tensors []optim.State) (st state, damaged []string, found bool, err error) {
	steps, err := s.steps()
	if err != nil {
		return st, nil, false, err
	}
	for _, step := range slices.Backward(steps) {
		path := s.statePath(step)
		st, err := s.load(path, tensors, func(t optim.State) [][]byte {
			return [][]byte{t.Value, t.FirstMoment, t.SecondMoment}
		})
		if errors.Is(err, errDamaged) {
			damaged = append(damaged, filepath.Base(path))
			continue
		}
		if err != nil {
			return st, damaged, false, fmt.Errorf("load the state: %w", err)
		}
		s.saved = []state{st}
		return st, damaged, true, nil
	}
	return state{}, damaged, false, nil
}

// load reads a record into the tensors. It changes nothing when the record is
// damaged, which includes that its best weights are.
func (s *store) load(path string, tensors []optim.State, blocks func(optim.State) [][]byte) (st state, err error) {
	if err := checkRecord(path); err != nil {
		return st, err
	}
	r, err := openRecord(path, &st)
	if err != nil {
		return st, err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	if st.Key != s.key || !slices.Equal(st.Names, names(tensors)) {
		return st, fmt.Errorf("%s belongs to another job", filepath.Base(path))
	}
	if best := st.Stopping.BestStep; best != 0 {
		if err := checkRecord(s.bestPath(best)); err != nil {
			return st, fmt.Errorf("%w: the best weights: %w", errDamaged, err)
		}
	}
	for _, t := range tensors {
		for _, b := range blocks(t) {
			if err := r.into(b); err != nil {
				return st, fmt.Errorf("%s of %s: %w", filepath.Base(path), t.Name, err)
			}
		}
	}
	return st, nil
}

// steps lists the states on disk, the newest last.
func (s *store) steps() ([]int, error) {
	var list []int
	err := s.each("step-", func(_ string, step int) error {
		list = append(list, step)
		return nil
	})
	slices.Sort(list)
	return list, err
}

// each calls fn for the files of a kind.
func (s *store) each(kind string, fn func(name string, step int) error) error {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return fmt.Errorf("list the states: %w", err)
	}
	for _, e := range entries {
		number, ok := strings.CutPrefix(strings.TrimSuffix(e.Name(), recordSuffix), kind)
		step, err := strconv.Atoi(number)
		if !ok || err != nil {
			continue
		}
		if err := fn(e.Name(), step); err != nil {
			return err
		}
	}
	return nil
}

// tidy removes states but the saved ones, and best weights that none of them
// names.
func (s *store) tidy() error {
	wanted := map[string]bool{}
	for _, st := range s.saved {
		wanted[filepath.Base(s.statePath(st.Step))] = true
		wanted[filepath.Base(s.bestPath(st.Stopping.BestStep))] = true
	}
	remove := func(name string, _ int) error {
		if wanted[name] {
			return nil
		}
		return s.disk.Remove(filepath.Join(s.dir, name))
	}
	return errors.Join(s.each("step-", remove), s.each("best-", remove))
}

func names(tensors []optim.State) []string {
	out := make([]string, len(tensors))
	for i, t := range tensors {
		out[i] = t.Name
	}
	return out
}
