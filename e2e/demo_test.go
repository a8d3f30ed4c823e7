//go:build linux && programs

package e2e

import (
	"bytes"
	"cmp"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"html"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
)

var demoTo = flag.String("demo", "", "the directory that TestDemo writes the README's drawings into")

// TestDemo records the README's drawings from real runs: rclone with a limited bandwidth, on hosts that are
// Linux namespaces. Each command ends with the right exit code. The new drawings, and the ones in docs, show
// the texts that they are about.
func TestDemo(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		record func(demo) []byte
		texts  []string
	}{
		"demo.svg":  {demo.terminals, []string{"exit code 75", "waiting ", "pruned", "Killed", "free"}},
		"night.svg": {demo.night, []string{"root@web", "root@db", "root@mail", "refused", "removed the stale lock"}},
	} {
		t.Run(name, func(t *testing.T) {
			anew := string(c.record(newDemo(t)))
			for which, raw := range map[string]string{"anew": anew, "in docs": read(t, "../docs/"+name)} {
				assert.That(t, len(raw) <= 60<<10, "%s: %d bytes", which, len(raw))
				d := xml.NewDecoder(strings.NewReader(raw))
				var err error
				for err == nil {
					_, err = d.Token()
				}
				assert.That(t, errors.Is(err, io.EOF), "%s: %v", which, err)
				for _, text := range c.texts {
					assert.That(t, strings.Contains(raw, text), "%s: doesn't show %q", which, text)
				}
			}
			if *demoTo != "" {
				assert.OK(t, os.WriteFile(filepath.Join(*demoTo, name), []byte(anew), 0o644))
			}
		})
	}
}

// demo is hosts that see the directory of a site as /srv, with a repository and documents to back up.
type demo struct{ *site }

// limit bounds the bandwidth of rclone.
const limit = "--bwlimit 1M"

func newDemo(t *testing.T) demo {
	t.Helper()
	d := demo{newSite(t)}
	for name, kib := range map[string]int{
		"documents/report.pdf": 6 << 10, "mail/inbox": 3 << 10, "remote/data/old/report.pdf": 1, ".config/rclone/rclone.conf": 0,
	} {
		d.write(name, strings.Repeat("\x00", kib<<10))
	}
	d.env = []string{
		"PLACE=" + d.dir, "HOME=/srv", "XDG_CACHE_HOME=", "LC_ALL=C.UTF-8", "TERM=xterm", "INPUTRC=/dev/null", "REPOLOCK_REPO=/srv/remote",
		"RCLONE_CONFIG_REMOTE_TYPE=alias", "RCLONE_CONFIG_REMOTE_REMOTE=/srv/remote/data", "REPOLOCK_AUDIT=/srv/audit.jsonl",
	}
	return d
}

// host returns a command line that runs a command with another host name. The process becomes the command.
func host(name string, command ...string) []string {
	const enter = `hostname "$0" && mount --bind "$PLACE" /srv && cd /srv && export PS1="$0$ " && exec "$@"`
	return append([]string{"unshare", "--map-root-user", "--mount", "--uts", "--", "sh", "-c", enter, name}, command...)
}

// terminals draws two terminals: a backup, a prune that is refused and then waits, and a backup that is
// killed.
func (d demo) terminals() []byte {
	web, store := d.record("web", 7), d.record("store", 32)
	const prune = "-- rclone delete remote:old"
	web.enter("repolock backup -- rclone copy " + limit + " documents remote:documents")
	d.has("lock.shared")
	store.run("repolock status")
	store.run("repolock prune " + prune + "; echo \"exit code $?\"")
	store.joins("exit code 75")
	store.enter("repolock prune --wait 15m " + prune + " && echo pruned")
	store.joins("waiting ")
	web.ends()
	store.ends()
	store.joins("pruned" + prompt("store"))
	web.enter("repolock backup --ttl 10s -- rclone copy " + limit + " mail remote:mail")
	d.has("lock.shared")
	web.kill()
	web.joins("Killed")
	store.enter("repolock prune --wait 15m " + prune + " && echo free")
	store.joins("waiting ")
	store.joins("free" + prompt("store"))
	return animation(&web.film, &store.film)
}

