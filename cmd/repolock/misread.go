package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"github.com/repolock/repolock/cmd/internal/session"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/lazyregexp"
	"github.com/repolock/repolock/internal/procgroup"
	"github.com/repolock/repolock/internal/regular"
)

// misnamed returns why a path that doesn't exist was perhaps not meant so, or "".
func misnamed(path string) string {
	quote := func(q string) bool { return len(path) > 1 && strings.HasPrefix(path, q) && strings.HasSuffix(path, q) }
	switch {
	case strings.HasPrefix(path, "~"):
		return tildeHint
	case quote(`"`), quote(`'`):
		return "the quotes are part of this name: leave them out where it is set (Docker's --env-file keeps them)"
	case strings.TrimSpace(path) != path:
		return "the name begins or ends with a space, or has the end of a line of Windows: leave it out where it is set"
	case strings.HasPrefix(path, "="):
		return "the = is part of this name: write -r NAME, or --repo=NAME"
	case runtime.GOOS != "windows" && strings.HasPrefix(path, `\`):
		return `the name has \ in place of /: it is one of Windows, or a shell has left it`
	case lazyregexp.New(`^[\w.-]+@[\w.-]+:`).MatchString(path):
		return notOverSSH
	default:
		return ""
	}
}

const notOverSSH = "repolock keeps no locks over ssh: name a bucket, or a directory that all machines mount"

// namesRepository reports whether a word is rather a repository than a command.
func namesRepository(word string) bool {
	if strings.Contains(word, "://") {
		return true
	}
	info, err := os.Stat(word)
	return err == nil && info.IsDir()
}

// byFlag says how to name a repository.
func byFlag(word string) string { return "a repository is named by a flag: -r " + harmless(word) }

// harmless is a word of the command line without what can be a secret: in a URL, or the value of a
// variable.
func harmless(word string) string {
	switch {
	case setting(word):
		name, _, _ := strings.Cut(word, "=")
		return name + "=…"
	case strings.Contains(word, "://"):
		return cmp.Or(session.Redact(word), "URL")
	default:
		return word
	}
}

// setting reports whether a word sets a variable, as a shell does.
func setting(word string) bool { return lazyregexp.New(`^[A-Za-z_]\w*=`).MatchString(word) }

// unrunnable adds a hint to the error of a command that could not be run.
func unrunnable(args []string, err error) error {
	class := procgroup.ErrNotFound
	if !errors.Is(err, class) {
		class = procgroup.ErrNotExecutable
	}
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	if len(args) == 0 || !errors.Is(err, class) {
		return err
	}
	word := args[0]
	if safe := harmless(word); safe != word {
		err = fmt.Errorf("%s: %w", safe, class)
	}
	switch {
	case slices.Contains(args, "--") && namesRepository(word):
		return fault.Advise(err, byFlag(word))
	case strings.IndexAny(word, "‐‑‒–—―−") == 0:
		return fault.Advise(err, "its dash isn't a hyphen, as if a word processor had written it: type it again")
	case setting(word):
		return fault.Advise(err, "only a shell sets a variable like this: write env in front")
	case strings.Contains(word, " "):
		return fault.Advise(err, "quotes make one word of the whole command: leave them out, or write sh -c in front")
	case slices.Contains(ofShell[:], word):
		return fault.Advise(err, "it is a part of the shell: write sh -c '"+word+" ...'")
	case strings.HasPrefix(word, "~"):
		return fault.Advise(err, tildeHint)
	case errors.Is(err, procgroup.ErrNotExecutable) && errors.Is(err, syscall.ENOENT):
		return fault.Advise(err, noInterpreter(word))
	case errors.Is(err, syscall.ENOEXEC):
		return fault.Advise(err, "it isn't a program of this machine, and a script's first line is #!/bin/sh or the like: write sh in front of a script")
	case !strings.Contains(word, "/") && errors.Is(err, procgroup.ErrNotFound):
		return fault.Advise(err, "no directory of PATH has it; cron, systemd and sudo have a shorter PATH: write where it is")
	default:
		return err
	}
}

// noInterpreter explains why a file that is there isn't found.
func noInterpreter(program string) string {
	path, err := exec.LookPath(program)
	if err != nil {
		path = program
	}
	file, err := regular.Open(path)
	if err != nil {
		return "what is to run it isn't there"
	}
	defer file.Close()
	begin := make([]byte, 128)
	n, _ := file.Read(begin)
	line, _, _ := strings.Cut(string(begin[:n]), "\n")
	by, script := strings.CutPrefix(line, "#!")
	if !script {
		return "its dynamic loader isn't there: it was built for another system"
	}
	why := ""
	if strings.HasSuffix(by, "\r") {
		why = ", because its lines end as on Windows"
	}
	return fmt.Sprintf("its first line names a program that isn't there: %.80q%s", strings.Trim(by, " \t"), why)
}

// ofShell are commands of a shell that are no programs.
var ofShell = [...]string{"cd", "export", "source", ".", "ulimit", "umask", "set", "exec", "eval", "if", "for", "while"}
