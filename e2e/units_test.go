//go:build linux && system && !e2e

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// units are looked at where the package has put them. No systemd runs them.
func units(t *testing.T) {
	dir := clone(t)
	// A systemd that doesn't run can't be told to read the units anew.
	stand := t.TempDir()
	in(t, stand, "printf '#!/bin/sh\\n' >systemctl; chmod 755 systemctl")
	path := "PATH=" + stand + ":" + os.Getenv("PATH")
	commands := blocks(t, "../docs/systemd.md")
	const install, dropIn = 0, 4
	if len(commands) != 5 {
		t.Fatalf("the document's commands are %q", commands)
	}
	in(t, dir, "! test -e /etc/repolock/home.env; ! test -e /etc/systemd/system/repolock-backup@.timer.d")
	t.Cleanup(func() {
		in(t, dir, "rm -rf /etc/repolock/home.env /etc/systemd/system/repolock-backup@.timer.d")
	})
	in(t, dir, commands[install])
	in(t, dir, commands[dropIn], path)
	if mode := in(t, dir, "stat -c %a /etc/repolock/home.env"); mode != "600\n" {
		t.Errorf("others read the job's secrets: %s", mode)
	}
	// It exits with 0 for what it ignores, but says it.
	if out := in(t, dir, "systemd-analyze verify repolock-backup@home.service repolock-prune@home.service repolock-backup@home.timer repolock-prune@home.timer"); out != "" {
		t.Error(out)
	}

	// The example's job, in a directory, with a stand-in for restic.
	s := newSite(t)
	s.write("bin/restic", "#!/bin/sh\necho $REPOLOCK_MODE: $*\n")
	file := environment(t, in(t, dir, "cat /etc/repolock/home.env"))
	for unit, want := range map[string]string{
		"repolock-backup@": "shared: backup --one-file-system /home /etc\n",
		"repolock-prune@":  "exclusive: forget --prune --keep-daily 7 --keep-weekly 5 --keep-monthly 12\n",
	} {
		text := in(t, dir, "cat /usr/lib/systemd/system/"+unit+".service")
		vars := environment(t, strings.ReplaceAll(setting(t, text, "Environment"), `"`, ""))
		for name, value := range file {
			vars[name] = value
		}
		if vars["REPOLOCK_REPO"] == "" || vars["RESTIC_REPOSITORY"] == "" {
			t.Fatalf("the example is %v", file)
		}
		args := split(setting(t, text, "ExecStart"), vars)
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Env = append(os.Environ(), "REPOLOCK_REPO="+s.repo, "PATH="+s.path("bin")+":"+os.Getenv("PATH"))
		if out, err := cmd.CombinedOutput(); err != nil || string(out) != want {
			t.Errorf("%q: %v, %s", args, err, out)
		}
	}
	s.nothingLeft()
}

// environment reads lines NAME=VALUE as systemd.exec(5) does, without quotes.
func environment(t *testing.T, text string) map[string]string {
	t.Helper()
	vars := map[string]string{}
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		if !ok {
			t.Fatalf("not understood: %s", line)
		}
		vars[name] = value
	}
	return vars
}

// setting is the first of a unit's settings of that name.
func setting(t *testing.T, unit, name string) string {
	t.Helper()
	match := regexp.MustCompile("(?m)^" + name + "=(.*)$").FindStringSubmatch(unit)
	if match == nil {
		t.Fatalf("no %s in\n%s", name, unit)
	}
	return match[1]
}

// split makes arguments of a command line as systemd.service(5) does: a word $NAME becomes
// as many as there are in the variable.
func split(line string, vars map[string]string) (args []string) {
	for _, word := range strings.Fields(line) {
		if name, ok := strings.CutPrefix(word, "$"); ok {
			args = append(args, strings.Fields(vars[name])...)
		} else {
			args = append(args, word)
		}
	}
	return args
}

func (s *site) write(name, text string) {
	s.t.Helper()
	if err := os.MkdirAll(filepath.Dir(s.path(name)), 0o700); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(s.path(name), []byte(text), 0o700); err != nil {
		s.t.Fatal(err)
	}
}
