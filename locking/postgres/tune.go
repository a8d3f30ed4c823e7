package postgres

import (
	"context"
	"net"
	"strconv"
	"strings"
	"time"
)

// Bounds of what systems accept.
const (
	maxIdle    = 2 * time.Hour
	maxSilence = 24 * 24 * time.Hour
)

// tune makes our system end a connection whose server is silent for as long as a holder waits,
// 11/12 of the ttl. Then the guard has stopped the command anyway.
func tune(c net.Conn, ttl time.Duration) {
	tcp, ok := c.(*net.TCPConn)
	if !ok || ttl <= 0 {
		return
	}
	silence := min(max(ttl*11/12, time.Second), maxSilence)
	idle := min(max(silence/2, time.Second), maxIdle)
	interval := min(max(silence/12, time.Second), maxIdle)
	_ = tcp.SetKeepAliveConfig(net.KeepAliveConfig{
		Enable: true, Idle: idle, Interval: interval, Count: probes(silence, idle, interval),
	})
	setUserTimeout(tcp, silence)
}

// probes is the number of unanswered probes that reach the silence.
func probes(silence, idle, interval time.Duration) int {
	return min(max(int((silence-idle+interval-1)/interval), 1), 127)
}

// sessionSettings are those of a session that holds a lock. No timeout ends it but that of a peer that
// is silent: after the ttl at the earliest, which is later than the holder's deadline, because
// both begin with the last packet that the server got. A silence is noticed by a probe, which
// comes at most a twelfth of the ttl later, or a second.
func sessionSettings(ttl time.Duration) map[string]string {
	silence := min(max(ttl, time.Second), maxSilence)
	idle := min(max(silence/2, time.Second), maxIdle).Truncate(time.Second)
	interval := min(max(silence/12, time.Second), maxIdle).Truncate(time.Second)
	return map[string]string{
		"statement_timeout":                   "0",
		"lock_timeout":                        "0",
		"idle_in_transaction_session_timeout": "0",
		"idle_session_timeout":                "0", // since PostgreSQL 14
		"transaction_timeout":                 "0", // since PostgreSQL 17
		"tcp_keepalives_idle":                 strconv.Itoa(int(idle / time.Second)),
		"tcp_keepalives_interval":             strconv.Itoa(int(interval / time.Second)),
		"tcp_keepalives_count":                strconv.Itoa(probes(silence, idle, interval)),
		"tcp_user_timeout":                    strconv.FormatInt(silence.Milliseconds(), 10), // since PostgreSQL 12
	}
}

// set changes those settings of a session that its server knows.
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
