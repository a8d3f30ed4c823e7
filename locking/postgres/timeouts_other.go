//go:build !linux

package postgres

import (
	"net"
	"time"
)

// setUserTimeout does nothing: on these systems the probes of keepalive must suffice.
func setUserTimeout(*net.TCPConn, time.Duration) {}
