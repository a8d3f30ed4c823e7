package server

import "github.com/repolock/repolock/locking"

// Setting is one thing to look at when a server is examined.
type Setting = struct {
	What  string
	Cases []Case
}

// Case is a possible state of a setting.
type Case = struct {
	Is            bool // whether the server is in this state
	Verdict       locking.Verdict
	Found, Advice string
}

// Judge returns a finding for each setting: that of its first case that applies. It skips a setting
// without one.
func Judge(settings []Setting) (all []locking.Finding) {
	for _, s := range settings {
		for _, c := range s.Cases {
			if c.Is {
				all = append(all, locking.Finding{What: s.What, Found: c.Found, Verdict: c.Verdict, Advice: c.Advice})
				break
			}
		}
	}
	return all
}
