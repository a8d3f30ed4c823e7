package main

import "github.com/repolock/repolock/replock"

type backupCmd struct{ commandFlags }

func (c backupCmd) run(r *reporter, g global) (int, error) {
	return c.wrap(r, g, replock.Shared, "backup")
}
