package judge

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// section is a critical section that was started at t[0], entered at t[1], left at t[2], and
// ended at t[3].
func section(id string, mode Mode, t ...time.Duration) Section {
	return Section{ID: id, Mode: mode, Entered: true, Started: t[0], In: t[1], Last: t[2], Ended: t[3]}
}

// act is an act that was answered.
func (s Section) act(op, key string, call, ret time.Duration) Section {
	s.Acts = append(s.Acts, Act{Op: op, Key: key, Call: call, Return: ret, Answered: true})
	s.Last = max(s.Last, ret)
	return s
}

// unanswered is the last act of a section, without an answer.
func (s Section) unanswered(op, key string, call time.Duration) Section {
	s.Acts = append(s.Acts, Act{Op: op, Key: key, Call: call})
	s.Last = max(s.Last, call)
	return s
}

func (s Section) saw(key string, appeared bool, at time.Duration) Section {
	s.Changes = append(s.Changes, Change{Key: key, Appeared: appeared, At: at})
	s.Last = max(s.Last, at)
	return s
}

// crowd returns the sections of clients under a lock that works: each waits for its turn. Some
// are delayed for long before they enter, or after they have left.
func crowd(r *rand.Rand, clients, turns, acts int) (sections []Section) {
	free := make([]time.Duration, clients) // when a client's last section ended
	var shared, exclusive time.Duration    // when the last of a kind has left
	for n := range turns {
		c := r.IntN(clients)
		mode, in := Shared, max(free[c], exclusive)
		if r.IntN(4) == 0 {
			mode, in = Exclusive, max(free[c], exclusive, shared)
		}
		in += 1 + upTo(r, 20*time.Millisecond)
		s := section(fmt.Sprintf("c%d-%d", c, n), mode, free[c]+1, in, in, 0)
		t := in
		for i := range acts {
			call := t + upTo(r, 20*time.Millisecond)
			t = call + upTo(r, 20*time.Millisecond)
			s = s.act("put", fmt.Sprint(s.ID, "/", i), call, t)
		}
		if r.IntN(10) == 0 {
			s = s.unanswered("put", s.ID+"/x", t)
		}
		s.Ended = s.Last + upTo(r, 20*time.Millisecond)
		if r.IntN(20) == 0 {
			s.Ended += upTo(r, 15*time.Second)
		}
		if mode == Shared {
			shared = max(shared, s.Last)
		} else {
			exclusive = s.Last
		}
		free[c] = s.Ended
		sections = append(sections, s)
	}
	return sections
}

func upTo(r *rand.Rand, d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d))) }