// has waits until there is an object of a kind.
func (d demo) has(kind string) {
	d.t.Helper()
	d.until(kind, func() bool {
		found, _ := filepath.Glob(d.path("remote/index/" + kind + "/*"))
		return len(found) > 0
	})
}

// night draws a night of a minute, in which a second stands for ten minutes: hosts that back up and
// restore side by side, a prune that is refused, one that waits and a backup behind it, and a backup
// that is killed, whose lock the next prune removes.
func (d demo) night() []byte {
	job := func(on, operation string, flags []string, rclone ...string) *process {
		line := slices.Concat([]string{"repolock", operation, "--quiet", "--ttl", "10s"}, flags, []string{"--", "rclone"}, rclone, strings.Fields(limit))
		argv := host(on, line...)
		return d.run(exec.Command(argv[0], argv[1:]...))
	}
	backup := func(on string, mib int, flags ...string) *process {
		from := fmt.Sprintf("night/%s-%d", on, mib)
		d.write(from+"/data", strings.Repeat("\x00", mib<<20))
		return job(on, "backup", flags, "copy", from, "remote:"+from)
	}
	prune := func(mib int, flags ...string) *process {
		kept := fmt.Sprintf("kept-%d", mib)
		d.write(kept+"/data", strings.Repeat("\x00", mib<<20))
		return job("store", "prune", flags, "sync", kept, "remote:kept")
	}
	web := backup("web", 14)
	d.has("lock.shared")
	time.Sleep(2 * time.Second)
	db := backup("db", 6)
	time.Sleep(3 * time.Second)
	mail := backup("mail", 16)
	time.Sleep(2 * time.Second)
	prune(1).exits(75)
	db.exits(0)
	restore := job("db", "restore", nil, "copy", "remote:night/db-6", "restored")
	waits := prune(5, "--wait", "15m")
	d.has("lock.intent")
	late := backup("db", 7, "--wait", "15m")
	for _, p := range []*process{web, restore, mail, waits, late} {
		p.exits(0)
	}
	killed := backup("web", 30)
	d.has("lock.shared")
	time.Sleep(4 * time.Second)
	killed.signal(syscall.SIGKILL)
	killed.exits(-int(syscall.SIGKILL))
	prune(4, "--wait", "15m").exits(0)
	d.start("history", "--svg", d.path("night.svg"), d.path("audit.jsonl")).exits(0)
	return []byte(read(d.t, d.path("night.svg")))
}

// recorded is a shell on a host, in a terminal that is recorded.
type recorded struct {
	*window
	film
}

func (d demo) record(on string, rows int) *recorded {
	d.t.Helper()
	r := &recorded{window: d.terminal(on, columns, rows+1, host(on, "bash", "--norc", "--noprofile", "-i")), film: film{host: on}}
	go r.record()
	r.joins(prompt(on))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pictures = r.pictures[len(r.pictures)-1:] // which begins with the prompt
	return r
}

// record notes each change of the screen, until the terminal is closed.
func (r *recorded) record() {
	for ; ; time.Sleep(20 * time.Millisecond) {
		out, err := r.command("capture-pane", "-p").Output()
		if err != nil {
			return
		}
		rows := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
		for i, row := range rows {
			rows[i] = strings.TrimRight(row, " ")
		}
		r.mu.Lock()
		if len(r.pictures) == 0 || !slices.Equal(rows, r.pictures[len(r.pictures)-1].rows) {
			r.pictures = append(r.pictures, picture{time.Now(), rows})
		}
		r.mu.Unlock()
	}
}

