package main

import (
	"net/url"
	"strings"

	"github.com/repolock/repolock/store/open"
)

// redact takes out of a repository's URL what may be a secret. What is left of
// the URL of an object store still opens it: its credentials aren't there.
func redact(repo string) string {
	if !strings.Contains(repo, "://") {
		return repo
	}
	u, err := url.Parse(repo)
	if err != nil {
		return ""
	}
	if location, err := open.Parse(repo); err != nil || location.URL == nil {
		u.RawQuery = ""
	}
	u.User, u.Fragment = nil, ""
	return u.String()
}
