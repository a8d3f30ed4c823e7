//go:build !linux && !darwin

package towerfleet

import "errors"

// swap fails, because these systems have no such call.
func swap(string, string) error { return errors.ErrUnsupported }
