// Package fault has the one error of repolock, with fields: what was being done, why it failed, and
// what to do. A [Class] decides the exit code, whether the request is repeated, and
// the advice. Nobody needs to read a text to learn them.
package fault

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/repolock/repolock/internal/text"
)

// Error is a failure. Its text is one line without credentials; it doesn't contain Class and Advice.
type Error struct {
	// Err is the cause.
	Err error
	// Doing is what the request was for, such as "writing the lock".
	Doing string
	// Within is how long the request was given, if there was no answer in that time.
	Within time.Duration
	// Class is the kind of failure: a *Class, or another error that errors.Is is to find. Nil leaves it
	// to Err.
	Class error
	// Advice is what to do, in place of the class's.
	Advice string
	// Exit is the exit code, in place of the class's. 0 is none.
	Exit int
}

func (e *Error) Error() string {
	var parts []string
	if e.Doing != "" {
		parts = append(parts, e.Doing)
	}
	if e.Within != 0 {
		parts = append(parts, "no answer within "+Within(e.Within))
	}
	return strings.Join(append(parts, e.Err.Error()), ": ")
}

// Within formats the time that a request was given: 3s, 250ms.
func Within(d time.Duration) string {
	if d < time.Second {
		return d.Round(time.Millisecond).String()
	}
	return text.Duration(d)
}

// Unwrap returns the cause and the class, for errors.Is and errors.As.
func (e *Error) Unwrap() []error {
	if e.Class == nil {
		return []error{e.Err}
	}
	return []error{e.Err, e.Class}
}

// As returns err with a class that its text doesn't name, or nil for nil.
func As(class, err error) error { return With(err, func(e *Error) { e.Class = class }) }

// New returns an error of a class with a text of its own, as fmt.Errorf.
func New(class error, format string, args ...any) error {
	return As(class, fmt.Errorf(format, args...))
}

// Advise returns err with advice, or nil for nil.
func Advise(err error, advice string) error { return With(err, func(e *Error) { e.Advice = advice }) }

// While returns err with what was being done, or nil for nil.
func While(doing string, err error) error { return With(err, func(e *Error) { e.Doing = doing }) }

// With returns err with further fields, or nil for nil.
func With(err error, set func(*Error)) error {
	if err == nil {
		return nil
	}
	e := &Error{Err: err}
	set(e)
	return e
}

// Of returns the class of an error. Of several the first in the list of classes counts, so that a lost
// lock outranks a store that can't be reached. An error without one is [Unknown].
func Of(err error) *Class {
	for _, c := range classes {
		if c.Name != "" && errors.Is(err, c) {
			return c
		}
	}
	return Unknown
}

// Exit returns the exit code for an error.
func Exit(err error) int {
	if code, ok := find(err, func(e *Error) (int, bool) { return e.Exit, e.Exit != 0 }); ok {
		return code
	}
	return Of(err).Exit
}

// Advice returns what to do about an error: the outermost advice of its own, or that of its class.
func Advice(err error) string {
	if advice, ok := find(err, func(e *Error) (string, bool) { return e.Advice, e.Advice != "" }); ok {
		return advice
	}
	return Of(err).Advice
}

// find looks for a field in the tree of an error, the outermost first.
func find[T any](err error, field func(*Error) (T, bool)) (v T, ok bool) {
	if e, is := err.(*Error); is {
		if v, ok = field(e); ok {
			return v, true
		}
	}
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		return find(e.Unwrap(), field)
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			if v, ok = find(inner, field); ok {
				return v, true
			}
		}
	}
	return v, false
}

// Permanent reports whether the same request would fail again for the same reason, so that repeating
// it is useless.
func Permanent(err error) bool {
	for _, c := range classes {
		if c.Permanent && errors.Is(err, c) {
			return true
		}
	}
	return false
}

// joined are several errors in one line.
type joined []error

// Join returns the errors that aren't nil as one, or nil. Its text is one line, if theirs are.
func Join(errs ...error) error {
	errs = slices.DeleteFunc(slices.Clone(errs), func(err error) bool { return err == nil })
	switch len(errs) {
	case 0:
		return nil
	case 1:
		return errs[0]
	default:
		return joined(errs)
	}
}

func (j joined) Error() string {
	texts := make([]string, len(j))
	for i, err := range j {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "; ")
}

// Unwrap is for errors.Is and errors.As.
func (j joined) Unwrap() []error { return j }

// Parts returns the errors that Join has joined, or err alone.
func Parts(err error) (all []error) {
	switch e := err.(type) {
	case joined:
		for _, part := range e {
			all = append(all, Parts(part)...)
		}
		return all
	case *Error:
		if e.Doing == "" && e.Within == 0 { // a class, or advice
			return Parts(e.Err)
		}
	}
	return []error{err}
}
