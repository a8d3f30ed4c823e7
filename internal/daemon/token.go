package daemon

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"

	"github.com/repolock/repolock/internal/lazyregexp"
)

// Lengths of a token and of its suffix.
const (
	tokenLength  = 26
	suffixLength = 10
)

// NewToken returns a token of 128 random bits. If another user has taken the directory for
// its socket, the token has a suffix: it names a directory that no other user can have
// taken.
func NewToken() string { return rand.Text() + newSuffix() }

var tokens = lazyregexp.New(fmt.Sprintf(`^[A-Z2-7]{%d}(\.[A-Z2-7]{%d})?$`, tokenLength, suffixLength))

// ids matches what others see of a lock.
var ids = lazyregexp.New(`^[0-9a-f]{8,32}$`)

// CheckToken returns an error if NewToken can't have returned this token, which then must
// not become a file name. The error doesn't contain the token, which might be a secret.
func CheckToken(token string) error {
	if !tokens.MatchString(token) {
		what := fmt.Sprintf("this is no token (%d bytes)", len(token))
		if ids.MatchString(token) {
			what = "this is the id of a lock, which no token is"
		}
		return fmt.Errorf("%s: give what acquire printed, 26 capital letters and digits, with a suffix after a dot if there is one", what)
	}
	return nil
}

// socket returns the path on which the keeper with a token listens.
func socket(token string, keeper bool) (string, error) {
	if err := CheckToken(token); err != nil {
		return "", err
	}
	dir, err := socketDir(token[tokenLength:], keeper)
	return filepath.Join(dir, token[:tokenLength]), err
}

// forget removes the directory of a token's suffix, which is empty without its socket.
func forget(token, path string) {
	if len(token) > tokenLength {
		_ = os.Remove(filepath.Dir(path))
	}
}
