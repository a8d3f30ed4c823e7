package dir

import (
	"fmt"
	"testing"

	"github.com/repolock/repolock/store"
)

var sink store.Object

// BenchmarkPut measures the table in docs/decisions/0001-fsync.md.
func BenchmarkPut(b *testing.B) {
	for name, opts := range map[string]store.PutOptions{"plain": {}, "durable": {Durable: true}} {
		for _, over := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/over=%v", name, over), func(b *testing.B) {
				s, err := Open(b.Context(), b.TempDir(), Options{})
				if err != nil {
					b.Fatal(err)
				}
				body := make([]byte, 600)
				for i := 0; b.Loop(); i++ {
					if over {
						i = 0
					}
					key := fmt.Sprintf("index/lock.shared/%d", i)
					if sink, err = s.Put(b.Context(), key, body, opts); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkList lists the flags of 100 shared holders.
func BenchmarkList(b *testing.B) {
	s, err := Open(b.Context(), b.TempDir(), Options{})
	if err != nil {
		b.Fatal(err)
	}
	for i := range 100 {
		key := fmt.Sprintf("index/lock.shared/%d", i)
		if _, err := s.Put(b.Context(), key, make([]byte, 600), store.PutOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		if page, err := s.List(b.Context(), "index/lock.", ""); err != nil || len(page.Objects) != 100 {
			b.Fatal(err)
		}
	}
}
