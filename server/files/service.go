package files

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"athanor/server/api"
	"athanor/server/jobs"
	"athanor/server/kit"
	"athanor/server/rest"
	"athanor/store"
	"athanor/store/object"
	"athanor/store/resource"
)

// Limits bound what is taken in. A zero field takes its default.
type Limits struct {
	File    int64         // bytes of a file, default 25 GiB
	Parquet int64         // bytes of a Parquet file, default 50 GiB
	Part    int64         // bytes of one part of an upload, default 5 GiB
	Arrive  time.Duration // for the bytes of an announced file, default a day
	Batch   time.Duration // a file for batches is kept, default seven days
}

func (l Limits) withDefaults() Limits {
	set := func(v *int64, d int64) {
		if *v == 0 {
			*v = d
		}
	}
	set(&l.File, 25<<30)
	set(&l.Parquet, 50<<30)
	set(&l.Part, 5<<30)
	set((*int64)(&l.Arrive), int64(24*time.Hour))
	set((*int64)(&l.Batch), int64(7*24*time.Hour))
	return l
}

// of is the greatest size of a file of a type.
func (l *Limits) of(t resource.FileType) int64 {
	if t == resource.FileParquet {
		return l.Parquet
	}
	return l.File
}

// Queue is what the service needs of the runner of its jobs.
type Queue interface {
	Wake()
	Interrupt(ids ...resource.JobID)
}

// Service answers the operations of this slice and does its jobs. Its methods may
// be called by any goroutine.
type Service struct {
	kit     kit.Kit
	db      *store.DB
	objects object.Store
	links   *rest.Links
	limits  Limits
	queue   Queue
}

// New makes a Service. links must be those that the server checks.
func New(k kit.Kit, db *store.DB, objects object.Store, links *rest.Links, limits Limits) *Service {
	return &Service{kit: k, db: db, objects: objects, links: links, limits: limits.withDefaults(), queue: idle{}}
}

// Use tells the service the runner of its Kinds; before it jobs wait.
func (s *Service) Use(q Queue) { s.queue = q }

// idle is the queue before Use.
type idle struct{}

var _ Queue = idle{}

func (idle) Wake() {}

func (idle) Interrupt(...resource.JobID) {}

// metaLinks is the name of the meta value that signs links.
const metaLinks = "rest.links"

