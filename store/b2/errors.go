package b2

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/internal/httptransport"
)

// refusal is an error answer of the server. It is zero if there is none. Only B2's own answers have a code.
type refusal struct {
	status        int
	code, message string
}

// refusal returns the server's error answer. It is zero after a success or without an answer.
func (n *note) refusal() refusal {
	status := n.Status()
	if status == 0 || status == http.StatusOK {
		return refusal{}
	}
	var said struct{ Code, Message string }
	_ = json.Unmarshal(n.Body(), &said)
	return refusal{status, spoken(said.Code, n.token), spoken(said.Message, n.token)}
}

// err returns a refusal as an error.
func (r refusal) err() error {
	said := strings.TrimSuffix(strings.TrimSpace(r.code+": "+r.message), ":")
	if r.code == "" {
		said = http.StatusText(r.status)
	}
	err := fmt.Errorf("the server answers %d %s", r.status, said)
	switch {
	case httptransport.Down(r.status) && r.code == "":
		return store.Unreachable(err)
	case r.status == http.StatusInsufficientStorage || r.code == "storage_cap_exceeded":
		return fault.As(store.ErrFull, err)
	}
	return err
}

// is reports whether B2 refused a request with this status and one of the codes. Without codes, any code of B2's
// matches.
func (r refusal) is(status int, codes ...string) bool {
	return r.status == status && (slices.Contains(codes, r.code) || len(codes) == 0 && r.code != "")
}

// Refusals that decide what a method does next.
var (
	errNoObject  = errors.New("there is no such object")
	errNoVersion = errors.New("there is no such version")
	errHidden    = errors.New("there is nothing to hide")
)

// missing returns the error of a refusal because an object, a version or a bucket doesn't exist, or nil.
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

// spoken returns a server's message as one line, without the token.
func spoken(s, token string) string {
	if token != "" {
		s = strings.ReplaceAll(s, token, "…")
	}
	return text.Line(s)
}

// refusedKey returns the error of a refused authorization.
func (r refusal) refusedKey(err error) error {
	switch {
	case r.is(http.StatusUnauthorized):
		return fmt.Errorf("%w: the application key is refused: check %s and %s", store.ErrCredentials, envKeyID, envKey)
	case r.status == http.StatusForbidden:
		return fmt.Errorf("%w: the application key is refused: %w: check %s and %s", store.ErrCredentials, err, envKeyID, envKey)
	case r.status == http.StatusBadRequest && strings.Contains(r.message, "API version"):
		return fmt.Errorf("%w: the application key needs a newer version of Backblaze's API than repolock speaks: %w: update repolock, or make a key that isn't restricted to buckets", store.ErrConfig, err)
	case r.status != 0 && !httptransport.Passing(r.status):
		return fmt.Errorf("%w: the application key isn't accepted: %w: check %s, %s and the endpoint", store.ErrConfig, err, envKeyID, envKey)
	}
	return err
}

// explain returns the error of a refused request. capability is the capability that the request needs.
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
