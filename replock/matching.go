package replock

import "github.com/repolock/repolock/store"

// matching is whether If-Match is relied on. A store that only claims it is
// relied on once this process has seen it refuse a wrong ETag and take the right
// one: some accept the condition and ignore it.
type matching int32

const (
	matchUnknown matching = iota
	matchNo
	matchYes
)

func initialMatching(c store.Condition) matching {
	switch c {
	case store.Kept:
		return matchYes
	case store.Claimed:
		return matchUnknown
	default:
		return matchNo
	}
}

func (l *Locker) matches() bool { return matching(l.matching.Load()) == matchYes }

func (l *Locker) learnMatching(m matching) { l.matching.CompareAndSwap(int32(matchUnknown), int32(m)) }
