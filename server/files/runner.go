package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"time"

	"athanor/server/files/dataset"
	"athanor/server/jobs"
	"athanor/store"
	"athanor/store/resource"
)

// The kinds of jobs.
const (
	kindIngest  = "file-ingest"  // subject: a file that has arrived
	kindExpire  = "file-expire"  // subject: a file that may be too old
	kindDiscard = "file-discard" // subject: the key of an object that no record needs
)

// Kinds are the jobs of this slice, for the runner.
func (s *Service) Kinds() []jobs.Kind {
	return []jobs.Kind{
		{Name: kindIngest, Workers: max(1, runtime.NumCPU()/2), Run: s.ingest, GiveUp: s.fail},
		{Name: kindExpire, Run: s.expire, Policy: jobs.Policy{Failures: 1000}},
		{Name: kindDiscard, Run: func(ctx context.Context, job resource.Job) error {
			return s.objects.Delete(ctx, job.Subject)
		}, Policy: jobs.Policy{Failures: 1000, MaxBackoff: time.Hour}},
	}
}

// Sweep is for the start of the process, before anything is served: the objects
// that its predecessor was writing when it died are deleted without waiting.
func (s *Service) Sweep(ctx context.Context) error {
	now := s.kit.Now()
	for {
		late := 0
		err := s.db.Update(ctx, func(tx *store.Tx) error {
			late = 0
			page := store.Page{Prefix: store.Key(kindDiscard, ""), Reverse: true, Limit: 1000}
			list, _, err := store.Jobs.List(tx, store.ByDue, page)
			for _, j := range list {
				if err != nil || !j.DueAt.After(now) {
					return err
				}
				late++
				_, err = store.Jobs.Update(tx, string(j.ID), func(j *resource.Job) error { j.DueAt = now; return nil })
			}
			return err
		})
		if err != nil || late == 0 {
			return err
		}
	}
}

// ingest brings a file that has arrived to its end state. Each step may have been
// done before by a process that died.
func (s *Service) ingest(ctx context.Context, job resource.Job) error {
	f, err := s.move(ctx, job.Subject, resource.FileRunning, nil)
	if f == nil || err != nil {
		return err
	}
	if len(f.Parts) > 0 {
		if f, err = s.join(ctx, f); f == nil || err != nil {
			return err
		}
	}
	if f.Purpose != resource.PurposeFineTune {
		_, err = s.move(ctx, job.Subject, resource.FileCompleted, nil)
		return err
	}
	report, err := s.validate(ctx, f)
	if err != nil {
		return fmt.Errorf("validate %s: %w", f.ID, err)
	}
	next := resource.FileCompleted
	if !report.Valid() {
		next = resource.FileInvalid
	}
	_, err = s.move(ctx, job.Subject, next, record(report))
	return err
}

// move takes the file on; it returns nil for one that was deleted or has ended.
func (s *Service) move(ctx context.Context, id string, next resource.FileStatus, report *resource.FileReport) (f *resource.File, err error) {
	now := s.kit.Now()
	err = s.db.Update(ctx, func(tx *store.Tx) (err error) {
		f, err = store.Files.Update(tx, id, func(f *resource.File) error {
			if f.Status.Final() {
				return store.ErrNotFound
			}
			f.Report = report
			return f.To(next, now)
		})
		return err
	})
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	return f, err
}

// join makes one object of the parts of a file. It returns nil for a file that was
// deleted meanwhile.
func (s *Service) join(ctx context.Context, f *resource.File) (*resource.File, error) {
	body, err := s.open(ctx, f, 0, f.Size)
	if err != nil {
		return nil, err
	}
	b, err := s.keep(ctx, s.fileKey(f.ID), body, f.Size, f.Size)
	if err := errors.Join(err, body.Close()); err != nil {
		return nil, fmt.Errorf("join the parts of %s: %w", f.ID, err)
	}
	now := s.kit.Now()
	var joined *resource.File
	err = s.db.Update(ctx, func(tx *store.Tx) (err error) {
		var parts []string
		joined, err = store.Files.Update(tx, string(f.ID), func(f *resource.File) error {
			for _, p := range f.Parts {
				parts = append(parts, p.ObjectKey)
			}
			f.ObjectKey, f.SHA256, f.Parts = b.key, b.sha256, nil
			return nil
		})
		if err != nil {
			return err
		}
		return errors.Join(adopt(tx, b.key), s.discard(tx, now, parts...))
	})
	if err != nil {
		s.drop(b.key)
		if errors.Is(err, store.ErrNotFound) {
			return nil, nil
		}
	}
	s.queue.Wake()
	return joined, err
}

