//go:build unix && minio

package e2e

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/miniotest"
	"github.com/repolock/repolock/store"
)

// takesAbsent is the difference between MinIO before September 2025, which e2e/minio.sh starts
// with this release, and later ones: the old one takes a put with If-Match on a missing key.
var takesAbsent = os.Getenv("REPOLOCK_E2E_RELEASE") == "2025-04"

// TestIfMatchOnAbsentKey: the server is of the age that the tests assume.
func TestIfMatchOnAbsentKey(t *testing.T) {
	t.Parallel()
	want := store.ErrPrecondition
	if takesAbsent {
		want = nil
	}
	for name, bucket := range miniotest.Buckets(t) {
		for _, url := range []string{bucket.S3("by-s3"), bucket.MinIO("by-minio")} {
			s, other := openStore(t, url), openStore(t, url)
			o, err := s.Put(t.Context(), "index/x", []byte("1"), store.PutOptions{})
			assert.OK(t, err)
			assert.OK(t, other.Delete(t.Context(), "index/x"))
			for _, etag := range []string{o.ETag, "00000000000000000000000000000000"} {
				_, err := s.Put(t.Context(), "index/x", []byte("2"), store.PutOptions{IfMatch: etag})
				assert.Is(t, err, want, "%s, on a deleted object", name)
				assert.OK(t, s.Delete(t.Context(), "index/x"))
			}
			_, err = s.Put(t.Context(), "index/never", []byte("2"), store.PutOptions{IfMatch: o.ETag})
			assert.Is(t, err, want, "%s, on what never was", name)
		}
	}
}

// diagnosis is the part of doctor's JSON that these tests read.
type diagnosis struct {
	Checks []struct{ Name, Result, Detail string }
	Clock  struct {
		Offset float64 `json:"offset_seconds"`
	}
	Plan struct {
		Exclusive  int `json:"exclusive_round_trips"`
		Conditions string
		Fence      bool
	}
	Left         []string
	Verdict      struct{ Fitness, Summary string }
	SuggestedURL string `json:"suggested_url"`
}

// diagnose runs repolock doctor, which must leave nothing.
func diagnose(s *site, code int, fitness string) (d diagnosis) {
	s.t.Helper()
	p := s.start("--json", "doctor")
	p.exits(code)
	assert.OK(s.t, json.Unmarshal([]byte(p.stderr.String()), &d))
	assert.That(s.t, d.Verdict.Fitness == fitness && len(d.Left) == 0, "%+v", d)
	s.nothingLeft()
	return d
}

func (d diagnosis) result(name string) string { result, _ := d.check(name); return result }

func (d diagnosis) detail(name string) string { _, detail := d.check(name); return detail }

func (d diagnosis) check(name string) (result, detail string) {
	for _, c := range d.Checks {
		if c.Name == name {
			return c.Result, c.Detail
		}
	}
	return "missing", ""
}

// TestDoctor: doctor finds real servers fit, and recommends what would help. It runs on MinIO
// of both ages.
func TestDoctor(t *testing.T) {
	onEach(t, kinds, func(t *testing.T, k kind) {
		s := k.on(k.shared(t)).site(t)
		d := diagnose(s, 0, "fit")
		for _, name := range []string{"reachable", "list", "write", "read", "overwrite", "delete", "list_after_write", "clock_offset"} {
			assert.Equal(t, d.result(name), "ok", name)
		}
		if k.name == "b2" { // has no conditional put
			assert.That(t, d.Plan.Conditions == "unreliable" && d.SuggestedURL == "", "%+v", d)
			return
		}
		if takesAbsent {
			doctorOfOldMinIO(s, d)
			return
		}
		assert.That(t, d.result("if_match_absent") == "ok" && strings.Contains(d.SuggestedURL, "conditions=kept"), "%+v", d)
		assert.That(t, d.Plan.Conditions == "proven" && d.Plan.Exclusive == 4 && !d.Plan.Fence, "%+v", d)
		d = diagnose(s.at(d.SuggestedURL), 0, "fit")
		assert.That(t, d.Plan.Conditions == "relied_on" && d.Plan.Exclusive == 2 && d.Plan.Fence && d.SuggestedURL == "", "%+v", d)
	})
}

// doctorOfOldMinIO: a server that takes If-Match on a missing key is fit, unless the user has
// declared that it keeps conditions.
func doctorOfOldMinIO(s *site, d diagnosis) {
	const which = "(MinIO before September 2025)"
	if d.result("if_match") != "ok" || d.result("if_match_absent") != "warn" || !strings.Contains(d.detail("if_match_absent"), which) ||
		d.Plan.Conditions != "unreliable" || d.Plan.Fence || d.SuggestedURL != "" {
		s.t.Errorf("%+v", d)
	}
	d = diagnose(s.at(s.repo+"&conditions=kept"), 78, "unfit")
	assert.That(s.t, d.result("if_match_absent") == "fail" && strings.Contains(d.detail("if_match_absent"), "leave conditions=kept out"), "%+v", d)
}
