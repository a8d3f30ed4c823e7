// Package assert compares what a test got with what it wants, and reports a difference in one line.
package assert

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// Hang is the longest wait for an event. Only a hang reaches it, however busy the machine is.
const Hang = 10 * time.Minute

// OK ends the test if there is an error. Only the test's own goroutine may call it.
func OK(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Is fails the test unless the error is the wanted one; nil wants none. The case is a format and its
// arguments.
func Is(t testing.TB, err, want error, of ...any) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%sgot the error %v, want %v", prefix(of), err, want)
	}
}

// Says fails the test unless the error is the wanted one, and its text is one line that contains these words.
func Says(t testing.TB, err, want error, words string, of ...any) {
	t.Helper()
	Is(t, err, want, of...)
	if text := fmt.Sprint(err); !strings.Contains(text, words) || strings.ContainsAny(text, "\r\n") {
		t.Errorf("%sgot the error %q, want one line with %q", prefix(of), text, words)
	}
}

// Equal fails the test unless both are the same; an empty slice is the same as none. The case is a format
// and its arguments.
func Equal[T any](t testing.TB, got, want T, of ...any) {
	t.Helper()
	diff := cmp.Diff(want, got, cmpopts.EquateEmpty())
	if text := fmt.Sprintf("%sgot %s, want %s", prefix(of), show(got), show(want)); diff != "" && len(text) < 500 {
		t.Error(text)
	} else if diff != "" {
		t.Errorf("%s- is wanted, + is there:\n%s", prefix(of), diff)
	}
}

// That fails the test with this text unless the condition is true.
func That(t testing.TB, ok bool, format string, args ...any) {
	t.Helper()
	if !ok {
		t.Errorf(format, args...)
	}
}

// Need ends the test with this text unless the condition is true. Only the test's own goroutine may call it.
func Need(t testing.TB, ok bool, format string, args ...any) {
	t.Helper()
	if !ok {
		t.Fatalf(format, args...)
	}
}

// Output returns the output of a command. It ends the test unless the command succeeds.
func Output(t testing.TB, cmd *exec.Cmd) string {
	t.Helper()
	out, err := cmd.CombinedOutput()
	Need(t, err == nil, "%v: %v\n%s", cmd.Args, err, out)
	return string(out)
}

// Err returns the error of a call that has another result.
func Err[T any](_ T, err error) error { return err }

func prefix(of []any) string {
	switch len(of) {
	case 0:
		return ""
	case 1:
		return fmt.Sprint(of[0], ": ")
	}
	return fmt.Sprintf(of[0].(string), of[1:]...) + ": "
}

func show(v any) string {
	switch v.(type) {
	case string, []string:
		return fmt.Sprintf("%q", v)
	}
	return fmt.Sprintf("%+v", v)
}
