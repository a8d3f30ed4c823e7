//go:build unix && programs

package towerfleet

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/repolock/repolock/internal/clock"
)

// script is the document's script, with the heartbeat of its section 5.3, for a directory.
type script struct{ file, dir string }

// script extracts the script from the document, and changes nothing in it.
func (w *world) script() script {
	w.Helper()
	for _, program := range []string{"bash", "jq", "mv"} {
		if _, err := exec.LookPath(program); err != nil {
			w.Fatal(err)
		}
	}
	manager := section(w, "#!/bin/bash\n", "\nexport -f acquire_lock release_lock is_lock_stale\n")
	heartbeat := section(w, "update_heartbeat() {", "\n}\n")
	file := filepath.Join(w.TempDir(), "lock-manager.sh")
	if err := os.WriteFile(file, []byte(manager+heartbeat), 0o600); err != nil {
		w.Fatal(err)
	}
	return script{file, w.dir}
}

// section is the part of the document that begins and ends with two texts.
func section(t testing.TB, from, to string) string {
	t.Helper()
	_, text, ok := strings.Cut(document(t), from)
	text, _, ok2 := strings.Cut(text, to)
	if !ok || !ok2 {
		t.Fatalf("the document has no %s", from)
	}
	return from + text + to
}

// command runs shell commands after the script's definitions, in the script's own directory.
func (s script) command(commands string) *exec.Cmd {
	c := exec.Command("bash", "-c", `source "$0"; LOCK_DIR=$1; `+commands, s.file, s.dir)
	c.Env = append(os.Environ(), "ACTOR=script")
	return c
}

func (s script) run(commands string) (string, error) {
	out, err := s.command(commands).CombinedOutput()
	return string(out), err
}

// stepped is a script that stops before each of its commands.
type stepped struct {
	w      *world
	cmd    *exec.Cmd
	steps  *bufio.Reader
	onward *os.File
	out    bytes.Buffer
	at     int // the command that it is to run next, from 1
	ended  bool
	err    error
}

// step starts a script that stops before each command, until it is let go on.
func (w *world) step(s script, commands string) *stepped {
	w.Helper()
	steps, announce, err := os.Pipe()
	if err != nil {
		w.Fatal(err)
	}
	await, onward, err := os.Pipe()
	if err != nil {
		w.Fatal(err)
	}
	p := &stepped{w: w, steps: bufio.NewReader(steps), onward: onward}
	p.cmd = s.command("set -T; trap 'echo >&3; read -r -u 4 || :' DEBUG; " + commands)
	p.cmd.ExtraFiles = []*os.File{announce, await}
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	err = p.cmd.Start()
	announce.Close()
	await.Close()
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		p.end()
		steps.Close()
	})
	return p
}

// to lets the script run until it is before its nth command, or has ended.
func (p *stepped) to(nth int) {
	for !p.ended && p.at < nth {
		if p.at > 0 {
			if _, err := p.onward.Write([]byte("\n")); err != nil {
				p.end()
				return
			}
		}
		if _, err := p.steps.ReadByte(); err != nil {
			p.end()
			return
		}
		p.at++
	}
}

// end lets the script run to its end, and reports whether it succeeded.
func (p *stepped) end() bool {
	if !p.ended {
		p.ended = true
		p.onward.Close() // it reads the end of the pipe from now on
		_, _ = io.Copy(io.Discard, p.steps)
		p.err = p.cmd.Wait()
	}
	return p.err == nil
}

// outside is a world on the machine's clock.
func outside(t *testing.T) *world {
	return &world{T: t, dir: filepath.Join(t.TempDir(), "locks")}
}

// system is a backend on the machine's clock, without Settle unless opts have one.
func (w *world) system(opts Options) *Backend {
	w.Helper()
	if opts.Settle == 0 {
		opts.Settle = -1
	}
	if opts.Clock == nil {
		opts.Clock = clock.System{}
	}
	return w.backend(opts)
}
