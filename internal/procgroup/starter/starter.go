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
	path, args, env, ok := Decode(readAll(gate))
	if !ok {
		syscall.Exit(1)
	}
	err, _ := syscall.Exec(path, args, env).(syscall.Errno)
	_, _ = syscall.Write(result, number32(nil, uint32(err)))
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

// Encode returns the message that opens the gate: program, arguments and environment.
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

// Decode parses a message of Encode. ok is false if it is incomplete.
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

// Errno parses the error number in the starter's result.
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
