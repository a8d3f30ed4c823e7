package main

import (
	"encoding/json"
	"os"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/repolock/repolock/internal/identity"
)

// stale FILE MODE writes a lock of this machine's last boot, which is certainly over: by the clock
// since boot, or, on a system that can't compare that, by its age. MODE is shared or exclusive.
func stale(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: stale file mode")
	}
	self := identity.Self()
	self.User = ""
	old := time.Now().Add(-48 * time.Hour)
	raw, err := json.Marshal(struct {
		Operation     string    `json:"operation"`
		Holder        string    `json:"holder"`
		AcquiredAt    time.Time `json:"acquired_at"`
		ExpiresAt     time.Time `json:"expires_at"`
		IsShared      bool      `json:"is_shared"`
		TTL           int       `json:"ttl_seconds"`
		RefreshedBoot int64     `json:"refreshed_boot_ns"`
		identity.Process
	}{"backup", "laptop (pid 1)", old, old, args[1] == "shared", 10, 1, self})
	ts.Check(err)
	file := ts.MkAbs(args[0])
	ts.Check(os.WriteFile(file, raw, 0o600))
	ts.Check(os.Chtimes(file, old, old))
}
