package keeper

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
)

// Lengths of a token and of its suffix.
const (
	tokenLength  = 26
	suffixLength = 10
)

// NewToken returns a token that nobody can guess: 128 random bits. It has a suffix if
// another user has taken the directory that its socket would be in: the suffix names one
// that nobody can have taken.
func NewToken() string { return rand.Text() + newSuffix() }

var tokens = regexp.MustCompile(fmt.Sprintf(`^[A-Z2-7]{%d}(\.[A-Z2-7]{%d})?$`, tokenLength, suffixLength))

// CheckToken returns an error for what NewToken can't have returned, and what may be no
// file's name. It doesn't repeat a wrong one, which may be anything.
func CheckToken(token string) error {
	if !tokens.MatchString(token) {
		return fmt.Errorf("this is no token (%d bytes): give what acquire printed, 26 letters and digits, with a suffix after a dot if there is one", len(token))
	}
	return nil
}

// socket is where the keeper with a token listens. Only for the keeper is the directory of a
// suffix made.
func socket(token string, keeper bool) (string, error) {
	if err := CheckToken(token); err != nil {
		return "", err
	}
	name, suffix := token[:tokenLength], token[tokenLength:]
	if suffix != "" {
		dir, err := suffixed(suffix, keeper)
		return filepath.Join(dir, name), err
	}
	dir, err := Dir()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, name), nil
}

// forget removes the directory of a token's suffix, which is empty without its socket.
func forget(token, path string) {
	if len(token) > tokenLength {
		_ = os.Remove(filepath.Dir(path))
	}
}
