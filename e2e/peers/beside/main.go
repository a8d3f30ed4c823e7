// Beside races Cloudstic's own program with repolock: e2e/beside.sh builds both, and starts it.
//
// In each run two commands take conflicting locks of a new repository at almost one time. Both note when they hold
// their locks. A row of the table counts the runs in which both held a lock at the same time.
package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/repolock/repolock/internal/parallel"
	"github.com/repolock/repolock/internal/test/fakes3"
	"github.com/repolock/repolock/internal/test/proxy"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/open"
)

// cell is a row of the table.
type cell struct {
	at        string        // local or s3
	trip      time.Duration // of a request
	second    string        // theirs, before or now
	modes     [2]string     // of Cloudstic's command and of the second one
	leftovers int
	encrypted bool
}

func (c cell) String() string {
	kind := "plain"
	if c.encrypted {
		kind = "encrypted"
	}
	return fmt.Sprintf("%s,%d,%s,%s-%s,%d,%s", c.at, c.trip.Milliseconds(), c.second, c.modes[0], c.modes[1], c.leftovers, kind)
}

// bench has the programs and the servers.
type bench struct {
	dir, cloudstic, repolock, before string
	s3                               string // URL of the server
	runs, parallel                   int
	hold                             time.Duration
	seed                             uint64
}

// outcome is one run: from when to when each of the two held its lock, or zero times.
type outcome struct{ held [2][2]time.Time }

// String has the times at which the two commands held their locks.
func (o outcome) String() string {
	var b strings.Builder
	for i, name := range []string{"theirs", "the other"} {
		fmt.Fprintf(&b, "%s held from %s to %s\n", name, o.held[i][0].Format("05.000"), o.held[i][1].Format("05.000"))
	}
	return b.String()
}

func (o outcome) overlap() time.Duration {
	a, b := o.held[0], o.held[1]
	if a[0].IsZero() || b[0].IsZero() {
		return -1
	}
	from, to := a[0], a[1]
	if b[0].After(from) {
		from = b[0]
	}
	if b[1].Before(to) {
		to = b[1]
	}
	return to.Sub(from)
}

const (
	bucket  = "beside"
	user    = "repolock"
	secret  = "repolock-secret"
	dead    = "2026-03-07T09:00:0%d.123456789+01:00"
	expired = `{"operation":"backup","holder":"laptop (pid %d)","acquired_at":"2026-03-07T09:00:00+01:00","expires_at":"2026-03-07T09:01:00+01:00","is_shared":true}`
	aged    = 65 * time.Second // until a flag of another client is stale
)

var key = strings.Repeat("5a", 32)

func main() {
	for name, value := range map[string]string{"AWS_ACCESS_KEY_ID": user, "AWS_SECRET_ACCESS_KEY": secret, "AWS_REGION": "us-east-1"} {
		_ = os.Setenv(name, value)
	}
	var b bench
	var only string
	var list bool
	flag.StringVar(&b.dir, "dir", "", "a directory for this run")
	flag.StringVar(&b.cloudstic, "cloudstic", "", "Cloudstic's program, with gate.go.txt")
	flag.StringVar(&b.repolock, "repolock", "", "repolock")
	flag.StringVar(&b.before, "before", "", "an earlier repolock")
	flag.StringVar(&b.s3, "s3", "", "URL of an S3 server with the credentials of the tests; the fake of the tests by default")
	flag.StringVar(&only, "only", "", "run only the cells that contain one of these words, separated by spaces")
	flag.IntVar(&b.runs, "runs", 0, "runs of a cell: 150, or 60 at 700 ms, by default")
	flag.IntVar(&b.parallel, "parallel", 4, "runs at a time")
	flag.DurationVar(&b.hold, "hold", 0, "how long each command holds its lock: 500ms, or four trips if that is longer, by default")
	flag.Uint64Var(&b.seed, "seed", uint64(time.Now().UnixNano()), "of the starts")
	flag.BoolVar(&list, "list", false, "list the cells")
	flag.Parse()
	failed := false
	fmt.Println("| cell | runs | both held | longest | theirs alone | the other alone | neither |")
	fmt.Println("|---|---:|---:|---:|---:|---:|---:|")
	for _, c := range cells() {
		name := c.String()
		matches := func(word string) bool { return strings.Contains(name, word) }
		if words := strings.Fields(only); len(words) > 0 && !slices.ContainsFunc(words, matches) || c.second == "before" && b.before == "" {
			continue
		}
		if list {
			fmt.Println(name)
			continue
		}
		row, both, err := b.race(c)
		if err != nil {
			fmt.Fprintf(os.Stderr, "beside: %s: %v\n", name, err)
			failed = true
			continue
		}
		failed = failed || both > 0 && c.second == "now"
		fmt.Println(row)
	}
	if failed {
		os.Exit(1)
	}
}

