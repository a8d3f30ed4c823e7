package postgres

import (
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

// setting is one of a session.
type setting struct{ name, value string }

// sessionSettings are those of a session that holds a lock. No timeout ends it but that of a peer that
// is silent: after the ttl at the earliest, which is later than the holder's deadline, because
// both begin with the last packet that the server got. A silence is noticed by a probe, which
// comes at most a twelfth of the ttl later, or a second.
func sessionSettings(ttl time.Duration, version int) []setting {
	silence := min(max(ttl, time.Second), maxSilence)
	idle := min(max(silence/2, time.Second), maxIdle).Truncate(time.Second)
	interval := min(max(silence/12, time.Second), maxIdle).Truncate(time.Second)
	all := []setting{
		{"statement_timeout", "0"},
		{"lock_timeout", "0"},
		{"idle_in_transaction_session_timeout", "0"},
		{"tcp_keepalives_idle", strconv.Itoa(int(idle / time.Second))},
		{"tcp_keepalives_interval", strconv.Itoa(int(interval / time.Second))},
		{"tcp_keepalives_count", strconv.Itoa(probes(silence, idle, interval))},
	}
	for _, s := range []struct {
		since int
		setting
	}{
		{12, setting{"tcp_user_timeout", strconv.FormatInt(silence.Milliseconds(), 10)}},
		{14, setting{"idle_session_timeout", "0"}},
		{17, setting{"transaction_timeout", "0"}},
	} {
		if version >= s.since {
			all = append(all, s.setting)
		}
	}
	return all
}

// settingSQL sets them in one statement.
func settingSQL(all []setting) (sql string, args []string) {
	var calls []string
	for _, s := range all {
		args = append(args, s.name, s.value)
		calls = append(calls, "set_config($"+strconv.Itoa(len(args)-1)+", $"+strconv.Itoa(len(args))+", false)")
	}
	return "select " + strings.Join(calls, ", "), args
}

// release is the number at the beginning of "15.18 (Debian 15.18-0+deb12u1)" or "18beta1".
func release(version string) int {
	n, _ := strconv.Atoi(version[:len(version)-len(strings.TrimLeft(version, "0123456789"))])
	return n
}
