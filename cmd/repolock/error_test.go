package main

import (
	"strings"
	"testing"

	"github.com/repolock/repolock/cmd/internal/also"
	"github.com/repolock/repolock/cmd/internal/cli"
	"github.com/repolock/repolock/cmd/internal/doctor"
	"github.com/repolock/repolock/cmd/internal/session"
	"github.com/repolock/repolock/cmd/internal/show"
	"github.com/repolock/repolock/internal/config"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store"
)

// TestLocated: the commands of a hint can be run as they are. A URL that can have a password isn't repeated.
func TestLocated(t *testing.T) {
	for repo, want := range map[string]string{
		"":                            "repolock doctor examines the store",
		"s3://b/p?endpoint=https://h": "repolock -r 's3://b/p?endpoint=https://h' doctor examines the store",
		"sftp://h/p?command=ssh -J j": "repolock -r URL doctor examines the store (URL is your --repo)",
		"-dash":                       "repolock --repo=-dash doctor examines the store",
		"a\tb\n\x1b'":                 `repolock -r $'a\x09b\x0a\x1b\x27' doctor examines the store`,
		"n\xff":                       `repolock -r $'n\xff' doctor examines the store`,
	} {
		assert.Equal(t, show.Flags{"repo": repo}.Located("{repolock doctor} examines the store"), want)
		assert.Equal(t, show.Flags{"repo": repo}.Located("free space"), "free space")
	}
}

// TestLocatedPlaces: the hint about one of several places names that place, as the command line or the configuration
// file does. If two failures have different hints, none is printed.
func TestLocatedPlaces(t *testing.T) {
	down := func(typed map[string]string, err error) placed {
		return placed{system: unopened{err}, Place: session.Place{Repo: "s3://b"}, typed: typed}
	}
	g := global{Globals: cli.Globals{Typed: map[string]string{"config": "c.toml"}, Repo: "/none"}}
	g.File = &config.File{Repositories: map[string]config.Repository{"down": {URL: "/none"}}}
	listed, _, _ := g.everySystem(nil, also.Look)
	listed[0].system = unopened{store.ErrUnreachable}
	given, _, _ := g.systems([]string{"repo:/none#n", "tower-fleet:./none/x"}, also.Look)
	for _, c := range []struct {
		all  []placed
		want string
	}{
		{listed, "repolock --config c.toml -r down doctor examines the store"},
		{[]placed{down(given[0].typed, store.ErrUnreachable)}, "repolock --config c.toml doctor examines the store"},
		{[]placed{down(given[1].typed, store.ErrUnreachable)}, "repolock -r /none --name n doctor examines the store"},
		{[]placed{down(map[string]string{"also": "redis://h?key=k"}, fault.Late)}, "the store or the network is too slow now: try again; repolock --config c.toml doctor --also 'redis://h?key=k' measures the store"},
		{[]placed{listed[0], down(nil, store.ErrFull)}, ""},
		{[]placed{down(nil, store.ErrFull), down(nil, store.ErrFull)}, fault.Full.Advice},
	} {
		r := &show.Reporter{Options: g.shown(), Command: "status"}
		_, _, err := everywhere(r, "", c.all, func(p placed) ([]replock.Broken, error) {
			_, err := p.Status(t.Context())
			return nil, err
		})
		_, _, hint := r.Describe(err)
		assert.Equal(t, hint, c.want)
	}
	assert.That(t, strings.HasSuffix(given[2].typed["also"], "/none/x"), "%q", given[2].typed)
}

// TestAdvice: doctor recommends conditions=kept if every test passed and the URL lacks it, and
// warns of it if a test failed.
func TestAdvice(t *testing.T) {
	plan := func(c doctor.Conditions) doctor.Report {
		return doctor.Report{Plan: &doctor.Plan{Conditions: c}, Verdict: doctor.Verdict{Fitness: doctor.Fit}}
	}
	unfit := doctor.Report{Verdict: doctor.Verdict{Fitness: doctor.Unfit}}
	for _, test := range []struct {
		report       doctor.Report
		repo         string
		better, says string
	}{
		{plan(doctor.Proven), "s3://b/p", "s3://b/p?conditions=kept", "s3://b/p?conditions=kept"},
		{plan(doctor.Proven), "minio://h:9000/b?tls=false", "minio://h:9000/b?tls=false&conditions=kept", "2 round trips"},
		{plan(doctor.Proven), "s3://b/p?conditions=auto&region=x", "s3://b/p?region=x&conditions=kept", ""},
		{plan(doctor.Relied), "s3://b/p?conditions=kept", "", ""},
		{plan(doctor.Unreliable), "s3://b/p", "", "must not"},
		{unfit, "s3://b/p?conditions=kept", "", "take conditions=kept out"},
		{unfit, "s3://b/p", "", ""},
		{plan(doctor.Proven), "/srv/repo", "", ""},
		{plan(doctor.Unreliable), "s3://b/p?conditions=none", "", ""},
		{plan(doctor.Unreliable), "b2://b/p", "", ""},
	} {
		better, says := advice(test.report, test.repo)
		assert.That(t, better == test.better && strings.Contains(says, test.says) && (test.says == "" && test.better == "") == (says == ""),
			"%s: %q, %q", test.repo, better, says)
	}
}
