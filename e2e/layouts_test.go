//go:build unix && programs

package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/replock"
)

// layout is what lies in a repository's directory, and who acquires beside it: docs/evidence/protocol.md, What is stored.
type layout struct {
	// name is the path below index/, and holds what it is: "dir", "link" (to nothing), "linked" (to a folder), "pipe", or
	// the body of a file.
	name, holds       string
	shared, exclusive bool // acquired
}

const liveBody = "live" // the body of a shared lock

var layouts = []layout{
	{"lock.exclusive", "", true, true},
	{"lock.exclusive", "damaged", false, false},
	{"lock.exclusive", liveBody, false, false},
	{"lock.exclusive", "dir", false, false},
	{"lock.exclusive", "link", false, false},
	{"lock.exclusive", "linked", false, false},
	{"lock.exclusive", "pipe", false, false},
	{"lock.exclusive/x", "dir", false, false},
	{"lock.exclusive/x", "damaged", false, false},
	{"lock.exclusive/.DS_Store", "damaged", false, false},
	{"lock.exclusive/.repolock-x.tmp", "damaged", false, false},
	{"lock.exclusive/lock.shared", "damaged", false, false},
	{"lock.exclusive/lock.shared", "dir", true, false},       // no pointer can be put
	{"lock.exclusive/lock.shared/z", "damaged", true, false}, // likewise
	{"lock.exclusive/lock.shared/z", "dir", true, false},     // likewise
	{"lock.exclusive/lock.sharedx/z", "damaged", false, false},
	{"lock.exclusive.tmp", liveBody, true, true},
	{"lock.exclusively", liveBody, true, true},
	{"lock.intent", "dir", true, true},
	{"lock.intent", "damaged", false, false},
	{"lock.intent", liveBody, false, false},
	{"lock.intent", "link", false, false},
	{"lock.intent", "pipe", false, false},
	{"lock.intent/x", "", true, true},
	{"lock.intent/x", liveBody, false, false},
	{"lock.intent/x", "\x01sealed", false, false},
	{"lock.intent/x", "link", false, false},
	{"lock.intent/x", "pipe", false, false},
	{"lock.intent/x", "dir", true, true},
	{"lock.intent/x/y", liveBody, true, true},
	{"lock.intent/lock.shared/x", liveBody, true, true},
	{"lock.intent/._x", liveBody, true, true},
	{"lock.intent/.nfs0001", "damaged", true, true},
	{"lock.intent/.repolock-x.tmp", "damaged", true, true},
	{"lock.intent/repolock-x.tmp", "damaged", false, false},
	{"lock.intent/Thumbs.db", "damaged", true, true},
	{"lock.intent/Thumbs.db.x", "damaged", false, false},
	{"lock.intent/@eaDir/x", liveBody, true, true},
	{"lock.shared", "dir", true, true},
	{"lock.shared", "damaged", false, false},
	{"lock.shared", "", false, true}, // released; no flag can be put
	{"lock.intent", "", true, false},
	{"lock.exclusive/x", "", true, false},
	{"lock.shared", "link", false, false},
	{"lock.shared", "linked", false, false},
	{"lock.shared/x", "", true, true},
	{"lock.shared/x", liveBody, true, false},
	{"lock.shared/x", "damaged", true, false},
	{"lock.shared/x", "\x01sealed", true, false},
	{"lock.shared/x", "link", true, false},
	{"lock.shared/x", "linked", true, false},
	{"lock.shared/x", "pipe", true, false},
	{"lock.shared/x", "dir", true, true},
	{"lock.shared/x.tmp", liveBody, true, false},
	{"lock.shared/laptop/x", liveBody, true, false},
	{"lock.shared/laptop/.x", liveBody, true, true},
	{"lock.shared/laptop/@eaDir/x", liveBody, true, true},
	{"lock.shared/2026-03-07T09:00:00.123456789+01:00", liveBody, true, false},
	{"lock.shared/2026-03-07T09:00:00+01:00", "damaged", true, false},
	{"lock.shared/6ba7b810-9dad-11d1-80b4-00c04fd430c8", "\x01sealed", true, false},
	{"lock.shared/._2026-03-07T09:00:00Z", "\x00\x05\x16\x07", true, true},
	{"lock.shared/.DS_Store", "", true, true},
	{"lock.shared/.fuse_hidden0001", liveBody, true, true},
	{"lock.shared/.snapshot/hourly/x", liveBody, true, true},
	{"lock.shared/._x", "link", true, true},
	{"lock.shared/#recycle/x", liveBody, true, true},
	{"lock.shared/@EADIR/x", liveBody, true, true},
	{"lock.shared/@eaDir", liveBody, true, false}, // a file
	{"lock.shared/lost+found/x", liveBody, true, true},
	{"lock.shared/lost+found", liveBody, true, false},
	{"lock.shared/desktop.ini/x", liveBody, true, false}, // a folder
	{"lock.shared/Desktop.ini", liveBody, true, true},
	{"lock.shared/Icon\r", "", true, true},
	{"lock.shared.tmp", liveBody, true, true},
	{"lock.sharedx/y", liveBody, true, true},
	{"lock.waiting/x", liveBody, true, true},
	{"._lock.exclusive", liveBody, true, true},
	{"lock-fence", "damaged", true, true},
	{"lock-once/prune", liveBody, true, true},
}

