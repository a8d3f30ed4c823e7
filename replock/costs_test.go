package replock

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/test/hookstore"
	"github.com/repolock/repolock/store/mem"
)

// The list prices of docs/costs.md, in dollars for a million requests. DELETE costs nothing on S3,
// nor do B2's class A calls: uploads and deletions.
const (
	s3Write = 5.0 // PUT, LIST
	s3Read  = 0.4 // GET
	b2B     = 0.4 // downloads
	b2C     = 4.0 // listings, also of versions, and signing in
	b2Free  = 2500
)

// The jobs of docs/costs.md: each machine backs up each night, for an hour, and one prune a week
// lasts an hour, too.
const (
	nights = 30.0
	prunes = nights / 7
	lasts  = time.Hour
)

// sent is the requests of one lock, from its acquire to its release.
type sent struct {
	put, replacing, list, get, delete int
}

// calls returns B2's calls of class B and C. A lookup of versions precedes each deletion and
// follows each upload that replaces an object; a process signs in once.
func (s sent) calls() (b, c float64) {
	return float64(s.get), float64(1 + s.list + s.delete + s.replacing)
}

func (s sent) s3() float64 { return (float64(s.put+s.list)*s3Write + float64(s.get)*s3Read) / 1e6 }

// lives counts the requests of a lock that is held for an hour, among others' locks.
func lives(t *testing.T, mode Mode, opts mem.Options, others int, change ...func(*Options)) (s sent) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, opts)
		if mode == Shared {
			w.flags(others)
		}
		m := w.machine(append(change, func(o *Options) { o.Rand = rand.NewChaCha8([32]byte{}) })...)
		m.earlier = m.early
		var replacing atomic.Int64
		m.hooks.Before(func(_ context.Context, r hookstore.Request) error {
			if r.Op == "put" && r.Opts.Replaces != "" {
				replacing.Add(1)
			}
			return nil
		})
		k, err := m.acquire(t.Context(), mode, "x")
		mustLock(t, k, err)
		time.Sleep(lasts)
		if err := k.Check(t.Context()); err != nil { // when the command has ended
			t.Error(err)
		}
		k.Release(t.Context())
		_, by := m.hooks.Count()
		s.replacing = int(replacing.Load())
		s.put, s.list, s.get, s.delete = by["put"], by["list"], by["get"], by["delete"]
	})
	return s
}

// priced is a store of docs/costs.md, with the price of a lock's requests.
type priced struct {
	name string
	opts mem.Options
}

var onS3, onB2 = priced{"S3", mem.Options{}}, priced{"B2", mem.Options{IfAbsent: mem.Lacked, IfMatch: mem.Lacked, Versions: true}}

// price is that of so many such locks in one day, in dollars. B2 has some calls free each day.
func (p priced) price(s sent, locks, free float64) float64 {
	if p.name == "S3" {
		return locks * s.s3()
	}
	b, c := s.calls()
	return (max(0, locks*b-free)*b2B + max(0, locks*c-free)*b2C) / 1e6
}

// seldom are the flags --ttl 10m --look 10m.
func seldom(o *Options) { o.TTL, o.Look = 10*time.Minute, 10*time.Minute }

// crowded is more locks than a holder's look lists.
const crowded = 2 * crowd

// TestCosts computes the tables of docs/costs.md, which must have them.
func TestCosts(t *testing.T) {
	page, err := os.ReadFile("../docs/costs.md")
	if err != nil {
		t.Fatal(err)
	}
	var requests strings.Builder
	month := map[int][]string{10: nil, 1_000: nil, 100_000: nil}
	for _, p := range []priced{onS3, onB2} {
		for _, c := range []struct {
			flags  string
			change func(*Options)
		}{{"", func(*Options) {}}, {" `--ttl 10m --look 10m`", seldom}} {
			backup, among, prune := lives(t, Shared, p.opts, 0, c.change), lives(t, Shared, p.opts, crowded, c.change), lives(t, Exclusive, p.opts, 0, c.change)
			for _, row := range []struct {
				name string
				s    sent
			}{{"backup", backup}, {"backup beside 200 others", among}, {"prune", prune}} {
				fmt.Fprintf(&requests, "| %s, %s%s | %d | %d | %d | %d | %.2f |\n",
					p.name, row.name, c.flags, row.s.put, row.s.list, row.s.get, row.s.delete, p.price(row.s, 1000, 0))
			}
			for machines := range month {
				s := among
				if machines < crowded {
					s = backup
				}
				month[machines] = append(month[machines], dollars(nights*p.price(s, float64(machines), b2Free)+prunes*p.price(prune, 1, 0)))
			}
		}
	}
	money := ""
	for _, n := range []int{10, 1_000, 100_000} {
		money += fmt.Sprintf("| %s | %s |\n", grouped(n), strings.Join(month[n], " | "))
	}
	for _, table := range []string{requests.String(), money} {
		if !strings.Contains(string(page), table) {
			t.Errorf("docs/costs.md doesn't have this table:\n%s", table)
		}
	}
}

// dollars rounds to two digits.
func dollars(v float64) string {
	switch {
	case v < 0.1:
		return fmt.Sprintf("%.3f", v)
	case v < 10:
		return fmt.Sprintf("%.2f", v)
	case v < 1000:
		return fmt.Sprintf("%.0f", v)
	default:
		return grouped(int(v/100+.5) * 100)
	}
}

func grouped(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", grouped(n/1000), n%1000)
}
