// Package daemon starts, finds and asks a keeper: a background process that keeps a resource for a
// script. The package doesn't know the resource.
//
// Until the starter accepts the keeper, two pipes connect them. A keeper whose starter ends before it
// has accepted must end too. Later clients find the keeper by its token, which names a socket in a
// directory that only its user can use. The keeper lives until a client ends it, or until its owner
// ends: the process that it is tied to.
package daemon

import (
	"encoding/gob"
	"errors"
	"io"
	"os"
	"os/exec"
	"sync"

	"github.com/repolock/repolock/internal/procgroup"
)

// Start runs our own program with these arguments as a keeper, in our environment and directory. The
// keeper has a session of its own, so that no terminal reaches it. Its stdout and stderr go to log, or
// nowhere if log is nil. Attach receives the order, by gob.
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

// Starter is the starter's side of the pipes to a keeper.
type Starter struct {
	cmd    *exec.Cmd
	orders io.Closer
	out    *gob.Encoder // orders
	in     *gob.Decoder // news
}

// PID returns the keeper's process id.
func (s *Starter) PID() int { return s.cmd.Process.Pid }

// Next waits for the keeper's next message and decodes it into news. It fails when the keeper has ended.
func (s *Starter) Next(news any) error { return s.in.Decode(news) }

// Accept makes the keeper live on when we end.
func (s *Starter) Accept() error { return s.out.Encode(true) }

// GiveUp makes a keeper end that was not accepted. When it has ended, Next fails.
func (s *Starter) GiveUp() { s.orders.Close() }

// Line is the keeper's side of the pipes to its starter.
type Line struct {
	in        *gob.Decoder
	mu        sync.Mutex // guards news and out
	news      *os.File
	out       *gob.Encoder
	abandoned chan struct{}
}

// Attach connects a keeper to its starter and decodes the order. A keeper must call it before anything
// else.
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

// Abandoned is closed if the starter ends or gives up before it has accepted the keeper.
func (l *Line) Abandoned() <-chan struct{} { return l.abandoned }
