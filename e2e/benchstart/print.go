//go:build linux

package main

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
)

// print prints the table.
func print(all []*subject, sizes []size, turns int) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s/%s, %d CPUs; %s; medians of %d in turns.\n\n", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version(), turns)
	for _, s := range sizes {
		fmt.Fprintf(&b, "- repolock %s: %.1f MB\n", s.name, float64(s.bytes)/1e6)
	}
	b.WriteString("\n| | million instructions | page faults | CPU ms | ms |\n| :-- | --: | --: | --: | --: |\n")
	for _, s := range all {
		if s.heading != "" {
			fmt.Fprintf(&b, "| **%s** | | | | |\n", s.heading)
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", s.name, figure("%.2f", s.instructions, 1e6), figure("%.0f", s.faults, 1),
			figure("%.1f", s.cpu, 1), figure("%.1f", s.took, 1))
	}
	_, err := io.WriteString(os.Stdout, b.String())
	return err
}

// figure returns the median in a unit, or a dash if there is none.
func figure(format string, all []float64, unit float64) string {
	if len(all) == 0 {
		return "–"
	}
	sorted := slices.Sorted(slices.Values(all))
	return fmt.Sprintf(format, sorted[len(sorted)/2]/unit)
}
