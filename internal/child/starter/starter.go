//go:build unix

// Package starter is the process that becomes a command once its gate is opened.
//
// fork(2) and execve(2) can't be told apart in Go, and whoever is stopped between them,
// or right after, has a command that runs and that no guard has heard of. So what is
// forked first is our own program as the starter, and the gate is opened when the guard
// knows its group.
//
// It does its work in init, and imports nothing but syscall, because packages are
// initialised as soon as what they import is, in the order of their paths: it is gone
// before those of the object stores are, which take longer than all else that it does.
package starter

import "syscall"

// Variable tells our own program that it is the starter: "GATE RESULT", the numbers of
// two files. It isn't passed on to the command.
const Variable = "__REPOLOCK_STARTER"

func init() {
	if files, ok := syscall.Getenv(Variable); ok {
		run(files)
	}
}

// run is the starter's life. If nobody opens the gate any more it just ends.
func run(files string) {
	gate, files := number(files)
	result, _ := number(files)
	syscall.CloseOnExec(gate)
	syscall.CloseOnExec(result)
	path, args, env, ok := Decode(readAll(gate))
	if !ok {
		syscall.Exit(1)
	}
	err, _ := syscall.Exec(path, args, env).(syscall.Errno)
	_, _ = syscall.Write(result, number32(nil, uint32(err)))
	syscall.Exit(126)
}

// number takes one off the beginning of a text.
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

// Encode is what opens the gate: the program, its arguments and its environment.
func Encode(path string, args, env []string) (message []byte) {
	for _, list := range [][]string{{path}, args, env} {
		message = number32(message, uint32(len(list)))
		for _, s := range list {
			message = number32(message, uint32(len(s)))
			message = append(message, s...)
		}
	}
	return message
}

// Decode understands it, if it is whole.
func Decode(message []byte) (path string, args, env []string, ok bool) {
	var lists [3][]string
	for i := range lists {
		var count uint32
		if count, message, ok = take32(message); !ok {
			return "", nil, nil, false
		}
		for range count {
			var n uint32
			if n, message, ok = take32(message); !ok || uint32(len(message)) < n {
				return "", nil, nil, false
			}
			lists[i] = append(lists[i], string(message[:n]))
			message = message[n:]
		}
	}
	ok = len(lists[0]) == 1 && len(message) == 0
	if !ok {
		return "", nil, nil, false
	}
	return lists[0][0], lists[1], lists[2], true
}

// Errno is the error number that the starter told as its result.
func Errno(result []byte) syscall.Errno {
	n, _, _ := take32(result)
	return syscall.Errno(n)
}

func number32(b []byte, n uint32) []byte {
	return append(b, byte(n), byte(n>>8), byte(n>>16), byte(n>>24))
}

func take32(b []byte) (n uint32, rest []byte, ok bool) {
	if len(b) < 4 {
		return 0, b, false
	}
	return uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24, b[4:], true
}
