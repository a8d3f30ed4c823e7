package text

import (
	"slices"
	"strings"
)

// joined is errors.Join in one line.
type joined []error

// Join returns the errors that aren't nil as one, or nil. Its text is one line, if theirs are.
func Join(errs ...error) error {
	errs = slices.DeleteFunc(slices.Clone(errs), func(err error) bool { return err == nil })
	switch len(errs) {
	case 0:
		return nil
	case 1:
		return errs[0]
	default:
		return joined(errs)
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
