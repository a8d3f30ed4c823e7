package main

import "github.com/repolock/repolock/replock"

type pruneCmd struct{ commandFlags }

func (c pruneCmd) run(r *reporter, g global) (int, error) {
	return c.wrap(r, g, replock.Exclusive, "prune")
}