// validate checks the content by the rules of its type.
func (s *Service) validate(ctx context.Context, f *resource.File) (*dataset.Report, error) {
	o := dataset.Options{Purpose: string(f.Purpose), Type: string(f.Type)}
	if f.Type == resource.FileParquet {
		return dataset.CheckParquet(ctx, &ranges{ctx, s, f}, f.Size, o)
	}
	body, err := s.open(ctx, f, 0, f.Size)
	if err != nil {
		return nil, err
	}
	report, err := dataset.Check(ctx, body, o)
	return report, errors.Join(err, body.Close())
}

// fail is the end of a file whose ingestion was given up.
func (s *Service) fail(tx *store.Tx, job resource.Job, reason error, now time.Time) error {
	s.kit.Log.Error("a file cannot be ingested", "file", job.Subject, "error", reason)
	_, err := store.Files.Update(tx, job.Subject, func(f *resource.File) error {
		f.Problem = reason.Error()
		return f.To(resource.FileFailed, now)
	})
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	return err
}

// expire deletes a file whose bytes did not come in time, or whose time is over.
func (s *Service) expire(ctx context.Context, job resource.Job) error {
	now := s.kit.Now()
	return s.db.Update(ctx, func(tx *store.Tx) error {
		f, err := store.Files.Get(tx, job.Subject)
		if errors.Is(err, store.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		late := f.Status == resource.FilePending && !now.Before(f.CreatedAt.Add(s.limits.Arrive))
		old := f.ExpiresAt != nil && !now.Before(*f.ExpiresAt)
		if late || old {
			_, err = s.remove(tx, f, now)
		}
		return err
	})
}

// open reads length bytes of a file from offset on, across its parts when they are
// not joined yet.
func (s *Service) open(ctx context.Context, f *resource.File, offset, length int64) (io.ReadCloser, error) {
	pieces := f.Parts
	if f.ObjectKey != "" {
		pieces = []resource.FilePart{{Size: f.Size, ObjectKey: f.ObjectKey}}
	}
	return &content{ctx: ctx, s: s, pieces: pieces, offset: offset, left: length}, nil
}

// ranges reads a file at any place, with a request to the object store each time.
type ranges struct {
	ctx context.Context
	s   *Service
	f   *resource.File
}

// ReadAt reads as much of p as the file has.
func (r *ranges) ReadAt(p []byte, at int64) (int, error) {
	if at >= r.f.Size {
		return 0, io.EOF
	}
	short := at+int64(len(p)) > r.f.Size
	if short {
		p = p[:r.f.Size-at]
	}
	body, err := r.s.open(r.ctx, r.f, at, int64(len(p)))
	if err != nil {
		return 0, err
	}
	n, err := io.ReadFull(body, p)
	if err = errors.Join(err, body.Close()); err == nil && short {
		err = io.EOF
	}
	return n, err
}

// content reads pieces one after the other, each opened when it is its turn.
type content struct {
	ctx    context.Context
	s      *Service
	pieces []resource.FilePart
	offset int64 // in the first piece
	left   int64
	r      io.ReadCloser
}

func (c *content) Read(p []byte) (int, error) {
	for {
		if c.left == 0 {
			return 0, io.EOF
		}
		if c.r == nil {
			if err := c.next(); err != nil {
				return 0, err
			}
		}
		n, err := c.r.Read(p)
		c.left -= int64(n)
		if err == io.EOF {
			c.offset = 0
			c.pieces = c.pieces[1:]
			err = c.Close()
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
}

// next opens the piece in which the offset lies.
func (c *content) next() error {
	for len(c.pieces) > 0 && c.offset >= c.pieces[0].Size {
		c.offset -= c.pieces[0].Size
		c.pieces = c.pieces[1:]
	}
	if len(c.pieces) == 0 {
		return fmt.Errorf("the file ends %d bytes early: %w", c.left, io.ErrUnexpectedEOF)
	}
	r, _, err := c.s.objects.Get(c.ctx, c.pieces[0].ObjectKey, c.offset, min(c.left, c.pieces[0].Size-c.offset))
	c.r = r
	return err
}

// Close may be called more than once.
func (c *content) Close() error {
	if c.r == nil {
		return nil
	}
	err := c.r.Close()
	c.r = nil
	return err
}
