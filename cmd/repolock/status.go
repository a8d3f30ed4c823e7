package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/repolock/repolock/cmd/internal/also"
	"github.com/repolock/repolock/cmd/internal/events"
	"github.com/repolock/repolock/cmd/internal/session"
	"github.com/repolock/repolock/cmd/internal/show"
	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/procgroup"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/replock"
)

type statusCmd struct {
	Watch    bool          `short:"w" help:"Keep showing the locks: in place on a terminal, elsewhere when they change."`
	Interval time.Duration `default:"2s" help:"How often to look, with --watch."`
	Wide     bool          `help:"Show all columns, and whole ids, at any width."`
	All      bool          `help:"Show the locks of all configured repositories."`
	Older    time.Duration `name:"older-than" placeholder:"TIME" help:"Exit with 1 if a lock is held for longer than this."`
	Jobs     bool          `help:"Show when each job of --once-per last succeeded."`
	Also     []string      `predictor:"lock" sep:"none" placeholder:"URL" help:"Show this lock too, or it alone if no repository is given: ${also}. Repeatable."`

	after
}

func (c statusCmd) run(r *show.Reporter, g global) (int, error) {
	if c.Watch && c.Interval < 100*time.Millisecond {
		return 0, fault.New(fault.Usage, "--interval %v: must be at least 100ms", c.Interval)
	}
	if !c.Watch && g.OnLine("interval") {
		return 0, fault.New(fault.Usage, "--interval: works only with --watch")
	}
	switch {
	case c.Older < 0:
		return 0, fault.New(fault.Usage, "--older-than %v: must not be negative", c.Older)
	case c.Watch && c.Jobs:
		return 0, fault.New(fault.Usage, "--jobs and --watch can't be used together")
	case c.Watch && c.Older > 0:
		return 0, fault.New(fault.Usage, "--older-than and --watch can't be used together")
	case c.All && (g.OnLine("repo") || len(c.Program) > 0):
		return 0, fault.New(fault.Usage, "--all: shows the repositories of the configuration file: leave out --repo and the program")
	case c.All && (g.File == nil || len(g.File.Repositories) == 0):
		return 0, fault.New(fault.Usage, "--all: no configuration file lists repositories")
	}
	g, err := c.locate(r, g)
	if err != nil {
		return 0, err
	}
	g.observe = r.Event
	find := g.systems
	if c.All {
		find = g.everySystem
	}
	all, closeAll, err := find(c.Also, also.Look)
	defer closeAll()
	if err != nil {
		return 0, err
	}
	if c.Watch {
		return 0, (&statusWatch{r: r, all: all, wide: c.Wide}).run(c.Interval)
	}
	debug.SetGCPercent(gcPercent)
	list := statusList{r: r, table: show.LockList{Width: show.TableWidth(c.Wide)}}
	var older []string
	strays, answered, err := statusOf(r, all, func(l found) {
		if l.Older = c.tooOld(l); l.Older {
			older = append(older, show.Holder(l.Info, 0))
		}
		list.add(l.Lock)
	})
	if len(answered) == 0 {
		return 0, err
	}
	var jobs []jsonJob
	if c.Jobs {
		some, failed := g.jobs(r, all, answered)
		jobs, err = some, fault.Join(err, failed)
	}
	where := ignored(strays) + jobLines(jobs) + looked(answered, r.Verbose)
	if !c.Wide {
		where = show.Folded(where, show.TerminalWidth(os.Stdout))
	}
	rest := newJSONStatus(all[0].Place, nil, strays)
	rest.Jobs = jobs
	if failed := list.end(rest, where); failed != nil {
		return 0, failed
	}
	for _, holder := range older {
		r.Say("older than %s: %s", show.FlagDuration(c.Older), holder)
	}
	if len(older) > 0 {
		// A lock that is too old needs a person, but a store that doesn't answer might answer the next time.
		err = fault.With(err, func(e *fault.Error) { e.Exit = fault.ExitAborted })
		return fault.ExitAborted, err
	}
	return 0, err
}

