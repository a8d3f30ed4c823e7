package main

type releaseCmd struct{ tokenArg }

func (releaseCmd) Help() string {
	return `Exits with 79 if the lock was lost before, or if it is gone because it was released already or its keeper was killed: the
work under it might not have been protected. Exits with 69 if the lock couldn't be deleted and is left to expire.`
}

func (c releaseCmd) run(r *reporter, _ global) (int, error) {
	h, err := c.ask(r, "release")
	if err != nil {
		return 0, err
	}
	return 0, r.result(h, "")
}
