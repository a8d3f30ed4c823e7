package main

import (
	"strings"

	"github.com/repolock/repolock/store/open"
)

// schemes names the repository URLs for --help: "s3:, minio:, b2: or file:".
func schemes() string {
	var buckets []string
	for _, s := range open.Schemes()[1:] {
		buckets = append(buckets, s.Name+":")
	}
	return strings.Join(buckets, ", ") + " or " + open.Schemes()[0].Name + ":"
}

// schemeVariables has an item of the manual page for each scheme that reads credentials from
// the environment.
func schemeVariables() []string {
	var items []string
	for _, s := range open.Schemes() {
		if s.Environment != "" {
			items = append(items, s.Environment+", for "+s.Name+": repositories")
		}
	}
	return items
}
