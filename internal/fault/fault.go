// Package fault defines the error type of repolock. Its fields are what repolock was doing, why it failed, and what the
// user can do. A [Class] decides the exit code, the advice, and whether to repeat the request. So no code depends on an
// error's text.
package fault

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/repolock/repolock/internal/text"
)

// Error is a failure. Its text is one line without credentials, and doesn't include Class, Advice and Undone.
type Error struct {
	// Err is the cause. More are further failures: see Join.
	Err  error
	More []error
	// Format and Args are the arguments of Errorf, if Errorf has made the error. With them, a text for people can
	// describe the causes in its own words.
	Format string
	Args   []any
	// Doing is what repolock was doing, such as "writing the lock".
	Doing string
	// Within is the timeout of the request, if no answer came in that time.
	Within time.Duration
	// Class is the kind of failure: a *Class, or any error that errors.Is must find. If it is nil, the class of Err
	// counts.
	Class error
	// Advice replaces the class's advice, unless it is empty. It contains commands in the form that Expand explains.
	Advice string
	// Undone is the work that the failure has prevented, such as "nothing was run". It is printed before the advice.
	Undone string
	// Exit replaces the class's exit code, unless it is 0.
	Exit int
}

// Error returns Doing, Within, Err and More as one text.
func (e *Error) Error() string {
	var parts []string
	if e.Doing != "" {
		parts = append(parts, e.Doing)
	}
	if e.Within != 0 {
		parts = append(parts, "no answer within "+Within(e.Within))
	}
	says := strings.Join(append(parts, e.Err.Error()), ": ")
	for _, err := range e.More {
		says += "; " + err.Error()
	}
	return says
}

// Within formats the timeout of a request, such as 3s or 250ms.
func Within(d time.Duration) string {
	if d < time.Second {
		return d.Round(time.Millisecond).String()
	}
	return text.Duration(d)
}

// Unwrap returns all causes and the class.
func (e *Error) Unwrap() []error {
	all := append([]error{e.Err}, e.More...)
	if e.Class != nil {
		all = append(all, e.Class)
	}
	return all
}

// As returns err with a class. The class doesn't change its text. It returns nil if err is nil.
func As(class, err error) error { return With(err, func(e *Error) { e.Class = class }) }

// New returns an error of a class. fmt.Errorf formats its text.
func New(class error, format string, args ...any) error {
	return As(class, fmt.Errorf(format, args...))
}

// Errorf returns an error with the text of fmt.Errorf. Unlike fmt.Errorf, it keeps the format and its operands. So a
// text for people can replace the text of an operand, such as the error of a request, by a clearer one.
func Errorf(format string, args ...any) error {
	return &Error{Err: fmt.Errorf(format, args...), Format: format, Args: args}
}

// Advise returns err with advice, or nil if err is nil.
func Advise(err error, advice string) error { return With(err, func(e *Error) { e.Advice = advice }) }

// While returns err with the work that failed, "writing the lock", or nil if err is nil.
func While(doing string, err error) error { return With(err, func(e *Error) { e.Doing = doing }) }

// With wraps err in an Error, and calls set to fill in the other fields. It returns nil if err is nil.
func With(err error, set func(*Error)) error {
	if err == nil {
		return nil
	}
	e := &Error{Err: err}
	set(e)
	return e
}

// Of returns the class of an error, or [Unknown]. If an error has several classes, the first one in the list of classes
// counts: a lost lock counts before a store that can't be reached. A request without an answer doesn't count if the error
// joins it with an answer: a full disk answers one request, and can be silent to another.
func Of(err error) *Class {
	for _, c := range classes {
		if c.Name != "" && errors.Is(err, c) && !(slices.Contains(silent, c) && answers(err)) {
			return c
		}
	}
	return Unknown
}

// silent are the classes of requests without an answer.
var silent = []*Class{NoHost, Unreachable, Late}

func isSilent(err error) bool {
	return slices.ContainsFunc(silent, func(c *Class) bool { return errors.Is(err, c) })
}

// Silent reports whether an error is of a request without an answer, and joins it with no answer.
func Silent(err error) bool { return isSilent(err) && !answers(err) }

// answers reports whether one of the errors that Join has joined is the answer to a request.
func answers(err error) bool {
	for {
		e, ok := err.(*Error)
		if !ok || isSilent(e.Class) {
			break
		}
		if len(e.More) > 0 {
			return slices.ContainsFunc(append([]error{e.Err}, e.More...), answers)
		}
		err = e.Err
	}
	return err != nil && !errors.Is(err, context.Canceled) && !isSilent(err)
}

// Exit returns the exit code for an error: the error's own, or else its class's.
func Exit(err error) int {
	if e := find(err, func(e *Error) bool { return e.Exit != 0 }); e != nil {
		return e.Exit
	}
	return Of(err).Exit
}

// Advice returns what the user can do about an error: the outermost advice in the error, or else its class's.
func Advice(err error) string {
	if e := find(err, func(e *Error) bool { return e.Advice != "" }); e != nil {
		return e.Advice
	}
	return Of(err).Advice
}

// Expand replaces each command {repolock NAME} in a text by the result of spell, because advice doesn't know the
// repository of the command line. If spell is nil, it only removes the braces.
func Expand(advice string, spell func(name string) string) string {
	if spell == nil {
		spell = func(name string) string { return "repolock " + name }
	}
	expanded := ""
	for {
		before, rest, found := strings.Cut(advice, "{repolock ")
		name, after, closed := strings.Cut(rest, "}")
		if !found || !closed {
			return expanded + advice
		}
		expanded, advice = expanded+before+spell(name), after
	}
}

// Undone returns the work that the failure has prevented, such as "nothing was run", or "".
func Undone(err error) string {
	if e := find(err, func(e *Error) bool { return e.Undone != "" }); e != nil {
		return e.Undone
	}
	return ""
}

// find returns the outermost Error in the tree of err for which fits returns true, or nil.
func find(err error, fits func(*Error) bool) *Error {
	if e, ok := err.(*Error); ok && fits(e) {
		return e
	}
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		return find(e.Unwrap(), fits)
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			if found := find(inner, fits); found != nil {
				return found
			}
		}
	}
	return nil
}

// Permanent reports whether the same request would fail again for the same reason.
func Permanent(err error) bool {
	for _, c := range classes {
		if c.Permanent && errors.Is(err, c) {
			return true
		}
	}
	return false
}

// Join returns the errors that aren't nil as one error, or nil. Its text is one line if each of their texts is.
func Join(errs ...error) error {
	errs = slices.DeleteFunc(slices.Clone(errs), func(err error) bool { return err == nil })
	switch len(errs) {
	case 0:
		return nil
	case 1:
		return errs[0]
	default:
		return &Error{Err: errs[0], More: errs[1:]}
	}
}

// Parts returns the errors that Join has joined, or only err.
func Parts(err error) (all []error) {
	e, ok := err.(*Error)
	if !ok || e.Doing != "" || e.Within != 0 || e.Format != "" {
		return []error{err}
	}
	for _, part := range append([]error{e.Err}, e.More...) {
		all = append(all, Parts(part)...)
	}
	return all
}
