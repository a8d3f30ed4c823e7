//go:build !linux

package torture

import (
	"context"
	"errors"
)

// Run needs Linux, on which a trial finds all processes that a wrapper starts.
func (Trial) Run(context.Context) (TrialReport, error) {
	return TrialReport{}, errors.New("locks of other programs can be tried on Linux alone")
}
