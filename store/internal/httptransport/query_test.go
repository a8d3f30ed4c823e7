package httptransport

import (
	"errors"
	"maps"
	"net/url"
	"strings"
	"testing"

	"github.com/repolock/repolock/store"
)

// TestQuery: the error names an unknown parameter, and shows nothing that might be a secret.
func TestQuery(t *testing.T) {
	for query, want := range map[string]map[string]string{
		"":                            {},
		"path-style=true&tls=false":   {"path-style": "true", "tls": "false"},
		"path_style=true":             {"path-style": "true"},
		"path_style=true&path-style=": nil,
	} {
		got, err := Query(&url.URL{RawQuery: query}, "path-style", "tls")
		if (err == nil) != (want != nil) || want != nil && !maps.Equal(got, want) {
			t.Errorf("%q: %v, %v", query, got, err)
		}
	}
	for query, says := range map[string]string{
		"pathstyle=true":                   `unknown parameter "pathstyle"; known: path-style, tls`,
		"secret_access_key=topsecret":      `unknown parameter "secret_access_key"`,
		"topsecret":                        "unknown parameter, maybe a secret",
		"topsecret=":                       "unknown parameter, maybe a secret",
		"topsecret0=x":                     "unknown parameter, maybe a secret",
		"topsecret%0a=x":                   "unknown parameter, maybe a secret",
		"topsecret%zz":                     "can't be read",
		"tls=":                             "tls= has no value",
		"tls=true&tls=false":               "tls= is there twice",
		"path_style=true&path-style=false": "path-style= is there twice",
	} {
		_, err := Query(&url.URL{RawQuery: query}, "path-style", "tls")
		if !errors.Is(err, store.ErrURL) || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "topsecret") {
			t.Errorf("%q: %v", query, err)
		}
	}
}
