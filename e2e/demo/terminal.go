//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/creack/pty"
)

// terminal is a shell on a host, on a terminal whose screens are recorded.
type terminal struct {
	host  string
	shell *exec.Cmd
	pty   *os.File

	mu     sync.Mutex
	screen *screen
	film   []picture
	err    error // of the terminal
}

// picture is what a terminal shows from a time on.
type picture struct {
	at   time.Time
	rows []string
}

const columns = 80

func (p *place) terminal(ctx context.Context, host string, rows int) (*terminal, error) {
	t := &terminal{host: host, shell: p.host(ctx, host, "bash", "--norc", "--noprofile", "-i"), screen: newScreen(rows, columns)}
	t.shell.Env = append(t.shell.Env, "INPUTRC=/dev/null", "HISTFILE=")
	var err error
	if t.pty, err = pty.StartWithSize(t.shell, &pty.Winsize{Rows: uint16(rows), Cols: columns}); err != nil {
		return nil, err
	}
	go t.record()
	if err := t.shows(ctx, prompt(host)); err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.film = []picture{{time.Now(), t.screen.texts()}} // which begins with the prompt
	return t, nil
}

func (t *terminal) close() {
	_ = t.shell.Process.Kill()
	_ = t.shell.Wait()
	t.pty.Close()
}

// record shows all that the programs write, until the terminal is closed.
func (t *terminal) record() {
	buffer := make([]byte, 4096)
	for {
		n, err := t.pty.Read(buffer)
		if err != nil {
			return
		}
		t.mu.Lock()
		if _, err := t.screen.Write(buffer[:n]); err != nil && t.err == nil {
			t.err = err
		}
		if rows := t.screen.texts(); len(t.film) == 0 || !slices.Equal(rows, t.film[len(t.film)-1].rows) {
			t.film = append(t.film, picture{time.Now(), rows})
		}
		t.mu.Unlock()
	}
}

// enter types a command, a few letters at a time.
func (t *terminal) enter(command string) error {
	for typed := range slices.Chunk([]byte(command), 12) {
		if _, err := t.pty.Write(typed); err != nil {
			return err
		}
		time.Sleep(120 * time.Millisecond)
	}
	_, err := t.pty.Write([]byte("\r"))
	return err
}

// run types a command, and waits for the next prompt.
func (t *terminal) run(ctx context.Context, command string) error {
	before := t.prompts()
	if err := t.enter(command); err != nil {
		return err
	}
	return t.until(ctx, "the prompt after "+command, func() bool { return t.ready() && t.prompts() > before })
}

// shows waits for a text on the screen. A text that wraps is found, too.
func (t *terminal) shows(ctx context.Context, text string) error {
	return t.until(ctx, text, func() bool { return strings.Contains(t.joined(), strings.TrimSpace(text)) })
}

// ends waits for the next prompt.
func (t *terminal) ends(ctx context.Context) error {
	return t.until(ctx, "the prompt", t.ready)
}

func (t *terminal) until(ctx context.Context, what string, is func() bool) error {
	for end := time.Now().Add(hang); !is(); time.Sleep(20 * time.Millisecond) {
		t.mu.Lock()
		err := t.err
		t.mu.Unlock()
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s doesn't show %q, but\n%s", t.host, what, t.joined())
		}
	}
	return nil
}

func (t *terminal) now() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.screen.texts()
}

// joined is the screen's text without line breaks, as after a wrap.
func (t *terminal) joined() string { return strings.Join(t.now(), "") }

// prompts counts the prompts on the screen.
func (t *terminal) prompts() (n int) {
	for _, row := range t.now() {
		if strings.HasPrefix(row, strings.TrimSpace(prompt(t.host))) {
			n++
		}
	}
	return n
}

// ready reports whether the last row is an empty prompt.
func (t *terminal) ready() bool {
	rows := slices.DeleteFunc(t.now(), func(row string) bool { return row == "" })
	return len(rows) > 0 && rows[len(rows)-1] == strings.TrimSpace(prompt(t.host))
}

// killed kills the command that the shell runs, and nothing else, as kill -9 does.
func (t *terminal) killed() error {
	pid := t.shell.Process.Pid
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return err
	}
	children := strings.Fields(string(raw))
	if len(children) != 1 {
		return fmt.Errorf("%s runs the processes %q", t.host, children)
	}
	return exec.Command("kill", "-9", children[0]).Run()
}
