package main

type checkCmd struct{ tokenArg }

func (checkCmd) Help() string {
	return `Looks into the repository, and so notices that the lock was broken. If the repository can't be reached, the lock is held as
long as its lease lasts, and a warning says so. Exits with 79 if the lock was lost, and prints why, or if its keeper is gone.`
}

func (c checkCmd) run(r *reporter, _ global) (int, error) { return 0, c.askAndShow(r, "check") }
