package redis

import (
	"bufio"
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
