package main

type renewCmd struct{ tokenArg }

func (renewCmd) Help() string {
	return `The keeper refreshes its lock by itself. Renew before a step that takes nearly as long as the ttl and can't be interrupted.
Exits with 79 as check does, and with 69 if the lock is held and couldn't be refreshed.`
}

func (c renewCmd) run(r *reporter, _ global) (int, error) { return 0, c.askAndShow(r, "renew") }
