package s3api

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"slices"

	"github.com/repolock/repolock/store/internal/httptransport"
)

// PassingError is the reason that there are no credentials at this moment: their service failed, and
// might not the next time. It doesn't show that the store can't be reached.
type PassingError struct{ Why string }

func (e PassingError) Error() string {
	return "the credentials can't be retrieved now: " + e.Why
}

// StatusPasses returns a PassingError if a service of credentials with this status can succeed later.
func StatusPasses(status int) error {
	if !httptransport.Passing(status) {
		return nil
	}
	return PassingError{fmt.Sprintf("their service answers %d %s", status, http.StatusText(status))}
}

// FailurePasses returns a PassingError if a request for credentials that failed with err, without an
// answer, or a program that was to print them, can succeed later.
func FailurePasses(err error) error {
	var dns *net.DNSError
	var exit *exec.ExitError
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return PassingError{"no answer from their service in time"}
	case errors.As(err, &exit):
		if slices.Contains([]int{126, 127}, exit.ExitCode()) { // a shell's: no such program
			return nil
		}
		return PassingError{fmt.Sprintf("their program fails: %s", exit)}
	case errors.As(err, &dns), httptransport.NoAnswer(err):
		return PassingError{fmt.Sprintf("no answer from their service: %s", Innermost(err))}
	}
	return nil
}
