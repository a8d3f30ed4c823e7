package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/repolock/repolock/cmd/internal/session"
	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/replock"
)

// lockTable lists locks, one a line, the waiting ones last, and notes about some of them below. It
// is at most width columns wide.
func lockTable(locks []found[replock.Info], width int) string {
	if len(locks) == 0 {
		return "no locks\n"
	}
	var ids []string
	for _, l := range locks {
		ids = append(ids, l.lock.ID)
	}
	var columns []column
	sorted := slices.SortedStableFunc(slices.Values(locks), func(a, b found[replock.Info]) int { return session.ByTurn(a.lock, b.lock) })
	add := func(c column, cell func(replock.Info) string) {
		for _, l := range sorted {
			c.cells = append(c.cells, cell(l.lock))
		}
		columns = append(columns, c)
	}
	add(column{name: "VERDICT"}, verdict)
	add(column{name: "MODE"}, func(i replock.Info) string { return i.Mode.String() })
	add(column{name: "OPERATION", least: 12}, func(i replock.Info) string { return text.Or(i.Operation, "-") })
	add(column{name: "HOLDER", least: 24}, holderCell)
	add(column{name: "FOR", drop: 2}, func(i replock.Info) string { return cell(heldFor(i))(text.Duration) })
	add(column{name: "LAST SEEN", drop: 1}, func(i replock.Info) string { return cell(lastSeen(i))(text.Ago) })
	if width == allColumns {
		add(column{name: "SINCE"}, func(i replock.Info) string { return since(i.Acquired) })
		add(column{name: "EXPIRES"}, left)
		add(column{name: "ID"}, func(i replock.Info) string { return text.Or(i.ID, "-") })
		add(column{name: "KEY"}, func(i replock.Info) string { return text.Brief(i.Key()) })
	} else {
		add(column{name: "ID", drop: 3}, func(i replock.Info) string { return shortID(i.ID, ids) })
	}
	if slices.ContainsFunc(locks, func(l found[replock.Info]) bool { return l.place != "" }) {
		c := column{name: "PLACE", least: 20}
		for _, l := range sorted {
			c.cells = append(c.cells, text.Escape(cmp.Or(l.place, "-")))
		}
		columns = append(columns, c)
	}
	shown := table(columns, width)
	for _, l := range sorted {
		shown += folded(notes(l.lock, ids, width == allColumns), width)
	}
	return shown
}

// verdict returns what a person needs to know about a lock first. A lock that is waited for isn't
// live, and one whose process is gone is dead, whatever its ttl.
func verdict(i replock.Info) string {
	switch {
	case i.Verdict == replock.Unreadable || i.Verdict == replock.Released:
		return i.Verdict.String()
	case i.ProcessGone:
		return "dead"
	case i.Verdict == replock.Live && i.State == replock.StateWaiting:
		return "waiting"
	default:
		return i.Verdict.String()
	}
}

func holderCell(i replock.Info) string {
	if i.Holder == "" {
		return "-"
	}
	return who(i)
}

// cell formats a length of time, if there is one.
func cell(d time.Duration, ok bool) func(func(time.Duration) string) string {
	return func(format func(time.Duration) string) string {
		if !ok {
			return "-"
		}
		return format(d)
	}
}

// notes explains the verdict on a lock, a sentence a line.
func notes(i replock.Info, ids []string, whole bool) (lines string) {
	name := shortID(i.ID, ids)
	if whole || i.ID == "" {
		name = text.Brief(cmp.Or(i.ID, i.Key()))
	}
	note := func(words string) { lines += name + ": " + words + "\n" }
	if i.ProcessGone {
		note("its holder was a process of this machine, which is gone")
	}
	if i.Why != "" {
		note(text.Brief(i.Why))
	}
	if !i.StoreClock && i.Verdict != replock.Unreadable && !i.Expires.IsZero() {
		note("the store doesn't tell its time; what is left is by this machine's clock")
	}
	return lines
}

func since(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}

// left returns when a lock expires if it isn't refreshed.
func left(i replock.Info) string {
	switch {
	case i.Verdict == replock.Unreadable:
		return "never"
	case i.TTL == 0 && i.Expires.IsZero():
		return "-"
	case i.Left <= 0:
		return text.Ago(-i.Left)
	default:
		return "in " + text.Duration(i.Left)
	}
}

// refusal is the text of a HeldError for people: the lock, how many hold it, and the first of them.
// It leaves out the keys, which Error has.
func refusal(e session.HeldError) string {
	is, by := "locked", " by "
	switch {
	case e.More == 0 && onlyWaiters(e.Holders):
		is, by = "reserved", " for "
	case e.Place.Repo == "" || e.Place.Name != "":
		is = "held"
	}
	if e.Waited >= time.Second/2 {
		is = "still " + is + " after " + text.Duration(e.Waited)
	}
	s := e.Place.Title() + " is " + is + by + holders(e.Holders, e.More, 0)
	if e.Err != nil {
		s += "; stopped waiting: " + text.Error(e.Err)
	}
	return s
}

// onlyWaiters reports whether a lock has no holder, but is reserved for those who wait.
func onlyWaiters(locks []replock.Info) bool {
	return len(locks) > 0 && !slices.ContainsFunc(locks, func(i replock.Info) bool { return !session.Waits(i) })
}

// maxHolders is the number of holders that a message names.
const maxHolders = 3

