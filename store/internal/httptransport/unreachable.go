package httptransport

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"syscall"
)

// Down reports whether a status, in an answer without a code of the store's own, says that the
// server is down or overloaded, or that a gateway can't reach it.
func Down(status int) bool {
	return slices.Contains([]int{http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout}, status)
}

// Passing reports whether a server that answers with this status might not the next time: it fails, or is
// throttling.
func Passing(status int) bool {
	return status >= 500 || status == http.StatusRequestTimeout || status == http.StatusTooManyRequests
}

// NoAnswer reports whether an error of a request that has no answer is one of the way to
// the server: there is no connection, or it broke, or it took too long. A server that says
// something which isn't HTTP, or not TLS, is none of these.
func NoAnswer(err error) bool {
	var (
		dial    *net.OpError
		dns     *net.DNSError
		timeout net.Error
		refused *ProxyError
	)
	switch {
	case errors.As(err, &refused) && refused.Err == nil:
		return Passing(refused.Status)
	case errors.As(err, &dns):
		return !dns.IsNotFound
	case errors.As(err, &dial) && dial.Op == "dial":
		return true
	case errors.As(err, &timeout) && timeout.Timeout():
		return true
	}
	return slices.ContainsFunc([]error{
		io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, os.ErrDeadlineExceeded, context.DeadlineExceeded,
		syscall.ECONNRESET, syscall.ECONNREFUSED, syscall.ECONNABORTED, syscall.EPIPE, syscall.ETIMEDOUT, syscall.EHOSTUNREACH, syscall.ENETUNREACH,
	}, func(broken error) bool { return errors.Is(err, broken) })
}
