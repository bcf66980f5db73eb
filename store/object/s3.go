package object

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/s3utils"
)

const (
	defaultRegion   = "us-east-1"
	defaultPartSize = 16 << 20
	minPartSize     = 5 << 20 // the protocol's
	maxParts        = 10000   // the protocol's
	maxObject       = 5 << 40 // bytes, the protocol's
	maxRequests     = 3       // tries of one request, with pauses of up to a second
	dialTimeout     = 5 * time.Second
	probeKey        = ".athanor-probe/"
)

// S3Config says where an S3 store is.
type S3Config struct {
	Endpoint  string // host:port or host
	Bucket    string // has to exist
	Prefix    string // put before every key, for a bucket that is shared; "" for none
	Region    string // default us-east-1
	AccessKey string
	SecretKey string
	Insecure  bool  // plain HTTP
	PartSize  int64 // memory per Put and size of a part, in bytes; default 16 MiB, least 5 MiB
}

// LogValue keeps the secret out of logs.
func (c S3Config) LogValue() slog.Value {
	return slog.GroupValue(slog.String("endpoint", c.Endpoint), slog.String("bucket", c.Bucket), slog.String("prefix", c.Prefix))
}

// String keeps the secret out of messages.
func (c S3Config) String() string { return c.Endpoint + "/" + c.Bucket + "/" + c.Prefix }

// s3 keeps each blob in an object of one bucket.
type s3 struct {
	core     minio.Core
	endpoint string
	bucket   string
	prefix   string
	partSize int64
}

// OpenS3 opens a store in a bucket. It also is a Presigner. It proves the bucket,
// the credentials and, by writing and removing a small object, that the server
// honours conditional writes: without them PutIfAbsent would overwrite silently,
// so OpenS3 returns ErrNoConditionalWrites.
//
// A Put larger than PartSize goes in parts, which are verified one by one. Parts
// that a killed process left behind are invisible; a rule of the bucket should
// expire them. If the answer to a PutIfAbsent is lost on the way, its repetition
// meets the object that it has written itself and returns ErrExists.
func OpenS3(ctx context.Context, c S3Config) (Store, error) {
	s, err := newS3(c)
	if err != nil {
		return nil, fmt.Errorf("open object store %s: %w", c, err)
	}
	if err := s.probe(ctx); err != nil {
		return nil, fmt.Errorf("open object store %s: %w", c, err)
	}
	return s, nil
}

func newS3(c S3Config) (*s3, error) {
	if c.Prefix != "" {
		c.Prefix = strings.TrimSuffix(c.Prefix, "/")
		if err := ValidateKey(c.Prefix); err != nil {
			return nil, fmt.Errorf("prefix: %w", err)
		}
		c.Prefix += "/"
	}
	if err := s3utils.CheckValidBucketNameStrict(c.Bucket); err != nil {
		return nil, err
	}
	if c.Region == "" {
		c.Region = defaultRegion // asking the server for it would cost a request
	}
	if c.PartSize == 0 {
		c.PartSize = defaultPartSize
	}
	if c.PartSize < minPartSize {
		return nil, fmt.Errorf("part size of %d bytes, at least %d are needed", c.PartSize, minPartSize)
	}
	transport, err := minio.DefaultTransport(!c.Insecure)
	if err != nil {
		return nil, err
	}
	transport.DialContext = (&net.Dialer{Timeout: dialTimeout}).DialContext
	client, err := minio.New(c.Endpoint, &minio.Options{
		Creds:      credentials.NewStaticV4(c.AccessKey, c.SecretKey, ""),
		Secure:     !c.Insecure,
		Region:     c.Region,
		Transport:  transport,
		MaxRetries: maxRequests,
		// Some servers refuse puts with trailing checksums; each request carries the
		// SHA-256 of its body in its signature instead.
		TrailingHeaders: false,
	})
	if err != nil {
		return nil, err
	}
	return &s3{
		core: minio.Core{Client: client}, endpoint: c.Endpoint,
		bucket: c.Bucket, prefix: c.Prefix, partSize: c.PartSize,
	}, nil
}

// probe writes a new object twice under a condition; the second write must fail.
func (s *s3) probe(ctx context.Context) error {
	key := probeKey + rand.Text()
	for i, want := range []error{nil, ErrExists} {
		b, err := newBody(ctx, strings.NewReader("probe"), -1)
		if err != nil {
			return err
		}
		err = s.write(ctx, key, b, true)
		if i == 1 && err == nil {
			err = ErrNoConditionalWrites
		}
		if !errors.Is(err, want) {
			return errors.Join(fmt.Errorf("write a probe: %w", err), s.remove(ctx, key))
		}
	}
	return s.remove(ctx, key)
}

