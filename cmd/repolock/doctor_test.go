package main

import (
	"strings"
	"testing"

	"github.com/repolock/repolock/cmd/internal/doctor"
)

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
		if better != test.better || !strings.Contains(says, test.says) || (test.says == "" && test.better == "") != (says == "") {
			t.Errorf("%s: %q, %q", test.repo, better, says)
		}
	}
}
