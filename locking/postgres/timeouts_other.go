//go:build !linux

package postgres

import (
	"net"
	"time"
)

// setUserTimeout does nothing, because these systems have only the probes of keepalive.
func setUserTimeout(*net.TCPConn, time.Duration) {}