// TestLayouts: the engine and the client of examples/protocol agree with docs/evidence/protocol.md about what lies in a
// repository's directory. The example ends with an exit code, and no trace.
func TestLayouts(t *testing.T) {
	for _, l := range layouts {
		for mode, want := range map[string]bool{"shared": l.shared, "exclusive": l.exclusive} {
			t.Run(fmt.Sprintf("%q is %q, %s", l.name, l.holds, mode), func(t *testing.T) {
				t.Parallel()
				s := &site{t: t, dir: t.TempDir()}
				s.repo, s.backend = s.path("repo"), directory{s}
				s.mkdir("repo")
				l.make(t, filepath.Join(s.repo, "index"))
				k, err := tryLayout(t, newLocker(t, s.repo, ""), mode)
				assert.That(t, (err == nil) == want, "the engine: %v", err)
				if err == nil {
					assert.OK(t, k.Release(t.Context()))
				}
				cmd := exec.Command("python3", "-B", secondClient, s.repo, mode, "--", "true")
				out, err := cmd.CombinedOutput()
				code := 75
				if want {
					code = 0
				}
				assert.That(t, cmd.ProcessState.ExitCode() == code, "the example: %v\n%s", err, out)
			})
		}
	}
}

func tryLayout(t *testing.T, l *replock.Locker, mode string) (*replock.Lock, error) {
	if mode == "shared" {
		return l.TryShared(t.Context(), "layout")
	}
	return l.TryExclusive(t.Context(), "layout")
}

func (l layout) make(t *testing.T, index string) {
	at := filepath.Join(index, l.name)
	assert.OK(t, os.MkdirAll(filepath.Dir(at), 0o700))
	switch l.holds {
	case "dir":
		assert.OK(t, os.Mkdir(at, 0o700))
	case "link":
		assert.OK(t, os.Symlink("nothing", at))
	case "linked":
		assert.OK(t, os.MkdirAll(filepath.Join(index, "folder"), 0o700))
		assert.OK(t, os.Symlink(filepath.Join(index, "folder"), at))
	case "pipe":
		assert.OK(t, syscall.Mkfifo(at, 0o600))
	case liveBody:
		assert.OK(t, os.WriteFile(at, body(time.Now(), time.RFC3339Nano), 0o600))
	default:
		assert.OK(t, os.WriteFile(at, []byte(l.holds), 0o600))
	}
}

// body is a body of the original protocol, with times in this layout.
func body(at time.Time, layout string) []byte {
	return fmt.Appendf(nil, `{"operation":"backup","holder":"laptop (pid 1)","acquired_at":%q,"expires_at":%q,"is_shared":true}`,
		at.Format(layout), at.Add(time.Minute).Format(layout))
}

