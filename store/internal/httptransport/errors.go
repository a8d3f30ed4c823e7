package httptransport

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/lazyregexp"
	"github.com/repolock/repolock/store"
)

// Down reports whether a status means that the server is down or overloaded, or that a gateway can't reach it. That is
// true only of an answer without one of the store's own error codes.
func Down(status int) bool {
	return slices.Contains([]int{http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout}, status)
}

// Passing reports whether a failure with this status might be temporary: the server fails, or is
// throttling.
func Passing(status int) bool {
	return status >= 500 || status == http.StatusRequestTimeout || status == http.StatusTooManyRequests
}

// NoAnswer reports whether a request without an answer has failed on the way to the server: it got no connection, the
// connection broke, or the server took too long. It returns false if the server has sent anything, such as bytes that
// aren't HTTP or TLS.
func NoAnswer(err error) bool {
	var (
		dial    *net.OpError
		dns     *net.DNSError
		timeout net.Error
	)
	switch {
	case errors.As(err, &dns):
		return !dns.IsNotFound
	case errors.As(err, &dial) && dial.Op == "dial":
		return true
	case errors.As(err, &timeout) && timeout.Timeout():
		return true
	}
	return slices.ContainsFunc([]error{
		errProxyDown, io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, os.ErrDeadlineExceeded, context.DeadlineExceeded,
		syscall.ECONNRESET, syscall.ECONNREFUSED, syscall.ECONNABORTED, syscall.EPIPE, syscall.ETIMEDOUT, syscall.EHOSTUNREACH, syscall.ENETUNREACH,
	}, func(broken error) bool { return errors.Is(err, broken) })
}

// tlsAlert is in net/http's error if a server that needs TLS gets a request without it. Most such servers answer with
// an alert, which is type 21 of version 3.
const tlsAlert = `malformed HTTP response "\x15\x03`

// malformed matches net/http's error for an answer that can't be HTTP by its first byte or its status. An answer that
// begins as HTTP does might only be cut off.
var malformed = lazyregexp.New(`malformed HTTP ((response|version) "[^H"]|status code "[^0-9"])`)

// tlsTimeout is the text of net/http's error if a server accepts a connection, and then sends nothing.
const tlsTimeout = "TLS handshake timeout"

// Unanswered explains err, the error of a request without an answer. The server might have carried out the request.
// plain is the advice for a server without TLS, and trust for a server whose certificate has an unknown authority.
func (a *Answer) Unanswered(host, plain, trust string, err error) error {
	var (
		record      tls.RecordHeaderError
		authority   x509.UnknownAuthorityError
		certificate *tls.CertificateVerificationError
		dns         *net.DNSError
		connection  *net.OpError
	)
	switch {
	case errors.As(err, &record), errors.Is(err, http.ErrSchemeMismatch):
		return fmt.Errorf("%w: %s speaks no TLS: %s", store.ErrConfig, host, plain)
	case strings.Contains(err.Error(), tlsAlert):
		return fmt.Errorf("%w: %s wants TLS: write https:// in endpoint=, or leave out tls=false", store.ErrConfig, host)
	case errors.As(err, &authority):
		return fmt.Errorf("%w: the certificate of %s isn't trusted: %s: %s", store.ErrConfig, host, Innermost(err), trust)
	case errors.As(err, &certificate):
		return fmt.Errorf("%w: the certificate of %s isn't trusted: %s", store.ErrConfig, host, Innermost(err))
	case errors.As(err, &connection) && connection.Op == "remote error", strings.HasPrefix(Innermost(err).Error(), "tls: "):
		return fmt.Errorf("%w: TLS with %s fails: %s", store.ErrConfig, host, Innermost(err))
	case malformed.MatchString(err.Error()):
		return fmt.Errorf("%w: the server at %s isn't an object store: it doesn't speak HTTP: %s", store.ErrConfig, host, Innermost(err))
	case errors.As(err, &dns) && dns.IsNotFound:
		host = dns.Name
		if errors.Is(err, ErrProxy) {
			host = "the proxy " + host
		}
		err = fmt.Errorf("%s: %w", host, store.ErrNoHost)
		if strings.Contains(host, ".amazonaws.com") { // the client has made this name from the region
			return fault.Advise(err, "check the region (region= in the URL, AWS_REGION, or the AWS configuration file), and that this machine's DNS resolves the name")
		}
		return err
	case errors.Is(err, ErrProxy):
	case errors.As(err, &dns): // its text names sockets of this machine
		says := dns.Err[strings.LastIndex(dns.Err, ": ")+1:]
		err = fault.New(dns, "its name can't be resolved now: %s", strings.TrimSpace(says))
	case errors.As(err, &connection):
		err = connection
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF) && !a.Begun():
		err = fault.New(Innermost(err), "the server closed the connection without an answer")
	case strings.HasSuffix(err.Error(), tlsTimeout):
		err = fault.New(Innermost(err), "no TLS handshake in time")
	default:
		err = Innermost(err)
	}
	err = fmt.Errorf("%s: %w", host, err)
	if a.Silence() {
		return store.Unreachable(err)
	}
	return err
}

// Innermost returns the last error of a chain. It is for messages, because the errors of the client libraries are long.
func Innermost(err error) error {
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return err
		}
		err = next
	}
}

// ErrProxy is in the error of a request that didn't reach the server, because the proxy can't be reached or refuses the
// connection. If the proxy would refuse the connection again, the error is also a [store.ErrConfig].
var ErrProxy = errors.New("no way through the proxy")

// errProxyDown is the ErrProxy of a proxy whose refusal might be temporary.
var errProxyDown = fmt.Errorf("%w now", ErrProxy)

// refusals makes a transport explain why a proxy refused. net/http's error has only the text of the status.
func refusals(t *http.Transport) {
	program := t.OnProxyConnectResponse
	t.OnProxyConnectResponse = func(ctx context.Context, proxy *url.URL, r *http.Request, res *http.Response) error {
		if program != nil {
			if err := program(ctx, proxy, r, res); err != nil {
				return err
			}
		}
		said := fmt.Sprintf("the proxy %s answers %d %s", proxy.Host, res.StatusCode, http.StatusText(res.StatusCode))
		switch {
		case res.StatusCode == http.StatusOK:
			return nil
		case Passing(res.StatusCode):
			return fault.New(errProxyDown, "%s", said)
		default:
			return fault.As(ErrProxy, fault.New(store.ErrConfig, "%s: correct HTTPS_PROXY, or name the server in NO_PROXY", said))
		}
	}
}

// dialled returns err, the error of a request. If the transport couldn't connect to the proxy, the returned error names
// the proxy.
func dialled(t *http.Transport, r *http.Request, err error) error {
	failed, ok := errors.AsType[*net.OpError](err)
	if t == nil || !ok || failed.Op != "proxyconnect" {
		return err
	}
	return fault.New(ErrProxy, "the proxy %s: %w", proxyOf(t, r), failed.Err)
}

// forwarder returns the proxy that might answer a request instead of the server, or "". A proxy can do so only if the
// request has no TLS.
func forwarder(t *http.Transport, r *http.Request) string {
	if t == nil || r.URL.Scheme != "http" {
		return ""
	}
	return proxyOf(t, r)
}

// proxyOf returns the host and port of a request's proxy, or "".
func proxyOf(t *http.Transport, r *http.Request) string {
	if t.Proxy == nil {
		return ""
	}
	proxy, err := t.Proxy(r)
	if err != nil || proxy == nil {
		return ""
	}
	return proxy.Host
}
