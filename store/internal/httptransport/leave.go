package httptransport

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"
)

// leavable is a connection that can be left: what has been sent is still answered, and nothing
// more is sent. So a request for which a transport takes it afterwards was never sent, and can be
// sent again.
type leavable struct {
	net.Conn
	left atomic.Bool
}

var errLeft = errors.New("the connection was left")

func (c *leavable) Write(p []byte) (int, error) {
	if c.left.Load() {
		return 0, errLeft
	}
	return c.Conn.Write(p)
}

// leaving makes the connections of a transport leavable. It returns false if the transport's
// program makes them itself, with TLS or in a way that is deprecated.
func leaving(t *http.Transport) bool {
	//lint:ignore SA1019 programs can still set the deprecated ways
	if t.DialTLSContext != nil || t.DialTLS != nil || t.Dial != nil {
		return false
	}
	dial := t.DialContext
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &leavable{Conn: conn}, nil
	}
	return true
}

// leave must be called before the answer is read to the end: until then no other request takes the
// connection. c is nil if the connection can't be left.
func (c *leavable) leave() {
	if c != nil {
		c.left.Store(true)
	}
}

// send sends a request on a connection that wasn't left, and returns that too. After a failure on a
// connection that was kept it uses none for a while.
func (w *watched) send(r *http.Request) (res *http.Response, on *leavable, err error) {
	kept := false
	trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		kept = info.Reused
		conn := info.Conn
		if secure, ok := conn.(*tls.Conn); ok {
			conn = secure.NetConn()
		}
		on, _ = conn.(*leavable)
	}}
	r = r.WithContext(httptrace.WithClientTrace(r.Context(), trace))
	next := w.next
	if w.distrusts() {
		next, r.Close = w.fresh, true
	}
	for {
		on, kept = nil, false
		if res, err = next.RoundTrip(r); err == nil || on == nil || !on.left.Load() {
			if err != nil && kept && !errors.Is(err, context.Canceled) {
				w.distrust()
			}
			return res, on, err
		}
		if r.Body != nil {
			if r.GetBody == nil {
				return nil, on, err
			}
			if r.Body, err = r.GetBody(); err != nil {
				return nil, on, err
			}
		}
	}
}

// distrustFor is how long no connection is kept after a failure on a kept one. Some servers close each
// within milliseconds, so that each put fails whose look has just opened it.
const distrustFor = time.Minute

func (w *watched) distrust() { w.trustsAt.Store(int64(w.elapsed() + distrustFor)) }

func (w *watched) distrusts() bool { return int64(w.elapsed()) < w.trustsAt.Load() }
