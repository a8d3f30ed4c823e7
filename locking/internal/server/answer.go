package server

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
)

// Answer is what an error of a server means.
type Answer = struct {
	Begins string // the first characters of the server's error
	Class  error  // one of locking's errors, or nil for a failure that can be over in a moment
	Advice string
}

// Find returns the first of answers that an error begins with, or an Answer without class and advice.
func Find(answers []Answer, said string) Answer {
	for _, a := range answers {
		if strings.HasPrefix(said, a.Begins) {
			return a
		}
	}
	return Answer{}
}

// Silent reports whether an error is that there was no connection or no answer.
func Silent(err error) bool {
	var network net.Error
	return errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, context.DeadlineExceeded)
}
