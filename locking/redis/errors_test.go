package redis

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/lockcheck"
	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/locking/internal/server"
)

// afterHello answers HELLO with an empty map, and then always the same.
func afterHello(answer string) func([]string) string {
	return func(c []string) string {
		if strings.EqualFold(c[0], "hello") {
			return "*0\r\n"
		}
		return answer
	}
}

// TestAnswers: each answer of a server to SET has its class, and is one line without secrets.
func TestAnswers(t *testing.T) {
	for answer, want := range map[string]error{
		"NOAUTH Authentication required.":                                    locking.ErrPermission,
		"WRONGPASS invalid username-password pair or user is disabled.":      locking.ErrPermission,
		"NOPERM this user has no permissions to run the 'set' command":       locking.ErrPermission,
		"DENIED Redis is running in protected mode":                          locking.ErrPermission,
		"READONLY You can't write against a read only replica.":              locking.ErrUnfit,
		"MOVED 3999 127.0.0.1:6381":                                          locking.ErrUnfit,
		"ASK 3999 127.0.0.1:6381":                                            locking.ErrUnfit,
		"ERR unknown command 'SET', with args beginning with: 'k' 'secret' ": locking.ErrUnfit,
		"LOADING Redis is loading the dataset in memory":                     nil,
		"MASTERDOWN Link with MASTER is down":                                nil,
		"TRYAGAIN Multiple keys request during rehashing of slot":            nil,
		"CLUSTERDOWN The cluster is down":                                    nil,
		"OOM command not allowed when used memory > 'maxmemory'.":            nil,
		"MISCONF Redis is configured to save RDB snapshots":                  nil,
		"NOREPLICAS Not enough good replicas to write.":                      nil,
		"BUSY Redis is busy running a script.":                               nil,
		"ERR max number of clients reached":                                  nil,
		"ERR something new":                                                  nil,
	} {
		b := client(t, fake(t, afterHello("-"+answer+"\r\n")))
		_, ok, err := b.TryLock(t.Context(), "k", ttl)
		if ok || err == nil {
			t.Errorf("%s: acquired %v, %v", answer, ok, err)
			continue
		}
		for _, class := range []error{locking.ErrPermission, locking.ErrUnfit, locking.ErrUnreachable, locking.ErrLost} {
			assert.That(t, errors.Is(err, class) == (class == want), "%s: %v, want %v", answer, err, want)
		}
		if text := err.Error(); strings.Contains(text, "secret") || strings.Contains(text, "held until") ||
			!strings.Contains(text, `lock "k"`) {
			t.Errorf("%s: %v", answer, err)
		}
		if want != nil {
			says := want.Error() + ": " + b.clean(answer) + ": " + server.Find(answers, answer).Advice
			assert.That(t, strings.HasSuffix(err.Error(), says), "%v, want the class, the answer and the advice: %s", err, says)
		}
		// In doubt the lock isn't lost, nor free.
		h := locking.NewHandle("k", ttl)
		for _, err := range []error{b.Renew(t.Context(), h), b.Release(t.Context(), h)} {
			if err == nil || errors.Is(err, locking.ErrLost) || strings.Contains(err.Error(), "secret") {
				t.Errorf("%s: renew or release: %v", answer, err)
			}
		}
		if info, err := b.Inspect(t.Context(), "k"); info != nil || err == nil {
			t.Errorf("%s: inspect: %+v, %v", answer, info, err)
		}
	}
}

