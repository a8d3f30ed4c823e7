package fault_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/test/assert"
)

// TestJoin: several errors are one line, and are each of them.
func TestJoin(t *testing.T) {
	assert.That(t, fault.Join(nil, nil) == nil && fault.Join(nil, io.EOF, nil) == io.EOF, "of none, and of one")
	err := fault.Join(fmt.Errorf("first: %w", io.EOF), nil, fs.ErrNotExist)
	assert.That(t, err.Error() == "first: EOF; file does not exist" && errors.Is(err, io.EOF) && errors.Is(err, fs.ErrNotExist), "of two: %q", err)
}

// TestFields: each layer adds its field, and the text has them in the order in which a reader needs them. Every
// class can be found.
func TestFields(t *testing.T) {
	cause := fmt.Errorf("h:9: %w", context.DeadlineExceeded)
	late := fault.With(fault.As(fault.Unreachable, cause), func(e *fault.Error) { e.Within = 1500 * time.Millisecond })
	err := fault.As(fault.Unsure, fault.While("writing the lock", late))
	assert.Equal(t, err.Error(), `writing the lock: no answer within 2s: h:9: context deadline exceeded`)
	for _, target := range []error{fault.Unsure, fault.Unreachable, context.DeadlineExceeded, late} {
		assert.Is(t, err, target)
	}
	assert.That(t, fault.While("a", nil) == nil && fault.As(fault.Lost, nil) == nil && fault.Advise(nil, "x") == nil, "an error of nothing")
}

// TestClass: the first class in the list decides, wherever it is in the error. An error that has its own exit code
// or advice keeps them, and one without a class isn't one for which a command runs without its lock.
func TestClass(t *testing.T) {
	lost := fault.Join(fault.As(fault.Permission, io.EOF), fmt.Errorf("x: %w", fault.Lost))
	assert.That(t, fault.Of(lost) == fault.Lost && fault.Exit(lost) == fault.ExitLost, "%v", fault.Of(lost))
	assert.That(t, fault.Of(io.EOF) == fault.Unknown && fault.Exit(io.EOF) == fault.ExitFailed, "%v", fault.Of(io.EOF))
	assert.That(t, fault.Of(fault.Credentials) == fault.Credentials && errors.Is(fault.Credentials, fault.Permission) && !errors.Is(fault.Permission, fault.Credentials), "kinds")
	own := fault.Join(io.EOF, fmt.Errorf("x: %w", fault.Advise(fault.As(fault.Permission, io.EOF), "ask")))
	assert.That(t, fault.Advice(own) == "ask" && fault.Advice(fault.Permission) == fault.Permission.Advice, "%q", fault.Advice(own))
	assert.Equal(t, fault.Exit(&fault.Error{Class: fault.Interrupted, Err: io.EOF, Exit: 130}), 130)
}

// TestPermanent: what would fail again isn't repeated. A store that said nothing, or is full, is asked again.
func TestPermanent(t *testing.T) {
	for class, permanent := range map[*fault.Class]bool{
		fault.Credentials: true, fault.NotFound: true, fault.Precondition: true, fault.ConditionUnsent: true, fault.BatchUnsent: true, fault.Config: true, fault.URL: true,
		fault.Unreachable: false, fault.ServerUnreachable: false, fault.Full: false, fault.Listing: false, fault.Conflict: false, fault.NoHost: false, fault.Slow: false,
	} {
		assert.Equal(t, fault.Permanent(fmt.Errorf("x: %w", fault.As(class, io.EOF))), permanent, class)
	}
}

// TestSilentBesideAnAnswer: the class of joined errors is Unreachable or Late only if none of them is an answer.
func TestSilentBesideAnAnswer(t *testing.T) {
	silent, late, full, plain := fault.As(fault.Unreachable, errors.New("no answer within 1s")), fault.As(fault.Late, errors.New("no answer within 1s")), fault.As(fault.Full, errors.New("no space left")), errors.New("input/output error")
	for _, c := range []struct {
		err  error
		want *fault.Class
	}{
		{silent, fault.Unreachable}, {late, fault.Late}, {fault.Join(silent, late), fault.Unreachable}, {fault.Join(silent, context.Canceled), fault.Unreachable},
		{fault.Join(silent, full), fault.Full}, {fault.Join(full, late), fault.Full}, {fault.Join(late, plain), fault.Unknown}, {fault.Join(silent, plain), fault.Unknown},
		{fault.As(fault.NotAcquired, fault.Join(fault.While("writing the lock", silent), fault.While("writing the lock", full))), fault.Full},
	} {
		assert.That(t, fault.Of(c.err) == c.want, "%v: class %q, want %q", c.err, fault.Of(c.err).Name, c.want.Name)
	}
}
