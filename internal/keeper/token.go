package keeper

import (
	"crypto/rand"
	"fmt"
	"path/filepath"
	"regexp"
)

// NewToken returns a token that nobody can guess: 128 random bits.
func NewToken() string { return rand.Text() }

var tokens = regexp.MustCompile(`^[A-Z2-7]{26}$`)

// CheckToken returns an error for what NewToken can't have returned, and what may be no
// file's name. It doesn't repeat a wrong one, which may be anything.
func CheckToken(token string) error {
	if !tokens.MatchString(token) {
		return fmt.Errorf("this is no token (%d bytes): one has 26 letters and digits, as acquire printed them", len(token))
	}
	return nil
}

// socket is where the keeper with a token listens.
func socket(token string) (string, error) {
	if err := CheckToken(token); err != nil {
		return "", err
	}
	dir, err := Dir()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, token), nil
}
