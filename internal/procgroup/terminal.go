//go:build unix

package procgroup

import (
	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// terminal is our controlling terminal. fd is -1 if there is none.
type terminal struct {
	fd     int
	modes  *term.State // our modes, from before the group had the terminal
	paused *term.State // the group's modes, while it is paused
}

// openTerminal opens /dev/tty, because the standard streams might be redirected.
func openTerminal() terminal {
	fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return terminal{fd: -1}
	}
	return terminal{fd: fd}
}

// none is returned by foreground if no group has the terminal, or there is no terminal.
const none = -1

func (t terminal) close() { _ = unix.Close(t.fd) }

// foreground returns the group that has the terminal, or none. For a group in another pid namespace it returns 0,
// as getpgrp(2) does.
func (t terminal) foreground() int {
	pgid, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
	if err != nil {
		return none
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

// lend gives the terminal to the group if we have it.
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

// pause restores our modes until lend, so that Ctrl-C works.
func (t *terminal) pause() {
	if t.ours() {
		t.paused, _ = term.GetState(t.fd)
		t.restore()
	}
}

// restore puts the terminal's modes back, as a shell does after a command was killed.
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

// takeBack takes the terminal from the group, or from a group that no longer exists. It doesn't take it from
// another group, such as a shell's.
func (t terminal) takeBack(pgid int) {
	now := t.foreground()
	if now == pgid || now > 1 && unix.Kill(-now, 0) == unix.ESRCH {
		t.set(unix.Getpgrp())
	}
}

func (t terminal) set(pgid int) {
	// A background process gets SIGTTOU, and must block or ignore it: tcsetpgrp(3).
	defer withoutTTOU()()
	_ = unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, pgid)
}
