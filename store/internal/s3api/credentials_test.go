package s3api_test

import (
	"context"
	"errors"
	"testing"

	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/internal/s3api"
)

// unsigned is a client whose source of credentials fails now and then.
type unsigned struct {
	s3api.Client
	err error
}

func (u *unsigned) Signable(context.Context) error { return u.err }

func (u *unsigned) List(context.Context, string, string) ([]store.Object, string, error) {
	return nil, "", nil
}

// TestCredentialsFail: a source without any credentials is a wrong configuration. One that had
// some before can succeed the next time.
func TestCredentialsFail(t *testing.T) {
	c := &unsigned{err: errors.New("no credentials")}
	s := s3api.New(c, s3api.Place{Bucket: "b", Host: "h"}, "s3", store.Claimed, store.Claimed)
	list := func() error { _, err := s.List(t.Context(), "x", ""); return err }
	if err := list(); !errors.Is(err, store.ErrConfig) || !errors.Is(err, c.err) {
		t.Errorf("never any: %v", err)
	}
	failure := c.err
	c.err = nil
	_ = list()
	c.err = failure
	if err := list(); errors.Is(err, store.ErrConfig) || !errors.Is(err, failure) || store.Permanent(err) {
		t.Errorf("some before: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.List(ctx, "x", ""); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}
