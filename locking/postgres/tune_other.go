//go:build !linux

package postgres

import (
	"net"
	"time"
)

// setUserTimeout does nothing: the probes of keepalive have to do.
func setUserTimeout(*net.TCPConn, time.Duration) {}
