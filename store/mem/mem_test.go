package mem_test

import (
	"testing"
	"time"

	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/mem"
	"github.com/repolock/repolock/store/storetest"
)

func TestContract(t *testing.T) {
	for name, opts := range map[string]mem.Options{
		"default":  {},
		"poor":     {Precision: time.Second, PageSize: 10, NoTime: true, IfAbsent: mem.Lacked, IfMatch: mem.Lacked},
		"versions": {IfAbsent: mem.Lacked, IfMatch: mem.Lacked, Versions: true},
		"ignoring": {IfAbsent: mem.Ignored, IfMatch: mem.Ignored},
		"claiming": {Precision: time.Second, IfAbsent: mem.Claimed, IfMatch: mem.Claimed},
	} {
		t.Run(name, func(t *testing.T) {
			storetest.Run(t, storetest.Config{
				New:       func(*testing.T) store.Store { return mem.New(opts) },
				Precision: opts.Precision,
			})
		})
	}
}
