package main

type checkCmd struct{ tokenArg }

func (checkCmd) Help() string {
	return `Looks into the repository, so that a lock that somebody broke isn't taken for held. If the repository can't be reached the
lock is held for as long as its lease lasts. Exits with 79 if the lock was lost, and why, or if nobody holds it any more.`
}

func (c checkCmd) run(r *reporter, _ global) (int, error) { return 0, c.askAndShow(r, "check") }
