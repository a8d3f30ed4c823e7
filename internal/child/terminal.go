//go:build unix

package child

import (
	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// terminal is our controlling terminal; fd is -1 if there is none.
type terminal struct {
	fd     int
	modes  *term.State // before the group had it: echo, line by line, …
	paused *term.State // the group's own, while it is paused
}

// openTerminal opens /dev/tty, since the standard streams may be redirected.
func openTerminal() terminal {
	fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return terminal{fd: -1}
	}
	return terminal{fd: fd}
}

func (t terminal) close() {
	if t.fd >= 0 {
		_ = unix.Close(t.fd)
	}
}

// foreground is the group that has the terminal, or 0.
func (t terminal) foreground() int {
	if t.fd < 0 {
		return 0
	}
	pgid, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
	if err != nil {
		return 0
	}
	return pgid
}

// Foreground reports whether this process has the terminal.
func Foreground() bool {
	t := openTerminal()
	defer t.close()
	return t.ours()
}

func (t terminal) ours() bool { return t.foreground() == unix.Getpgrp() }

// lend gives the terminal to the group if it is ours to give.
func (t *terminal) lend(pgid int) {
	if !t.ours() {
		return
	}
	if t.modes == nil {
		t.modes, _ = term.GetState(t.fd)
	}
	t.setModes(t.paused)
	t.paused = nil
	t.set(pgid)
}

// pause has the terminal as it was before, so that Ctrl-C works, until it is lent again.
func (t *terminal) pause() {
	if t.ours() {
		t.paused, _ = term.GetState(t.fd)
		t.restore()
	}
}

// restore puts the modes back that a command which was killed can't, as a shell does.
func (t *terminal) restore() {
	if t.ours() {
		t.setModes(t.modes)
	}
}

func (t terminal) setModes(modes *term.State) {
	if modes != nil {
		defer withoutTTOU()()
		_ = term.Restore(t.fd, modes)
	}
}

// takeBack gives the terminal to us, if the group has it or a group that is no
// more; a shell that has taken it keeps it.
func (t terminal) takeBack(pgid int) {
	now := t.foreground()
	if now == pgid || now > 1 && unix.Kill(-now, 0) == unix.ESRCH {
		t.set(unix.Getpgrp())
	}
}

func (t terminal) set(pgid int) {
	// From the background this is allowed only to a thread that blocks or a
	// process that ignores SIGTTOU: tcsetpgrp(3).
	defer withoutTTOU()()
	_ = unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, pgid)
}
