//go:build !linux

package clock

import "time"

type alarm struct{ c chan time.Time }

func newAlarm() *alarm { return nil }

func (a *alarm) set(time.Duration) bool { return false }
func (a *alarm) stop()                  {}