func cells() (all []cell) {
	for _, at := range []struct {
		name string
		trip time.Duration
	}{{"local", 0}, {"s3", 0}, {"s3", 40 * time.Millisecond}, {"s3", 700 * time.Millisecond}} {
		for _, leftovers := range []int{0, 5} {
			for _, encrypted := range []bool{false, true} {
				for _, modes := range [][2]string{{"exclusive", "shared"}, {"shared", "exclusive"}, {"exclusive", "exclusive"}} {
					for _, second := range []string{"theirs", "before", "now"} {
						if leftovers > 0 && encrypted != (at.name == "local") && modes[1] == "exclusive" && second != "theirs" {
							continue // repolock watches such a leftover for a minute before it deletes it
						}
						all = append(all, cell{at.name, at.trip, second, modes, leftovers, encrypted})
					}
				}
			}
		}
	}
	return all
}

// race runs a cell, and returns its row.
func (b *bench) race(c cell) (row string, both int, err error) {
	runs := b.runs
	if runs == 0 {
		runs = 150
		if c.trip >= 500*time.Millisecond {
			runs = 60
		}
	}
	p, err := b.place(c)
	if err != nil {
		return "", 0, err
	}
	defer p.close()
	d := rand.New(rand.NewPCG(b.seed, uint64(c.trip)))
	for n := range runs + 1 {
		if err := p.make(n); err != nil {
			return "", 0, err
		}
	}
	if c.leftovers > 0 && c.at != "local" {
		time.Sleep(aged)
	}
	var alone time.Duration
	if c.at == "local" { // how long the second command needs until it holds its lock
		if alone, err = b.lone(p, runs); err != nil {
			return "", 0, err
		}
	}
	// The second command's first request comes from two round trips before Cloudstic's to as much later as it can still
	// be let in beside Cloudstic's.
	least, most := 2*c.trip+30*time.Millisecond, time.Duration(3+c.leftovers)*c.trip+30*time.Millisecond
	if c.at == "local" && c.second != "theirs" {
		most += alone // Cloudstic's lock also begins while repolock starts, and while it waits before it looks again
	}
	later := make([]time.Duration, runs)
	for n := range later {
		later[n] = time.Duration(d.Float64()*float64(least+most)) - least
	}
	outcomes, failures := make([]outcome, runs), make([]error, runs)
	parallel.Each(b.parallel, runs, func(n int) { outcomes[n], failures[n] = b.run(p, n, alone, later[n]) })
	if err := errors.Join(failures...); err != nil {
		return "", 0, err
	}
	log := p.passed()
	var longest time.Duration
	in := [3]int{} // theirs alone, the other alone, neither
	for n, o := range outcomes {
		switch over := o.overlap(); {
		case over > 0:
			both++
			longest = max(longest, over)
			if c.second == "now" {
				fmt.Fprintf(os.Stderr, "beside: %s: both held for %v in run %d, ours later by %v:\n%v%s", c, over, n, later[n], o, p.requests(log, n))
			}
		case !o.held[0][0].IsZero() && !o.held[1][0].IsZero(): // one after the other
		case !o.held[0][0].IsZero():
			in[0]++
		case !o.held[1][0].IsZero():
			in[1]++
		default:
			in[2]++
		}
	}
	return fmt.Sprintf("| %s | %d | %d | %v | %d | %d | %d |", c, runs, both, longest.Round(time.Millisecond), in[0], in[1], in[2]), both, nil
}

// lone returns how long the second command needs until it holds its lock, with no other.
func (b *bench) lone(p *place, n int) (time.Duration, error) {
	began := time.Now()
	held, err := b.command(p, n, 1, "").wait()
	if err == nil && held[0].IsZero() {
		err = errors.New("a command alone isn't granted its lock")
	}
	return held[0].Sub(began), err
}

