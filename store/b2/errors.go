package b2

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/Backblaze/blazer/base"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/internal/httptransport"
)

// refusal is an error answer of the server. The zero refusal is none.
type refusal struct {
	status        int
	code, message string
}

// refuse notes a refusal, and returns its error. An answer with a code is B2's own: the server was reached.
func (n *note) refuse(status int, code, message, token string) error {
	n.refusal = refusal{status, spoken(code, token), spoken(message, token)}
	code = n.refusal.code
	said := strings.TrimSuffix(strings.TrimSpace(code+": "+n.refusal.message), ":")
	if code == "" {
		said = http.StatusText(status)
	}
	err := fmt.Errorf("the server answers %d %s", status, said)
	switch {
	case httptransport.Down(status) && code == "":
		return store.Unreachable(err)
	case status == http.StatusInsufficientStorage || code == "storage_cap_exceeded":
		return fault.As(store.ErrFull, err)
	}
	return err
}

// is reports whether B2 refused a request with a status and one of some codes, or
// with any code if there are none. An answer without a code isn't B2's.
func (r refusal) is(status int, codes ...string) bool {
	return r.status == status && (slices.Contains(codes, r.code) || len(codes) == 0 && r.code != "")
}

// The refusals that decide what a method does next.
var (
	errNoObject  = errors.New("there is no such object")
	errNoVersion = errors.New("there is no such version")
	errHidden    = errors.New("there is nothing to hide")
)

// missing returns one of them, or nil.
func (r refusal) missing() error {
	switch {
	case r.is(http.StatusNotFound):
		return errNoObject
	case r.is(http.StatusBadRequest, "file_not_present"):
		return errNoVersion
	case r.is(http.StatusBadRequest, "no_such_file", "already_hidden"):
		return errHidden
	}
	return nil
}

// expired reports whether the server no longer accepts the token.
func (r refusal) expired() bool {
	return r.is(http.StatusUnauthorized, "expired_auth_token", "bad_auth_token")
}

// exchange sends a request of blazer's, and returns the reason of a failure.
func exchange[T any](ctx context.Context, n *note, send func(context.Context) (T, error)) (T, error) {
	v, err := send(context.WithValue(ctx, noteKey{}, n))
	if err == nil {
		return v, nil
	}
	var zero T
	return zero, n.reason(ctx, err)
}

// reason returns why a request failed: the context, the network, or the server.
func (n *note) reason(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		n.refusal = refusal{} // the end counts
		if n.answered.Load() {
			return ctx.Err()
		}
		return store.Unreachable(ctx.Err())
	}
	if n.err != nil {
		return n.network(n.err)
	}
	if n.refusal.status != 0 {
		return err // of post
	}
	if status, code, message := base.MsgCode(err); status != 0 {
		return n.refuse(status, code, message, n.token)
	}
	return fmt.Errorf("the answer can't be understood: %s", spoken(err.Error(), n.token))
}

// network returns a failure of the network as one of package store.
func (n *note) network(err error) error {
	var noTLS tls.RecordHeaderError
	var badCertificate *tls.CertificateVerificationError
	var unknown x509.UnknownAuthorityError
	switch {
	case errors.As(err, &noTLS), strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		return fmt.Errorf("%w: the endpoint speaks no TLS", store.ErrConfig)
	case errors.As(err, &badCertificate), errors.As(err, &unknown):
		return fmt.Errorf("%w: the endpoint's certificate isn't trusted: %w", store.ErrConfig, err)
	}
	noHost := httptransport.NoHost(err)
	switch {
	case noHost != nil:
		return noHost
	case !n.answered.Load() && httptransport.NoAnswer(err):
		return store.Unreachable(err)
	}
	return err
}

// spoken is one line of a server's message, without the token, which some messages
// quote.
func spoken(s, token string) string {
	if token != "" {
		s = strings.ReplaceAll(s, token, "…")
	}
	return text.Line(s)
}

// refusedKey returns the meaning of a refused authorization.
func (r refusal) refusedKey(err error) error {
	switch {
	case r.is(http.StatusUnauthorized):
		return fmt.Errorf("%w: the application key is refused: check %s and %s", store.ErrCredentials, envKeyID, envKey)
	case r.status == http.StatusForbidden:
		return fmt.Errorf("%w: the application key is refused: %w: check %s and %s", store.ErrCredentials, err, envKeyID, envKey)
	case r.status == http.StatusBadRequest && strings.Contains(r.message, "API version"):
		return fmt.Errorf("%w: the application key needs a newer version of Backblaze's API than repolock speaks: %w: update repolock, or make a key that isn't restricted to buckets", store.ErrConfig, err)
	case r.status != 0 && !httptransport.Passing(r.status):
		return fmt.Errorf("%w: the application key isn't taken: %w: check %s, %s and the endpoint", store.ErrConfig, err, envKeyID, envKey)
	}
	return err
}

// explain returns the meaning of a refusal of a request that needs a capability.
func (s *session) explain(capability string, r refusal, err error) error {
	switch {
	case r.status == http.StatusUnauthorized && r.code == "unauthorized" && !s.may(capability):
		return lacks(capability)
	case r.status == http.StatusUnauthorized && !r.expired(), r.code == "access_denied":
		return fmt.Errorf("%w: the application key may not use its capability %s here: %w", store.ErrPermission, capability, err)
	case r.status == http.StatusForbidden && strings.HasSuffix(r.code, "cap_exceeded"):
		return fmt.Errorf("a cap of the account is exceeded: %s: %w", strings.TrimSuffix(r.code, "_cap_exceeded"), err)
	case r.code == "bad_bucket_id":
		return fmt.Errorf("%w: the bucket is gone", store.ErrNotFound)
	}
	return err
}

func lacks(capability string) error {
	return fmt.Errorf("%w: the application key lacks the capability %s", store.ErrPermission, capability)
}

// failed returns an error with the operation and its key, or nil.
func failed(op, key string, err error) error {
	if err == nil {
		return nil
	}
	return &store.Error{Op: op, Key: key, Err: err}
}
