package redis

import "time"

// SetTakedownLimit lets a takedown last, on a machine that is slow.
func (b *Backend) SetTakedownLimit(d time.Duration) { b.takedownLimit = d }
