package redis

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/repolock/repolock/internal/test/assert"
)

// TestMain: no test leaves a goroutine. The environment has no password.
func TestMain(m *testing.M) {
	os.Unsetenv(PasswordVariable)
	os.Unsetenv(CLIVariable)
	goleak.VerifyTestMain(m)
}

const ttl = time.Minute

// closing is the answer of a fake that closes the connection.
const closing = "close"

// fake is a server that answers each command by a function. After an answer of "" it is silent.
func fake(t *testing.T, answer func(command []string) string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	assert.OK(t, err)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { c.Close() })
			serving.Go(func() {
				defer c.Close()
				for r, silent := bufio.NewReader(c), false; ; {
					command, err := readCommand(r)
					if err != nil {
						return
					}
					a := answer(command)
					if silent = silent || a == ""; silent {
						continue
					}
					if a == closing {
						return
					}
					if _, err := io.WriteString(c, a); err != nil {
						return
					}
				}
			})
		}
	})
	t.Cleanup(func() { l.Close() })
	return l.Addr().String()
}

// readCommand reads an array of bulk strings.
func readCommand(r *bufio.Reader) ([]string, error) {
	number := func(sign string) (int, error) {
		line, err := r.ReadString('\n')
		if err != nil {
			return 0, err
		}
		return strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(line, sign)))
	}
	n, err := number("*")
	if err != nil {
		return nil, err
	}
	var command []string
	for range n {
		size, err := number("$")
		if err != nil {
			return nil, err
		}
		word := make([]byte, size+2)
		if _, err := io.ReadFull(r, word); err != nil {
			return nil, err
		}
		command = append(command, string(word[:size]))
	}
	return command, nil
}

// store is a server of what the backend uses of Redis, in memory.
type store struct {
	address string
	gate    sync.RWMutex // locked while the server is stopped

	mu      sync.Mutex
	entries map[string]entry
	ahead   time.Duration // of its clock
	lose    func(command string) loss

	detained, free, answered chan struct{} // of the request that is detained
}

type entry struct {
	value string
	until time.Time
}

// loss is what happens to a request. The server executes it, unless it is dropped.
type loss int

const (
	none     loss = iota
	swallow       // no answer comes on this connection any more
	closed        // the connection is closed in place of the answer
	dropped       // the connection is closed in place of the request
	detained      // the request is executed after free is closed
)

func newStore(t *testing.T) *store {
	t.Helper()
	s := &store{entries: make(map[string]entry), lose: func(string) loss { return none },
		detained: make(chan struct{}), free: make(chan struct{}), answered: make(chan struct{})}
	s.address = fake(t, s.answer)
	return s
}

// losing loses the first request that has the text, once.
func (s *store) losing(text string, how loss) (lost func() bool) {
	happened := false
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lose = func(command string) loss {
		if happened || !strings.Contains(command, text) {
			return none
		}
		happened = true
		return how
	}
	return func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return happened
	}
}

func (s *store) answer(command []string) string {
	s.gate.RLock()
	defer s.gate.RUnlock()
	s.mu.Lock()
	how := s.lose(strings.ToUpper(strings.Join(command, " ")))
	s.mu.Unlock()
	switch how {
	case dropped:
		return closing
	case detained:
		close(s.detained)
		<-s.free
		defer close(s.answered)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := s.execute(command)
	switch how {
	case swallow:
		return ""
	case closed:
		return closing
	}
	return answer
}

// execute runs a command as Redis does.
func (s *store) execute(c []string) string {
	switch strings.ToUpper(c[0]) {
	case "HELLO":
		return "*0\r\n"
	case "SET": // key, value, NX, PX, ms
		if _, there := s.get(c[1]); there {
			return "$-1\r\n"
		}
		s.put(c[1], c[2], c[5])
		return "+OK\r\n"
	case "GET":
		if value, there := s.get(c[1]); there {
			return fmt.Sprintf("$%d\r\n%s\r\n", len(value), value)
		}
		return "$-1\r\n"
	case "PTTL":
		if _, there := s.get(c[1]); there {
			return number(s.entries[c[1]].until.Sub(s.now()).Milliseconds())
		}
		return number(-2)
	case "EVAL":
		return s.script(c[1], c[3:])
	}
	return "-ERR unknown command '" + c[0] + "'\r\n"
}

// script does what a script of the backend does. a has the keys and the arguments.
func (s *store) script(text string, a []string) string {
	if len(a) == 1 { // that of Examine
		return number(done)
	}
	value, there := s.get(a[0])
	note := text == noteScript // whose second key is before the token
	if note {
		a = append([]string{a[0], a[2], a[1]}, a[3:]...)
	}
	switch same := value == a[1] || text == breakScript && revision(value) == a[1]; {
	case !there:
		return number(absent)
	case !same && note:
		return number(absent)
	case !same:
		return number(foreign)
	case note && a[3] == dropNote:
		delete(s.entries, a[2])
	case note && a[3] == keepNote:
		kept, _ := s.get(a[2])
		s.put(a[2], kept, a[4])
	case note:
		s.put(a[2], a[3], a[4])
	case text == renewScript:
		s.put(a[0], value, a[2])
	default:
		delete(s.entries, a[0])
	}
	return number(done)
}

func (s *store) now() time.Time { return time.Now().Add(s.ahead) }

func (s *store) get(key string) (value string, there bool) {
	e, there := s.entries[key]
	return e.value, there && s.now().Before(e.until)
}

func (s *store) put(key, value, ms string) {
	n, _ := strconv.Atoi(ms)
	s.entries[key] = entry{value, s.now().Add(time.Duration(n) * time.Millisecond)}
}

func number[N int | int64](n N) string { return fmt.Sprintf(":%d\r\n", n) }

// client opens a backend for a server's address.
func client(t testing.TB, address string) *Backend {
	t.Helper()
	return open(t, "redis://"+address+"/0?key=k", Options{})
}

func open(t testing.TB, raw string, o Options) *Backend {
	t.Helper()
	target, err := Parse(raw)
	assert.OK(t, err)
	b, err := Open(target, o)
	assert.OK(t, err)
	t.Cleanup(func() {
		assert.Is(t, b.Close(), nil, "close")
	})
	return b
}

// soon is a context that ends while an answer is awaited, even on a slow machine.
func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// canceledSoon has no deadline, which is all that go-redis looks at.
func canceledSoon(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	time.AfterFunc(2*time.Second, cancel)
	return ctx
}

// becomes waits until a condition is true.
func becomes(t *testing.T, condition func() bool) {
	t.Helper()
	const limit = time.Minute // which only a failure reaches
	for begin := time.Now(); !condition(); time.Sleep(20 * time.Millisecond) {
		if time.Since(begin) > limit {
			t.Fatal("what must come doesn't")
		}
	}
}