// run starts both commands, the first request for locks of the second one later than that of Cloudstic's.
func (b *bench) run(p *place, n int, alone, later time.Duration) (o outcome, err error) {
	var both [2]*command
	if p.at == "local" {
		both, err = b.started(p, n, alone, later)
	} else {
		line := p.line(n, later)
		both[0] = b.command(p, n, 0, "")
		if err = line.until(0, both[0]); err == nil {
			both[1] = b.command(p, n, 1, "")
			err = line.until(1, both[1])
		}
	}
	for i, c := range both {
		if c != nil {
			held, failed := c.wait()
			o.held[i] = held
			err = errors.Join(err, failed)
		}
	}
	return o, err
}

// started starts both commands in a directory, where nothing can hold back a request of repolock's.
func (b *bench) started(p *place, n int, alone, later time.Duration) (both [2]*command, err error) {
	gates := [2]string{b.gate(), b.gate()}
	both[0] = b.command(p, n, 0, gates[0])
	if err := both[0].ready(gates[0]); err != nil {
		return both, err
	}
	if p.second != "theirs" {
		pass(gates[0], time.Now().Add(max(0, alone-later)))
		both[1] = b.command(p, n, 1, "")
		return both, nil
	}
	both[1] = b.command(p, n, 1, gates[1])
	if err := both[1].ready(gates[1]); err != nil {
		return both, err
	}
	now := time.Now().Add(30 * time.Millisecond)
	pass(gates[0], now)
	pass(gates[1], now.Add(later))
	return both, nil
}

// ready waits until a command of Cloudstic's is about to take its lock.
func (c *command) ready(gate string) error {
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); {
		if _, err := os.Stat(gate + ".ready"); err == nil {
			return nil
		}
		select {
		case <-c.done:
			return fmt.Errorf("a command ended before its lock: %s", c.out.String())
		case <-time.After(5 * time.Millisecond):
		}
	}
	_ = c.cmd.Process.Kill()
	return errors.New("a command of Cloudstic's doesn't begin")
}

// line is where the first requests for locks of a run's commands wait for each other.
type line struct {
	mu      sync.Mutex
	n       int // commands that have come
	arrived [2]chan struct{}
	after   [2]time.Duration
}

func (p *place) line(n int, later time.Duration) *line {
	l := &line{arrived: [2]chan struct{}{make(chan struct{}), make(chan struct{})}, after: [2]time.Duration{max(0, -later), max(0, later)}}
	p.lines.Store(p.prefix(n), l)
	return l
}

// until waits until a command's first request has come.
func (l *line) until(which int, c *command) error {
	select {
	case <-l.arrived[which]:
		return nil
	case <-c.done:
		return fmt.Errorf("a command ended before it looked for locks: %s", c.out.String())
	case <-time.After(2 * time.Minute):
		_ = c.cmd.Process.Kill()
		return fmt.Errorf("a command doesn't look for locks: %s", c.out.String())
	}
}

// holdBack holds back a request if it is one of the first: Cloudstic's first one for locks is the GET of lock.exclusive, and
// repolock's is the listing by which it finds out whether the bucket exists.
func (p *place) holdBack(q proxy.Request) proxy.Fault {
	root, name, _ := strings.Cut(q.Key, "/index/lock.")
	found, ok := p.lines.Load(root)
	if !ok || !(q.Op == "get" && name == "exclusive" || q.Op == "list" && name == "" && strings.HasSuffix(q.Key, ".")) {
		return proxy.Fault{}
	}
	l := found.(*line)
	l.mu.Lock()
	which := l.n
	if which < 2 {
		l.n++
		close(l.arrived[which])
	}
	l.mu.Unlock()
	if which < 2 {
		select {
		case <-l.arrived[1]:
		case <-time.After(time.Minute):
		}
		time.Sleep(l.after[which])
	}
	return proxy.Fault{}
}

func (b *bench) gate() string {
	return filepath.Join(b.dir, "gate-"+strconv.FormatUint(rand.Uint64(), 36))
}

// pass lets a command continue at a time. Its file is whole when it appears.
func pass(gate string, at time.Time) {
	_ = os.WriteFile(gate+".new", strconv.AppendInt(nil, at.UnixNano(), 10), 0o600)
	_ = os.Rename(gate+".new", gate)
}

// command is a command that was started.
type command struct {
	cmd  *exec.Cmd
	out  *bytes.Buffer
	log  string
	done chan struct{} // closed when it has ended

	err   error
	ended time.Time
}

