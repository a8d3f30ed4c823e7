package daemon

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"

	"github.com/repolock/repolock/internal/lazyregexp"
)

// The lengths of a token without its suffix, and of the suffix.
const (
	tokenLength  = 26
	suffixLength = 10
)

// NewToken returns a token of 128 random bits. If another user has taken the usual directory for
// sockets, the token has a suffix, which names another directory that no user could foresee.
func NewToken() string { return rand.Text() + newSuffix() }

var tokens = lazyregexp.New(fmt.Sprintf(`^[A-Z2-7]{%d}(\.[A-Z2-7]{%d})?$`, tokenLength, suffixLength))

// ids matches the id of a lock.
var ids = lazyregexp.New(`^[0-9a-f]{8,32}$`)

// CheckToken returns an error if NewToken can't have returned this token. Such a token must not become
// a file name. The error doesn't quote it, because it might be a secret.
func CheckToken(token string) error {
	if !tokens.MatchString(token) {
		what := fmt.Sprintf("this is no token (%d bytes)", len(token))
		if ids.MatchString(token) {
			what = "this is the id of a lock, not a token"
		}
		return fmt.Errorf("%s: give the token that acquire printed: 26 capital letters and digits, perhaps with a suffix after a dot", what)
	}
	return nil
}

// socket returns the path of the socket for a token.
func socket(token string, keeper bool) (string, error) {
	if err := CheckToken(token); err != nil {
		return "", err
	}
	dir, err := socketDir(token[tokenLength:], keeper)
	return filepath.Join(dir, token[:tokenLength]), err
}

// forget removes the directory of a suffix, in which path was the only socket.
func forget(token, path string) {
	if len(token) > tokenLength {
		_ = os.Remove(filepath.Dir(path))
	}
}
