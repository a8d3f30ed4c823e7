package redis

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"unicode"

	goredis "github.com/redis/go-redis/v9"

	"github.com/repolock/repolock/internal/lazyregexp"
	"github.com/repolock/repolock/locking"
)

// failure is an error without secrets. Its chain has the cause, and one of locking's errors.
type failure struct {
	text         string
	class, cause error
}

func (f *failure) Error() string { return f.text }

func (f *failure) Unwrap() []error {
	if f.class == nil {
		return []error{f.cause}
	}
	return []error{f.class, f.cause}
}

// fail returns an error that begins with the server and what was not done. heard is what the
// backend had heard when the operation began.
func (b *Backend) fail(heard int64, cause error, format string, args ...any) error {
	return b.failWith("", heard, cause, format, args...)
}

// failWith is fail with what the failure has left behind.
func (b *Backend) failWith(left string, heard int64, cause error, format string, args ...any) error {
	advice, class := b.classify(cause, b.heard.Load() != heard)
	text := b.server + ": " + fmt.Sprintf(format, args...) + ": "
	if class != nil {
		text += class.Error() + ": "
	}
	text += b.clean(cause.Error())
	if advice != "" {
		text += ": " + advice
	}
	if left != "" {
		text += "; " + left
	}
	return &failure{text, class, cause}
}

// arguments is what Redis appends to the name of an unknown command: tokens, or a password.
var arguments = lazyregexp.New(`,? with args beginning with.*`)

// clean makes one line of a text, without secrets.
func (b *Backend) clean(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
	text = arguments.ReplaceAllString(text, "")
	if b.password != "" {
		text = strings.ReplaceAll(text, b.password, "***")
	}
	return text
}

// errOdd is an answer that Redis doesn't return.
var errOdd = errors.New("unexpected answer")

// answered reports whether an error is an answer of the server.
func answered(err error) bool {
	var answer goredis.Error
	return errors.As(err, &answer)
}

// neverSent reports whether there was no connection to send a request on.
func neverSent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

const noPassword = "the server has no password: unset " + PasswordVariable + " and " + CLIVariable

// answers maps the beginnings of Redis' errors to their classes. An error that isn't here, such as
// LOADING, MASTERDOWN, TRYAGAIN, CLUSTERDOWN, BUSY, OOM, MISCONF, NOREPLICAS or too many clients,
// can be over in a moment, and has no class.
var answers = []struct {
	prefix string
	class  error
	advice string
}{
	{"NOAUTH", locking.ErrPermission, "set " + PasswordVariable + ", or use password-file"},
	{"WRONGPASS", locking.ErrPermission, "check the user and the password"},
	{"ERR invalid password", locking.ErrPermission, "check the password"},
	{"ERR AUTH", locking.ErrPermission, noPassword},
	{"ERR Client sent AUTH", locking.ErrPermission, noPassword},
	{"NOPERM", locking.ErrPermission, "allow the user SET, GET, PTTL, PEXPIRE, DEL, EVAL and EVALSHA on the key"},
	{"DENIED", locking.ErrPermission, "the server is in protected mode: give it a password"},
	{"ERR The user executing the script", locking.ErrPermission, "allow the user GET, PEXPIRE and DEL on the key"},
	{"READONLY", locking.ErrUnfit, "it is a replica: name the master"},
	{"MOVED", locking.ErrUnfit, "a cluster's lock is on another node: use a server that isn't a cluster"},
	{"ASK", locking.ErrUnfit, "a cluster's lock is on another node: use a server that isn't a cluster"},
	{"ERR unknown command", locking.ErrUnfit, "locks need SET, GET, PTTL, PEXPIRE, DEL, EVAL and EVALSHA"},
	{"ERR DB index", locking.ErrUnfit, "the server has fewer databases"},
	{"ERR invalid DB index", locking.ErrUnfit, "the server has fewer databases"},
	{"ERR SELECT is not allowed in cluster mode", locking.ErrUnfit, "use a server that isn't a cluster"},
}

// classify returns what to do, and one of locking's errors, or nil.
func (b *Backend) classify(err error, heard bool) (advice string, class error) {
	var answer goredis.Error
	if errors.As(err, &answer) && !errors.Is(err, goredis.Nil) {
		for _, a := range answers {
			if strings.HasPrefix(answer.Error(), a.prefix) {
				return a.advice, a.class
			}
		}
		return "", nil
	}
	var verification *tls.CertificateVerificationError
	var unknown x509.UnknownAuthorityError
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &verification), errors.As(err, &unknown):
		return "its certificate isn't trusted: name its authority with ca", locking.ErrUnfit
	case errors.As(err, &record):
		return "it doesn't speak TLS: use redis instead of rediss", locking.ErrUnfit
	case errors.Is(err, errOdd), strings.HasPrefix(err.Error(), "redis: can't parse"),
		strings.HasPrefix(err.Error(), "redis: invalid reply"):
		return "it doesn't speak Redis' protocol: check host and port, and rediss for TLS", locking.ErrUnfit
	case errors.Is(err, context.Canceled) || !silent(err):
		return "", nil
	case heard:
		return "the server has answered before", nil
	}
	return "", locking.ErrUnreachable
}

// silent reports whether an error is that there was no connection or no answer.
func silent(err error) bool {
	var network net.Error
	return errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, goredis.ErrPoolTimeout)
}