// command starts the first or the second command of a run.
func (b *bench) command(p *place, n, which int, gate string) *command {
	log := b.gate() + ".log"
	mode, hold := p.modes[which], p.hold
	var c *exec.Cmd
	if which == 0 || p.second == "theirs" {
		args := []string{"prune"}
		if mode == "shared" {
			args = []string{"backup", "-source", "local:" + filepath.Join(b.dir, "source")}
		}
		c = exec.Command(b.cloudstic, append(args, p.flags(n)...)...)
		c.Env = append(p.environ(), "BESIDE_GATE="+gate, "BESIDE_LOG="+log, "BESIDE_HOLD="+hold.String())
	} else {
		program := b.repolock
		if p.second == "before" {
			program = b.before
		}
		verb := []string{"-q", "--repo", p.url(n), "run", "--shared", "--operation", "copy", "--on-lost", "kill"}
		if mode == "exclusive" {
			verb[4] = "--exclusive"
		}
		work := fmt.Sprintf("date +%%s%%N >%s; sleep %g; date +%%s%%N >>%s", log, hold.Seconds(), log)
		c = exec.Command(program, append(verb, "--", "sh", "-c", work)...)
		c.Env = p.environ()
	}
	out := new(bytes.Buffer)
	c.Stdout, c.Stderr = out, out
	started := &command{cmd: c, out: out, log: log, done: make(chan struct{})}
	if started.err = c.Start(); started.err != nil {
		close(started.done)
		return started
	}
	go func() {
		started.err = c.Wait()
		started.ended = time.Now()
		close(started.done)
	}()
	return started
}

// wait returns from when to when the command had its lock, or zero times if it was refused.
func (c *command) wait() (held [2]time.Time, err error) {
	select {
	case <-c.done:
	case <-time.After(3 * time.Minute):
		_ = c.cmd.Process.Kill()
		<-c.done
		return held, fmt.Errorf("no end: %s", c.out.String())
	}
	text, _ := os.ReadFile(c.log)
	for i, line := range strings.Fields(string(text)) {
		if at, bad := strconv.ParseInt(line, 10, 64); bad == nil && i < 2 {
			held[i] = time.Unix(0, at)
		}
	}
	switch {
	case held[0].IsZero() && (c.err == nil || !strings.Contains(c.out.String(), "lock")):
		return held, fmt.Errorf("%v, without its lock: %s", c.err, c.out.String())
	case !held[0].IsZero() && held[1].IsZero(): // its lock was lost
		held[1] = c.ended
	}
	return held, nil
}

// place is where the repositories of a cell are.
type place struct {
	cell
	dir, template, cache string // the template is a new repository
	server, endpoint     string // URLs of the S3 server, and of the proxy before it
	hold                 time.Duration
	lines                sync.Map // of the runs, by their prefixes
	passed               func() proxy.Log
	close                func()
}

// requests returns the requests of a run, for a message.
func (p *place) requests(log proxy.Log, n int) proxy.Log {
	return slices.DeleteFunc(slices.Clone(log), func(e proxy.Entry) bool { return !strings.HasPrefix(e.Key, p.prefix(n)+"/") })
}

