package replock

import "strings"

// joined is errors.Join in one line.
type joined []error

// join returns the errors that aren't nil as one, or nil.
func join(errs ...error) error {
	var j joined
	for _, err := range errs {
		if err != nil {
			j = append(j, err)
		}
	}
	switch len(j) {
	case 0:
		return nil
	case 1:
		return j[0]
	default:
		return j
	}
}

func (j joined) Error() string {
	texts := make([]string, len(j))
	for i, err := range j {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "; ")
}

// Unwrap is for errors.Is and errors.As.
func (j joined) Unwrap() []error { return j }
