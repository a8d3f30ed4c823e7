package session

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/repolock/repolock/internal/lazyregexp"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store"
)

// Words returns the text of an error for people, and what followed: the cause and the server first,
// the request and its key last, without the words of Go. A text that isn't known stays as it is.
func Words(err error, then string) string {
	if lost, ok := errors.AsType[*replock.LostError](err); ok {
		words, key := lossWords(lost)
		if before, after, ok := strings.Cut(text.Error(err), text.Error(lost)); ok {
			return before + words + after + then + key
		}
		return text.Error(err) + then
	}
	var all, details string
	for i, failure := range failures(err) {
		words, detail := causeFirst(failure.first)
		if failure.more > 0 {
			words += fmt.Sprintf(", and %d more like it", failure.more)
		}
		if i > 0 {
			all += details + "; "
		}
		all, details = all+words, detail
	}
	return all + then + details
}

// failure is an error, and how many more differ from it only in their keys.
type failure struct {
	first error
	more  int
}

// failures returns the errors that an error joins, or itself. 500 locks that can't be deleted for one
// reason are one line for people.
func failures(err error) (all []failure) {
	known := map[string]int{}
	for _, e := range parts(err) {
		reason := keys.ReplaceAllString(e.Error(), "")
		i, again := known[reason]
		if again {
			all[i].more++
			continue
		}
		known[reason] = len(all)
		all = append(all, failure{first: e})
	}
	return all
}

// parts returns the errors that an error joins, if its text says no more than theirs, or itself.
func parts(err error) (all []error) {
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		if inner := e.Unwrap(); inner != nil && inner.Error() == err.Error() {
			if all = parts(inner); len(all) > 1 {
				return all
			}
		}
	case interface{ Unwrap() []error }:
		var texts []string
		for _, part := range e.Unwrap() {
			all = append(all, parts(part)...)
			texts = append(texts, part.Error())
		}
		if whole := err.Error(); whole == strings.Join(texts, "\n") || whole == strings.Join(texts, "; ") {
			return all
		}
	}
	return []error{err}
}

// keys matches the keys of locks.
var keys = lazyregexp.New(`index/[^": ]*|\d{8}T\d{6}\.\d+Z-[0-9a-z]+`)

// lossWords returns what was lost and why, and the key in parentheses.
func lossWords(err error) (words, key string) {
	lost, ok := errors.AsType[*replock.LostError](err)
	if !ok {
		return text.Error(err), ""
	}
	words = fmt.Sprintf("%s lock lost: %s", lost.Mode, lost.Reason)
	if lost.Err != nil {
		cause, _ := causeFirst(lost.Err)
		words += ": " + cause
	}
	words = strings.TrimSuffix(words, ": "+replock.ErrLost.Error())
	if lost.Key != "" {
		key = " (" + lost.Key + ")"
	}
	return text.Escape(words), text.Escape(key)
}

// causeFirst returns an error's cause, and in parentheses the request that failed.
func causeFirst(err error) (cause, request string) {
	whole := text.Error(err)
	failed, ok := errors.AsType[*store.Error](err)
	if !ok {
		return whole, ""
	}
	before, after, ok := strings.Cut(whole, text.Error(failed))
	if !ok || after != "" || strings.Contains(err.Error(), "\n") { // joined with others
		return whole, ""
	}
	cause = plainCause(failed.Err)
	request = fmt.Sprintf("%s %q", failed.Op, failed.Key)
	doing, silent, ok := strings.Cut(before, "no answer within ")
	if ok {
		cause = strings.TrimSuffix(cause, context.DeadlineExceeded.Error())
		cause = strings.TrimSuffix(cause, ": ")
		cause = strings.TrimPrefix(cause+": no answer within "+strings.TrimSuffix(silent, ": "), ": ")
	}
	if activity.MatchString(doing) {
		doing, request = "", doing+request
	}
	return doing + cause, " (" + request + ")"
}

// activity matches what was being done, as "writing the lock: ".
var activity = lazyregexp.New(`^[a-z]+ing [a-z ]+: $`)

// plainCause returns the text of an error without what Go's packages put before the cause, and
// without a cause that is there again at the end.
func plainCause(err error) string {
	says := text.Error(err)
	if class, _, ok := strings.Cut(says, ": "); ok {
		says = strings.TrimSuffix(says, ": "+class)
	}
	broken, ok := errors.AsType[*net.OpError](err)
	if !ok {
		return says
	}
	if why, ok := errors.AsType[*os.SyscallError](broken); ok {
		says = strings.Replace(says, text.Error(broken), text.Error(why.Err), 1)
	}
	return says
}
