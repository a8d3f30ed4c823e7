package show

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/repolock/repolock/cmd/internal/session"
	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/replock"
)

// Lock is a lock that was found at a place. Only break-lock sets Err.
type Lock struct {
	*replock.Broken
	Place string // the URL of the place; "" if only one place was asked
	Title string // of the place, for people
	Older bool   // than --older-than
}

// LockTable lists locks, one a line, with waiters last, and below them notes about some locks. No line is wider than
// width.
func LockTable(locks []Lock, width int) string {
	t := LockList{Width: width}
	return t.Add(locks) + t.End()
}

// LockList is a LockTable that is printed in parts. The columns are as wide as the cells so far need, and each part has
// its notes below it.
type LockList struct {
	Width  int   // of the table
	Many   bool  // there are so many parts that the first 8 characters of an id might be another lock's, too
	widths []int // of the columns of the last part, or nil
}

// Add returns the lines of some locks, waiters last.
func (t *LockList) Add(locks []Lock) string {
	if len(locks) == 0 {
		return ""
	}
	columns, short := t.columns(locks)
	widths := fitted(columns, t.Width)
	named := t.widths == nil
	switch {
	case named:
	case t.Width == allColumns || t.Width == unbounded: // no name among the lines, because a program might read them
		for i := range widths {
			widths[i] = max(widths[i], t.widths[i])
		}
	default:
		named = !slices.Equal(widths, t.widths)
	}
	t.widths = widths
	var b strings.Builder
	b.WriteString(rows(columns, widths, t.Width, named))
	for i := range locks {
		b.WriteString(Folded(notes(locks[i].Info, short, t.Width == allColumns), t.Width))
	}
	return b.String()
}

// End returns the line of a list without locks, or "".
func (t *LockList) End() string {
	if t.widths == nil {
		return "no locks\n"
	}
	return ""
}

// columns returns the columns of some locks, which it sorts, and the function that shortens their ids.
func (t *LockList) columns(locks []Lock) (columns []Column, short func(id string) string) {
	slices.SortStableFunc(locks, func(a, b Lock) int { return session.ByTurn(a.Info, b.Info) })
	ids := make([]string, len(locks))
	for i, l := range locks {
		ids[i] = l.ID
	}
	least := 8
	if t.Many {
		least = 12
	}
	short = shortIDs(ids, least)
	add := func(c Column, cell func(replock.Info) string) {
		c.Cells = make([]string, len(locks))
		for i := range locks {
			c.Cells[i] = cell(locks[i].Info)
		}
		columns = append(columns, c)
	}
	add(Column{Name: "VERDICT"}, Verdict)
	add(Column{Name: "MODE"}, func(i replock.Info) string { return i.Mode.String() })
	add(Column{Name: "OPERATION", Least: 12}, func(i replock.Info) string { return text.Or(i.Operation, "-") })
	add(Column{Name: "HOLDER", Least: 24}, holderCell)
	add(Column{Name: "FOR", Drop: 2}, formatted(HeldFor, text.Duration))
	add(Column{Name: "LAST SEEN", Drop: 1}, formatted(lastSeen, text.Ago))
	if t.Width == allColumns {
		add(Column{Name: "SINCE"}, func(i replock.Info) string { return Timestamp(i.Acquired) })
		add(Column{Name: "EXPIRES"}, left)
		add(Column{Name: "ID"}, func(i replock.Info) string { return text.Or(i.ID, "-") })
		add(Column{Name: "KEY"}, func(i replock.Info) string { return text.Brief(i.Key()) })
	} else {
		add(Column{Name: "ID", Drop: 3}, func(i replock.Info) string { return short(i.ID) })
	}
	if slices.ContainsFunc(locks, func(l Lock) bool { return l.Place != "" }) {
		c := Column{Name: "PLACE", Least: 20}
		for _, l := range locks {
			c.Cells = append(c.Cells, text.Escape(cmp.Or(l.Title, l.Place, "-")))
		}
		columns = append(columns, c)
	}
	return columns, short
}

// Verdict returns the verdict for people. A waiter is "waiting" and not "live", and a lock whose process is gone is
// "dead" before its ttl is over.
func Verdict(i replock.Info) string {
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
	return Who(i)
}

