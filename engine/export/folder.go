package export

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"athanor/engine/durable"
)

// partial is added to the name of a result that is not whole yet.
const partial = ".partial"

// create makes the folder dir with what fill writes into it: as a whole or, on
// an error, not at all. What an interrupted call left is removed.
func create(dir string, fill func(tmp string) error) error {
	tmp := dir + partial
	if err := os.RemoveAll(tmp); err != nil {
		return err
	}
	if err := os.MkdirAll(tmp, 0o755); err != nil {
		return err
	}
	if err := fill(tmp); err != nil {
		return errors.Join(err, os.RemoveAll(tmp))
	}
	if err := durable.SyncDir(tmp); err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.Rename(tmp, dir); err != nil {
		return err
	}
	return durable.SyncDir(filepath.Dir(dir))
}

// companions are the files of a model folder that belong to a model derived
// from it, whatever its weights are.
var companions = []string{
	"config.json", "generation_config.json",
	"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "tokenizer.model",
	"vocab.json", "merges.txt", "vocab.txt", "chat_template.jinja", "chat_template.json",
	"LICENSE", "LICENSE.txt", "LICENSE.md", "NOTICE", "NOTICE.txt", "USE_POLICY.md",
}

const maxCompanion = 256 << 20 // bytes

// copyCompanions copies the companions that base has.
func copyCompanions(base, dir string) error {
	for _, name := range companions {
		if err := copyFile(filepath.Join(base, name), filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("copy %s: %w", name, err)
		}
	}
	return nil
}

func copyFile(from, to string) error {
	// Stat first: opening a FIFO would wait for its writer.
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || info.Size() > maxCompanion {
		return fmt.Errorf("it is no regular file of at most %d bytes", maxCompanion)
	}
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxCompanion))
	if err != nil {
		return err
	}
	return durable.WriteFile(to, data)
}