// TestBodies: the engine and the client of examples/protocol agree about which bodies are a lock's, and about its ttl. A
// body that is no lock's is held until a person breaks it.
func TestBodies(t *testing.T) {
	const fields = `{"operation":"b","holder":"h","acquired_at":"2026-03-07T09:00:00Z","expires_at":"2026-03-07T09:01:00Z"`
	ttls := map[string]float64{ // 0: unreadable
		fields + "}":                                         60,
		fields + `,"ttl_seconds":10.5}`:                      10.5,
		fields + `,"ttl_seconds":1}`:                         10,
		fields + `,"ttl_seconds":0}`:                         60,
		fields + `,"ttl_seconds":1e9}`:                       86400,
		fields + `,"ttl_seconds":1e999}`:                     0,
		fields + `,"ttl_seconds":-1}`:                        0,
		fields + `,"ttl_seconds":"60"}`:                      0,
		fields + `,"ttl_seconds":true}`:                      0,
		fields + `,"ttl_seconds":null}`:                      60,
		fields + `,"ttl_seconds":NaN}`:                       0,
		fields + `,"new":NaN}`:                               0,
		fields + `,"new":{"a":[1,2.5e3,null]}}`:              60,
		fields + `,"id":null,"state":null}`:                  60,
		fields + `,"id":7}`:                                  0,
		fields + `,"state":["held"]}`:                        0,
		fields + `,"pid":"7"}`:                               0,
		fields + `,"pid":7.5}`:                               0,
		fields + `,"seq":-1}`:                                0,
		fields + `,"refreshed_boot_ns":9223372036854775807}`: 60,
		fields + `,"refreshed_boot_ns":9223372036854775808}`: 0,
		fields + `,"metadata":{"a":"b","c":null}}`:           60,
		fields + `,"metadata":{"a":1}}`:                      0,
		fields + `,"metadata":"a"}`:                          0,
		fields + `,"is_shared":1}`:                           0,
		fields + `,"refreshed_at":""}`:                       60,
		fields + `,"refreshed_at":"x"}`:                      0,
		fields + `,"acquired_at":"x"}`:                       60, // for people only; and the last of two counts
		fields + `,"expires_at":"x"}`:                        0,
		fields + "} ":                                        60,
		fields + "}x":                                        0,
		fields:                                               0,
		"\ufeff" + fields + "}":                              0,
		"null":                                               0,
		"[]":                                                 0,
		"{}":                                                 0,
		" ":                                                  0,
		"\x00\x05\x16\x07":                                   0,
		"\x01":                                               60,
		"\x01sealed":                                         60,
		"\x01" + strings.Repeat("x", 64<<10):                 0,
		"\x02sealed":                                         0,
		strings.Repeat("[", 60000):                           0,
		fields + `,"holder":"` + strings.Repeat("x", 64<<10) + `"}`: 0,
	}
	ttls[strings.NewReplacer("operation", "Operation", "expires_at", "EXPIRES_AT").Replace(fields)+"}"] = 60
	for at, valid := range map[string]bool{
		"2026-03-07T09:01:00.123456789Z": true, "2026-03-07T09:01:00.123456789+01:00": true, "2026-03-07T09:01:00.1-09:30": true,
		"2026-03-07T09:01:00.1234567891234Z": true, "2026-03-07T09:01:00+23:59": true, "2024-02-29T00:00:00Z": true, "0000-02-29T00:00:00Z": true, "9999-12-31T23:59:59-01:00": true,
		"2026-03-07T09:01:00+24:00": false, "2026-03-07T09:01:00+01:60": false, "2026-03-07T09:01:00+0100": false, "2026-03-07T09:01:00": false, "2026-03-07T09:01:00.Z": false,
		"2026-03-07T09:01:00,5Z": false, "2026-03-07t09:01:00z": false, "2026-03-07 09:01:00Z": false, "2026-03-07T9:01:00Z": false, "2026-02-29T00:00:00Z": false, "2026-13-01T00:00:00Z": false,
		"2026-03-07T24:00:00Z": false, "2026-03-07T09:01:60Z": false, "10000-01-01T00:00:00Z": false, "20260307T090100Z": false, "1772874000": false, "٢٠٢٦-03-07T09:01:00Z": false, " 2026-03-07T09:01:00Z": false,
	} {
		ttl := 0.0
		if valid {
			ttl = 60
		}
		ttls[fields+fmt.Sprintf(`,"expires_at":%q}`, at)] = ttl
		ttls[fields+fmt.Sprintf(`,"refreshed_at":%q}`, at)] = ttl
	}
	var bodies [][]byte
	for raw := range ttls {
		bodies = append(bodies, []byte(raw))
	}
	in, err := json.Marshal(bodies)
	assert.OK(t, err)
	cmd := exec.Command("python3", "-B", "-c", `
import base64, json, sys
from client import ttl_of
print(json.dumps([ttl_of(base64.b64decode(b)) or 0 for b in json.load(sys.stdin)]))`)
	cmd.Dir = filepath.Dir(secondClient)
	cmd.Stdin = bytes.NewReader(in)
	out, err := cmd.Output()
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		t.Fatalf("the example: %s", failed.Stderr)
	}
	assert.OK(t, err)
	var theirs []float64
	assert.OK(t, json.Unmarshal(out, &theirs))
	repo := t.TempDir()
	l := newLocker(t, repo, "")
	key := filepath.Join(repo, "index", "lock.shared", "x")
	assert.OK(t, os.MkdirAll(filepath.Dir(key), 0o700))
	for n, raw := range bodies {
		want, brief := ttls[string(raw)], fmt.Sprintf("%.150q", raw)
		assert.OK(t, os.WriteFile(key, raw, 0o600))
		infos, err := l.Status(t.Context())
		assert.That(t, err == nil && len(infos) == 1, "%s: %v, %v", brief, infos, err)
		ours := infos[0].TTL.Seconds()
		if infos[0].Verdict == replock.Unreadable {
			ours = 0
		}
		assert.That(t, ours == want && theirs[n] == want, "%s: ttl %v, engine %v, example %v", brief, want, ours, theirs[n])
	}
}
