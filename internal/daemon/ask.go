package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/repolock/repolock/internal/fault"
)

var (
	// ErrGone is returned by Ask when no keeper listens, or the keeper ends before it answers.
	ErrGone error = fault.KeeperGone
	// ErrSilent is returned by Ask when a keeper exists and doesn't answer in time.
	ErrSilent error = fault.KeeperSilent
	// ErrDir is returned by Ask and Listen when there is no directory for the keeper's socket, or when other users can
	// replace or use that directory.
	ErrDir error = fault.NoSocket
)

// helloTime bounds the wait for a keeper's hello, which a running keeper sends at once. answerTime bounds the wait for
// its answer. They are variables for tests.
var (
	helloTime  = 10 * time.Second
	answerTime = 2 * time.Minute
)

// hello is a keeper's first message on a connection. Fields are only ever added.
type hello struct {
	PID int `json:"pid"`
}

// request is a client's message. Fields are only ever added.
type request struct {
	Do string `json:"do"`
}

// Ask sends a request to the keeper that has a token, and decodes its JSON answer. If last is set, Ask returns only
// when the keeper has ended.
func Ask(token, do string, answer any, last bool) error {
	path, err := socket(token, false)
	if err != nil {
		return err
	}
	conn, err := net.DialTimeout("unix", path, helloTime)
	if err != nil {
		return unheard(token, path, err)
	}
	defer conn.Close()
	in := json.NewDecoder(conn)
	_ = conn.SetDeadline(time.Now().Add(helloTime))
	var h hello
	if err = in.Decode(&h); err == nil {
		err = json.NewEncoder(conn).Encode(request{do})
	}
	if err != nil {
		return unanswered("its process might be stopped", err)
	}
	_ = conn.SetDeadline(time.Now().Add(answerTime))
	if err := in.Decode(answer); err != nil {
		return unanswered(fmt.Sprintf("process %d might be stopped, or waits for the store", h.PID), err)
	}
	if last {
		if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
			return unanswered(fmt.Sprintf("process %d doesn't end", h.PID), err)
		}
	}
	return nil
}

// unheard returns why Ask got no connection. It removes the socket of a keeper that was killed.
func unheard(token, path string, err error) error {
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		_ = os.Remove(path)
		forget(token, path)
		fallthrough
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w (none in %s)", ErrGone, filepath.Dir(path))
	default: // the socket's queue is full, or the socket belongs to another user
		return fmt.Errorf("%w: %w", ErrSilent, err)
	}
}

// unanswered returns the error of a request without an answer. If the answer is late, it is ErrSilent with a possible
// reason, and otherwise ErrGone.
func unanswered(perhaps string, err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("%w (%s)", ErrSilent, perhaps)
	}
	return ErrGone
}

// Listener accepts the clients' requests to a keeper.
type Listener struct {
	l           net.Listener
	token, path string
}

// Listen makes the socket for clients that know the token.
func Listen(token string) (*Listener, error) {
	path, err := socket(token, true)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		forget(token, path)
		return nil, err
	}
	return &Listener{l, token, path}, nil
}

// Close removes the socket, which makes Serve return.
func (l *Listener) Close() error {
	defer forget(l.token, l.path)
	return l.l.Close()
}

// Serve answers requests, each in its own goroutine, until the listener is closed. If handle returns a function, Serve
// calls it after the answer. The function must end the process. The client notices the end, because it closes the
// connection.
func (l *Listener) Serve(handle func(ctx context.Context, do string) (answer any, then func())) {
	for {
		conn, err := l.l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(100 * time.Millisecond) // too many files are open
			continue
		}
		go serve(conn, handle)
	}
}

func serve(conn net.Conn, handle func(context.Context, string) (any, func())) {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(helloTime))
	out := json.NewEncoder(conn)
	var r request
	if out.Encode(hello{os.Getpid()}) != nil || json.NewDecoder(conn).Decode(&r) != nil {
		return
	}
	// After answerTime the client no longer waits for the answer.
	ctx, cancel := context.WithTimeout(context.Background(), answerTime/2)
	defer cancel()
	answer, then := handle(ctx, r.Do)
	_ = conn.SetDeadline(time.Now().Add(helloTime))
	_ = out.Encode(answer)
	if then != nil {
		then()
		select {}
	}
}

// Over reports whether the keeper that has a token has certainly ended. If a keeper was killed, its socket remains, so
// Over reports false.
func Over(token string) bool {
	path, err := socket(token, false)
	if err != nil {
		return errors.Is(err, ErrGone)
	}
	_, err = os.Lstat(path)
	return errors.Is(err, fs.ErrNotExist)
}
