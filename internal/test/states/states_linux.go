package states

import (
	"os"
	"strconv"

	"github.com/repolock/repolock/internal/procstat"
)

// processes reads /proc: small systems have no ps.
func processes() (all []process) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		panic(err)
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		s, ok := procstat.Read(e.Name())
		if !ok {
			continue
		}
		if s.State == "Z" && !s.Ended {
			s.State = "R"
		}
		all = append(all, process{pid, s.Group, s.State})
	}
	return all
}
