package main

import (
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/replock"
)

type runCmd struct {
	Shared    bool   `xor:"mode" help:"Hold a shared lock."`
	Exclusive bool   `xor:"mode" help:"Hold the exclusive lock."`
	NoLock    bool   `xor:"mode" help:"Hold no lock: for operations that need none, such as a list or the command's own dry run."`
	Operation string `placeholder:"NAME" default:"run" help:"The operation that others see."`
	commandFlags
}

func (c runCmd) Help() string {
	return c.commandFlags.Help() + " The locks of --also alone need neither --shared nor --exclusive."
}

func (c runCmd) run(r *reporter, g global) (int, error) {
	switch {
	case c.NoLock && len(c.Also) > 0:
		return 0, fault.New(fault.Usage, "--no-lock: holds none of the locks of --also: give one of the two")
	case c.NoLock:
		return c.wrap(r, g, 0, "")
	case c.Shared:
		return c.wrap(r, g, replock.Shared, c.Operation)
	case c.Exclusive:
		return c.wrap(r, g, replock.Exclusive, c.Operation)
	case g.Repo == "" && g.unknown == nil && len(c.Also) > 0:
		c.modeless = true
		return c.wrap(r, g, replock.Exclusive, c.Operation)
	default:
		if _, err := c.command(r.command); err != nil {
			return 0, err // a misspelled --exclusive
		}
		return 0, fault.New(fault.Usage, "say which lock: --shared, --exclusive or --no-lock")
	}
}