func (b *bench) place(c cell) (*place, error) {
	p := &place{cell: c, passed: func() proxy.Log { return nil }, close: func() {}, hold: cmp.Or(b.hold, max(500*time.Millisecond, 4*c.trip))}
	p.dir = filepath.Join(b.dir, fmt.Sprint("cell-", rand.Uint32()))
	p.template, p.cache = filepath.Join(p.dir, "template"), filepath.Join(p.dir, "cache")
	if err := os.MkdirAll(filepath.Join(b.dir, "source"), 0o700); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(b.dir, "source", "a"), []byte("a"), 0o600); err != nil {
		return nil, err
	}
	for _, dir := range []string{p.template, p.cache} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
	}
	at := p.at // the template is local
	p.at = "local"
	source := []string{"backup", "-source", "local:" + filepath.Join(b.dir, "source")}
	for _, args := range [][]string{append([]string{"init"}, p.encryption("-no-encryption")...), append(source, p.encryption("")...)} {
		c := exec.Command(b.cloudstic, args...)
		c.Env = append(p.environ(), "CLOUDSTIC_STORE=local:"+p.template)
		if out, err := c.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%s: %w: %s", args[0], err, out)
		}
	}
	for i := range c.leftovers {
		killed := exec.Command(b.cloudstic, append(source, p.encryption("")...)...)
		killed.Env = append(p.environ(), "CLOUDSTIC_STORE=local:"+p.template, "BESIDE_HOLD=0s")
		if !c.encrypted {
			if err := p.leaves(fmt.Sprintf(dead, i), fmt.Appendf(nil, expired, i)); err != nil {
				return nil, err
			}
		} else if out, err := killed.CombinedOutput(); killed.ProcessState == nil || killed.ProcessState.ExitCode() != 9 {
			return nil, fmt.Errorf("a backup that should be killed: %v: %s", err, out)
		}
	}
	if c.leftovers > 0 && c.encrypted {
		time.Sleep(aged) // until they are expired for Cloudstic
	}
	p.at = at
	if at == "local" {
		return p, nil
	}
	if p.server = b.s3; p.server == "" {
		objects := fakes3.New(bucket)
		fake := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodHead { // the server leaves out the body
				r = r.Clone(r.Context())
				r.Method = http.MethodGet
			}
			objects.ServeHTTP(w, r)
		}))
		p.server, p.close = fake.URL, fake.Close
	} else if err := p.bucket(); err != nil {
		return nil, err
	}
	between, err := proxy.New(p.server)
	if err != nil {
		return nil, err
	}
	between.Behave(proxy.Behaviour{Latency: c.trip / 2, Decide: p.holdBack})
	stop := p.close
	p.passed = between.Take
	p.endpoint, p.close = between.URL(), func() { between.Stop(); stop() }
	return p, nil
}

// bucket makes the bucket of a real server, unless it is there.
func (p *place) bucket() error {
	c, err := minio.New(strings.TrimPrefix(p.server, "http://"), &minio.Options{Creds: credentials.NewStaticV4(user, secret, "")})
	if err != nil {
		return err
	}
	if there, err := c.BucketExists(context.Background(), bucket); there || err != nil {
		return err
	}
	return c.MakeBucket(context.Background(), bucket, minio.MakeBucketOptions{})
}

// leaves puts a leftover flag into the template.
func (p *place) leaves(name string, body []byte) error {
	folder := filepath.Join(p.template, "index", "lock.shared")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, name), body, 0o600)
}

// make makes the repository of a run, from the template.
func (p *place) make(n int) error {
	var to store.Store
	var err error
	if p.at != "local" {
		to, err = open.Store(context.Background(), "s3://"+bucket+"/"+p.prefix(n)+"?endpoint="+url.QueryEscape(p.server))
		if err != nil {
			return err
		}
	}
	return filepath.Walk(p.template, func(path string, info os.FileInfo, err error) error {
		if err != nil || info.IsDir() {
			return err
		}
		body, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(p.template, path)
		if err != nil {
			return err
		}
		if p.at != "local" {
			_, err = to.Put(context.Background(), filepath.ToSlash(name), body, store.PutOptions{})
			return err
		}
		path = filepath.Join(p.url(n), name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(path, body, 0o600); err != nil {
			return err
		}
		old := time.Now().Add(-48 * time.Hour)
		return os.Chtimes(path, old, old)
	})
}

func (p *place) prefix(n int) string { return fmt.Sprintf("%s/%d", filepath.Base(p.dir), n) }

// url is the repository of a run for repolock.
func (p *place) url(n int) string {
	if p.at == "local" {
		return filepath.Join(p.dir, "repositories", strconv.Itoa(n))
	}
	return "s3://" + bucket + "/" + p.prefix(n) + "?endpoint=" + url.QueryEscape(p.endpoint)
}

// flags are those of Cloudstic for the repository of a run.
func (p *place) flags(n int) []string {
	if p.at == "local" {
		return append(p.encryption(""), "-store", "local:"+p.url(n))
	}
	return append(p.encryption(""), "-store", "s3:"+bucket+"/"+p.prefix(n), "-s3-endpoint", p.endpoint, "-s3-region", "us-east-1")
}

func (p *place) encryption(plain string) []string {
	switch {
	case p.encrypted:
		return []string{"-encryption-key", key}
	case plain != "":
		return []string{plain}
	default:
		return nil
	}
}

func (p *place) environ() []string {
	return append(os.Environ(), "XDG_CACHE_HOME="+p.cache, "HOME="+p.cache, "XDG_CONFIG_HOME="+p.cache)
}
