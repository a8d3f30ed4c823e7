package main

import "github.com/repolock/repolock/replock"

type restoreCmd struct{ commandFlags }

func (c restoreCmd) run(r *reporter, g global) (int, error) {
	return c.wrap(r, g, replock.Shared, "restore")
}
