package redis

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/locking/internal/server"
)

// fail returns an error that begins with the server and what was not done, and has no secrets. heard is
// what the backend had heard when the operation began.
func (b *Backend) fail(heard int64, cause error, format string, args ...any) error {
	a := classify(cause, b.heard.Load() != heard)
	message := b.server + ": " + fmt.Sprintf(format, args...) + ": "
	if a.Class != nil {
		message += a.Class.Error() + ": "
	}
	message += b.clean(cause.Error())
	if a.Advice != "" {
		message += ": " + a.Advice
	}
	return fault.New(fault.Join(a.Class, cause), "%s", message)
}

// clean makes one line of a text, without secrets: Redis appends the arguments of an unknown command, which
// are tokens or a password.
func (b *Backend) clean(s string) string {
	s, _, _ = strings.Cut(s, " with args beginning with")
	if b.password != "" {
		s = strings.ReplaceAll(s, b.password, "***")
	}
	return text.Line(strings.TrimSuffix(s, ","))
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

const (
	noPassword = "the server has no password: unset " + PasswordVariable + " and " + CLIVariable
	noCluster  = "a cluster's lock is on another node: use a server that isn't a cluster"
)

// answers has no error that can be over in a moment, such as LOADING, MASTERDOWN, TRYAGAIN, CLUSTERDOWN,
// BUSY, OOM, MISCONF, NOREPLICAS or too many clients.
var answers = []server.Answer{
	{"NOAUTH", locking.ErrPermission, "set " + PasswordVariable + ", or use password-file"},
	{"WRONGPASS", locking.ErrPermission, "check the user and the password"},
	{"ERR invalid password", locking.ErrPermission, "check the password"},
	{"ERR AUTH", locking.ErrPermission, noPassword},
	{"ERR Client sent AUTH", locking.ErrPermission, noPassword},
	{"NOPERM", locking.ErrPermission, "allow the user SET, GET, PTTL, PEXPIRE, DEL and EVAL on the key"},
	{"DENIED", locking.ErrPermission, "the server is in protected mode: give it a password"},
	{"ERR The user executing the script", locking.ErrPermission, "allow the user GET, PEXPIRE and DEL on the key"},
	{"READONLY", locking.ErrUnfit, "it is a replica: name the master"},
	{"MOVED", locking.ErrUnfit, noCluster},
	{"ASK", locking.ErrUnfit, noCluster},
	{"ERR unknown command", locking.ErrUnfit, "locks need SET, GET, PTTL, PEXPIRE, DEL and EVAL"},
	{"ERR DB index", locking.ErrUnfit, "the server has fewer databases"},
	{"ERR invalid DB index", locking.ErrUnfit, "the server has fewer databases"},
	{"ERR SELECT is not allowed in cluster mode", locking.ErrUnfit, "use a server that isn't a cluster"},
}

// classify returns what an error means. heard is set if the server has sent anything in this operation.
func classify(err error, heard bool) server.Answer {
	var answer goredis.Error
	if errors.As(err, &answer) && !errors.Is(err, goredis.Nil) {
		return server.Find(answers, answer.Error())
	}
	var untrusted *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &untrusted):
		return server.Answer{Class: locking.ErrUnfit, Advice: "its certificate isn't trusted: name its authority with ca"}
	case errors.As(err, &record):
		return server.Answer{Class: locking.ErrUnfit, Advice: "it doesn't speak TLS: use redis instead of rediss"}
	case errors.Is(err, errOdd), strings.HasPrefix(err.Error(), "redis: can't parse"),
		strings.HasPrefix(err.Error(), "redis: invalid reply"):
		return server.Answer{Class: locking.ErrUnfit,
			Advice: "it doesn't speak Redis' protocol: check host and port, and rediss for TLS"}
	case errors.Is(err, context.Canceled), !server.Silent(err) && !errors.Is(err, goredis.ErrPoolTimeout):
		return server.Answer{}
	case heard:
		return server.Answer{Advice: "the server has answered before"}
	}
	return server.Answer{Class: locking.ErrUnreachable}
}
