package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"athanor/store"
	"athanor/store/object"
	"athanor/store/resource"
)

// An import adds objects before the record that names them. What it is about to
// add is noted in a file first, and only what is noted is ever taken back: the
// object store may hold things of others, and of a newer database whose older
// copy is open here.

// withdrawTime bounds the cleaning up after a failed import.
const withdrawTime = time.Minute

// withdraw takes back what the failed import of m made.
func (a *App) withdraw(m *resource.Model) error {
	ctx, cancel := context.WithTimeout(context.Background(), withdrawTime)
	defer cancel()
	return errors.Join(a.host.Evict(ctx, string(m.ID)), a.takeBack(ctx))
}

// recoverImports takes back what imports left behind whose process was killed.
// It runs before the first import and the first worker.
func (a *App) recoverImports(ctx context.Context) error {
	errs := []error{a.takeBack(ctx)}
	for _, pattern := range []string{".demo-*", ".traits-*", "compiled/*/.building-*"} {
		left, err := filepath.Glob(filepath.Join(a.artifacts.cache, pattern))
		errs = append(errs, err)
		for _, path := range left {
			errs = append(errs, os.RemoveAll(path))
		}
	}
	return errors.Join(errs...)
}

// takeBack removes the noted objects and the cached revisions that no record names.
func (a *App) takeBack(ctx context.Context) error {
	keys, revisions, err := a.named()
	if err != nil {
		return err
	}
	return errors.Join(a.artifacts.takeBack(ctx, keys), a.artifacts.prune(revisions))
}

// named lists the objects of all models and jobs, and the revisions of the models.
func (a *App) named() (keys, revisions map[string]bool, err error) {
	keys, revisions = map[string]bool{}, map[string]bool{}
	err = a.db.View(func(tx *store.Tx) error {
		for page := (store.Page{Limit: 1000}); ; {
			list, next, err := store.Models.List(tx, "", page)
			if err != nil {
				return err
			}
			for _, m := range list {
				revisions[m.Revision] = true
				for _, f := range m.Files {
					keys[f.ObjectKey] = true
				}
			}
			if page.After = next; next == "" {
				return namedByJobs(tx, keys)
			}
		}
	})
	if err != nil {
		return nil, nil, fmt.Errorf("list models: %w", err)
	}
	return keys, revisions, nil
}

// note is the file that names the objects of an unfinished import.
func (a *artifacts) note() string { return filepath.Join(a.cache, "importing.json") }

// announce adds the files that the object store does not have to the note.
func (a *artifacts) announce(ctx context.Context, files []resource.ModelFile) error {
	keys, err := a.announced()
	if err != nil {
		return err
	}
	for _, f := range files {
		_, err := a.objects.Stat(ctx, f.ObjectKey)
		if errors.Is(err, object.ErrNotFound) {
			keys = append(keys, f.ObjectKey)
		} else if err != nil {
			return err
		}
	}
	slices.Sort(keys)
	data, err := json.Marshal(slices.Compact(keys))
	if err != nil {
		return err
	}
	tmp, err := os.OpenFile(a.note()+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = tmp.Write(data)
	if err = errors.Join(err, tmp.Sync(), tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), a.note())
}

// announced reads the note; without one it is empty.
func (a *artifacts) announced() (keys []string, err error) {
	data, err := os.ReadFile(a.note())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &keys)
	}
	if err != nil {
		return nil, fmt.Errorf("read the note about an unfinished import, %s: %w", a.note(), err)
	}
	return keys, nil
}

// settle forgets the note: a record names its objects, or they are gone.
func (a *artifacts) settle() error {
	if err := os.Remove(a.note()); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// takeBack deletes the noted objects that are not named.
func (a *artifacts) takeBack(ctx context.Context, named map[string]bool) error {
	keys, err := a.announced()
	if err != nil {
		return err
	}
	for _, key := range keys {
		if named[key] {
			continue
		}
		if err := a.objects.Delete(ctx, key); err != nil {
			return fmt.Errorf("take back %s: %w", key, err)
		}
	}
	return a.settle()
}

// prune removes what the cache holds of other revisions than these.
func (a *artifacts) prune(revisions map[string]bool) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	var errs []error
	for _, dir := range []string{filepath.Dir(a.modelDir("x")), filepath.Dir(a.compiledDir("x"))} {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
		for _, e := range entries {
			if !revisions[e.Name()] {
				errs = append(errs, os.RemoveAll(filepath.Join(dir, e.Name())))
			}
		}
	}
	return errors.Join(errs...)
}
