package lockingtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/repolock/repolock/locking"
)

// Start starts a program that calls Serve with its stdin and stdout, and returns the backend
// that the program serves. A test binary can start itself:
//
//	func TestMain(m *testing.M) {
//		if dir := os.Getenv("SERVE_DIR"); dir != "" {
//			_ = lockingtest.Serve(newClient(dir), os.Stdin, os.Stdout)
//			return
//		}
//		os.Exit(m.Run())
//	}
//
// The program is killed when the test ends. The backend has the four methods of
// locking.Backend alone. It heeds a context only before it sends a request.
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
		b.ended.Wait() // all of stdout is read
		_ = cmd.Wait()
	})
	return b
}

// request is a line to the served backend, answer the line that it returns.
type request struct {
	ID  int
	Op  string // "trylock", "renew", "release", "cleanup"
	Key string
	TTL time.Duration
	// Handle is the number of a handle that the served backend has returned, or 0: then it is
	// a handle that the backend has never seen.
	Handle int
}

type answer struct {
	ID, Handle           int
	OK                   bool
	Err                  string
	Lost, BadKey, Silent bool // what the error is
}

// errors of an answer that errors.Is finds.
func (a *answer) flags() map[error]*bool {
	return map[error]*bool{locking.ErrLost: &a.Lost, locking.ErrKey: &a.BadKey, locking.ErrUnreachable: &a.Silent}
}

// Serve answers the requests of the backend that Start returns. It returns nil when in ends.
func Serve(b locking.Backend, in io.Reader, out io.Writer) error {
	s := &server{Backend: b, out: json.NewEncoder(out), handles: make(map[int]locking.Handle)}
	requests := json.NewDecoder(in)
	var all sync.WaitGroup
	defer all.Wait()
	for {
		var r request
		if err := requests.Decode(&r); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return fmt.Errorf("reading a request: %w", err)
		}
		all.Go(func() { s.answer(r) })
	}
}

type server struct {
	locking.Backend
	mu      sync.Mutex
	out     *json.Encoder
	handles map[int]locking.Handle
}

func (s *server) answer(r request) {
	a, h, err := answer{ID: r.ID}, locking.Handle{}, error(nil)
	s.mu.Lock()
	known, ok := s.handles[r.Handle]
	s.mu.Unlock()
	switch {
	case ok:
		h = known
	case r.Key != "":
		h = locking.NewHandle(r.Key, r.TTL)
	}
	switch ctx := context.Background(); r.Op {
	case "trylock":
		h, a.OK, err = s.TryLock(ctx, r.Key, r.TTL)
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
	for is, flag := range a.flags() {
		*flag = errors.Is(err, is)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if a.OK {
		a.Handle = len(s.handles) + 1
		s.handles[a.Handle] = h
	}
	_ = s.out.Encode(a) // if the client is gone, stdin ends too
}

// remote is a backend in another process. Its handles have tokens of their own, which stand for
// the numbers of the handles there.
type remote struct {
	mu      sync.Mutex
	in      *json.Encoder
	last    int
	waiting map[int]chan answer
	handles map[locking.Handle]int
	err     error // of the connection
	ended   sync.WaitGroup
}

func connect(out io.Reader, in io.Writer) *remote {
	r := &remote{in: json.NewEncoder(in), waiting: make(map[int]chan answer), handles: make(map[locking.Handle]int)}
	r.ended.Go(func() { r.receive(json.NewDecoder(out)) })
	return r
}

// receive hands out the answers until there are no more.
func (r *remote) receive(answers *json.Decoder) {
	for {
		var a answer
		err := answers.Decode(&a)
		r.mu.Lock()
		if err != nil {
			r.err = fmt.Errorf("the other process has ended: %w", err)
			for _, id := range slices.Collect(maps.Keys(r.waiting)) {
				close(r.waiting[id])
				delete(r.waiting, id)
			}
			r.mu.Unlock()
			return
		}
		r.waiting[a.ID] <- a
		delete(r.waiting, a.ID)
		r.mu.Unlock()
	}
}

func (r *remote) ask(ctx context.Context, q request) (answer, error) {
	if err := ctx.Err(); err != nil {
		return answer{}, err
	}
	wait := make(chan answer, 1)
	r.mu.Lock()
	if r.err != nil {
		defer r.mu.Unlock()
		return answer{}, r.err
	}
	r.last++
	q.ID = r.last
	r.waiting[q.ID] = wait
	err := r.in.Encode(q)
	r.mu.Unlock()
	if err != nil {
		return answer{}, fmt.Errorf("the other process has ended: %w", err)
	}
	a, ok := <-wait
	if !ok {
		return a, r.err
	}
	for is, flag := range a.flags() {
		if *flag {
			return a, fmt.Errorf("%w: %s", is, a.Err)
		}
	}
	if a.Err != "" {
		return a, errors.New(a.Err)
	}
	return a, nil
}

func (r *remote) TryLock(ctx context.Context, key string, ttl time.Duration) (locking.Handle, bool, error) {
	a, err := r.ask(ctx, request{Op: "trylock", Key: key, TTL: ttl})
	if err != nil || !a.OK {
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