// enter types a command, a few letters at a time.
func (r *recorded) enter(command string) {
	r.s.t.Helper()
	for typed := range slices.Chunk([]byte(command), 12) {
		if last := len(typed) - 1; typed[last] == ';' { // tmux would end its own command there
			typed = append(typed[:last:last], `\;`...)
		}
		r.tmux("send-keys", "-l", "--", string(typed))
		time.Sleep(120 * time.Millisecond)
	}
	r.key("Enter")
}

// run types a command, and waits for the next prompt.
func (r *recorded) run(command string) {
	r.s.t.Helper()
	before := r.prompts()
	r.enter(command)
	r.s.until("the prompt after "+command, func() bool { return r.idle() && r.prompts() > before })
}

// joins waits for a text on the screen. A text that wraps is found, too.
func (r *recorded) joins(text string) {
	r.s.t.Helper()
	r.s.until(text, func() bool { return strings.Contains(strings.Join(r.now(), ""), strings.TrimSpace(text)) })
}

// ends waits for the next prompt.
func (r *recorded) ends() { r.s.t.Helper(); r.s.until("the prompt of "+r.host, r.idle) }

// prompts counts the prompts on the screen.
func (r *recorded) prompts() (n int) {
	for _, row := range r.now() {
		if strings.HasPrefix(row, strings.TrimSpace(prompt(r.host))) {
			n++
		}
	}
	return n
}

// idle reports whether the last row is an empty prompt.
func (r *recorded) idle() bool {
	rows := slices.DeleteFunc(slices.Clone(r.now()), func(row string) bool { return row == "" })
	return len(rows) > 0 && rows[len(rows)-1] == strings.TrimSpace(prompt(r.host))
}

// kill kills the command that the shell runs, and nothing else, as kill -9 does.
func (r *recorded) kill() {
	r.s.t.Helper()
	shell := strings.TrimSpace(r.tmux("display-message", "-p", "#{pane_pid}"))
	children := strings.Fields(read(r.s.t, "/proc/"+shell+"/task/"+shell+"/children"))
	assert.Equal(r.s.t, len(children), 1, "processes of %s", r.host)
	assert.OK(r.s.t, exec.Command("kill", "-9", children[0]).Run())
}

// film is a recording of a host's terminal.
type film struct {
	host     string
	mu       sync.Mutex
	pictures []picture
}

// picture is the screen of a terminal from a time on.
type picture struct {
	at   time.Time
	rows []string
}

// now returns the rows of the screen.
func (f *film) now() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.pictures) == 0 {
		return nil
	}
	return f.pictures[len(f.pictures)-1].rows
}

// prompt returns the prompt of a host's shell.
func prompt(host string) string { return host + "$ " }

const columns = 80

// The drawing's measures, in pixels.
const (
	letter  = 8.43 // of a monospace font of 14 pixels
	height  = 18
	margin  = 12
	caption = 26
	width   = 2*margin + columns*letter
)

// pause is the longest time in which nothing changes: longer ones are cut.
const pause = 900 * time.Millisecond

// lastStay is how long the last screens stay.
const lastStay = 5 * time.Second

// shown is a row of the drawing with a text that it has for a time.
type shown struct {
	y        int
	text     string
	from, to time.Duration
}

