package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/locking"
)

// classed is an error of one of locking's classes, with a text of its own.
type classed struct {
	class error
	text  string
}

func (e *classed) Error() string { return e.text }
func (e *classed) Unwrap() error { return e.class }

// failed describes an error of the server or the network. answered is whether the server has
// sent anything in this call. The text has no password, because no message of pgconn has one.
func (b *Backend) failed(ctx context.Context, what string, err error, answered bool) error {
	if ended := context.Cause(ctx); ended != nil && !errors.Is(ended, context.DeadlineExceeded) {
		return fmt.Errorf("postgres: server %s: %s: %w", b.where, what, ended)
	}
	message := fmt.Sprintf("postgres: server %s: %s: %s", b.where, what, cause(err))
	advice, class := classify(err, answered)
	if advice != "" {
		message += ": " + advice
	}
	return &classed{fault.Join(class, ctx.Err()), message}
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

// classify returns an error of locking, or nil for one that a later call might not meet.
func classify(err error, answered bool) (advice string, class error) {
	if said, ok := errors.AsType[*pgconn.PgError](err); ok {
		return classifyState(said.Code)
	}
	var network net.Error
	silent := errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, context.DeadlineExceeded)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return "", locking.ErrPermission
	case silent && !answered:
		return "", locking.ErrUnreachable
	case silent, errors.Is(err, syscall.ECONNRESET), errors.Is(err, pgconn.ErrConnClosed):
		return "", nil
	}
	return "look whether it is PostgreSQL, and at sslmode", locking.ErrUnfit
}

// classifyState knows SQLSTATEs, and what to do about them.
func classifyState(code string) (advice string, class error) {
	switch code {
	case "28000", "28P01":
		return "look at the user, the password (" + PasswordVariable + ") and pg_hba.conf", locking.ErrPermission
	case "42501":
		return "grant the user what is missing", locking.ErrPermission
	case "3D000":
		return "name a database of this server", locking.ErrUnfit
	case "42883", "42P01", "42703", "0A000":
		return "only PostgreSQL has these locks", locking.ErrUnfit
	case "53300":
		return "raise max_connections, or end other sessions; each lock is a session", nil
	case "53200":
		return "raise max_locks_per_transaction if the table of locks is full", nil
	case "57P03":
		return "wait until the server has started", nil
	case "22P05", "22021":
		return "the database's encoding doesn't have the key's characters", locking.ErrKey
	}
	if strings.HasPrefix(code, "57P") {
		return "wait until the server is up again", nil
	}
	return "", nil
}