// mostNamed is the number of holders that an event of a wait names at most. There can be more.
const mostNamed = 16

// holders describes the first of some locks, since after they were read, and says how many there
// are. Waiters don't count as holders: it describes them only if there is no holder.
func holders(all []replock.Info, more int, since time.Duration) string {
	if len(all) == 0 {
		return "a holder that wasn't seen"
	}
	orMore := ""
	if more == 0 && len(all) >= mostNamed {
		orMore = " or more"
	}
	all = slices.SortedStableFunc(slices.Values(all), session.ByTurn)
	waiting := ""
	if n := slices.IndexFunc(all, session.Waits); n > 0 {
		all, waiting = all[:n], othersWait(len(all)-n)
	}
	var words []string
	for _, h := range all[:min(len(all), maxHolders)] {
		words = append(words, holder(h, since))
	}
	s := strings.Join(words, "; ")
	if n := len(all) + more; n > 1 {
		s = fmt.Sprintf("%d%s: %s", n, orMore, s)
	}
	switch more += len(all) - len(words); {
	case orMore != "":
		s += "; … more: repolock status"
	case more > 0:
		s += fmt.Sprintf("; … %d more: repolock status", more)
	}
	return s + waiting
}

// othersWait says how many wait for the lock beside its holders.
func othersWait(n int) string {
	if n == 1 {
		return "; 1 other waits"
	}
	return fmt.Sprintf("; %d others wait", n)
}

// holder describes a lock, since after it was read: the operation, its process and user, how long
// it has held or waited, and how long ago that process was seen.
func holder(i replock.Info, since time.Duration) string {
	if i.Verdict == replock.Unreadable {
		s := fmt.Sprintf("an unreadable %s lock", i.Mode)
		if seen, ok := lastSeen(i); ok {
			s += ", written " + text.Ago(seen+since)
		}
		return s + ": " + text.Brief(i.Why)
	}
	s := who(i)
	if i.Holder == "" && i.Why != "" && i.Verdict != replock.Doubtful {
		return fmt.Sprintf("%s, whose lock can't be read just now: %s", s, text.Brief(i.Why))
	}
	if i.Operation != "" {
		s = text.Or(i.Operation, "-") + " on " + s
	}
	if i.ProcessGone {
		s += ", process gone"
	} else if held, ok := heldFor(i); ok && i.State == replock.StateWaiting {
		s += ", waiting for " + text.Duration(held+since)
	} else if ok {
		s += " for " + text.Duration(held+since)
	} else if i.State == replock.StateWaiting {
		s += ", waiting"
	}
	if seen, ok := lastSeen(i); ok {
		s += ", last seen " + text.Ago(seen+since)
	}
	switch {
	case i.ProcessGone:
	case i.Verdict == replock.Stale:
		s += ", stale"
	case i.Verdict == replock.Doubtful:
		s += ", perhaps stale: " + text.Brief(i.Why)
	}
	return s
}

// who names the machine, the process and the user of a lock: web1 (pid 782, root).
func who(i replock.Info) string {
	host, pid := process(i.Holder)
	name := text.Or(host, "an unknown holder")
	var parts []string
	if pid != 0 {
		parts = append(parts, fmt.Sprintf("pid %d", pid))
	}
	if strings.TrimSpace(i.User) != "" {
		parts = append(parts, text.Brief(i.User))
	}
	if len(parts) > 0 {
		name += " (" + strings.Join(parts, ", ") + ")"
	}
	return name
}

// process returns the two parts of a holder as repolock and Cloudstic write it: HOST (pid N). Of
// any other text it returns the whole, and no pid.
func process(holder string) (host string, pid int) {
	if host, rest, ok := strings.Cut(holder, " (pid "); ok {
		if digits, ok := strings.CutSuffix(rest, ")"); ok {
			if pid, err := strconv.Atoi(digits); err == nil && pid > 0 {
				return host, pid
			}
		}
	}
	return holder, 0
}

// heldFor returns how long ago a lock was acquired. Its holder wrote both times that are compared,
// so that it doesn't matter what this machine's clock says. It reports false if the lock doesn't
// say when it was acquired.
func heldFor(i replock.Info) (time.Duration, bool) {
	if i.Acquired.IsZero() {
		return 0, false
	}
	if i.Expires.IsZero() || i.TTL <= 0 {
		return max(clock.System{}.Now().Sub(i.Acquired), 0), true
	}
	refreshed := i.Expires.Add(-i.TTL)
	return max(refreshed.Sub(i.Acquired), 0) + max(i.Age, 0), true
}

// lastSeen returns how long ago the holder wrote its lock. It reports false for a lock that isn't
// written again while it is held.
func lastSeen(i replock.Info) (time.Duration, bool) {
	if i.ModTime.IsZero() && !i.StoreClock && (i.Verdict == replock.Unreadable || i.Expires.IsZero()) {
		return 0, false
	}
	return max(i.Age, 0), true
}

// shortID is the beginning of an id that distinguishes it from all others. It is safe to show on a
// terminal, because another program can have written the id.
func shortID(id string, all []string) string {
	const least = 8
	for n := least; n < len(id); n++ {
		unique := true
		for _, other := range all {
			unique = unique && (other == id || !strings.HasPrefix(other, id[:n]))
		}
		if unique {
			return text.Brief(id[:n])
		}
	}
	return text.Or(id, "-")
}
