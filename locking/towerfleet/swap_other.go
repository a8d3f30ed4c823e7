//go:build !linux && !darwin

package towerfleet

import "errors"

// swap fails, because these systems can't exchange two files in one step.
func swap(string, string) error { return errors.ErrUnsupported }
