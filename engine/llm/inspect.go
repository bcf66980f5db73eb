package llm

import (
	"errors"
	"os"

	"athanor/engine/family"
	"athanor/engine/prompt"
	"athanor/engine/token"
	"athanor/engine/weights"
)

// Description is what the files of a model directory say about it.
type Description struct {
	Architecture string // as config.json names it
	Parameters   int64  // count of weights
	Chat         bool   // has a chat template
	Context      int    // tokens that will be served within the budget
	Slots        int    // sequences decoded at the same time
	KVBytes      int64  // size of the full key/value cache
}

// Inspect checks a model directory without reading its weights: family,
// shapes of all tensors, tokenizer and chat template. Errors are in words for
// the person who brought the files. kvBudget is as for Capacity.
func Inspect(dir string, kvBudget int64) (Description, error) {
	fsys := os.DirFS(dir)
	fam, err := family.Open(fsys)
	if err != nil {
		return Description{}, err
	}
	archive, err := weights.Open(dir)
	if err != nil {
		return Description{}, err
	}
	defer archive.Close()
	if err := fam.Check(archive); err != nil {
		return Description{}, err
	}
	if _, err := token.LoadDir(fsys); err != nil {
		return Description{}, err
	}
	_, err = prompt.Load(fsys)
	if err != nil && !errors.Is(err, prompt.ErrNoTemplate) {
		return Description{}, err
	}
	d := fam.Decoder()
	context, slots := Capacity(d, kvBudget)
	return Description{
		Architecture: d.Architecture, Parameters: fam.Parameters(), Chat: err == nil,
		Context: context, Slots: slots, KVBytes: int64(context) * int64(slots) * KVBytesPerToken(d),
	}, nil
}
