//go:build !linux

package torture

import (
	"context"
	"errors"
)

// Run returns an error: only Linux shows all processes that a wrapper starts.
func (Trial) Run(context.Context) (TrialReport, error) {
	return TrialReport{}, errors.New("--with needs Linux: locks of other programs can't be tried on this system")
}
