package object

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/minio/minio-go/v7"
)

// errRace is the server's answer when two conditional writes meet: try again.
var errRace = errors.New("another write of the same object is under way")

// again repeats a conditional write that met another one. By then the other is
// mostly through, and the answer is ErrExists.
func again(write func() error) error {
	err := write()
	for range maxRequests {
		if !errors.Is(err, errRace) {
			return err
		}
		err = write()
	}
	return err
}

// explain turns the client's errors into those of this package. What is not an
// answer of the server, nor the end of a context, is a failure to reach it.
func (s *s3) explain(err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	var answer minio.ErrorResponse
	if !errors.As(err, &answer) {
		return fmt.Errorf("%w at %s: %w", ErrUnavailable, s.endpoint, err)
	}
	what := answer.Code
	if answer.Message != "" {
		what += ": " + answer.Message
	}
	switch answer.Code {
	case "NoSuchBucket":
		return fmt.Errorf("%w: %s has no bucket %q (%s)", ErrUnavailable, s.endpoint, s.bucket, what)
	case "ObjectParentIsFile", "ExistingObjectIsDirectory":
		return fmt.Errorf("%w: a part of the key is an object itself, or other keys lie under it (%s)", ErrInvalidKey, what)
	case "ConditionalRequestConflict":
		return errRace
	case "NoSuchKey":
		return ErrNotFound
	case "InvalidAccessKeyId", "SignatureDoesNotMatch", "AccessDenied",
		"XAdminUserNotFound": // versitygw's word for an unknown access key, sent as 404
		return s.denied(what)
	}
	switch status := answer.StatusCode; {
	case status == http.StatusPreconditionFailed:
		return ErrExists
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return s.denied(what)
	case status >= http.StatusInternalServerError:
		return fmt.Errorf("%w at %s (%s)", ErrUnavailable, s.endpoint, what)
	}
	return fmt.Errorf("%s refuses: %s", s.endpoint, what)
}

func (s *s3) denied(what string) error {
	return fmt.Errorf("%w by %s: check the access key, the secret key and the rights on bucket %q (%s)", ErrDenied, s.endpoint, s.bucket, what)
}
