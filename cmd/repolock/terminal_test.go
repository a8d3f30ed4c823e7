//go:build unix

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/creack/pty"
)

// TestBreakLockAsks on a terminal, having listed what it will delete.
func TestBreakLockAsks(t *testing.T) {
	for answer, deleted := range map[string]bool{"y": true, "yes": true, "n": false, "": false, "what": false} {
		t.Run(answer, func(t *testing.T) {
			repo := t.TempDir()
			lock := filepath.Join(repo, "index", "lock.shared", "x")
			write(t, lock, "\x1b[2J garbage")
			bin, err := exec.LookPath("repolock") // testscript.Main put it there
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(bin, "-r", repo, "break-lock")
			terminal, err := pty.Start(cmd)
			if err != nil {
				t.Fatal(err)
			}
			defer terminal.Close()
			var shown strings.Builder
			buf := make([]byte, 1024)
			for !strings.Contains(shown.String(), "[y/N]") {
				n, err := terminal.Read(buf)
				if err != nil {
					t.Fatalf("%v: %s", err, shown.String())
				}
				shown.Write(buf[:n])
			}
			if !strings.Contains(shown.String(), "unreadable") || strings.Contains(shown.String(), "\x1b") {
				t.Errorf("shown: %q", shown.String())
			}
			if _, err := terminal.WriteString(answer + "\n"); err != nil {
				t.Fatal(err)
			}
			code := 0
			if err := cmd.Wait(); err != nil {
				code = err.(*exec.ExitError).ExitCode()
			}
			if _, err := os.Stat(lock); (err != nil) != deleted {
				t.Errorf("deleted: %v, want %v", err != nil, deleted)
			}
			if want := map[bool]int{true: 0, false: exitAborted}[deleted]; code != want {
				t.Errorf("exit code %d, want %d", code, want)
			}
		})
	}
}
