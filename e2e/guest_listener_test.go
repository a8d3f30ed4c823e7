//go:build linux && programs && minio

package e2e

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path"
	"strconv"
	"sync"
	"testing"
	"time"
)

// message is a report of the guest.
type message struct {
	what  string
	at    time.Time     // by this machine's clock
	boot  time.Duration // CLOCK_BOOTTIME of the guest
	value int           // the beat of a write, or the code of an exit
}

// listener is the HTTP server that the guest reports to.
type listener struct {
	port string
	step chan time.Duration // the guest steps its wall clock by it

	mu       sync.Mutex
	messages []message
	enough   bool
}

func listen(t *testing.T) *listener {
	t.Helper()
	l := &listener{step: make(chan time.Duration, 1)}
	s := httptest.NewServer(l)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	_, l.port, _ = net.SplitHostPort(s.Listener.Addr().String())
	return l
}

// ServeHTTP notes a message. It answers the guest's request for a step when the test wants
// one, which might be never.
func (l *listener) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	at := time.Now()
	boot, err := strconv.ParseInt(r.FormValue("boot"), 10, 64)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	m := message{what: path.Base(r.URL.Path), at: at, boot: time.Duration(boot)}
	for _, name := range []string{"beat", "code"} {
		if text := r.FormValue(name); text != "" {
			m.value, _ = strconv.Atoi(text)
		}
	}
	l.mu.Lock()
	l.messages = append(l.messages, m)
	enough := l.enough
	l.mu.Unlock()
	switch {
	case m.what == "step":
		select {
		case by := <-l.step:
			_, _ = io.WriteString(w, by.String())
		case <-r.Context().Done():
		}
	case m.what == "write" && enough:
		_, _ = io.WriteString(w, "enough")
	}
}

// heard returns the messages of one kind, in the order in which they came.
func (l *listener) heard(what string) (of []message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range l.messages {
		if m.what == what {
			of = append(of, m)
		}
	}
	return of
}

// end makes the guest's command end by itself.
func (l *listener) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.enough = true
}