// tooOld reports whether a lock has been held for longer than --older-than. An unreadable lock counts with its age
// since it was written, because it stays until a person deletes it. A lock that is dated in the future by more than
// --older-than counts too: its age isn't known, and a monitor must not wait until its date.
func (c statusCmd) tooOld(l found) bool {
	held, known := show.HeldFor(l.Info)
	if !known {
		held = l.Age
	}
	free := l.Verdict == replock.Released || l.Verdict == replock.Stale && !isFleet(l.at.Place)
	held = max(held, -l.Age)
	return c.Older > 0 && held > c.Older && !free && !session.Waits(l.Info)
}

// statusOf calls each with every lock. It returns the files of other programs among the locks, and the systems that have
// answered.
func statusOf(r *show.Reporter, all []placed, each func(found)) (strays []stray, answered []placed, err error) {
	_, answered, err = everywhere(r, "reading the locks", all, func(p placed) ([]replock.Broken, error) {
		at, name := label(all, p), title(r, all, p)
		keys, err := p.survey(context.Background(), func(locks []replock.Info) {
			for _, l := range locks {
				l.Body = nil // status doesn't show it
				each(found{show.Lock{Broken: &replock.Broken{Info: l}, Place: at, Title: name}, p})
			}
		})
		for _, key := range keys {
			strays = append(strays, stray{key, at, name})
		}
		return nil, err
	})
	return strays, answered, err
}

// gcPercent makes Go collect garbage after half of the usual growth, because the keys of all locks are in memory. With
// 100,000 locks it saves a sixth of the memory, and costs a twentieth of CPU time.
const gcPercent = 50

// maxListed is the number of locks that status has in memory before it prints them.
const maxListed = 1000

// statusList prints the locks that status finds, in text or in JSON. Up to maxListed locks are one table. More locks are
// printed as they come, except for waiters, which come last in text.
type statusList struct {
	r                *show.Reporter
	table            show.LockList
	holders, waiters []show.Lock // not printed yet; with JSON, waiters are among holders
	printed          int         // in JSON
	failed           error       // of the first write that failed
}

func (s *statusList) add(l show.Lock) {
	if !s.r.JSON && session.Waits(l.Info) {
		s.waiters = append(s.waiters, l)
		return
	}
	if len(s.holders) == maxListed {
		s.table.Many = true
		s.print(s.holders)
		s.holders = s.holders[:0]
	}
	s.holders = append(s.holders, l)
}

// emptyList begins the JSON of a status without locks.
const emptyList = "{\n  \"locks\": []"

// print prints some locks.
func (s *statusList) print(locks []show.Lock) {
	s.r.EndWait() // the wait's line would be among the locks
	if !s.r.JSON {
		s.write([]byte(s.table.Add(locks)))
		return
	}
	var out bytes.Buffer
	for _, l := range locks {
		out.WriteString(",\n    ")
		if s.printed++; s.printed == 1 {
			out.Reset()
			out.WriteString(strings.TrimSuffix(emptyList, "]") + "\n    ")
		}
		out.Write(show.MarshalLock(l, "    ", "  "))
	}
	s.write(out.Bytes())
}

func (s *statusList) write(text []byte) {
	if s.failed == nil {
		_, s.failed = s.r.Stdout.Write(text)
	}
}

// end prints the remaining locks and then, in JSON, the other fields of rest, or else words. It returns the error of a
// write.
func (s *statusList) end(rest jsonStatus, words string) error {
	for some := range slices.Chunk(append(s.holders, s.waiters...), maxListed) {
		s.print(some)
	}
	switch {
	case !s.r.JSON:
		s.write([]byte(s.table.End() + words))
	case s.printed == 0:
		return s.r.Result(rest, "")
	default:
		raw, err := text.MarshalIndent(rest, "", "  ")
		if err != nil {
			return err
		}
		s.write([]byte("\n  ]" + strings.TrimPrefix(string(raw), emptyList) + "\n"))
	}
	return s.failed
}

