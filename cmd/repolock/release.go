package main

type releaseCmd struct{ tokenArg }

func (releaseCmd) Help() string {
	return `Exits with 79 if the lock had been lost before, or there is none any more, since it was released already or its keeper was
killed: what was done under it may not have been protected. With 69 the lock couldn't be deleted and is left to expire.`
}

func (c releaseCmd) run(r *reporter, _ global) (int, error) {
	h, err := c.ask("release")
	if err == nil && r.JSON {
		err = r.result(h)
	}
	return 0, err
}