func (s *s3) Put(ctx context.Context, key string, r io.Reader, size int64) (Info, error) {
	return s.put(ctx, key, r, size, false)
}

func (s *s3) PutIfAbsent(ctx context.Context, key string, r io.Reader, size int64) (Info, error) {
	return s.put(ctx, key, r, size, true)
}

func (s *s3) put(ctx context.Context, key string, r io.Reader, size int64, absent bool) (Info, error) {
	if err := ValidateKey(key); err != nil {
		return Info{}, err
	}
	b, err := newBody(ctx, r, size)
	if err == nil && size > maxObject {
		err = fmt.Errorf("%w: %d bytes announced, at most %d are possible", ErrSize, size, int64(maxObject))
	}
	if err == nil {
		err = s.write(ctx, key, b, absent)
	}
	if err != nil {
		return Info{}, fmt.Errorf("put %q: %w", key, err)
	}
	return b.info(key), nil
}

// write stores a body that fits one buffer in one request and any other in parts.
// Either way the whole body has been read, and found good, before the request that
// makes the object visible.
func (s *s3) write(ctx context.Context, key string, b *body, absent bool) error {
	var options minio.PutObjectOptions
	if absent {
		options.SetMatchETagExcept("*")
	}
	buf := make([]byte, s.bufferSize(b.want))
	n, end, err := b.fill(buf)
	if err != nil {
		return err
	}
	if !end {
		return s.writeParts(ctx, key, b, buf, options)
	}
	return again(func() error {
		_, err := s.core.PutObject(ctx, s.bucket, s.prefix+key, bytes.NewReader(buf[:n]), int64(n), "", digest(buf[:n]), options)
		return s.explain(err)
	})
}

// bufferSize is one byte more than a small body, so that its end is seen at once,
// and enough to send a large one in as many parts as are allowed.
func (s *s3) bufferSize(size int64) int64 {
	if size >= 0 && size < s.partSize {
		return size + 1
	}
	return max(s.partSize, (size+maxParts-1)/maxParts)
}

// writeParts sends the full buf and the rest of the body part by part.
func (s *s3) writeParts(ctx context.Context, key string, b *body, buf []byte, options minio.PutObjectOptions) (err error) {
	name := s.prefix + key
	// The condition belongs to the end, when the object becomes visible.
	upload, err := s.core.NewMultipartUpload(ctx, s.bucket, name, minio.PutObjectOptions{})
	if err != nil {
		return s.explain(err)
	}
	defer func() {
		if err != nil {
			// Also when ctx is over; it is bounded by the client's own limits.
			err = errors.Join(err, s.abort(context.WithoutCancel(ctx), name, upload))
		}
	}()
	var parts []minio.CompletePart
	for n, end := len(buf), false; n > 0; {
		if len(parts) == maxParts {
			return fmt.Errorf("%w: more than %d parts of %d bytes", ErrSize, maxParts, len(buf))
		}
		part, err := s.core.PutObjectPart(ctx, s.bucket, name, upload, len(parts)+1,
			bytes.NewReader(buf[:n]), int64(n), minio.PutObjectPartOptions{Sha256Hex: digest(buf[:n])})
		if err != nil {
			return s.explain(err)
		}
		parts = append(parts, minio.CompletePart{PartNumber: part.PartNumber, ETag: part.ETag})
		if end {
			break
		}
		if n, end, err = b.fill(buf); err != nil {
			return err
		}
	}
	return again(func() error {
		_, err := s.core.CompleteMultipartUpload(ctx, s.bucket, name, upload, parts, options)
		return s.explain(err)
	})
}

// abort frees the parts of an upload that failed.
func (s *s3) abort(ctx context.Context, name, upload string) error {
	if err := s.core.AbortMultipartUpload(ctx, s.bucket, name, upload); err != nil {
		return fmt.Errorf("remove the parts: %w", s.explain(err))
	}
	return nil
}

func digest(p []byte) string {
	sum := sha256.Sum256(p)
	return hex.EncodeToString(sum[:])
}

// Close implements Store; connections close by themselves when idle.
func (s *s3) Close() error { return nil }
