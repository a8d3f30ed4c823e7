// Package server has the common parts of the locks in Redis and in PostgreSQL: URLs, the classes of a server's
// errors, and the findings of an examination.
package server

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/repolock/repolock/locking"
)

// Answer is the meaning of a server's error.
type Answer = struct {
	Begins string // the error's first characters
	Class  error  // one of locking's errors, or nil if the next request can succeed
	Advice string
}

// Find returns the first Answer that an error begins with, or the zero Answer.
func Find(answers []Answer, said string) Answer {
	for _, a := range answers {
		if strings.HasPrefix(said, a.Begins) {
			return a
		}
	}
	return Answer{}
}

// Silent reports whether err means that there was no connection or no answer.
func Silent(err error) bool {
	var network net.Error
	return errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, context.DeadlineExceeded)
}

// Conn counts in Heard the reads that return data, because a server that has sent anything isn't
// unreachable.
type Conn struct {
	net.Conn
	Heard *atomic.Int64
}

// Read reads from the connection, and counts in Heard a read that returns data.
func (c Conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.Heard.Add(1)
	}
	return n, err
}

// SyscallConn lets go-redis check whether the server has closed an idle connection.
func (c Conn) SyscallConn() (syscall.RawConn, error) {
	return c.Conn.(syscall.Conn).SyscallConn()
}

// Case is a possible state of a setting.
type Case = struct {
	What          string // the setting
	Is            bool   // whether the server is in this state
	Severity      locking.Severity
	Found, Advice string
}

// Judge returns a finding for each setting, from its first case that applies.
func Judge(cases []Case) (all []locking.Finding) {
	for _, c := range cases {
		if c.Is && !slices.ContainsFunc(all, func(f locking.Finding) bool { return f.What == c.What }) {
			all = append(all, locking.Finding{What: c.What, Found: c.Found, Severity: c.Severity, Advice: c.Advice})
		}
	}
	return all
}
