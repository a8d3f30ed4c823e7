package s3api_test

import (
	"errors"
	"net/http"
	"os/exec"
	"strings"
	"testing"

	"github.com/repolock/repolock/store"
)

// TestUndeletable: the error names a command that deletes a listed object whose key is no key
// of ours.
func TestUndeletable(t *testing.T) {
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("no bash")
	}
	both(t, func(_ http.ResponseWriter, r *http.Request) { t.Errorf("%s is sent", r.Method) }, "", func(t *testing.T, s store.Store) {
		for _, key := range []string{`index/lock.shared/a\b`, `index/lock.shared/it's\n`, "index/lock.shared/a\\\n\x9b'\xff", "index/lock.shared//x"} {
			err := s.Delete(t.Context(), key)
			if !errors.Is(err, store.ErrInvalidKey) {
				t.Fatalf("%q: %v", key, err)
			}
			_, command, _ := strings.Cut(err.Error(), "as: aws ")
			out, err := exec.Command("bash", "-c", `printf '%s\n' `+command).Output()
			words := strings.SplitN(string(out), "\n", 8)
			if err != nil || len(words) != 8 || words[2] != "--endpoint-url" || !strings.HasPrefix(words[3], "http://127.0.0.1:") ||
				words[5] != "bucket" || words[7] != "a/prefix/"+key+"\n" {
				t.Errorf("%q: %q, %v", key, words, err)
			}
		}
	})
}