// formatted returns a function that formats a duration of a lock, or returns "-" if the lock has none.
func formatted(of func(replock.Info) (time.Duration, bool), format func(time.Duration) string) func(replock.Info) string {
	return func(i replock.Info) string {
		if d, ok := of(i); ok {
			return format(d)
		}
		return "-"
	}
}

// notes explains the verdict on a lock, one sentence a line.
func notes(i replock.Info, short func(id string) string, whole bool) (lines string) {
	note := func(words string) {
		name := short(i.ID)
		if whole || i.ID == "" {
			name = text.Brief(cmp.Or(i.ID, i.Key()))
		}
		lines += name + ": " + words + "\n"
	}
	if i.ProcessGone {
		note("its holder was a process of this machine, which is gone")
	}
	if i.Why != "" {
		note(text.Brief(i.Why))
	}
	if d := ahead(i); d > 0 {
		note(fmt.Sprintf("its time is %s ahead of %s: a clock is wrong, or was set back", text.Duration(d), clockOf(i)))
	}
	if !i.StoreClock && i.Verdict != replock.Unreadable && !i.Expires.IsZero() {
		note("the store doesn't report its time; the time of expiry is by this machine's clock")
	}
	return lines
}

// Timestamp returns a time in UTC, or "-" for the zero time.
func Timestamp(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}

// left returns when a lock expires unless it is refreshed.
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

// refusal is the text of a HeldError for people: the lock, the number of its holders, and the first of them. Unlike
// Error it has no keys. status is the command that lists all. It contains no command to expand, because the words of
// holders must not be expanded.
func refusal(e session.HeldError, status string) string {
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
	s := e.Place.Title() + " is " + is + by + holders(e.Holders, e.More, 0, status)
	if e.Err != nil {
		s += "; stopped waiting: " + text.Error(e.Err)
	}
	return s
}

// onlyWaiters reports whether a lock has no holder, and is reserved for waiters.
func onlyWaiters(locks []replock.Info) bool {
	return len(locks) > 0 && !slices.ContainsFunc(locks, func(i replock.Info) bool { return !session.Waits(i) })
}

// maxHolders is the largest number of holders that a message names.
const maxHolders = 3

// MostNamed is the largest number of holders that an event of a wait or the error of a dry run names. The lock can
// have more.
const MostNamed = 16

// holders describes the first locks and counts all. since is the time since the locks were read. Waiters don't count
// as holders: holders describes waiters only if there is no holder. status is the command that lists all.
func holders(all []replock.Info, more int, since time.Duration, status string) string {
	if len(all) == 0 {
		return "a holder that wasn't seen"
	}
	orMore := ""
	if more == 0 && len(all) >= MostNamed {
		orMore = " or more"
	}
	all = slices.SortedStableFunc(slices.Values(all), session.ByTurn)
	waiting := ""
	if n := slices.IndexFunc(all, session.Waits); n > 0 {
		all, waiting = all[:n], othersWait(len(all)-n)
	}
	var words []string
	for _, h := range all[:min(len(all), maxHolders)] {
		words = append(words, Holder(h, since))
	}
	s := strings.Join(words, "; ")
	if n := len(all) + more; n > 1 {
		s = fmt.Sprintf("%d%s: %s", n, orMore, s)
	}
	switch more += len(all) - len(words); {
	case orMore != "":
		s += "; … more: " + status
	case more > 0:
		s += fmt.Sprintf("; … %d more: %s", more, status)
	}
	return s + waiting
}

func othersWait(n int) string {
	if n == 1 {
		return "; 1 other waits"
	}
	return fmt.Sprintf("; %d others wait", n)
}

