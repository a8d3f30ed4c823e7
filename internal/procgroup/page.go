//go:build unix

package procgroup

import (
	"os"

	"github.com/repolock/repolock/internal/procgroup/guard"
)

// openPage maps the page that all guards of the group share. Its file has no name, so that no other process can
// open it.
func (g *Group) openPage() (err error) {
	if g.pageFile, err = memoryFile(); err != nil {
		if g.pageFile, err = os.CreateTemp("", guard.Name); err != nil {
			return err
		}
		_ = os.Remove(g.pageFile.Name())
	}
	// On a full disk this write fails. If the file were only extended, an access to the mapping would end our
	// process instead.
	if _, err = g.pageFile.Write(make([]byte, guard.Size)); err == nil {
		g.page, err = guard.Map(int(g.pageFile.Fd()))
	}
	return err
}
