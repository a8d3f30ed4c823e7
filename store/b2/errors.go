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

	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/internal/httptransport"
)

// refusal is an error answer of the server.
type refusal struct {
	status  int
	code    string
	message string
}

// Is reports whether the server is down, or full. An answer with a code is B2's own: it was reached.
func (e *refusal) Is(target error) bool {
	switch target {
	case store.ErrUnreachable:
		return httptransport.Down(e.status) && e.code == ""
	case store.ErrFull:
		return e.status == http.StatusInsufficientStorage || e.code == "storage_cap_exceeded"
	}
	return false
}

func (e *refusal) Error() string {
	said := strings.TrimSpace(e.code + ": " + e.message)
	if e.code == "" {
		said = http.StatusText(e.status)
	}
	return fmt.Sprintf("the server answers %d %s", e.status, strings.TrimSuffix(said, ":"))
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
		if n.answered.Load() {
			return ctx.Err()
		}
		return store.Unreachable(ctx.Err())
	}
	if n.err != nil {
		return n.network(n.err)
	}
	var ours *refusal
	if errors.As(err, &ours) {
		return err
	}
	if status, code, message := base.MsgCode(err); status != 0 {
		return &refusal{status, spoken(code, n.token), spoken(message, n.token)}
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

// noSession is the reason that a session couldn't begin. A refusal in it isn't one of the
// request that needed the session.
type noSession struct{ error }

func (e noSession) Unwrap() error { return e.error }

// asRefusal reports whether B2 refused a request with a status and one of some codes, or
// with any code if there are none. An answer without a code isn't B2's.
func asRefusal(err error, status int, codes ...string) bool {
	var e *refusal
	if !errors.As(err, &e) || e.status != status || errors.As(err, new(noSession)) {
		return false
	}
	return slices.Contains(codes, e.code) || len(codes) == 0 && e.code != ""
}

// expired reports whether the server no longer accepts the token.
func expired(err error) bool {
	return asRefusal(err, http.StatusUnauthorized, "expired_auth_token", "bad_auth_token")
}

// refusedKey returns the meaning of a refused authorization.
func refusedKey(err error) error {
	var e *refusal
	switch {
	case asRefusal(err, http.StatusUnauthorized):
		return fmt.Errorf("%w: the application key is refused: check %s and %s", store.ErrCredentials, envKeyID, envKey)
	case errors.As(err, &e) && e.status == http.StatusForbidden:
		return fmt.Errorf("%w: the application key is refused: %w: check %s and %s", store.ErrCredentials, err, envKeyID, envKey)
	case errors.As(err, &e) && e.status == http.StatusBadRequest && strings.Contains(e.message, "API version"):
		return fmt.Errorf("%w: the application key needs a newer version of Backblaze's API than repolock speaks: %w: update repolock, or make a key that isn't restricted to buckets", store.ErrConfig, err)
	case errors.As(err, &e) && !httptransport.Passing(e.status):
		return fmt.Errorf("%w: the application key isn't taken: %w: check %s, %s and the endpoint", store.ErrConfig, err, envKeyID, envKey)
	}
	return err
}

// explain returns the meaning of a refusal of a request that needs a capability.
func (s *session) explain(capability string, err error) error {
	var e *refusal
	if !errors.As(err, &e) {
		return err
	}
	switch {
	case e.status == http.StatusUnauthorized && e.code == "unauthorized" && !s.may(capability):
		return lacks(capability)
	case e.status == http.StatusUnauthorized && !expired(err), e.code == "access_denied":
		return fmt.Errorf("%w: the application key may not use its capability %s here: %w", store.ErrPermission, capability, err)
	case e.status == http.StatusForbidden && strings.HasSuffix(e.code, "cap_exceeded"):
		return fmt.Errorf("a cap of the account is exceeded: %s: %w", strings.TrimSuffix(e.code, "_cap_exceeded"), err)
	case e.code == "bad_bucket_id":
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
