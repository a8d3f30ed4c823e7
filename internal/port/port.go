// Package port reads the port of a URL.
package port

import (
	"errors"
	"net/url"
	"strconv"
	"strings"
)

// Of returns the port of a URL, or 0 if it has none. It returns an error for a port that no server can have, because a
// request to such a port would fail as if the server were down.
func Of(u *url.URL) (uint16, error) {
	text := u.Port()
	if text == "" && !strings.HasSuffix(u.Host, ":") {
		return 0, nil
	}
	return Parse(text)
}

// Parse parses a port.
func Parse(text string) (uint16, error) {
	if text == "" {
		return 0, errors.New("there is no port after the colon")
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 {
		return 0, errors.New("its port isn't from 1 to 65535")
	}
	return uint16(n), nil
}
