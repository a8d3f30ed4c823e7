package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/plain"
	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store"
)

// cronFlags say what becomes of a command whose lock isn't to be had: a scheduler comes
// again with the next tick.
type cronFlags struct {
	IfHeld        string `config:"" enum:",fail,skip,wait" default:"" placeholder:"fail|skip|wait" help:"When somebody else holds the lock, after --wait if that is given: fail, as unless said otherwise, exits with 75; skip says so and exits with 0; wait is --wait forever, unless --wait says otherwise."`
	IfUnreachable string `config:"" enum:",fail,run" default:"" placeholder:"fail|run" help:"When the store can't be reached: fail, as unless said otherwise, exits with 69; run runs the command WITHOUT A LOCK, for a backup that is wanted at any price. Not with the exclusive lock."`
	Hint          string `enum:",require-global,prefer-global,node-local" default:"" placeholder:"HINT" help:"The same in the words of schedulers: require-global is --if-held skip; prefer-global is that and --if-unreachable run, also where no repository is given; node-local takes no lock."`
}

// settle checks the flags, and replaces the hint by what it means.
func (f *lockFlags) settle(mode replock.Mode) error {
	if f.Hint != "" && (f.IfHeld != "" || f.IfUnreachable != "") {
		return usageError{errors.New("--hint says what --if-held and --if-unreachable say: give either")}
	}
	switch f.Hint {
	case "require-global":
		f.IfHeld = "skip"
	case "prefer-global":
		f.IfHeld, f.IfUnreachable = "skip", "run"
	}
	if f.IfHeld == "wait" && f.Wait == 0 {
		f.Wait = patience(replock.Forever)
	}
	if mode == replock.Exclusive && (f.IfUnreachable == "run" || f.Hint == "node-local") {
		return usageError{errors.New("the exclusive lock is needed for what deletes: it can't be done without (--if-unreachable run, --hint prefer-global, --hint node-local)")}
	}
	return nil
}

// notAcquired is why a lock wasn't. The command wasn't started.
type notAcquired struct {
	error
	// reached: the store has answered a request of this run, whatever it said.
	reached bool
}

func (e notAcquired) Unwrap() error { return e.error }

// without decides what becomes of a command whose lock couldn't be had: it is skipped,
// or run bare, or else err stands.
func (f cronFlags) without(r *reporter, args []string, err error) (int, error) {
	var not notAcquired
	if !errors.As(err, &not) {
		return 0, err
	}
	switch {
	case errors.Is(err, replock.ErrHeld) && f.IfHeld == "skip":
		r.skip(err)
		return 0, nil
	case f.IfUnreachable == "run" && !not.reached && errors.Is(err, store.ErrUnreachable):
		r.shout("unlocked", "RUNNING WITHOUT A LOCK: "+oneLine(err))
		return bare(args)
	default:
		return 0, err
	}
}

// skip says that there was nothing to be done.
func (r *reporter) skip(err error) {
	if r.JSON {
		out := newJSONError(r, err)
		out.ExitCode = 0
		r.object(out)
		return
	}
	r.say("skipped: %s", oneLine(err))
}

// shout says what must be heard even with --quiet.
func (r *reporter) shout(name, text string) {
	if r.JSON {
		r.object(struct {
			Warning string    `json:"warning"`
			Message string    `json:"message"`
			Time    time.Time `json:"timestamp"`
		}{name, text, clock.System{}.Now().UTC()})
		return
	}
	r.line("warning: ", text)
}

// object prints JSON on stderr, in one line.
func (r *reporter) object(v any) {
	text, err := plain.Marshal(v)
	if err != nil {
		panic(err) // strings and numbers always encode
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(r.stderr, "%s\n", text)
}
