// Package flock locks an open file or directory by flock(2). Another process, or another open
// file of this process, can't lock it meanwhile. The lock ends when the file is closed, also by
// the end of the process.
package flock

import "os"

// Close frees the flock and closes the file. A close alone doesn't free it while a process that
// this one is starting still has the file.
func Close(f *os.File) {
	Unlock(f)
	f.Close()
}
