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

// fail returns an error with the server, the failed action, the cause and its class, without secrets. heard is the
// value of b.heard at the beginning of the operation.
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

// clean returns s as one line, without secrets. It cuts the arguments that Redis quotes for an unknown command, because
// they can be a token or the password.
func (b *Backend) clean(s string) string {
	s, _, _ = strings.Cut(s, " with args beginning with")
	if b.password != "" {
		s = strings.ReplaceAll(s, b.password, "***")
	}
	return text.Line(strings.TrimSuffix(s, ","))
}

// errOdd means that the server isn't Redis.
var errOdd = errors.New("unexpected answer")

// answered reports whether an error is an answer of the server.
func answered(err error) bool {
	var answer goredis.Error
	return errors.As(err, &answer)
}

// neverSent reports whether a request wasn't sent, because there was no connection.
func neverSent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

const (
	noPassword = "the server has no password: unset " + PasswordVariable + " and " + CLIVariable
	noCluster  = "another node of the cluster has this lock: use a server that isn't a cluster"
)

// answers are the errors with which the next request would fail, too. So LOADING, MASTERDOWN, TRYAGAIN, CLUSTERDOWN,
// BUSY, OOM, MISCONF, NOREPLICAS and too many clients aren't among them.
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
	{"ERR unknown command", locking.ErrUnfit, "use a server that has SET, GET, PTTL, PEXPIRE, DEL and EVAL"},
	{"ERR DB index", locking.ErrUnfit, "the server has fewer databases: name another one"},
	{"ERR invalid DB index", locking.ErrUnfit, "the server has fewer databases: name another one"},
	{"ERR SELECT is not allowed in cluster mode", locking.ErrUnfit, "use a server that isn't a cluster"},
}

// classify returns the class and the advice of an error. heard is set if the server has sent anything during the
// operation.
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
