package postgres

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/locking/internal/server"
)

// failed describes an error of the server or the network. The text has no password, because no message
// of pgconn has one.
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

// cause is one line: what the server said, or what the system did.
func cause(err error) string {
	if said, ok := errors.AsType[*pgconn.PgError](err); ok {
		return text.Line(said.Message) + " (SQLSTATE " + text.Line(said.Code) + ")"
	}
	if connecting, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		err = errors.Unwrap(connecting)
		// Of several attempts, with TLS and without it, the last one counts. The server's
		// address is known.
		if all, ok := err.(interface{ Unwrap() []error }); ok {
			err = all.Unwrap()[len(all.Unwrap())-1]
			if attempt := errors.Unwrap(err); attempt != nil {
				err = attempt
			}
		}
	}
	return text.Line(err.Error())
}

// classify returns what an error means. It has no class if a later call might not meet it.
func classify(err error) server.Answer {
	if said, ok := errors.AsType[*pgconn.PgError](err); ok {
		return server.Find(states, said.Code)
	}
	switch {
	case errors.Is(err, fs.ErrPermission):
		return server.Answer{Class: locking.ErrPermission}
	case errors.Is(err, locking.ErrUnreachable): // connect has seen it
		return server.Answer{Class: locking.ErrUnreachable}
	case server.Silent(err), errors.Is(err, syscall.ECONNRESET), errors.Is(err, pgconn.ErrConnClosed):
		return server.Answer{}
	}
	return server.Answer{Class: locking.ErrUnfit, Advice: "look whether it is PostgreSQL, and at sslmode"}
}

const (
	noLogin = "look at the user, the password (" + PasswordVariable + ") and pg_hba.conf"
	noLocks = "only PostgreSQL has these locks"
	noText  = "the database's encoding doesn't have the key's characters"
)

// states are SQLSTATEs.
var states = []server.Answer{
	{"28000", locking.ErrPermission, noLogin},
	{"28P01", locking.ErrPermission, noLogin},
	{"42501", locking.ErrPermission, "grant the user what is missing"},
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
