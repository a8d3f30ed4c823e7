//go:build unix && minio

package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/proxy"
)

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
	cmd := exec.Command(filepath.Join(bin, "repolock"), "--json", "doctor")
	cmd.Env = s.environ()
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	err := cmd.Run()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		s.t.Fatal(err)
	}
	if err := json.Unmarshal(out.Bytes(), &d); err != nil {
		s.t.Fatalf("%v: %s%s", err, out.Bytes(), stderr.Bytes())
	}
	if cmd.ProcessState.ExitCode() != code || d.Verdict.Fitness != fitness || len(d.Left) > 0 {
		s.t.Errorf("%v\n%s%s", cmd.ProcessState, out.Bytes(), stderr.Bytes())
	}
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
	onEach(t, func(t *testing.T, k kind) {
		s := k.on(k.shared(t)).site(t)
		d := diagnose(s, 0, "fit")
		for _, name := range []string{"reachable", "list", "write", "read", "overwrite", "delete", "list_after_write", "clock_offset"} {
			if r := d.result(name); r != "ok" {
				t.Errorf("%s: %s", name, r)
			}
		}
		if k.name == "b2" { // has no conditional put
			if d.Plan.Conditions != "unreliable" || d.SuggestedURL != "" {
				t.Errorf("%+v", d)
			}
			return
		}
		if takesAbsent {
			doctorOfOldMinIO(s, d)
			return
		}
		if d.result("if_match_absent") != "ok" || d.Plan.Conditions != "proven" || d.Plan.Exclusive != 4 || d.Plan.Fence || !strings.Contains(d.SuggestedURL, "conditions=kept") {
			t.Errorf("%+v", d)
		}
		d = diagnose(s.at(d.SuggestedURL), 0, "fit")
		if d.Plan.Conditions != "relied_on" || d.Plan.Exclusive != 2 || !d.Plan.Fence || d.SuggestedURL != "" {
			t.Errorf("%+v", d)
		}
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
	if d.result("if_match_absent") != "fail" || !strings.Contains(d.detail("if_match_absent"), "leave conditions=kept out") {
		s.t.Errorf("%+v", d)
	}
}

// TestDoctorOfDeafServer: a server that ignores conditions is fit, unless the user has
// declared that it keeps them.
func TestDoctorOfDeafServer(t *testing.T) {
	for _, k := range []kind{onS3, onMinIO} {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			p := k.on(k.shared(t))
			s := p.site(t).at(p.through(proxied(t, p, proxy.Behaviour{StripConditions: true, Sign: root})))
			d := diagnose(s, 0, "fit")
			if d.result("if_none_match_race") != "warn" || d.result("if_match") != "warn" || d.Plan.Conditions != "unreliable" || d.SuggestedURL != "" {
				t.Errorf("%+v", d)
			}
			diagnose(s.at(s.repo+"&conditions=kept"), 78, "unfit")
		})
	}
}

// TestDoctorOfWrongClock: doctor says by how much a clock is wrong.
func TestDoctorOfWrongClock(t *testing.T) {
	t.Parallel()
	p := onMinIO.on(sharedMinIO(t))
	s := p.site(t).at(p.through(proxied(t, p, proxy.Behaviour{Shift: -time.Hour, Sign: root})))
	if d := diagnose(s, 0, "fit"); d.result("clock_offset") != "warn" || d.Clock.Offset < 3590 || d.Clock.Offset > 3610 {
		t.Errorf("%+v", d)
	}
}
