package replock

import (
	"crypto/sha256"
	"sync"
	"time"
)

// maxSent is the number of bodies that sentBodies remembers. A ttl of 10 s needs hours to fill it.
const maxSent = 4096

// sentBodies remembers which bodies this process has sent under which keys, and when. Only an object with such a body
// is ours. No field of a body proves that: if a machine is cloned while it runs, two processes continue with one id,
// and each finds the other's bodies under its keys. If an old body is forgotten, the object counts as another's.
type sentBodies struct {
	mu    sync.Mutex
	at    map[mark]time.Duration // by Clock.Elapsed
	order []mark                 // oldest first
}

// mark is a hash of a key and a body, or of a key and an ETag.
type mark [16]byte

func markOf(kind, key, value string) mark {
	sum := sha256.Sum256([]byte(kind + "\x00" + key + "\x00" + value))
	return mark(sum[:16])
}

func bodyMark(key string, body []byte) mark { return markOf("body", key, string(body)) }

func etagMark(key, etag string) mark { return markOf("etag", key, etag) }

// note records a body before it is sent. If the same body was sent before, the earlier time stays.
func (s *sentBodies) note(m mark, sent time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.at[m]; ok {
		return
	}
	if len(s.order) == maxSent {
		delete(s.at, s.order[0])
		s.order = s.order[1:]
	}
	s.at[m], s.order = sent, append(s.order, m)
}

// find returns when we sent a body, or false if we didn't.
func (s *sentBodies) find(m mark) (time.Duration, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sent, ok := s.at[m]
	return sent, ok
}
