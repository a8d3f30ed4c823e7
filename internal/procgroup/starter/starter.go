//go:build unix

// Package starter is the process that becomes a command once its gate is opened.
//
// Go can't do anything between fork(2) and execve(2). If we were stopped right after them,
// a command would run that no guard knows of. So we fork our own program as the starter
// first, and open the gate when the guard knows its group.
//
// The starter works in init, and imports only syscall. Go initialises a package as soon as
// its imports are, in the order of the paths. So the starter is done before the packages of
// the object stores are initialised, which takes longer than all else that it does.
package starter

import "syscall"

// Variable is the environment variable that makes our own program the starter: "GATE
// RESULT", two file descriptors. The command doesn't inherit it.
const Variable = "__REPOLOCK_STARTER"

// Ready is the starter's first word, when it has the command and executes it. The error number follows
// if that fails.
const Ready = 'r'

func init() {
	if files, ok := syscall.Getenv(Variable); ok {
		run(files)
	}
}

// run executes the command once the gate is opened, and exits if the gate is closed.
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

// number parses the number at the beginning of a text.
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

// Decode parses the message that opens the gate: the number of strings and how many of them
// are arguments, then program, arguments and environment, each with its length before it. ok
// is false if the message is incomplete.
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
