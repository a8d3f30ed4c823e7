package session

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store"
)

// Words returns an error and its consequence, for people: the cause first, the request last. It leaves out keys,
// which Error has, and the words of Go's packages. Errors that differ only in their keys count as one. If several
// errors mean that the store is full, only the first one counts.
func Words(err error, then string) string {
	var all []explained
	more := map[string]int{}
	full := false
	for _, part := range fault.Parts(err) {
		if errors.Is(part, store.ErrFull) && full {
			continue // the errors of a full store differ only in their directories
		}
		full = full || errors.Is(part, store.ErrFull)
		x := explain(part)
		if more[x.cause]++; more[x.cause] == 1 {
			all = append(all, x)
		}
	}
	var words, request string
	for i, x := range all {
		if i > 0 {
			words += request + "; "
		}
		words += x.cause
		if n := more[x.cause] - 1; n > 0 {
			words += fmt.Sprintf(", and %d more like it", n)
		}
		if request = ""; x.request != "" {
			request = " (" + x.request + ")"
		}
	}
	return words + then + request
}

// explained is an error, split into its cause and its request.
type explained struct {
	cause     string
	request   string // that failed, or ""
	opens     bool   // the request opens a repository, and names it
	shortened bool   // the error's text has more than these two, such as a key
}

func explain(err error) explained {
	e, _ := err.(*fault.Error)
	switch err := err.(type) {
	case *replock.LostError:
		x := explained{cause: lossWords(err), shortened: true}
		if !strings.HasPrefix(err.Key, replock.DefaultPrefix) { // the lock of another system, which the key names
			x.request = text.Escape(err.Key)
		}
		return x
	case *store.Error:
		x := explained{cause: explain(err.Err).cause, request: err.Op, opens: err.Op == "open", shortened: true}
		if x.opens { // its key is the repository, as the user has written it
			x.request = fmt.Sprintf("%s %q", err.Op, err.Key)
		}
		return x
	case *fault.Error:
		if len(err.More) > 0 {
			return explained{cause: Words(err, "")}
		}
		if err.Format != "" {
			return explainFormatted(err)
		}
	default:
		return explained{cause: plainCause(err)}
	}
	x := explain(e.Err)
	if e.Within != 0 {
		x.cause = strings.TrimSuffix(strings.TrimSuffix(x.cause, context.DeadlineExceeded.Error()), ": ")
		x.cause = strings.TrimPrefix(x.cause+": no answer within "+fault.Within(e.Within), ": ")
	}
	switch {
	case e.Doing != "" && x.request != "" && !x.opens:
		x.request = e.Doing
	case e.Doing != "" && x.request != "":
		x.request = e.Doing + ": " + x.request
	case e.Doing != "":
		x.cause = e.Doing + ": " + x.cause
	}
	return x
}

// explainFormatted words the causes among the operands of an error of fault.Errorf.
func explainFormatted(err *fault.Error) explained {
	var inner explained
	args := slices.Clone(err.Args)
	for i, arg := range args {
		if cause, ok := arg.(error); ok {
			if x := explain(cause); x.shortened {
				args[i], inner = errors.New(x.cause), x
			}
		}
	}
	if !inner.shortened {
		return explained{cause: plainCause(err)}
	}
	inner.cause = text.Escape(fmt.Errorf(err.Format, args...).Error())
	return inner
}

// lossWords returns the mode of a lost lock and the cause, without the key.
func lossWords(lost *replock.LostError) string {
	words := fmt.Sprintf("%s lock lost: %s", lost.Mode, lost.Reason)
	if lost.Err != nil {
		words += ": " + explain(lost.Err).cause
	}
	return text.Escape(strings.TrimSuffix(words, ": "+replock.ErrLost.Error()))
}

// plainCause returns the text of an error without the words that Go's packages put before the cause, and
// without a class that the text repeats at its end.
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
