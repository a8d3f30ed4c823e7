package lockingtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/rpc"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/repolock/repolock/locking"
)

// Start starts a program that calls Serve with its stdin and stdout, and returns a client of the
// backend that the program serves. A test binary can start itself:
//
//	func TestMain(m *testing.M) {
//		if dir := os.Getenv("SERVE_DIR"); dir != "" {
//			_ = lockingtest.Serve(newClient(dir), os.Stdin, os.Stdout)
//			return
//		}
//		os.Exit(m.Run())
//	}
//
// Start kills the program when the test ends. The client has the four methods of locking.Backend
// alone. It heeds a context only before it sends a request.
func Start(t testing.TB, cmd *exec.Cmd) locking.Backend {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	b := connect(out, in)
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return b
}

// request and answer are the messages between Start's client and Serve. They are aliases because
// net/rpc wants exported types or types without a name.
type (
	request = struct {
		Op  string // "trylock", "renew", "release", "cleanup"
		Key string
		TTL time.Duration
		// Handle is the number of a handle in the other process, or 0 for a handle that the other
		// process doesn't know.
		Handle int
	}
	answer = struct {
		Handle int // not 0 if TryLock has acquired the lock
		Err    string
		Is     []int // indices of kinds
	}
)

// kinds are the classes that an error keeps on its way from the other process.
var kinds = []error{locking.ErrLost, locking.ErrKey, locking.ErrUnreachable}

// Serve answers the requests of Start's client. It returns nil at the end of in.
func Serve(b locking.Backend, in io.Reader, out io.Writer) error {
	s := rpc.NewServer()
	if err := s.RegisterName("backend", &server{Backend: b, handles: make(map[int]locking.Handle)}); err != nil {
		return err
	}
	s.ServeConn(pipes{in, out})
	return nil
}

type pipes struct {
	io.Reader
	io.Writer
}

func (p pipes) Close() error {
	if c, ok := p.Writer.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

type server struct {
	locking.Backend
	mu      sync.Mutex
	handles map[int]locking.Handle
}

// Answer answers a request. net/rpc calls it concurrently.
func (s *server) Answer(r request, a *answer) (err error) {
	s.mu.Lock()
	h, known := s.handles[r.Handle]
	s.mu.Unlock()
	if !known && r.Key != "" {
		h = locking.NewHandle(r.Key, r.TTL)
	}
	switch ctx := context.Background(); r.Op {
	case "trylock":
		var ok bool
		if h, ok, err = s.TryLock(ctx, r.Key, r.TTL); ok {
			s.mu.Lock()
			defer s.mu.Unlock()
			a.Handle = len(s.handles) + 1
			s.handles[a.Handle] = h
		}
	case "renew":
		err = s.Renew(ctx, h)
	case "release":
		err = s.Release(ctx, h)
	case "cleanup":
		err = s.Cleanup(ctx)
	}
	if err != nil {
		a.Err = err.Error()
	}
	for i, kind := range kinds {
		if errors.Is(err, kind) {
			a.Is = append(a.Is, i)
		}
	}
	return nil
}

// remote is the client that Start returns. Its handles have other tokens than the handles of the
// other process.
type remote struct {
	client  *rpc.Client
	mu      sync.Mutex
	handles map[locking.Handle]int // the numbers of the other process' handles
}

func connect(out io.Reader, in io.Writer) *remote {
	return &remote{client: rpc.NewClient(pipes{out, in}), handles: make(map[locking.Handle]int)}
}

func (r *remote) ask(ctx context.Context, q request) (a answer, err error) {
	if err := ctx.Err(); err != nil {
		return a, err
	}
	if err := r.client.Call("backend.Answer", q, &a); err != nil {
		return a, fmt.Errorf("the other process has ended: %w", err)
	}
	for _, i := range a.Is {
		return a, fmt.Errorf("%w: %s", kinds[i], a.Err)
	}
	if a.Err != "" {
		return a, errors.New(a.Err)
	}
	return a, nil
}

func (r *remote) TryLock(ctx context.Context, key string, ttl time.Duration) (locking.Handle, bool, error) {
	a, err := r.ask(ctx, request{Op: "trylock", Key: key, TTL: ttl})
	if err != nil || a.Handle == 0 {
		return locking.Handle{}, false, err
	}
	h := locking.NewHandle(key, ttl)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.handles[h] = a.Handle
	return h, true, nil
}

func (r *remote) Renew(ctx context.Context, h locking.Handle) error { return r.of(ctx, "renew", h) }

func (r *remote) Release(ctx context.Context, h locking.Handle) error {
	return r.of(ctx, "release", h)
}

func (r *remote) Cleanup(ctx context.Context) error {
	_, err := r.ask(ctx, request{Op: "cleanup"})
	return err
}

func (r *remote) of(ctx context.Context, op string, h locking.Handle) error {
	r.mu.Lock()
	number := r.handles[h]
	r.mu.Unlock()
	_, err := r.ask(ctx, request{Op: op, Key: h.Key(), TTL: h.TTL(), Handle: number})
	return err
}
