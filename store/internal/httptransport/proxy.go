package httptransport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"

	"github.com/repolock/repolock/store"
)

// ProxyError is returned if a proxy can't be reached, or refuses a connection to the server, which
// was not reached. It is a [store.ErrConfig] if the proxy would refuse it again.
type ProxyError struct {
	Proxy  string // host and port
	Status int    // of its refusal, or 0
	Err    error  // why the proxy can't be reached, or nil
}

func (e *ProxyError) Error() string {
	switch {
	case e.Err != nil:
		return fmt.Sprintf("the proxy %s: %v", e.Proxy, e.Err)
	case Passing(e.Status):
		return fmt.Sprintf("the proxy %s answers %d %s", e.Proxy, e.Status, http.StatusText(e.Status))
	default:
		return fmt.Sprintf("the proxy %s answers %d %s: correct HTTPS_PROXY, or name the server in NO_PROXY",
			e.Proxy, e.Status, http.StatusText(e.Status))
	}
}

// Unwrap returns the reason that the proxy can't be reached.
func (e *ProxyError) Unwrap() error { return e.Err }

// Is reports whether target is store.ErrConfig, and the refusal lasting.
func (e *ProxyError) Is(target error) bool {
	return target == store.ErrConfig && e.Err == nil && !Passing(e.Status)
}

// refusals has a transport return a ProxyError for a refusal: net/http's error is the status' text alone.
func refusals(t *http.Transport) {
	program := t.OnProxyConnectResponse
	t.OnProxyConnectResponse = func(ctx context.Context, proxy *url.URL, r *http.Request, res *http.Response) error {
		if program != nil {
			if err := program(ctx, proxy, r, res); err != nil {
				return err
			}
		}
		if res.StatusCode != http.StatusOK {
			return &ProxyError{Proxy: proxy.Host, Status: res.StatusCode}
		}
		return nil
	}
}

// dialled names the proxy in the error of a transport that couldn't connect to it.
func dialled(t *http.Transport, r *http.Request, err error) error {
	failed, ok := errors.AsType[*net.OpError](err)
	if t == nil || !ok || failed.Op != "proxyconnect" {
		return err
	}
	return &ProxyError{Proxy: proxyOf(t, r), Err: failed.Err}
}

// forwarder returns the proxy that passes on a request without TLS, and so might answer in the server's
// place, or "".
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

// NoHost returns a store.ErrNoHost that says which name the name service doesn't know, or nil.
func NoHost(err error) error {
	dns, ok := errors.AsType[*net.DNSError](err)
	if !ok || !dns.IsNotFound {
		return nil
	}
	if errors.As(err, new(*ProxyError)) {
		return fmt.Errorf("the proxy %s: %w", dns.Name, store.ErrNoHost)
	}
	return fmt.Errorf("%s: %w", dns.Name, store.ErrNoHost)
}
