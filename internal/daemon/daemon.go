// Package daemon starts, finds and asks a keeper: a background process that keeps a resource for a script. The package
// doesn't know the resource.
//
// Until the starter accepts the keeper, two pipes connect them. If the starter ends before it has accepted the keeper,
// the keeper must end too. Later clients find the keeper by its token. The token names a socket in a directory that
// only its user can use. The keeper lives until a client ends it, or until its owner ends. The owner is the process
// that the keeper belongs to.
package daemon

import (
	"crypto/rand"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/repolock/repolock/internal/identity"
	"github.com/repolock/repolock/internal/lazyregexp"
	"github.com/repolock/repolock/internal/procgroup"
)

// Start starts our own program with these arguments as a keeper, in our environment and directory. The keeper has its
// own session, so that no terminal reaches it. Its stdout and stderr go to log, or are dropped if log is nil. The
// keeper receives the order by Attach; gob encodes it.
func Start(args []string, order any, log *os.File) (*Starter, error) {
	program, err := procgroup.Executable()
	if err != nil {
		return nil, err
	}
	news, theirNews, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer theirNews.Close()
	cmd := exec.Command(program, args...)
	cmd.Args[0] = os.Args[0]
	cmd.ExtraFiles = []*os.File{theirNews}
	orders, err := cmd.StdinPipe()
	if err != nil {
		news.Close()
		return nil, err
	}
	if log != nil {
		cmd.Stdout, cmd.Stderr = log, log
	}
	detach(cmd)
	s := &Starter{cmd, orders, gob.NewEncoder(orders), gob.NewDecoder(news)}
	if err := cmd.Start(); err != nil {
		news.Close()
		return nil, err
	}
	if err := s.out.Encode(order); err != nil {
		s.GiveUp()
		news.Close()
		return nil, errors.Join(err, cmd.Wait())
	}
	return s, nil
}

// Starter is the starter's end of the pipes to a keeper.
type Starter struct {
	cmd    *exec.Cmd
	orders io.Closer
	out    *gob.Encoder // encodes orders
	in     *gob.Decoder // decodes news
}

// PID returns the keeper's process id.
func (s *Starter) PID() int { return s.cmd.Process.Pid }

// Next waits for the keeper's next message and decodes it into news. It fails when the keeper has ended.
func (s *Starter) Next(news any) error { return s.in.Decode(news) }

// Accept makes the keeper continue after this process has ended.
func (s *Starter) Accept() error { return s.out.Encode(true) }

// GiveUp ends a keeper that was not accepted. When the keeper has ended, Next fails.
func (s *Starter) GiveUp() { s.orders.Close() }

// Line is the keeper's end of the pipes to its starter.
type Line struct {
	in        *gob.Decoder
	mu        sync.Mutex // guards news and out
	news      *os.File
	out       *gob.Encoder
	abandoned chan struct{}
}

// Attach connects a keeper to its starter and decodes the order. A keeper must call it before it does anything else.
func Attach(order any) (*Line, error) {
	news, err := inherited()
	if err != nil {
		return nil, err
	}
	l := &Line{in: gob.NewDecoder(os.Stdin), news: news, out: gob.NewEncoder(news), abandoned: make(chan struct{})}
	if err := l.in.Decode(order); err != nil {
		return nil, err
	}
	go l.listen()
	return l, nil
}

func (l *Line) listen() {
	accepted := false
	if l.in.Decode(&accepted) != nil || !accepted {
		close(l.abandoned)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.news.Close()
}

// Tell sends a message to the starter. It blocks while the starter is stopped.
func (l *Line) Tell(news any) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.Encode(news)
}

// Abandoned returns a channel that is closed if the starter ends or gives up before it has accepted the keeper.
func (l *Line) Abandoned() <-chan struct{} { return l.abandoned }

// Owner is the process that a keeper belongs to.
type Owner struct {
	process identity.Process
	handle  *os.Process
	ended   chan struct{}
}

// Watch watches a process, which might have ended already. Only on Linux does it distinguish the process from a later
// one with the same pid.
func Watch(p identity.Process) *Owner {
	o := &Owner{process: p, ended: make(chan struct{})}
	// If p still runs when we have the handle, the handle is for p, and not for a later process.
	handle, err := os.FindProcess(p.PID)
	if err == nil && !p.Ended() {
		o.handle = handle
	}
	go o.watch()
	return o
}

// Ended returns a channel that is closed when the process has ended.
func (o *Owner) Ended() <-chan struct{} { return o.ended }

// Signal sends the process a signal, if it hasn't ended.
func (o *Owner) Signal(sig os.Signal) error {
	if o.handle == nil || o.process.Ended() {
		return os.ErrProcessDone
	}
	return o.handle.Signal(sig)
}

// interval is the pause between two looks at the process on systems without pidfds.
const interval = time.Second

func (o *Owner) watch() {
	defer close(o.ended)
	if o.handle == nil {
		return
	}
	ended := false
	_ = o.handle.WithHandle(func(handle uintptr) { ended = wait(handle) }) // fails without a pidfd
	for !ended && !o.process.Ended() {
		time.Sleep(interval)
	}
}

// tokenLength is the length of a token without its suffix, and suffixLength the length of the suffix.
const (
	tokenLength  = 26
	suffixLength = 10
)

// NewToken returns a token of 128 random bits. If another user has taken the usual directory for sockets, the token has
// a suffix. The suffix names another directory, which no user could foresee.
func NewToken() string { return rand.Text() + newSuffix() }

var tokens = lazyregexp.New(fmt.Sprintf(`^[A-Z2-7]{%d}(\.[A-Z2-7]{%d})?$`, tokenLength, suffixLength))

// ids matches the id of a lock.
var ids = lazyregexp.New(`^[0-9a-f]{8,32}$`)

// CheckToken returns an error if NewToken can't have returned this token. Such a token must not become a file name. The
// error doesn't quote the token, because it might be a secret.
func CheckToken(token string) error {
	if !tokens.MatchString(token) {
		what := fmt.Sprintf("this is no token (%d bytes)", len(token))
		if ids.MatchString(token) {
			what = "this is the id of a lock, not a token"
		}
		return fmt.Errorf("%s: give the token that acquire printed: 26 capital letters and digits, perhaps with a suffix after a dot", what)
	}
	return nil
}

// socket returns the path of the socket for a token. keeper reports whether the caller is the keeper.
func socket(token string, keeper bool) (string, error) {
	if err := CheckToken(token); err != nil {
		return "", err
	}
	dir, err := socketDir(token[tokenLength:], keeper)
	return filepath.Join(dir, token[:tokenLength]), err
}

// forget removes the directory of a token's suffix, in which path was the only socket.
func forget(token, path string) {
	if len(token) > tokenLength {
		_ = os.Remove(filepath.Dir(path))
	}
}
