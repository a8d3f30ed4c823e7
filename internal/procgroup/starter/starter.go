//go:build unix

// Package starter is the process that becomes a command when its gate is opened.
//
// Go runs no code of ours between fork(2) and execve(2). If we started a command directly, and were stopped
// right after that, the command would run without a guard. So we start our own program as the starter, and
// open the gate when the guard knows the group.
//
// The starter runs in init, and imports only syscall. Go initialises a package as soon as its imports are
// initialised, in the order of the paths. So the starter runs before the packages of the object stores are
// initialised, which would take most of its time.
package starter

import "syscall"

// Variable is the environment variable that makes our own program the starter. Its value is "GATE RESULT",
// two file descriptors. The command doesn't inherit it.
const Variable = "__REPOLOCK_STARTER"

// Ready is the byte that the starter sends before it executes the command. If that fails, the error number
// follows.
const Ready = 'r'

func init() {
	if files, ok := syscall.Getenv(Variable); ok {
		run(files)
	}
}

// run executes the command when the gate is opened. It exits if the gate is closed instead.
func run(files string) {
	gate, files := number(files)
	result, _ := number(files)
	syscall.CloseOnExec(gate)
	syscall.CloseOnExec(result)
	path, args, env, ok := Decode(string(readAll(gate)))
	if !ok {
		syscall.Exit(1)
	}
	_, _ = syscall.Write(result, []byte{Ready})
	err, _ := syscall.Exec(path, args, env).(syscall.Errno)
	_, _ = syscall.Write(result, []byte{byte(err), byte(err >> 8)})
	syscall.Exit(126)
}

// number parses the number at the beginning of a text. rest begins after the next character.
func number(s string) (n int, rest string) {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return n, s[i+1:]
		}
		n = 10*n + int(s[i]-'0')
	}
	return n, ""
}

func readAll(file int) (all []byte) {
	buf := make([]byte, 64<<10)
	for {
		n, err := syscall.Read(file, buf)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || n <= 0 {
			return all
		}
		all = append(all, buf[:n]...)
	}
}

// Decode parses the message that opens the gate: the number of all strings, the number of arguments, and
// then the program, the arguments and the environment, each after its length. It reports false if the
// message is incomplete.
func Decode(message string) (path string, args, env []string, ok bool) {
	total, message := number(message)
	nargs, message := number(message)
	var all []string
	for message != "" {
		n, rest := number(message)
		if n > len(rest) {
			return "", nil, nil, false
		}
		all, message = append(all, rest[:n]), rest[n:]
	}
	if len(all) != total || nargs >= total {
		return "", nil, nil, false
	}
	return all[0], all[1 : 1+nargs], all[1+nargs:], true
}
