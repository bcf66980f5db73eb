package object

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
)

func (s *s3) Stat(ctx context.Context, key string) (Info, error) {
	if err := ValidateKey(key); err != nil {
		return Info{}, err
	}
	o, err := s.core.StatObject(ctx, s.bucket, s.prefix+key, minio.StatObjectOptions{})
	if err != nil {
		return Info{}, fmt.Errorf("stat %q: %w", key, s.explain(err))
	}
	return Info{Key: key, Size: o.Size, ModTime: o.LastModified}, nil
}

func (s *s3) Get(ctx context.Context, key string, offset, length int64) (io.ReadCloser, Info, error) {
	if err := ValidateKey(key); err != nil {
		return nil, Info{}, err
	}
	if length == 0 || offset < 0 || length < -1 { // can't be written as a range
		return s.getNothing(ctx, key, offset, length)
	}
	options, err := rangeOf(offset, length)
	if err != nil {
		return nil, Info{}, fmt.Errorf("get %q: %w", key, err)
	}
	r, o, header, err := s.core.GetObject(ctx, s.bucket, s.prefix+key, options)
	if minio.ToErrorResponse(err).StatusCode == http.StatusRequestedRangeNotSatisfiable {
		return s.getNothing(ctx, key, offset, 0) // at or behind the end
	}
	if err != nil {
		return nil, Info{}, fmt.Errorf("get %q: %w", key, s.explain(err))
	}
	size, err := wholeSize(o.Size, header)
	if err != nil {
		return nil, Info{}, errors.Join(fmt.Errorf("get %q: %w", key, err), r.Close())
	}
	return &boundReader{ctx: ctx, key: key, r: r, c: r}, Info{Key: key, Size: size, ModTime: o.LastModified}, nil
}

// rangeOf asks for length bytes from offset on, or for the rest if length is -1 or
// reaches beyond every number.
func rangeOf(offset, length int64) (options minio.GetObjectOptions, err error) {
	switch {
	case length > 0 && offset <= math.MaxInt64-length:
		err = options.SetRange(offset, offset+length-1)
	case offset > 0:
		err = options.SetRange(offset, 0)
	}
	return options, err
}

// getNothing answers a range without bytes, if it begins inside the blob.
func (s *s3) getNothing(ctx context.Context, key string, offset, length int64) (io.ReadCloser, Info, error) {
	info, err := s.Stat(ctx, key)
	if err != nil {
		return nil, Info{}, err
	}
	if err := checkRange(offset, length, info.Size); err != nil {
		return nil, Info{}, fmt.Errorf("get %q: %w", key, err)
	}
	return io.NopCloser(bytes.NewReader(nil)), info, nil
}

// wholeSize is the size of the blob, which a ranged answer has at the end of its
// Content-Range.
func wholeSize(sent int64, header http.Header) (int64, error) {
	r := header.Get("Content-Range")
	if r == "" {
		return sent, nil
	}
	size, err := strconv.ParseInt(r[strings.LastIndexByte(r, '/')+1:], 10, 64)
	if err != nil || size < sent {
		return 0, fmt.Errorf("%w: the server sends the range %q", ErrUnavailable, r)
	}
	return size, nil
}

func (s *s3) Delete(ctx context.Context, key string) error {
	if err := ValidateKey(key); err != nil {
		return err
	}
	if err := s.remove(ctx, key); err != nil {
		return fmt.Errorf("delete %q: %w", key, err)
	}
	return nil
}

func (s *s3) remove(ctx context.Context, key string) error {
	err := s.explain(s.core.RemoveObject(ctx, s.bucket, s.prefix+key, minio.RemoveObjectOptions{}))
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

func (s *s3) List(ctx context.Context, prefix, after string, limit int) ([]Info, error) {
	if err := validatePrefix(prefix); err != nil {
		return nil, err
	}
	limit = listLimit(limit)
	options := minio.ListObjectsOptions{Prefix: s.prefix + prefix, Recursive: true, MaxKeys: limit}
	if after != "" {
		options.StartAfter = s.prefix + after
	}
	var found []Info
	for o := range s.core.ListObjectsIter(ctx, s.bucket, options) {
		if o.Err != nil {
			return nil, fmt.Errorf("list %q: %w", prefix, s.explain(o.Err))
		}
		key := strings.TrimPrefix(o.Key, s.prefix)
		if ValidateKey(key) != nil || key <= after {
			continue // a probe, or made by somebody else
		}
		found = append(found, Info{Key: key, Size: o.Size, ModTime: o.LastModified})
		if len(found) == limit {
			break
		}
	}
	// The iterator ends silently with its context.
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return found, nil
}

// PresignGet implements Presigner.
func (s *s3) PresignGet(ctx context.Context, key string, ttl time.Duration) (string, error) {
	if err := ValidateKey(key); err != nil {
		return "", err
	}
	u, err := s.core.PresignedGetObject(ctx, s.bucket, s.prefix+key, ttl, nil)
	if err != nil {
		return "", fmt.Errorf("presign %q: %w", key, err)
	}
	return u.String(), nil
}
