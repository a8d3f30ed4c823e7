package torture

// Counts are what has happened so far. In JSON they only grow.
type Counts struct {
	// Shared and Exclusive locks whose child ran.
	Shared    int `json:"shared"`
	Exclusive int `json:"exclusive"`
	// Held: the lock was refused, because somebody else had it. Failed: it could
	// not be taken, for any other reason.
	Held   int `json:"held"`
	Failed int `json:"failed"`
	// Lost locks, and those that were resumed after their command was stopped.
	Lost    int `json:"lost"`
	Resumed int `json:"resumed"`
	// Faults that were inflicted.
	Killed     int `json:"killed"`
	Stopped    int `json:"stopped"`
	Terminated int `json:"terminated"`
	// Writes that were answered, and requests of children that weren't.
	Writes     int `json:"writes"`
	Unanswered int `json:"unanswered"`
	Violations int `json:"violations"`
}

// Acquisitions is how many locks were taken.
func (c Counts) Acquisitions() int { return c.Shared + c.Exclusive }

// fault counts one that was inflicted.
func (c *Counts) fault(f fault) {
	switch f {
	case kill:
		c.Killed++
	case stop:
		c.Stopped++
	case term:
		c.Terminated++
	}
}
