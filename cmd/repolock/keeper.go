package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/repolock/repolock/cmd/internal/session"
	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/daemon"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/identity"
	"github.com/repolock/repolock/replock"
)

// keeperCmd is the process that holds the lock of a script. acquire starts it.
type keeperCmd struct{}

// keeperOrder is what a keeper holds.
type keeperOrder struct {
	Flags     lockFlags
	Global    global
	Mode      replock.Mode
	Operation string
	Token     string
	Owner     *identity.Process // nil: none
	OnLost    string
}

func (keeperCmd) run(*reporter, global) (int, error) {
	// Ignore terminal signals meant for the script, and SIGPIPE from a closed log.
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGPIPE)
	var o keeperOrder
	line, err := daemon.Attach(&o)
	if err != nil {
		return 0, fault.New(fault.Usage, "this is for acquire to call: %w", err)
	}
	log := &reporter{
		global: global{Repo: o.Global.Repo, Name: o.Global.Name, Verb: o.Global.Verb}, command: "acquire", stdout: io.Discard, stderr: stamped{os.Stderr},
		terminal: func() bool { return false },
	}
	request, err := o.Flags.request(log, o.Global, o.Mode, o.Operation)
	if err != nil {
		_ = line.Tell(session.News{Failure: failure(log, err)})
		return 0, nil
	}
	k := session.Keeper{
		Request: request, Line: line, Token: o.Token, Owner: o.Owner, OnLost: o.OnLost, Describe: func(err error) json.RawMessage { return failure(&reporter{global: log.global}, err) }, // the lock is held
	}
	if err := k.Run(); err != nil {
		_ = line.Tell(session.News{Failure: failure(log, err)})
	}
	return 0, nil
}

func failure(r *reporter, err error) json.RawMessage {
	raw, err := json.Marshal(newJSONError(r, noSocket(err)))
	if err != nil {
		panic(err) // strings and numbers always encode
	}
	return raw
}

// noSocket adds what to do if there can be no directory for the keeper's socket.
func noSocket(err error) error {
	if _, unmade := errors.AsType[*fs.PathError](err); unmade && errors.Is(err, daemon.ErrDir) {
		return fault.Advise(err, "set XDG_RUNTIME_DIR or TMPDIR to a directory of your own")
	}
	return err
}

type keeperError struct{ jsonError }

func (e keeperError) Error() string { return e.Message }

// newKeeperError decodes an error that a keeper has described.
func newKeeperError(failure json.RawMessage) error {
	var e keeperError
	if err := json.Unmarshal(failure, &e.jsonError); err != nil {
		return fmt.Errorf("%w: %w", fault.KeeperFailed, err)
	}
	return e
}

// stamped writes lines, each with the time.
type stamped struct{ to io.Writer }

func (s stamped) Write(line []byte) (int, error) {
	_, err := fmt.Fprintf(s.to, "%s %s", clock.System{}.Now().UTC().Format(time.RFC3339), line)
	return len(line), err
}
