package postgres

import (
	"context"
	"net"
	"strconv"
	"strings"
	"time"
)

// The largest timeouts that all systems accept.
const (
	maxIdle    = 2 * time.Hour
	maxSilence = 24 * 24 * time.Hour
)

// tune makes our system close a connection after the server has been silent for 11/12 of the ttl: at
// the holder's deadline.
func tune(c net.Conn, ttl time.Duration) {
	tcp, ok := c.(*net.TCPConn)
	if !ok || ttl <= 0 {
		return
	}
	silence := min(max(ttl*11/12, time.Second), maxSilence)
	_ = tcp.SetKeepAliveConfig(probing(silence))
	setUserTimeout(tcp, silence)
}

// probing makes a system give up on a peer after a silence: it begins to probe after half of it, and
// sends as many probes as fit into the other half.
func probing(silence time.Duration) net.KeepAliveConfig {
	idle := min(max(silence/2, time.Second), maxIdle).Truncate(time.Second)
	interval := min(max(silence/12, time.Second), maxIdle).Truncate(time.Second)
	count := min(max(int((silence-idle+interval-1)/interval), 1), 127)
	return net.KeepAliveConfig{Enable: true, Idle: idle, Interval: interval, Count: count}
}

// sessionSettings returns the settings of a session that holds a lock. The server ends the session
// only if the peer is silent for the ttl, and notices that at most a twelfth of the ttl later, or a
// second. The holder's deadline comes first: both times begin with the last packet that the server got.
func sessionSettings(ttl time.Duration) map[string]string {
	silence := min(max(ttl, time.Second), maxSilence)
	probe := probing(silence)
	return map[string]string{
		"statement_timeout":                   "0",
		"lock_timeout":                        "0",
		"idle_in_transaction_session_timeout": "0",
		"idle_session_timeout":                "0", // since PostgreSQL 14
		"transaction_timeout":                 "0", // since PostgreSQL 17
		"tcp_keepalives_idle":                 strconv.Itoa(int(probe.Idle / time.Second)),
		"tcp_keepalives_interval":             strconv.Itoa(int(probe.Interval / time.Second)),
		"tcp_keepalives_count":                strconv.Itoa(probe.Count),
		"tcp_user_timeout":                    strconv.FormatInt(silence.Milliseconds(), 10), // since PostgreSQL 12
	}
}

// set changes the settings of the session. It skips those that the server's version doesn't have.
func (c *conn) set(ctx context.Context, settings map[string]string) error {
	var names, values []string
	for name, value := range settings {
		names, values = append(names, name), append(values, value)
	}
	_, err := c.query(ctx, "select set_config(name, value, false) from pg_settings join "+
		"unnest($1::text[], $2::text[]) as wanted (name, value) using (name)",
		"{"+strings.Join(names, ",")+"}", "{"+strings.Join(values, ",")+"}")
	return err
}
