package redis_test

import (
	"bufio"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/repolock/repolock/locking/redis"
)

// fake is a server that answers each command by a function: "" is silence.
func fake(t *testing.T, answer func(command []string) string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
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
				for r := bufio.NewReader(c); ; {
					command, err := readCommand(r)
					if err != nil {
						return
					}
					if a := answer(command); a == "close" {
						return
					} else if _, err := io.WriteString(c, a); err != nil {
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

// client opens a backend for a server's address, without the environment's password.
func client(t testing.TB, address string) *redis.Backend {
	t.Helper()
	return open(t, "redis://"+address+"/0?key=k", redis.Options{})
}

func open(t testing.TB, raw string, o redis.Options) *redis.Backend {
	t.Helper()
	target, err := redis.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	if o.Getenv == nil {
		o.Getenv = func(string) string { return "" }
	}
	b, err := redis.Open(target, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return b
}
