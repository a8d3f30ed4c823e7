//go:build !linux && !darwin

package towerfleet

import "errors"

// swap is what this system has no call for.
func swap(string, string) error { return errors.ErrUnsupported }
