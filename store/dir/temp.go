package dir

import (
	"crypto/rand"
	"strings"
)

const (
	tempPrefix = ".repolock-"
	tempSuffix = ".tmp"
)

// newTemp is a name that no other process and no object has.
func newTemp() string { return tempPrefix + rand.Text() + tempSuffix }

func isTemp(name string) bool {
	return strings.HasPrefix(name, tempPrefix) && strings.HasSuffix(name, tempSuffix)
}
