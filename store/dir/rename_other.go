//go:build unix && !linux && !darwin

package dir

import "errors"

func renameExclusive(int, string, string) error { return errors.ErrUnsupported }

func renameExchange(int, string, string) error { return errors.ErrUnsupported }
