//go:build unix && minio

package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	keys "github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/miniotest"
	"github.com/repolock/repolock/internal/test/proxy"
	"github.com/repolock/repolock/internal/test/rounds"
)

// TestOnStores runs the scenarios on every store. A scenario that stops the server has a server to itself.
func TestOnStores(t *testing.T) {
	onEach(t, kinds, func(t *testing.T, k kind) {
		for _, c := range scenarios {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				start := k.shared
				if c.outage {
					rounds.Long(t, "an outage lasts for a ttl, on a server of its own")
					start = k.own
				}
				c.run(k.on(start(t)).site(t))
			})
		}
	})
}

// TestPartition: requests of the holder get no answer, and another client, whose requests do, acquires the
// lock. The holder's command never runs beside the other, and never again. (In the scenarios with an outage the
// store refuses connections.)
func TestPartition(t *testing.T) {
	onEach(t, kinds, func(t *testing.T, k kind) {
		at := k.on(k.shared(t))
		p := proxied(t, at, proxy.Behaviour{})
		s := at.site(t)
		a := s.at(at.through(p)).hold("backup", "a", brief...)
		p.Behave(proxy.Behaviour{Blackhole: true})
		s.another()
		p.Behave(proxy.Behaviour{})
		s.lostTo(a)
	})
}

// TestUnusableStoreIsNamed: a store that cannot be used is reported in one line, soon, with the
// right exit code, and the command is not run. (TestOnlySilenceIsUnreachable has certificates, and servers that
// answer something else.)
func TestUnusableStoreIsNamed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		kinds []kind
		at    where
		env   []string
		code  int
		says  string
	}{
		{"no bucket", kinds, wrongBucket, nil, 66, "nobody-has-this-bucket"},
		{"wrong region", onMinIOs, wrongRegion, nil, 78, "region"},
		{"wrong secret", kinds, asItIs, wrong("AWS_SECRET_ACCESS_KEY", "MINIO_SECRET_KEY", "B2_APPLICATION_KEY"), 77, "permission denied"},
		{"wrong user", kinds, asItIs, wrong("AWS_ACCESS_KEY_ID", "MINIO_ACCESS_KEY", "B2_APPLICATION_KEY_ID"), 77, "permission denied"},
		{"no credentials", kinds, asItIs, none, 78, "wrong configuration"},
	} {
		for _, k := range c.kinds {
			t.Run(c.name+", "+k.name, func(t *testing.T) {
				t.Parallel()
				p := k.on(k.shared(t))
				host, replace := c.at(t, p)
				s := p.site(t).at(strings.NewReplacer(replace...).Replace(p.url(host, p.bucket)))
				s.env = c.env
				for _, args := range [][]string{{"status"}, {"backup", "--", "touch", "ran"}, {"prune", "--", "touch", "ran"}} {
					s.fails(c.code, c.says, args...)
				}
				assert.That(t, !s.exists("ran"), "the command was run")
			})
		}
	}
}

// soon is far longer than repolock waits for requests. Even a busy machine doesn't reach it.
const soon = 3 * time.Minute

// fails checks that a repolock fails soon, with this exit code and this message.
func (s *site) fails(code int, says string, args ...string) {
	s.t.Helper()
	start := time.Now()
	p := s.start(args...)
	got, took := p.code(), time.Since(start)
	stderr := p.stderr.String()
	assert.That(s.t, got == code && took <= soon, "%s: exit code %d after %v, want %d: %s", args[0], got, took.Round(time.Millisecond), code, stderr)
	lines := strings.Split(strings.TrimSuffix(slow.ReplaceAllString(stderr, ""), "\n"), "\n")
	if code == 69 && strings.Contains(lines[0], "warning: a lock is left to expire") {
		lines = lines[1:] // without an answer repolock can't know whether it is there
	}
	hinted := len(lines) == 2 && strings.HasPrefix(lines[1], "repolock: hint: ")
	assert.That(s.t, strings.HasPrefix(lines[0], "repolock: error: ") && (len(lines) <= 1 || hinted) && len(lines[0]) <= 600, "%s: is not one error with its hint: %s", args[0], stderr)
	assert.That(s.t, strings.Contains(lines[0], says), "%s: doesn't say %q: %s", args[0], says, stderr)
	for _, secret := range []string{miniotest.Password, b2Key, wrongValue} {
		assert.That(s.t, !strings.Contains(stderr, secret), "%s: a secret in the message: %s", args[0], stderr)
	}
}

// where returns a host, and replacements in the URL.
type where = func(t *testing.T, p place) (host string, replace []string)

func asItIs(_ *testing.T, p place) (string, []string) { return p.host(), nil }

func wrongBucket(_ *testing.T, p place) (string, []string) {
	return p.host(), []string{p.bucket, "nobody-has-this-bucket"}
}

// wrongRegion is a server that checks the region of a signature.
func wrongRegion(t *testing.T, _ place) (string, []string) {
	s := miniotest.Start(t, "MINIO_SITE_REGION=eu-central-1")
	// It is ready before it knows its region.
	c, err := minio.New(strings.TrimPrefix(s.Endpoint(), "http://"), &minio.Options{
		Creds: keys.NewStaticV4(miniotest.User, miniotest.Password, ""), Region: "us-east-1", MaxRetries: 1,
	})
	assert.OK(t, err)
	waitFor(t, "a server that minds its region", nil, func() bool {
		for o := range c.ListObjects(t.Context(), "a-bucket", minio.ListObjectsOptions{}) {
			return minio.ToErrorResponse(o.Err).Code == "AuthorizationHeaderMalformed"
		}
		return false
	})
	return strings.TrimPrefix(s.Endpoint(), "http://"), nil
}

const wrongValue = "nobody-has-this-value"

// wrong sets variables to a wrong value.
func wrong(names ...string) (env []string) {
	for _, name := range names {
		env = append(env, name+"="+wrongValue)
	}
	return env
}

// none empties every variable in which drivers look for credentials.
var none = []string{
	"AWS_ACCESS_KEY_ID=", "AWS_SECRET_ACCESS_KEY=", "MINIO_ACCESS_KEY=", "MINIO_SECRET_KEY=",
	"B2_APPLICATION_KEY_ID=", "B2_APPLICATION_KEY=", "HOME=/dev/null/none", // which nobody can create
}