// Links returns the signer of links with the secret of this appliance, which is
// made on the first call ever.
func Links(ctx context.Context, k kit.Kit, db *store.DB) (*rest.Links, error) {
	fresh := make([]byte, 32)
	if _, err := rand.Read(fresh); err != nil {
		return nil, err
	}
	var secret []byte
	err := db.Update(ctx, func(tx *store.Tx) (err error) {
		secret, err = store.Meta(tx).Get(metaLinks)
		if errors.Is(err, store.ErrNotFound) {
			secret = fresh
			return store.Meta(tx).Put(metaLinks, fresh)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("secret of links: %w", err)
	}
	return rest.NewLinks(secret, k.Now), nil
}

// errOther answers for a thing of another project.
var errOther = api.Forbidden("the file belongs to another project")

// get reads a file of the caller's project.
func (s *Service) get(ctx context.Context, id string) (f *resource.File, err error) {
	err = s.db.View(func(tx *store.Tx) (err error) {
		f, err = find(tx, id, rest.Caller(ctx).ProjectID)
		return err
	})
	return f, err
}

// find reads a file of a project.
func find(tx *store.Tx, id, project string) (*resource.File, error) {
	f, err := store.Files.Get(tx, id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, api.NotFound("no file %.80q", id)
	case err == nil && string(f.ProjectID) != project:
		return nil, errOther
	}
	return f, err
}

// blob is an object that has been written and that no record refers to yet.
type blob struct {
	key    string
	size   int64
	sha256 string
}

// keep writes body to the object at key, bounded by limit, so that it is deleted
// later unless a transaction calls adopt. length is -1 when not known.
func (s *Service) keep(ctx context.Context, key string, body io.Reader, length, limit int64) (*blob, error) {
	if length > limit {
		return nil, api.TooLarge(limit)
	}
	now, id := s.kit.Now(), s.newJob()
	err := s.db.Update(ctx, func(tx *store.Tx) error {
		return jobs.Add(tx, id, kindDiscard, key, now, now.Add(2*s.limits.Arrive))
	})
	if err != nil {
		return nil, fmt.Errorf("announce object: %w", err)
	}
	info, err := s.objects.Put(ctx, key, &bounded{r: body, left: limit, limit: limit}, length)
	if err == nil {
		return &blob{key: key, size: info.Size, sha256: info.SHA256}, nil
	}
	var known *api.Error
	switch {
	case errors.As(err, &known):
	case errors.Is(err, object.ErrSize):
		err = api.Invalid("", "the request body is not as long as announced")
	default:
		err = fmt.Errorf("store the bytes: %w", err)
	}
	s.drop(key)
	return nil, err
}

// adopt makes the object of b one that stays; it is for the transaction that
// writes the record which refers to it.
func adopt(tx *store.Tx, key string) error {
	_, err := jobs.Remove(tx, key)
	return err
}

// drop has objects deleted soon. It serves requests that have failed already, so
// it neither needs their context nor reports: the announcement stands in any case.
func (s *Service) drop(keys ...string) {
	now := s.kit.Now()
	err := s.db.Update(context.Background(), func(tx *store.Tx) error { return s.discard(tx, now, keys...) })
	if err != nil {
		s.kit.Log.Warn("objects that nobody needs stay for now", "error", err)
		return
	}
	s.queue.Wake()
}

// discard puts the deletion of objects into the queue, in the transaction that
// takes the last reference away.
func (s *Service) discard(tx *store.Tx, now time.Time, keys ...string) error {
	for _, key := range keys {
		if _, err := jobs.Remove(tx, key); err != nil {
			return err
		}
		if err := jobs.Add(tx, s.newJob(), kindDiscard, key, now, now); err != nil {
			return err
		}
	}
	return nil
}

func (s *Service) newFile() resource.FileID { return resource.FileID(s.kit.NewID("file")) }

func (s *Service) newJob() resource.JobID { return resource.JobID(s.kit.NewID("job")) }

// bounded ends with an error when more than limit bytes come.
type bounded struct {
	r           io.Reader
	left, limit int64
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return n, api.TooLarge(b.limit)
	}
	return n, err
}

// arrived is for the transaction in which the bytes of a pending file are there:
// it decides what follows.
func (s *Service) arrived(tx *store.Tx, f *resource.File, now time.Time) error {
	if f.Purpose == resource.PurposeBatch {
		at := now.Add(s.limits.Batch)
		f.ExpiresAt = &at
		if err := jobs.Add(tx, s.newJob(), kindExpire, string(f.ID), now, at); err != nil {
			return err
		}
	}
	if f.Purpose != resource.PurposeFineTune && len(f.Parts) == 0 {
		return f.To(resource.FileCompleted, now)
	}
	if err := f.To(resource.FileQueued, now); err != nil {
		return err
	}
	return jobs.Add(tx, s.newJob(), kindIngest, string(f.ID), now, now)
}

// remove deletes a file with everything that belongs to it and returns the jobs
// that are to be interrupted.
func (s *Service) remove(tx *store.Tx, f *resource.File, now time.Time) ([]resource.JobID, error) {
	var keys []string
	if f.ObjectKey != "" {
		keys = append(keys, f.ObjectKey)
	}
	parts := f.Parts
	if f.UploadID != "" {
		u, err := store.Uploads.Get(tx, string(f.UploadID))
		if err == nil {
			parts = append(parts, u.Parts...)
			err = store.Uploads.Delete(tx, string(f.UploadID))
		}
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return nil, err
		}
	}
	for _, p := range parts {
		keys = append(keys, p.ObjectKey)
	}
	removed, err := jobs.Remove(tx, string(f.ID))
	if err != nil {
		return nil, err
	}
	if err := s.discard(tx, now, keys...); err != nil {
		return nil, err
	}
	return removed, store.Files.Delete(tx, string(f.ID))
}

// conflict turns a move that the file's state forbids into what a client is told.
func conflict(err error) error {
	var bad *resource.BadMove
	if errors.As(err, &bad) {
		return api.New(http.StatusConflict, api.TypeConflict, "", "the bytes of the file have arrived before: it is %s", bad.From)
	}
	return err
}
