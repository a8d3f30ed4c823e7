//go:build unix && minio

package e2e

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/freeport"
)

// The application key that the fake of Backblaze's API knows.
const b2KeyID, b2Key = "000000000000000000000000a", "K000-repolock-e2e"

// onB2 starts a server of its own for each test, since one is small.
var onB2 = kind{"b2", startB2, startB2, func(host, bucket string) string {
	return "b2://" + bucket + "/some/prefix?endpoint=http://" + host
}}

// fakeB2 is the fake as a process. It keeps its objects in a file.
type fakeB2 struct {
	t       testing.TB
	program string
	address string
	file    string
	process *exec.Cmd // nil while it is stopped
}

// buildB2 builds it, once.
var buildB2 = sync.OnceValues(func() (program string, err error) {
	program = filepath.Join(bin, "fakeb2")
	out, err := exec.Command("go", "build", "-buildvcs=false", "-o", program, "../internal/test/fakeb2/serve").CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, out)
	}
	return program, err
})

func startB2(t testing.TB) server {
	t.Helper()
	program, err := buildB2()
	if err != nil {
		t.Fatal(err)
	}
	n, err := freeport.Free()
	if err != nil {
		t.Fatal(err)
	}
	f := &fakeB2{t: t, program: program, address: fmt.Sprintf("127.0.0.1:%d", n), file: filepath.Join(t.TempDir(), "state")}
	f.Start()
	t.Cleanup(f.Kill)
	return f
}

func (f *fakeB2) Endpoint() string { return "http://" + f.address }

func (f *fakeB2) Start() {
	f.t.Helper()
	if f.process != nil {
		return
	}
	process := exec.Command(f.program, "-listen", f.address, "-file", f.file)
	process.Stderr = os.Stderr
	if err := process.Start(); err != nil {
		f.t.Fatal(err)
	}
	f.process = process
	for end := time.Now().Add(hang); f.call("GET", "log?", nil) != nil; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			f.t.Fatal("the fake of B2 doesn't start")
		}
	}
}

func (f *fakeB2) Kill() {
	if f.process == nil {
		return
	}
	_ = f.process.Process.Kill()
	_ = f.process.Wait()
	f.process = nil
}

func (f *fakeB2) Bucket() string {
	f.t.Helper()
	bucket := "repolock-" + strings.ToLower(rand.Text()[:16])
	if err := f.call("POST", "bucket?name="+bucket, nil); err != nil {
		f.t.Fatal(err)
	}
	return bucket
}

// Keys lists every version, hidden versions and hide markers too.
func (f *fakeB2) Keys(bucket string) (keys []string) {
	f.t.Helper()
	var versions []struct{ Name, Action string }
	if err := f.call("GET", "versions?bucket="+bucket, &versions); err != nil {
		f.t.Fatal(err)
	}
	for _, v := range versions {
		keys = append(keys, v.Action+" "+v.Name)
	}
	return keys
}

func (f *fakeB2) call(method, what string, result any) error {
	r, err := http.NewRequest(method, f.Endpoint()+"/fake/"+what, nil)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", what, res.Status)
	}
	if result == nil {
		return nil
	}
	return json.NewDecoder(res.Body).Decode(result)
}
