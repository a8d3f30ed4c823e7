package s3api

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"slices"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/internal/httptransport"
)

// signable returns an error if there are no credentials: ErrConfig if there never were, and
// one that might pass if a request was signed before, or if only the service of credentials failed.
func (s *Store) signable(ctx context.Context) error {
	err := s.client.Signable(ctx)
	switch {
	case err == nil:
		s.signed.Store(true)
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("looking for credentials: %w", ctx.Err())
	case s.signed.Load():
		return fmt.Errorf("the credentials that were used until now can't be renewed: %v", err)
	case errors.Is(err, fault.CredentialsLater):
		return err
	default:
		return fmt.Errorf("%w: %w", store.ErrConfig, err)
	}
}

// CredentialsLater returns a fault.CredentialsLater if a service of credentials that failed might not the next
// time, or nil. status is that of its answer, or 0; err is the failure, of a request or of a program that was to print
// the credentials. guessed is set if nothing says that there is such a service. The failure doesn't show that the
// store can't be reached.
func CredentialsLater(status int, guessed bool, err error) error {
	var dns *net.DNSError
	var exit *exec.ExitError
	why := ""
	switch {
	case status >= 300:
		if httptransport.Passing(status) {
			why = fmt.Sprintf("their service answers %d %s", status, http.StatusText(status))
		}
	case guessed:
	case errors.Is(err, context.DeadlineExceeded):
		why = "no answer from their service in time"
	case errors.As(err, &exit):
		if !slices.Contains([]int{126, 127}, exit.ExitCode()) { // a shell's: no such program
			why = fmt.Sprintf("their program fails: %s", exit)
		}
	case errors.As(err, &dns), httptransport.NoAnswer(err):
		why = fmt.Sprintf("no answer from their service: %s", httptransport.Innermost(err))
	}
	if why == "" {
		return nil
	}
	return fmt.Errorf("%w: %s", fault.CredentialsLater, why)
}
