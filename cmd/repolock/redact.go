package main

import (
	"net/url"
	"strings"
)

// redact takes out of a repository's URL what may be a secret: user, password
// and query.
func redact(repo string) string {
	if !strings.Contains(repo, "://") {
		return repo
	}
	u, err := url.Parse(repo)
	if err != nil {
		return ""
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return u.String()
}