// Holder describes a lock: the operation, the process and the user, for how long it has been held or waited for,
// and how long ago the holder was seen. since is the time since the lock was read.
func Holder(i replock.Info, since time.Duration) string {
	if i.Verdict == replock.Unreadable {
		s := fmt.Sprintf("an unreadable %s lock", i.Mode)
		if seen, ok := lastSeen(i); ok {
			s += ", written " + text.Ago(seen+since)
		}
		if key := i.Key(); strings.HasPrefix(key, replock.DefaultPrefix) { // a file or an object, and not a URL that was named before
			s += ": " + Cut(text.Brief(path.Base(key)), MaxName)
		}
		return s + ": " + text.Brief(i.Why)
	}
	s := Who(i)
	if i.Holder == "" && i.Why != "" && i.Verdict != replock.Doubtful {
		return fmt.Sprintf("%s, whose lock can't be read now: %s", s, text.Brief(i.Why))
	}
	if i.Operation != "" {
		s = text.Or(i.Operation, "-") + " on " + s
	}
	if i.ProcessGone {
		s += ", process gone"
	} else if held, ok := HeldFor(i); ok && i.State == replock.StateWaiting {
		s += ", waiting for " + text.Duration(held+since)
	} else if ok {
		s += " for " + text.Duration(held+since)
	} else if i.State == replock.StateWaiting {
		s += ", waiting"
	}
	if seen, ok := lastSeen(i); ok {
		s += ", last seen " + text.Ago(seen+since)
	} else if d := ahead(i); d > 0 {
		s += ", its time is " + text.Duration(d) + " ahead"
	}
	switch {
	case i.ProcessGone:
	case i.Verdict == replock.Stale:
		s += ", stale"
	case i.Verdict == replock.Doubtful:
		s += ", perhaps stale: " + text.Brief(i.Why)
	case i.Why != "":
		s += "; " + text.Brief(i.Why)
	}
	return s
}

// MaxName is the number of columns to which a file's name is cut in a message.
const MaxName = 48

// Who names the machine, the process and the user of a lock: web1 (pid 782, root).
func Who(i replock.Info) string {
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

// process splits a holder as repolock and Cloudstic write it: HOST (pid N). It returns any other text as the host,
// with pid 0.
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

// HeldFor returns how long ago a lock was acquired. If the lock has an expiry, HeldFor compares two times that the
// holder wrote, and doesn't depend on this machine's clock. It reports false if the time of the acquire is missing or
// in the future.
func HeldFor(i replock.Info) (time.Duration, bool) {
	if i.Acquired.IsZero() {
		return 0, false
	}
	if i.Expires.IsZero() || i.TTL <= 0 {
		return max(clock.Between(i.Acquired, clock.System{}.Now()), 0), true
	}
	refreshed := i.Expires.Add(-i.TTL)
	held := max(clock.Between(i.Acquired, refreshed), 0) + max(i.Age, 0)
	return held, held > 0 || ahead(i) == 0
}

// notable is the least time by which a lock must be dated in the future to be reported as such.
const notable = 10 * time.Second

// ahead returns by how much a lock is dated in the future, or 0.
func ahead(i replock.Info) time.Duration {
	if i.Age > -notable {
		return 0
	}
	return -i.Age
}

// clockOf names the clock that measures a lock's age.
func clockOf(i replock.Info) string {
	if i.StoreClock {
		return "the store's clock"
	}
	return "this machine's clock"
}

// lastSeen returns how long ago the holder wrote its lock. It reports false for a lock that its holder doesn't
// refresh, or that is dated in the future.
func lastSeen(i replock.Info) (time.Duration, bool) {
	if ahead(i) > 0 {
		return 0, false
	}
	if i.ModTime.IsZero() && !i.StoreClock && (i.Verdict == replock.Unreadable || i.Expires.IsZero()) {
		return 0, false
	}
	return max(i.Age, 0), true
}

// shortIDs returns a function that returns the shortest beginning of an id, of least characters or more, that no other id
// has. It is escaped, because another program can have written the id.
func shortIDs(all []string, least int) func(id string) string {
	sorted := slices.Compact(slices.Sorted(slices.Values(all)))
	return func(id string) string {
		// In the sorted list, an id shares its longest beginning with one of its neighbours.
		at, _ := slices.BinarySearch(sorted, id)
		n := least
		for _, other := range sorted[max(at-1, 0):min(at+2, len(sorted))] {
			if other != id {
				n = max(n, inCommon(id, other)+1)
			}
		}
		if n < len(id) {
			return text.Brief(id[:n])
		}
		return text.Or(id, "-")
	}
}

// inCommon returns the length of the common prefix of both texts, in bytes.
func inCommon(a, b string) (n int) {
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}
