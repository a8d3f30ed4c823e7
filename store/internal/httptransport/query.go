package httptransport

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/repolock/repolock/internal/lazyregexp"
	"github.com/repolock/repolock/store"
)

// Query reads a repository URL's parameters. It accepts only the known ones, each once and with a value. An underscore
// counts as a hyphen, because rclone and others write path_style.
func Query(u *url.URL, known ...string) (map[string]string, error) {
	values, err := url.ParseQuery(u.RawQuery)
	if err != nil && strings.Contains(u.RawQuery, ";") {
		return nil, fmt.Errorf("%w: it has a ; in its query: write & between its options, and %%3B for a ; in a value", store.ErrURL)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: its query can't be read", store.ErrURL)
	}
	query := make(map[string]string)
	for raw, vs := range values {
		name := strings.ReplaceAll(raw, "_", "-")
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("%w: it has an unknown parameter%s; known: %s", store.ErrURL, describeUnknown(raw, vs), strings.Join(known, ", "))
		}
		if _, twice := query[name]; twice || len(vs) != 1 {
			return nil, fmt.Errorf("%w: %s= is there twice", store.ErrURL, name)
		}
		if vs[0] == "" {
			return nil, fmt.Errorf("%w: %s= has no value", store.ErrURL, name)
		}
		query[name] = vs[0]
	}
	return query, nil
}

var parameterName = lazyregexp.New(`^[A-Za-z][A-Za-z_-]{0,31}$`)

// describeUnknown describes an unknown parameter. It shows the name only if it looks like a parameter's name and has a
// value, because any other text might be a secret.
func describeUnknown(name string, values []string) string {
	if !parameterName.MatchString(name) || values[0] == "" {
		return ", maybe a secret"
	}
	return fmt.Sprintf(" %q", name)
}
