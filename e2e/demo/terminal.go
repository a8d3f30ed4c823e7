//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// terminal is a shell on a host, in a terminal of tmux's whose screens are recorded.
type terminal struct {
	host string
	dir  string // of tmux's socket

	mu   sync.Mutex
	film []picture
	err  error // of tmux
}

// picture is what a terminal shows from a time on.
type picture struct {
	at   time.Time
	rows []string
}

const columns = 80

func (p *place) terminal(ctx context.Context, host string, rows int) (*terminal, error) {
	dir, err := os.MkdirTemp("/tmp", "repolock-demo-") // TMPDIR can be too long for sockets
	if err != nil {
		return nil, err
	}
	t := &terminal{host: host, dir: dir}
	if err := os.WriteFile(filepath.Join(dir, "conf"), []byte("set -g status off\n"), 0o600); err != nil {
		return nil, err
	}
	shell := p.host(ctx, host, "bash", "--norc", "--noprofile", "-i")
	begin := t.tmux(append([]string{"-f", filepath.Join(dir, "conf"), "new-session", "-d", "-x", fmt.Sprint(columns), "-y", fmt.Sprint(rows)}, shell.Args...)...)
	begin.Env = append(shell.Env, "INPUTRC=/dev/null", "HISTFILE=")
	if out, err := begin.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("tmux: %w: %s", err, out)
	}
	go t.record()
	if err := t.shows(ctx, prompt(host)); err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.film = t.film[len(t.film)-1:] // which begins with the prompt
	return t, nil
}

func (t *terminal) tmux(args ...string) *exec.Cmd {
	return exec.Command("tmux", append([]string{"-u", "-S", filepath.Join(t.dir, "socket")}, args...)...)
}

func (t *terminal) close() {
	_ = t.tmux("kill-server").Run()
	_ = os.RemoveAll(t.dir)
}

// record notes each change of the screen, until the terminal is closed.
func (t *terminal) record() {
	for ; ; time.Sleep(20 * time.Millisecond) {
		out, err := t.tmux("capture-pane", "-p").Output()
		rows := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
		for i, row := range rows {
			rows[i] = strings.TrimRight(row, " ")
		}
		t.mu.Lock()
		t.err = err
		if err == nil && (len(t.film) == 0 || !slices.Equal(rows, t.film[len(t.film)-1].rows)) {
			t.film = append(t.film, picture{time.Now(), rows})
		}
		t.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// enter types a command, a few letters at a time.
func (t *terminal) enter(command string) error {
	for typed := range slices.Chunk([]byte(command), 12) {
		if last := len(typed) - 1; typed[last] == ';' { // tmux takes it for the end of its own command
			typed = append(typed[:last:last], `\;`...)
		}
		if err := t.tmux("send-keys", "-l", "--", string(typed)).Run(); err != nil {
			return err
		}
		time.Sleep(120 * time.Millisecond)
	}
	return t.tmux("send-keys", "Enter").Run()
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

// now returns the rows of the screen.
func (t *terminal) now() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.film) == 0 {
		return nil
	}
	return t.film[len(t.film)-1].rows
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
	pid, err := t.tmux("display-message", "-p", "#{pane_pid}").Output()
	if err != nil {
		return err
	}
	shell := strings.TrimSpace(string(pid))
	raw, err := os.ReadFile("/proc/" + shell + "/task/" + shell + "/children")
	if err != nil {
		return err
	}
	children := strings.Fields(string(raw))
	if len(children) != 1 {
		return fmt.Errorf("%s runs the processes %q", t.host, children)
	}
	return exec.Command("kill", "-9", children[0]).Run()
}