// stray is a file of another program among the locks, which all clients ignore.
type stray struct {
	Key   string `json:"key"`
	Place string `json:"place,omitempty"` // as in show.JSONLock
	title string
}

// ignored names the files of other programs, one a line, as show.Lines does.
func ignored(strays []stray) string {
	var lines []string
	for _, s := range strays {
		at := ""
		if s.title != "" {
			at = " in " + text.Escape(s.title)
		}
		lines = append(lines, "ignored, because it is no lock: "+text.Brief(s.Key)+at)
	}
	var b strings.Builder
	show.Lines(&b, "", lines)
	return b.String()
}

// jsonJob is the last success of a job. The times are on the store's clock.
type jsonJob struct {
	Operation   string     `json:"operation"`
	Job         string     `json:"job,omitempty"`
	Holder      string     `json:"holder,omitempty"`
	ID          string     `json:"id,omitempty"` // of the lock
	SucceededAt *time.Time `json:"succeeded_at,omitempty"`
	AgeSeconds  float64    `json:"age_seconds"`
	Place       string     `json:"place,omitempty"` // as in show.JSONLock
	line        string
}

// jobs returns the last successes beside the locks of repositories.
func (g global) jobs(r *show.Reporter, all, answered []placed) (jobs []jsonJob, err error) {
	r.BeginWait("reading the last successes", "")
	defer r.EndWait()
	for _, p := range answered {
		if p.Repo == "" { // another system's lock
			continue
		}
		once := session.Once{Place: p.Place, Repository: &session.Repository{Open: g.at(p.Place).store, Options: replock.Options{TTL: lookTTL}}}
		found, failed := once.All(context.Background())
		err = fault.Join(err, failed)
		for _, d := range found {
			line := d.String()
			if where := title(r, all, p); where != "" {
				line += " in " + text.Escape(where)
			}
			jobs = append(jobs, jsonJob{d.Operation, d.Job, d.Holder, d.ID, events.Instant(d.At), events.Seconds(d.Age), label(all, p), line})
		}
	}
	return jobs, err
}

// lookTTL bounds the requests of a look without a lock, as if the lock had this ttl.
const lookTTL = time.Minute

// jobLines describes the jobs, one a line.
func jobLines(jobs []jsonJob) (lines string) {
	for _, j := range jobs {
		lines += j.line + "\n"
	}
	return lines
}

// jsonStatus is the result of status in JSON. Fields are only ever added.
type jsonStatus struct {
	Locks []show.JSONLock `json:"locks"`
	// Ignored are the files of other programs among the locks.
	Ignored []stray `json:"ignored,omitempty"`
	// Jobs are the last successes that --jobs asks for.
	Jobs []jsonJob `json:"jobs,omitempty"`
	// Repository, LockName and Prefix are of the repository's lock. They are missing if no repository is given.
	Repository string `json:"repository,omitempty"`
	LockName   string `json:"lock_name,omitempty"`
	Prefix     string `json:"prefix,omitempty"` // of the lock's keys
}

func newJSONStatus(first session.Place, locks []show.Lock, strays []stray) jsonStatus {
	out := jsonStatus{Locks: []show.JSONLock{}, Ignored: strays}
	if first.URL == "" { // not a place of --also
		out.Repository, out.LockName, out.Prefix = first.Where(), events.LockName(first.Name), first.Prefix()
	}
	for _, l := range locks {
		out.Locks = append(out.Locks, show.NewJSONLock(l))
	}
	return out
}

// statusWatch is status --watch. A signal ends it.
type statusWatch struct {
	r     *show.Reporter
	all   []placed
	wide  bool
	lines int    // on the terminal, which redraw overwrites
	width int    // of the terminal when redraw wrote the lines
	last  string // names of the locks that print showed last
	said  string // the warning that print showed last, if the store still can't be read
}

