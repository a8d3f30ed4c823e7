package main

type renewCmd struct{ tokenArg }

func (renewCmd) Help() string {
	return `Locks are refreshed by themselves; this is for before what takes nearly as long as a lock lives and can't be interrupted.
Exits with 79 as check does, and with 69 if the lock is held and couldn't be refreshed.`
}

func (c renewCmd) run(r *reporter, _ global) (int, error) { return 0, c.askAndShow(r, "renew") }
