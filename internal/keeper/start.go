package keeper

import (
	"encoding/gob"
	"errors"
	"os"
	"os/exec"
	"sync"
)

// Start runs our own program with these arguments as a keeper: in a session of its own,
// where no terminal reaches it, in our environment and directory, with what it writes to
// stdout and stderr in log, or nowhere. The order is what it is to keep, and encoded with
// gob.
func Start(args []string, order any, log *os.File) (*Starter, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	theirOrders, orders, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer theirOrders.Close()
	news, theirNews, err := os.Pipe()
	if err != nil {
		orders.Close()
		return nil, err
	}
	defer theirNews.Close()
	cmd := exec.Command(program, args...)
	cmd.Args[0] = os.Args[0]
	cmd.Stdin, cmd.ExtraFiles = theirOrders, []*os.File{theirNews}
	if log != nil {
		cmd.Stdout, cmd.Stderr = log, log
	}
	detach(cmd)
	s := &Starter{cmd: cmd, orders: orders, news: news, out: gob.NewEncoder(orders), in: gob.NewDecoder(news)}
	if err := cmd.Start(); err != nil {
		s.close()
		return nil, err
	}
	if err := s.out.Encode(order); err != nil {
		s.close()
		return nil, errors.Join(err, cmd.Wait())
	}
	return s, nil
}

// Starter is the starter's side of a keeper that it has started.
type Starter struct {
	cmd          *exec.Cmd
	orders, news *os.File
	out          *gob.Encoder
	in           *gob.Decoder
}

// PID is the keeper's.
func (s *Starter) PID() int { return s.cmd.Process.Pid }

// Next waits for what the keeper tells next, which is to be decoded into news. It is an
// error if it has ended.
func (s *Starter) Next(news any) error { return s.in.Decode(news) }

// Accept has the keeper stay when we end.
func (s *Starter) Accept() error { return s.out.Encode(accepted{true}) }

// GiveUp has the keeper end, unless it was accepted: Next tells when it has.
func (s *Starter) GiveUp() { s.orders.Close() }

func (s *Starter) close() {
	s.orders.Close()
	s.news.Close()
}

// accepted is what a starter says last.
type accepted struct{ Yes bool }

// Line is the keeper's side of the pipes to its starter.
type Line struct {
	in        *gob.Decoder
	mu        sync.Mutex
	news      *os.File
	out       *gob.Encoder
	abandoned chan struct{}
}

// Attach is what a keeper must begin with. It decodes the order.
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
	var a accepted
	if l.in.Decode(&a) != nil || !a.Yes {
		close(l.abandoned)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.news.Close()
}

// Tell tells the starter something. It waits for one that is stopped.
func (l *Line) Tell(news any) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.Encode(news)
}

// Abandoned is closed when the starter ended without having said that it is content.
func (l *Line) Abandoned() <-chan struct{} { return l.abandoned }
