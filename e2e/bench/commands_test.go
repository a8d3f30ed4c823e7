//go:build linux

package main

import (
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/proxy"
)

// TestLockPart: restic's lock ends with the first deletion under locks/, and requests
// elsewhere are no part of it.
func TestLockPart(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	entry := func(op, key string, start, end int) proxy.Entry {
		return proxy.Entry{Request: proxy.Request{Op: op, Key: key}, Start: at(start), End: at(end)}
	}
	acquire, release := lockPart(proxy.Log{
		entry("get", "restic/config", 0, 1),
		entry("list", "restic/locks/", 2, 3),
		entry("put", "restic/locks/1", 4, 9),
		entry("get", "restic/locks/2", 5, 6),
		entry("get", "restic/index/1", 10, 20),
		entry("delete", "restic/locks/1", 21, 24),
		entry("list", "restic/locks/", 24, 25),
	}, "restic/locks/")
	if len(acquire) != 3 || span(acquire) != 7*time.Second {
		t.Errorf("acquire: %v, %v", span(acquire), acquire)
	}
	if len(release) != 2 || span(release) != 4*time.Second {
		t.Errorf("release: %v, %v", span(release), release)
	}
}
