package torture

// Counts counts what has happened so far. Fields of the JSON are only ever added.
type Counts struct {
	// Shared and Exclusive count the locks whose child ran.
	Shared    int `json:"shared"`
	Exclusive int `json:"exclusive"`
	// Held counts attempts refused because of another holder, and Failed those that failed
	// for another reason.
	Held   int `json:"held"`
	Failed int `json:"failed"`
	// Lost counts lost locks, and Resumed those resumed after their command was stopped.
	Lost    int `json:"lost"`
	Resumed int `json:"resumed"`
	// Faults inflicted.
	Killed     int `json:"killed"`
	Stopped    int `json:"stopped"`
	Terminated int `json:"terminated"`
	// Writes counts answered writes, and Unanswered requests without an answer.
	Writes     int `json:"writes"`
	Unanswered int `json:"unanswered"`
	Violations int `json:"violations"`
}

// Acquisitions returns the number of locks taken.
func (c Counts) Acquisitions() int { return c.Shared + c.Exclusive }
