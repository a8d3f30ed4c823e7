package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/repolock/repolock/internal/child"
)

func TestMain(m *testing.M) {
	child.GuardMain() // the guards of the commands below are this binary
	testscript.Main(unconfigured{m}, map[string]func(){"repolock": main})
}

// unconfigured keeps the configuration file of whoever runs the tests out of them.
type unconfigured struct{ *testing.M }

func (u unconfigured) Run() int {
	os.Setenv("REPOLOCK_CONFIG", "")
	return u.M.Run()
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		RequireExplicitExec: true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("REPOLOCK_CONFIG", "")
			e.Setenv("REPOLOCK_REPO", filepath.Join(e.WorkDir, "repo"))
			return os.Mkdir(filepath.Join(e.WorkDir, "repo"), 0o700)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"code": code, "await": await},
	})
}
