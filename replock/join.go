package replock

import "fmt"

// join returns the errors that aren't nil as one, in one line, or nil.
func join(errs ...error) error {
	var all error
	for _, err := range errs {
		switch {
		case all == nil:
			all = err
		case err != nil:
			all = fmt.Errorf("%w; %w", all, err)
		}
	}
	return all
}
