package b2

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"unicode"

	"github.com/Backblaze/blazer/base"

	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/internal/web"
)

// refusal is an error that the server has answered with.
type refusal struct {
	status  int
	code    string
	message string
}

// Is tells by what the server says whether it could do anything at all.
func (e *refusal) Is(target error) bool {
	switch target {
	case store.ErrUnreachable:
		return web.Down(e.status)
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

// exchange sends a request of blazer's, and says why it failed.
func exchange[T any](ctx context.Context, n *note, send func(context.Context) (T, error)) (T, error) {
	v, err := send(withNote(ctx, n))
	if err == nil {
		return v, nil
	}
	var zero T
	return zero, n.reason(ctx, err)
}

// reason is why a request failed: the context, the network, or the server.
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
		return &refusal{status, plain(code, n.token), plain(message, n.token)}
	}
	return fmt.Errorf("the answer can't be understood: %s", plain(err.Error(), n.token))
}

// network says which failures of the network are the configuration's.
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
	var dns *net.DNSError
	switch {
	case errors.As(err, &dns) && dns.IsNotFound:
		return fmt.Errorf("%s: %w", dns.Name, store.ErrNoHost)
	case !n.answered.Load() && web.NoAnswer(err):
		return store.Unreachable(err)
	}
	return err
}

// maxSaid is how much of what a server says is passed on.
const maxSaid = 200

// plain is what a server said in one line, and without the token, which some of
// its messages quote.
func plain(said, token string) string {
	if token != "" {
		said = strings.ReplaceAll(said, token, "…")
	}
	said = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, said)
	if len(said) > maxSaid {
		said = strings.ToValidUTF8(said[:maxSaid], "") + "…"
	}
	return said
}

// noSession is why a session couldn't begin. No refusal in it is of the request that
// needed the session.
type noSession struct{ error }

func (e noSession) Unwrap() error { return e.error }

// asRefusal reports whether B2 refused a request with a status and one of some codes, or
// with any code if there are none. An answer without a code isn't B2's.
func asRefusal(err error, status int, codes ...string) bool {
	var e *refusal
	if !errors.As(err, &e) || e.status != status || errors.As(err, new(noSession)) {
		return false
	}
	for _, code := range codes {
		if e.code == code {
			return true
		}
	}
	return len(codes) == 0 && e.code != ""
}

// expired: the server takes the token no longer.
func expired(err error) bool {
	return asRefusal(err, http.StatusUnauthorized, "expired_auth_token", "bad_auth_token")
}

// refusedKey says that an authorization was refused for the key.
func refusedKey(err error) error {
	var e *refusal
	switch {
	case asRefusal(err, http.StatusUnauthorized):
		return fmt.Errorf("%w: the application key is refused: check %s and %s", store.ErrCredentials, envKeyID, envKey)
	case errors.As(err, &e) && e.status == http.StatusForbidden:
		return fmt.Errorf("%w: the application key is refused: %w: check %s and %s", store.ErrCredentials, err, envKeyID, envKey)
	case errors.As(err, &e) && e.status == http.StatusBadRequest && strings.Contains(e.message, "API version"):
		return fmt.Errorf("%w: the application key needs a newer version of Backblaze's API than repolock speaks: %w: update repolock, or make a key that isn't restricted to buckets", store.ErrConfig, err)
	case errors.As(err, &e) && e.status < 500 && e.status != http.StatusTooManyRequests && e.status != http.StatusRequestTimeout:
		return fmt.Errorf("%w: the application key isn't taken: %w: check %s, %s and the endpoint", store.ErrConfig, err, envKeyID, envKey)
	}
	return err
}

// explain says what an answer means to who asked for something that takes a
// capability.
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

// failed says which operation failed, and on what.
func failed(op, key string, err error) error {
	return &store.Error{Op: op, Key: key, Err: err}
}
