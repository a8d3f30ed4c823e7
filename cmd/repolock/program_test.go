package main

import (
	"os"
	"testing"

	"github.com/repolock/repolock/cmd/internal/cli"
	"github.com/repolock/repolock/cmd/internal/show"
	"github.com/repolock/repolock/internal/test/assert"
)

// TestProgramsCredentials: status, break-lock and doctor find the credentials that a program has under other names, as
// repolock -- PROGRAM does.
func TestProgramsCredentials(t *testing.T) {
	t.Setenv("B2_ACCOUNT_ID", "id")
	t.Setenv("B2_ACCOUNT_KEY", "key")
	t.Setenv("B2_APPLICATION_KEY", "")
	t.Setenv("B2_APPLICATION_KEY_ID", "")
	g, err := after{[]string{"restic", "-r", "b2:bucket"}}.locate(&show.Reporter{}, global{Globals: cli.Globals{Typed: map[string]string{}}})
	assert.OK(t, err)
	assert.Equal(t, g.Repo, "b2://bucket")
	assert.Equal(t, os.Getenv("B2_APPLICATION_KEY_ID")+" "+os.Getenv("B2_APPLICATION_KEY"), "id key")
}
