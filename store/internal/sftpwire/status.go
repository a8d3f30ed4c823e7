package sftpwire

import (
	"errors"
	"fmt"
	"strings"
)

var (
	// ErrLost is returned if there is no connection, or if it has ended. A request that was sent might
	// have been processed.
	ErrLost = errors.New("no sftp connection")
	// ErrUnsent is returned if no part of the requests was sent.
	ErrUnsent = errors.New("sftp request not sent")
	// ErrProtocol is an ErrLost of a connection on which the server broke the protocol.
	ErrProtocol = errors.New("the server's answer isn't sftp")

	// ErrText is returned by New if the server answers with text: a message of the login shell, or of a command that
	// isn't an SFTP server. The error has the first line that isn't blank. It is printable and cut at 200 bytes.
	ErrText = errors.New("the server sent text instead of sftp")

	errUnanswered = errors.New("sftp request not answered")
)

func lost(cause error) error {
	if errors.Is(cause, ErrText) {
		return cause
	}
	return fmt.Errorf("%w: %w", ErrLost, cause)
}

func violation(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrProtocol, fmt.Sprintf(format, args...))
}

// Code is the code of a status. It is an error, so that errors.Is finds it in the errors of Answer.Err.
type Code uint32

// The codes of version 3, and two of later versions that ProFTPD sends too. Servers use Failure for most causes.
const (
	OK, EOF, NoSuchFile, PermissionDenied, Failure          Code = 0, 1, 2, 3, 4
	BadMessage, NoConnection, ConnectionLost, OpUnsupported Code = 5, 6, 7, 8
	InvalidHandle, FileExists                               Code = 9, 11
)

var codes = [...]string{"ok", "end of file", "no such file", "permission denied", "failure",
	"bad message", "no connection", "connection lost", "operation unsupported",
	"invalid handle", "no such path", "file already exists"}

// Error returns the name that the protocol's draft gives the code, or its number.
func (c Code) Error() string {
	if uint64(c) < uint64(len(codes)) {
		return codes[c]
	}
	return fmt.Sprintf("status %d", uint32(c))
}

// Status is the server's result of a request.
type Status struct {
	Code Code   // OK if the request succeeded
	Msg  string // the server's own message, printable, cut at 200 bytes
}

// err returns an error in which errors.Is finds the code.
func (s Status) err() error {
	if s.Msg == "" || strings.EqualFold(s.Msg, s.Code.Error()) {
		return s.Code
	}
	return fmt.Errorf("%w: the server says %q", s.Code, s.Msg)
}
