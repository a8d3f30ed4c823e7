//go:build linux && programs && !minio

package e2e

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestAlsoKeeper: a script acquires locks of three systems beside the repository's, checks,
// renews and releases them. A repolock in the script knows that it runs under them.
func TestAlsoKeeper(t *testing.T) {
	s := newSystems(t)
	script := s.shell(`
alone() { env REPOLOCK_REPO= repolock run "$@"; }
eval "$(repolock acquire --exclusive --repo "$REPO" --for-pid $$ --export --audit audit $ALSO)" || exit
echo held >held; until [ -e go-on ]; do sleep 0.1; done
repolock check; echo "check: $?"
repolock renew; echo "renew: $?"
for url in $URLS; do
	alone --also "$url" -- echo "it ran"; echo "nested: $?"
	alone --also "$url" --wait forever -- echo "it ran"; echo "nested, and waits: $?"
done
repolock release; echo "release: $?"
repolock check; echo "check after the release: $?"
for url in $URLS; do alone --also "$url" -- true; echo "run after the release: $?"; done`)
	kinds := []string{kindRedis, kindPostgres, kindFleet}
	var urls []string
	for _, kind := range kinds {
		urls = append(urls, s.urls[kind])
	}
	script.Env = append(s.environ(), "REPO="+s.path("repo"),
		"ALSO="+strings.Join(s.also(kinds...), " "), "URLS="+strings.Join(urls, " "))
	var out lockedBuffer
	script.Stdout, script.Stderr = &out, &out
	if err := script.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- script.Wait() }()
	s.until("the script to hold its locks", hang, func() bool { return s.exists("held") || len(done) > 0 })
	if got := s.heldKinds(); !slices.Equal(got, kinds) || len(s.objects("repo")) == 0 {
		t.Errorf("held: %v and %v", got, s.objects("repo"))
	}
	s.touch("go-on")
	if err := <-done; err != nil {
		t.Error(err)
	}
	said := out.String()
	for text, n := range map[string]int{
		"check: 0\n": 1, "renew: 0\n": 1, "nested: 75\n": 3, "nested, and waits: 75\n": 3, "\nrelease: 0\n": 1,
		"check after the release: 79\n": 1, "run after the release: 0\n": 3,
		"it is the lock that this very command runs under": 6, "it ran": 0,
	} {
		if got := strings.Count(said, text); got != n {
			t.Errorf("%d times %q, want %d", got, text, n)
		}
	}
	t.Logf("the script:\n%s\naudit log:%s", said, s.auditLog())
	s.releasedInReverse(4, -1)
	s.nothingLeft()
}

// shell returns a script that isn't started yet.
func (s *site) shell(script string) *exec.Cmd {
	cmd := exec.CommandContext(s.t.Context(), "sh", "-c", script)
	cmd.Dir = s.dir
	return cmd
}
