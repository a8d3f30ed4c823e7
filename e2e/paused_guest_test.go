//go:build linux && programs && minio

package e2e

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/repolock/repolock/internal/test/miniotest"
)

const (
	// lookEvery is how often a holder looks at its own objects, whatever the ttl.
	lookEvery = 10 * time.Second
	// stopWithin is how soon the guard notices a step of the wall clock.
	stopWithin = time.Second
	// slack is the number of writes that are under way when the pause begins, and while the
	// command is stopped. The guest's command writes once a second, by the guest's clock, so
	// a slow machine has no more of them.
	slack = 3
)

// TestPausedGuest: a hypervisor pauses a machine that holds a shared lock. It resumes the
// machine when the lock has expired, and a prune on another machine holds the exclusive
// lock. No clock in the guest counts the pause. The guest's command stops at the next look
// of its holder, or, if the guest's wall clock is stepped, at the step.
func TestPausedGuest(t *testing.T) {
	t.Run("not stepped", func(t *testing.T) {
		t.Parallel()
		p := newPausedGuest(t)
		p.lose(false)
		most := int((lookEvery+p.waited)/time.Second) + slack
		if n := len(p.beside); n > most {
			t.Errorf("the guest wrote %d times beside the prune, want at most %d", n, most)
		}
	})
	t.Run("stepped", func(t *testing.T) {
		t.Parallel()
		p := newPausedGuest(t)
		p.lose(true)
		n := 0
		for _, m := range p.beside {
			if m.boot > p.heard("stepped")[0].boot {
				n++
			}
		}
		t.Logf("%d writes came after the step of the guest's wall clock", n)
		if most := int(stopWithin/time.Second) + slack; n > most {
			t.Errorf("the guest wrote %d times after the step of its wall clock, want at most %d", n, most)
		}
	})
	t.Run("kept", func(t *testing.T) {
		t.Parallel()
		newPausedGuest(t).keep()
	})
}

// guestTTL is the ttl of the guest's lock. At the default of 60 s, the refresh comes 20 s
// after the look.
func guestTTL(t *testing.T) string {
	t.Helper()
	text := os.Getenv("REPOLOCK_GUEST_TTL")
	if text == "" {
		text = "60s"
	}
	return text
}

// pausedGuest is a guest whose command writes under a shared lock.
type pausedGuest struct {
	*guest
	s      *site
	client *minio.Client // one for all looks: each has connections of its own
	bucket string
	front  *storefront
	// beside are the guest's writes while the prune ran. Of the time from the resume to the
	// command's end, the guest waited for the store's answers for waited.
	beside []message
	waited time.Duration
}

func newPausedGuest(t *testing.T) *pausedGuest {
	t.Helper()
	server := miniotest.Shared(t)
	at := place{onS3, server, server.Bucket()}
	front := newStorefront(t, server.Endpoint())
	_, port, _ := strings.Cut(front.Listener.Addr().String(), ":")
	env := []string{"HOME=/tmp", "REPOLOCK_CONFIG=", "REPOLOCK_REPO=" + at.url(toHost+":"+port, at.bucket)}
	for name, value := range credentials {
		env = append(env, name+"="+value)
	}
	p := &pausedGuest{s: at.site(t), client: server.Client(), bucket: at.bucket, front: front}
	p.guest = startGuest(t, env, "/repolock", "backup", "--ttl", guestTTL(t), "--", "/init", "write")
	p.until("the guest's first write", func() bool { return len(p.heard("write")) > 0 })
	t.Logf("the guest is up after %.1f s, and writes after %.1f s",
		p.heard("up")[0].at.Sub(p.begun).Seconds(), p.heard("write")[0].at.Sub(p.begun).Seconds())
	return p
}

// lose has the guest lose its lock in a pause. The pause begins right after a refresh, when
// the guest's next request is farthest away.
func (p *pausedGuest) lose(step bool) {
	p.t.Helper()
	p.refreshed()
	p.pause()
	paused, before := time.Now(), last(p.heard("write"))

	prune := p.s.start(append([]string{"prune", "--wait", patience.String()}, ticks("prune")...)...)
	p.until("the prune to run", func() bool { return len(p.s.times("prune")) > 0 })
	waited := p.front.waited()
	p.resume()
	resumed := time.Now()
	if step {
		p.step <- resumed.Sub(paused)
	}
	exit := p.exit(79)
	p.waited = p.front.waited() - waited
	select {
	case <-prune.done:
		p.t.Error("the prune ended before the guest's command")
	default:
	}
	prune.end("prune")

	times := p.s.times("prune")
	for _, m := range p.heard("write") {
		if m.at.After(times[0]) && m.at.Before(times[len(times)-1]) {
			p.beside = append(p.beside, m)
		}
	}
	pause, uncounted := resumed.Sub(paused), exit.at.Sub(before.at)-(exit.boot-before.boot)
	p.t.Logf("the guest is paused for %.1f s, and its CLOCK_BOOTTIME leaves out %.1f s", pause.Seconds(), uncounted.Seconds())
	p.t.Logf("it writes %d times beside the prune; repolock exits with %d %.1f s after the resume, having waited for the store for %.2f s",
		len(p.beside), exit.value, exit.at.Sub(resumed).Seconds(), p.waited.Seconds())
	if uncounted < pause/2 {
		p.t.Error("the guest's clock counts the pause: nothing was tested")
	}
}

// keep pauses the guest for less than its lease, and steps its wall clock. No other holder
// comes, so it must keep its lock. A resumed lock would have another key.
func (p *pausedGuest) keep() {
	p.t.Helper()
	p.refreshed()
	key, _, _ := strings.Cut(p.lock(), " ")
	p.pause()
	paused := time.Now()
	time.Sleep(5 * time.Second) // these must not disturb the guest
	p.resume()
	p.step <- time.Since(paused)
	p.until("the step of the guest's wall clock", func() bool { return len(p.heard("stepped")) > 0 })
	p.refreshed()
	writes := len(p.heard("write"))
	p.until("writes after a refresh", func() bool { return len(p.heard("write")) >= writes+10 })
	if !strings.HasPrefix(p.lock(), key+" ") {
		p.t.Errorf("the lock was lost and resumed: it was %s, and is %s", key, p.lock())
	}
	p.end()
	p.exit(0)
	p.s.nothingLeft()
}

// refreshed waits for a refresh of the guest's lock.
func (p *pausedGuest) refreshed() {
	p.t.Helper()
	before := p.lock()
	p.until("a refresh of the guest's lock", func() bool { return p.lock() != before })
}

// lock is the key and the ETag of the guest's lock.
func (p *pausedGuest) lock() (text string) {
	p.t.Helper()
	opts := minio.ListObjectsOptions{Recursive: true, Prefix: "some/prefix/index/lock.shared/"}
	for o := range p.client.ListObjects(p.t.Context(), p.bucket, opts) {
		if o.Err != nil {
			p.t.Fatal(o.Err)
		}
		text += o.Key + " " + o.ETag + "\n"
	}
	return text
}

// exit waits for the exit code of repolock in the guest, and for the guest's end.
func (p *pausedGuest) exit(want int) message {
	p.t.Helper()
	p.until("the guest's command to end", func() bool { return len(p.heard("exit")) > 0 })
	<-p.ended
	exit := last(p.heard("exit"))
	if exit.value != want {
		p.t.Errorf("repolock exits with %d in the guest, want %d", exit.value, want)
	}
	return exit
}

func last(of []message) message { return of[len(of)-1] }
