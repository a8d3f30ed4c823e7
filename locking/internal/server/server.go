// Package server has the parts that the locks in Redis and in PostgreSQL share: URLs, the classes of a server's errors,
// and the findings of an examination.
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

// Answer is the meaning of a server's error for the caller.
type Answer = struct {
	Begins string // the error's text begins with this
	Class  error  // one of locking's errors, or nil if the next request can succeed
	Advice string // what the user can do
}

// Find returns the first Answer whose Begins is the beginning of an error's text, or the zero Answer.
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

// Conn is a connection that counts the reads that return data. A server that has sent anything isn't unreachable.
type Conn struct {
	net.Conn
	Heard *atomic.Int64 // number of reads that have returned data
}

// Read reads from the connection. It adds one to Heard if the read returns data.
func (c Conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.Heard.Add(1)
	}
	return n, err
}

// SyscallConn returns the raw connection, so that go-redis can check whether the server has closed an idle one.
func (c Conn) SyscallConn() (syscall.RawConn, error) {
	return c.Conn.(syscall.Conn).SyscallConn()
}

// Case is one possible state of a setting, and the finding about it.
type Case = struct {
	What          string           // the setting
	Is            bool             // whether the server is in this state
	Severity      locking.Severity // of this state
	Found, Advice string           // as in locking.Finding
}

// Judge returns a finding for each setting. The first case of a setting that applies decides.
func Judge(cases []Case) (all []locking.Finding) {
	for _, c := range cases {
		if c.Is && !slices.ContainsFunc(all, func(f locking.Finding) bool { return f.What == c.What }) {
			all = append(all, locking.Finding{What: c.What, Found: c.Found, Severity: c.Severity, Advice: c.Advice})
		}
	}
	return all
}