func (w *statusWatch) run(interval time.Duration) error {
	update := w.print
	continued := make(chan os.Signal, 1)
	if show.CanErase(os.Stdout) && !w.r.JSON {
		update = w.redraw
		signal.Notify(continued, session.Continue)
	}
	for first := true; ; first = false {
		var locks []found
		strays, answered, err := statusOf(w.r, w.all, func(l found) { locks = append(locks, l) })
		if err != nil && first && (len(answered) == 0 || w.r.JSON) {
			return err
		}
		if err := update(locks, strays, len(answered) > 0, err); err != nil {
			return err
		}
		select {
		case <-time.After(interval):
		case <-continued: // the shell has written below the lines
			w.lines = 0
		}
	}
}

// redraw overwrites the locks that it showed before. In the background it shows nothing, because the shell uses
// the terminal.
func (w *statusWatch) redraw(locks []found, strays []stray, answered bool, failed error) error {
	if !procgroup.Foreground() {
		w.lines = 0
		return nil
	}
	shown := w.heading()
	if answered {
		shown += show.LockTable(locksOf(locks), show.TableWidth(w.wide)) + ignored(strays)
	}
	if failed != nil {
		shown += fmt.Sprintf("the store can't be read: %s\n", session.Words(failed, ""))
	}
	lines := strings.Split(strings.TrimSuffix(shown, "\n"), "\n")
	begin := ""
	if w.lines > 0 {
		begin = fmt.Sprintf("\x1b[%dA", w.lines) + show.Erase
	}
	if width, height, err := term.GetSize(int(os.Stdout.Fd())); err == nil && width > 0 && height > 1 {
		lines = crop(lines, width, height-1)
		if width < w.width && w.lines > 0 { // the terminal has wrapped the old lines
			begin = "\x1b[H\x1b[2J"
		}
		w.width = width
	}
	w.lines = len(lines)
	_, err := fmt.Fprint(w.r.Stdout, begin+strings.Join(lines, "\n")+"\n")
	return err
}

// crop cuts lines that don't fit on a terminal, because redraw can't overwrite a line that was wrapped or has
// scrolled away.
func crop(lines []string, width, height int) []string {
	if len(lines) > height {
		more := len(lines) - height + 1
		lines = append(lines[:height-1:height-1], fmt.Sprintf("… and %d more lines", more))
	}
	for i, line := range lines {
		lines[i] = show.Cut(line, width)
	}
	return lines
}

// print shows the locks if they have changed. With --json it shows them only if all systems have answered: the
// object can't distinguish a silent system from a system without locks.
func (w *statusWatch) print(locks []found, strays []stray, answered bool, failed error) error {
	warning := ""
	if failed != nil {
		warning = "warning: the store can't be read: " + session.Words(failed, "")
	}
	if warning != w.said && warning != "" {
		w.r.Say("%s", warning)
	}
	if w.said = warning; failed != nil && (!answered || w.r.JSON) {
		return nil
	}
	names := "locks\n" // last is "" at first, so the first names differ from it
	for _, l := range locks {
		names += fmt.Sprintf("%s %s %s %s %s\n", l.Place, l.ID, l.Keys, l.State, l.Verdict)
	}
	names += ignored(strays)
	if names == w.last {
		return nil
	}
	w.last = names
	if w.r.JSON { // one object a line
		return w.r.PrintJSON(w.r.Stdout, newJSONStatus(w.all[0].Place, locksOf(locks), strays))
	}
	_, err := fmt.Fprint(w.r.Stdout, w.heading()+show.LockTable(locksOf(locks), show.TableWidth(w.wide))+ignored(strays))
	return err
}

func (w *statusWatch) heading() string {
	where := []string{text.Brief(session.Redact(w.r.Place.Repo))}
	if len(w.all) > 1 || w.r.Place.Repo == "" {
		where = nil
		for _, one := range w.all {
			where = append(where, text.Brief(title(w.r, w.all, one)))
		}
	}
	return fmt.Sprintf("%s  %s\n", clock.System{}.Now().UTC().Format(time.DateTime+"Z"), strings.Join(where, ", "))
}
