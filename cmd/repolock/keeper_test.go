package main

import (
	"bytes"
	"encoding/gob"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/repolock/repolock/replock"
)

// TestKeeperOrder: a keeper gets each flag of its lock, those of other systems' locks, too.
func TestKeeperOrder(t *testing.T) {
	sent := keeperOrder{
		Flags:  lockFlags{TTL: time.Minute, Metadata: map[string]string{"a": "b"}, Also: []string{"beads:b", "redis://host?key=k"}, Settle: time.Second, ForceLock: true},
		Global: global{Repo: "s3://bucket", Name: "n"}, Mode: replock.Exclusive, Operation: "script", Token: "t", OnLost: "warn",
	}
	var pipe bytes.Buffer
	var got keeperOrder
	if err := gob.NewEncoder(&pipe).Encode(sent); err != nil {
		t.Fatal(err)
	}
	if err := gob.NewDecoder(&pipe).Decode(&got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(sent, got, cmpopts.IgnoreUnexported(global{})); diff != "" {
		t.Error(diff)
	}
}
