package postgres

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/locking/internal/server"
)

// failed adds the class, the server, and the text what, which describes the failure, to err. It needn't remove a
// password, because no message of pgconn has one.
func (b *Backend) failed(ctx context.Context, what string, err error) error {
	if ended := context.Cause(ctx); ended != nil && !errors.Is(ended, context.DeadlineExceeded) {
		return fmt.Errorf("postgres: server %s: %s: %w", b.where, what, ended)
	}
	a := classify(err)
	message := fmt.Sprintf("postgres: server %s: %s: %s", b.where, what, cause(err))
	if a.Advice != "" {
		message += ": " + a.Advice
	}
	return fault.New(fault.Join(a.Class, ctx.Err()), "%s", message)
}

func (b *Backend) unfit(format string, args ...any) error {
	return fault.New(locking.ErrUnfit, "postgres: server %s: %s", b.where, fmt.Sprintf(format, args...))
}

// cause returns err in one line: the server's message, or the system's error.
func cause(err error) string {
	if said, ok := errors.AsType[*pgconn.PgError](err); ok {
		return text.Line(said.Message) + " (SQLSTATE " + text.Line(said.Code) + ")"
	}
	if connecting, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		err = errors.Unwrap(connecting)
		// pgconn tries with TLS and without it. Use only the last error, without the address.
		if all, ok := err.(interface{ Unwrap() []error }); ok {
			err = all.Unwrap()[len(all.Unwrap())-1]
			if attempt := errors.Unwrap(err); attempt != nil {
				err = attempt
			}
		}
	}
	if dial, ok := errors.AsType[*net.OpError](err); ok && dial.Op == "dial" {
		err = dial.Err
	}
	if why, ok := errors.AsType[*os.SyscallError](err); ok {
		err = why.Err
	}
	return text.Line(err.Error())
}

// classify returns the class and the advice of an error. The class is nil if a later call can succeed.
func classify(err error) server.Answer {
	if said, ok := errors.AsType[*pgconn.PgError](err); ok {
		return server.Find(states, said.Code)
	}
	switch {
	case errors.Is(err, fs.ErrPermission):
		return server.Answer{Class: locking.ErrPermission}
	case errors.Is(err, locking.ErrUnreachable): // the error comes from connect
		return server.Answer{Class: locking.ErrUnreachable}
	case server.Silent(err), errors.Is(err, syscall.ECONNRESET), errors.Is(err, pgconn.ErrConnClosed):
		return server.Answer{}
	}
	return server.Answer{Class: locking.ErrUnfit, Advice: "check that it is PostgreSQL, and check sslmode"}
}

const (
	noLogin = "check the user, the password (" + PasswordVariable + ") and pg_hba.conf"
	noLocks = "only PostgreSQL has these locks: name a PostgreSQL server"
	noText  = "the database's encoding lacks characters of the key: choose another key"
)

// states are the SQLSTATEs that a user can do something about. If two match, the first counts.
var states = []server.Answer{
	{"28000", locking.ErrPermission, noLogin},
	{"28P01", locking.ErrPermission, noLogin},
	{"42501", locking.ErrPermission, "grant the user the missing right"},
	{"3D000", locking.ErrUnfit, "name a database of this server"},
	{"42883", locking.ErrUnfit, noLocks},
	{"42P01", locking.ErrUnfit, noLocks},
	{"42703", locking.ErrUnfit, noLocks},
	{"0A000", locking.ErrUnfit, noLocks},
	{"53300", nil, "raise max_connections, or end other sessions; each lock is a session"},
	{"53200", nil, "raise max_locks_per_transaction if the table of locks is full"},
	{"57P03", nil, "wait until the server has started"},
	{"57P", nil, "wait until the server is up again"},
	{"22P05", locking.ErrKey, noText},
	{"22021", locking.ErrKey, noText},
}