// TestNoRedis: a server that doesn't speak the protocol is unfit, whatever it says.
func TestNoRedis(t *testing.T) {
	for _, greeting := range []string{"HTTP/1.1 400 Bad Request\r\n\r\n", "SSH-2.0-OpenSSH_9.2\r\n",
		"\x15\x03\x01\x00\x02\x02\x46\r\n"} {
		address := fake(t, func([]string) string { return greeting })
		_, ok, err := client(t, address).TryLock(t.Context(), "k", ttl)
		if ok || !errors.Is(err, locking.ErrUnfit) || strings.ContainsAny(err.Error(), "\r\n\x15") {
			t.Errorf("%q: acquired %v, %v", greeting, ok, err)
		}
	}
	for answer, want := range map[string]error{"+FINE\r\n": locking.ErrUnfit, ":1\r\n": locking.ErrUnfit} {
		b := client(t, fake(t, afterHello(answer)))
		assert.Is(t, lockcheck.Fails(t.Context(), t, b, "k"), want, answer)
	}
	b := open(t, "rediss://"+fake(t, func([]string) string { return "+OK\r\n" })+"/0?key=k", Options{})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	err := lockcheck.Fails(ctx, t, b, "k")
	assert.That(t, !strings.Contains(err.Error(), "held until"), "TLS to a plain server: %v", err)
}

// TestUnreachable: only a server that says nothing is unreachable.
func TestUnreachable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	assert.OK(t, err)
	refused := l.Addr().String()
	l.Close()
	var all sync.WaitGroup
	for _, c := range []struct {
		name, address string
		unreachable   bool
	}{
		{"refused", refused, true},
		{"no such host", "host.invalid", true},
		{"closes", fake(t, func([]string) string { return closing }), true},
		{"silent", fake(t, func([]string) string { return "" }), true},
		{"silent after HELLO", fake(t, afterHello("")), false},
		{"closes after HELLO", fake(t, afterHello(closing)), false},
	} {
		all.Go(func() {
			limit := 2 * time.Second
			if c.name == "no such host" {
				limit = time.Minute // the resolver decides when
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			_, ok, err := client(t, c.address).TryLock(ctx, "k", ttl)
			if ok || err == nil || errors.Is(err, locking.ErrUnreachable) != c.unreachable {
				t.Errorf("%s: acquired %v, %v", c.name, ok, err)
				return
			}
			sent := strings.Contains(err.Error(), "held until")
			if want := c.name != "refused" && c.name != "no such host"; sent != want {
				t.Errorf("%s: %v", c.name, err)
			}
		})
	}
	all.Wait()
}

// TestPasswordIsSecret: an error has no password, whatever the server answers.
func TestPasswordIsSecret(t *testing.T) {
	address := fake(t, func(c []string) string { return "-ERR what is " + strings.Join(c, " ") + "?\r\n" })
	t.Setenv(PasswordVariable, "topsecret")
	b := client(t, address)
	err := lockcheck.Fails(t.Context(), t, b, "k")
	assert.That(t, !strings.Contains(err.Error(), "secret"), "%v", err)
}

// TestSET: an answer of OK is the lock. Another program's token under the key is its lock, which stays.
func TestSET(t *testing.T) {
	answers := func(set string) (address string, sent *[]string) {
		sent = new([]string)
		var mu sync.Mutex
		return fake(t, func(c []string) string {
			mu.Lock()
			defer mu.Unlock()
			name := strings.ToLower(c[0])
			*sent = append(*sent, name)
			switch name {
			case "hello":
				return "*0\r\n"
			case "set":
				return set
			case "get":
				return "$5\r\nother\r\n"
			default:
				return ":1\r\n"
			}
		}), sent
	}
	address, _ := answers("+OK\r\n")
	_, ok, err := client(t, address).TryLock(t.Context(), "k", ttl)
	assert.That(t, ok && err == nil, "OK: %v, %v", ok, err)

	address, sent := answers("$-1\r\n")
	_, ok, err = client(t, address).TryLock(t.Context(), "k", ttl)
	assert.That(t, !ok && err == nil, "held: %v, %v", ok, err)
	sets := 0
	for _, name := range *sent {
		if name == "set" {
			sets++
		}
	}
	assert.Equal(t, sets, 1, "SETs for a lock that another program holds")
}

// TestFields: a line of INFO that isn't a field is skipped.
func TestFields(t *testing.T) {
	got := fields("# Server\r\nredis_version:7.0.15\r\n\r\nos:Linux 6.1:x\r\n")
	assert.That(t, len(got) == 2 && got["redis_version"] == "7.0.15" && got["os"] == "Linux 6.1:x", "%q", got)
}