// animation draws the terminals one below the other, as they were. It begins anew at its end. A
// program that doesn't animate shows the last screens.
func animation(films ...*film) []byte {
	clock := newReel(films)
	var b bytes.Buffer
	body, y := &bytes.Buffer{}, 0
	for _, t := range films {
		y += caption
		fmt.Fprintf(body, "<text class=\"c\" x=\"%d\" y=\"%d\">%s</text>\n", margin, y-8, t.host)
		rows := 0
		for _, p := range t.pictures {
			rows = max(rows, len(slices.DeleteFunc(slices.Clone(p.rows), func(r string) bool { return r == "" })))
		}
		fmt.Fprintf(body, "<rect x=\"1\" y=\"%d\" width=\"%.0f\" height=\"%d\" rx=\"6\" fill=\"#f6f8fa\"/>\n", y, width-2, rows*height+margin)
		for _, s := range t.shown(clock, y) {
			s.draw(body, clock.total, prompt(t.host))
		}
		y += rows*height + margin
	}
	y += margin
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %d" width="%.0f" height="%d" fill="#1f2328" font-family="monospace" font-size="14" xml:space="preserve">
<title>Two terminals under repolock</title>
<desc>%s</desc>
<style>
svg{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace}
text{white-space:pre;fill:#1f2328}rect{fill:#f6f8fa;stroke:#d1d9e0}.c{fill:#59636e}.p{fill:#1a7f37}
@media(prefers-color-scheme:dark){text{fill:#e6edf3}rect{fill:#161b22;stroke:#3d444d}.c{fill:#9198a1}.p{fill:#3fb950}}
</style>
`, width, y, width, y, html.EscapeString(words(films)))
	b.Write(body.Bytes())
	b.WriteString("</svg>\n")
	return b.Bytes()
}

// words are the commands of the terminals, for readers who don't see the drawing.
func words(films []*film) string {
	var said []string
	for _, t := range films {
		for _, row := range t.now() {
			if row != "" && row != strings.TrimSpace(prompt(t.host)) {
				said = append(said, row)
			}
		}
	}
	return strings.Join(said, "\n")
}

// reel converts times of the recording to times of the drawing, in which long pauses are cut.
type reel struct {
	ticks []time.Time
	total time.Duration
}

func newReel(films []*film) reel {
	var c reel
	for _, t := range films {
		for _, p := range t.pictures {
			c.ticks = append(c.ticks, p.at)
		}
	}
	slices.SortFunc(c.ticks, time.Time.Compare)
	c.total = c.at(c.ticks[len(c.ticks)-1]) + lastStay
	return c
}

// at converts one time.
func (c reel) at(t time.Time) (d time.Duration) {
	for i, tick := range c.ticks[1:] {
		if tick.After(t) {
			break
		}
		d += min(tick.Sub(c.ticks[i]), pause)
	}
	return d
}

// shown returns the rows of a terminal, in their order in time.
func (t *film) shown(c reel, top int) []shown {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []shown
	for i := range t.pictures[0].rows {
		begun := shown{}
		for _, p := range t.pictures {
			if p.rows[i] == begun.text {
				continue
			}
			begun.to = c.at(p.at)
			all = append(all, begun)
			begun = shown{y: top + (i+1)*height, text: p.rows[i], from: begun.to}
		}
		begun.to = c.total
		all = append(all, begun)
	}
	// What is shown for less than a twentieth of a second was being drawn.
	all = slices.DeleteFunc(all, func(s shown) bool { return s.text == "" || s.to-s.from < 50*time.Millisecond })
	slices.SortStableFunc(all, func(a, b shown) int { return cmp.Compare(a.from, b.from) })
	return all
}

func (s shown) draw(b *bytes.Buffer, total time.Duration, prompt string) {
	at := func(d time.Duration) string {
		return strings.TrimPrefix(fmt.Sprintf("%.4f", d.Seconds()/total.Seconds()), "0")
	}
	text := html.EscapeString(s.text)
	if after, is := strings.CutPrefix(s.text+" ", prompt); is {
		text = `<tspan class="p">` + prompt + `</tspan>` + html.EscapeString(strings.TrimSpace(after))
	}
	hidden := ` visibility="hidden"`
	if s.to == total { // a program that doesn't animate shows it
		hidden = ""
	}
	fmt.Fprintf(b, "<text x=\"%d\" y=\"%d\"%s>%s<animate attributeName=\"visibility\" dur=\"%.1fs\" repeatCount=\"indefinite\" calcMode=\"discrete\" values=\"hidden;visible;hidden\" keyTimes=\"0;%s;%s\"/></text>\n",
		margin, s.y, hidden, text, total.Seconds(), at(s.from), at(s.to))
}
