package session

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store"
)

// TestCauseFirst: people read the cause and the server first, then what was not done, and the
// request and its key last, without the words of Go.
func TestCauseFirst(t *testing.T) {
	put := func(err error) error { return &store.Error{Op: "put", Key: "index/k", Err: err} }
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	for _, c := range []struct {
		err  error
		want string
	}{
		{
			fmt.Errorf("writing the lock: no answer within 3s: %w", put(fmt.Errorf("127.0.0.1:9: %w", context.DeadlineExceeded))),
			`127.0.0.1:9: no answer within 3s; nothing was run (writing the lock: put "index/k")`,
		},
		{fmt.Errorf("no answer within 3s: %w", put(context.DeadlineExceeded)), `no answer within 3s; nothing was run (put "index/k")`},
		{fmt.Errorf("writing the lock: %w", put(fmt.Errorf("h:9: %w", refused))), `h:9: connection refused; nothing was run (writing the lock: put "index/k")`},
		{fmt.Errorf("s3://b/p: writing the lock: %w", put(errors.New("h answers 503"))), `s3://b/p: writing the lock: h answers 503; nothing was run (put "index/k")`},
		{errors.Join(put(refused), put(refused)), `connection refused, and 1 more like it; nothing was run (put "index/k")`},
		{errors.Join(put(refused), NotAcquiredError{errors.Join(put(errors.New("full")), put(refused)), false}), `connection refused, and 1 more like it (put "index/k"); full; nothing was run (put "index/k")`},
		{
			errors.Join(put(fmt.Errorf("%w: /r/index is read-only", store.ErrPermission)), put(fmt.Errorf("%w: /r/index is read-only", store.ErrPermission))),
			`permission denied: /r/index is read-only, and 1 more like it; nothing was run (put "index/k")`,
		},
		{fmt.Errorf("two: %w", errors.Join(put(refused), errors.New("full"))), `two: put "index/k": dial tcp: connect: connection refused; full; nothing was run`},
		{errors.Join(errors.New("index/a is still there: no"), errors.New("index/b is still there: no"), errors.New("index/c is still there: yes")), `index/a is still there: no, and 1 more like it; index/c is still there: yes; nothing was run`},
		{errors.New("interrupt"), "interrupt; nothing was run"},
		{
			fmt.Errorf("%w; repolock killed the command", &replock.LostError{Mode: replock.Shared, Key: "index/l", Reason: "it could not be refreshed in time", Err: put(fmt.Errorf("h:9: %w", refused))}),
			"shared lock lost: it could not be refreshed in time: h:9: connection refused; repolock killed the command; nothing was run (index/l)",
		},
		{&replock.LostError{Mode: replock.Exclusive, Key: "x", Reason: "it is gone", Err: locking.ErrLost}, "exclusive lock lost: it is gone; nothing was run (x)"},
	} {
		if got := Words(c.err, "; nothing was run"); got != c.want {
			t.Errorf("%q\nis  %q\nnot %q", c.err, got, c.want)
		}
	}
}

// TestHoldersFirst: a refusal names holders before waiters, also with all details.
func TestHoldersFirst(t *testing.T) {
	locks := []replock.Info{{ID: "waiter", State: replock.StateWaiting}, {ID: "holder"}}
	err := NewHeldError(&replock.HeldError{Holders: locks}, Place{}, 75)
	if err.Holders[0].ID != "holder" || err.Holders[1].ID != "waiter" || locks[0].ID != "waiter" {
		t.Errorf("%+v of %+v", err.Holders, locks)
	}
}
