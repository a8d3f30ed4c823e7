//go:build unix && minio

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	keys "github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/miniotest"
)

// policy is one of the policies of docs/permissions.md, for a place. The page describes no-delete and status as
// parts of the other two.
func policy(t testing.TB, name string, p place) []byte {
	t.Helper()
	page := read(t, "../docs/permissions.md")
	switch name {
	case "no-delete":
		whole := policy(t, "exclusive", p)
		less := bytes.Replace(whole, []byte(`, "s3:DeleteObject"`), nil, 1)
		assert.Need(t, len(less) < len(whole), "the policy exclusive has no right to delete")
		return less
	case "status":
		var document struct {
			Version   string
			Statement []json.RawMessage
		}
		assert.OK(t, json.Unmarshal(policy(t, "shared", p), &document))
		document.Statement = document.Statement[:2]
		less, err := json.Marshal(document)
		assert.OK(t, err)
		return less
	}
	for _, m := range regexp.MustCompile("(?ms)^Policy `([a-z-]+)`:.*?^```json\n(.*?)^```").FindAllStringSubmatch(page, -1) {
		if m[1] == name {
			return []byte(strings.NewReplacer("BUCKET", p.bucket, "PREFIX", "some/prefix").Replace(m[2]))
		}
	}
	t.Fatalf("docs/permissions.md has no policy %q", name)
	return nil
}

// allowed runs a driver's repolock on a place under one of those policies.
func allowed(t *testing.T, k kind, policyName string) (*site, account) {
	t.Helper()
	p := k.on(k.shared(t))
	a := newAccount(t, p, policy(t, policyName, p))
	s := p.site(t)
	s.env = a.env
	return s, a
}

// TestPolicies: through both drivers each policy of docs/permissions.md allows its operations, and no others.
func TestPolicies(t *testing.T) {
	t.Parallel()
	for _, k := range onMinIOs {
		for name, run := range map[string]func(*site, account){
			"shared": policyShared, "exclusive": policyExclusive, "no-delete": policyNoDelete, "status": policyStatus,
		} {
			t.Run(k.name+", "+name, func(t *testing.T) {
				t.Parallel()
				run(allowed(t, k, name))
			})
		}
	}
}

// TestPolicyOfEncryption: a policy that demands a header of each put refuses locks, with a message that names the
// parameter of the URL, and allows them with it.
func TestPolicyOfEncryption(t *testing.T) {
	t.Parallel()
	for _, k := range onMinIOs {
		for header, parameter := range map[string]string{"AES256": "&sse=AES256", "aws:kms": "&sse=aws:kms&sse-key=repolock"} {
			t.Run(k.name+", "+header, func(t *testing.T) {
				t.Parallel()
				p := k.on(k.shared(t))
				s := p.site(t)
				s.env = newAccount(t, p, bytes.Replace(policy(t, "exclusive", p), []byte(`"Statement": [`), []byte(`"Statement": [
  {"Effect": "Deny", "Action": "s3:PutObject", "Resource": "arn:aws:s3:::`+p.bucket+`/*",
   "Condition": {"StringNotEquals": {"s3:x-amz-server-side-encryption": "`+header+`"}}},`), 1)).env
				for _, operation := range []string{"backup", "prune"} {
					s.fails(77, "sse= or acl= in the URL", operation, "--", "touch", "ran")
				}
				assert.That(t, !s.exists("ran"), "a command ran")
				s.nothingLeft()
				encrypted := s.at(s.repo + parameter)
				encrypted.passes("backup", 0)
				encrypted.passes("prune", 0)
				encrypted.holdsOn("prune")
				encrypted.nothingLeft()
				diagnose(encrypted, 0, "fit")
			})
		}
	}
}

// TestRotation: another process writes new credentials into the file, and the server then knows only these. A lock that is
// held lives on, a waiter that has begun before gets its lock, and the command's end releases it.
func TestRotation(t *testing.T) {
	onEach(t, onMinIOs, func(t *testing.T, k kind) {
		m := miniotest.Start(t)
		s := k.on(m).site(t)
		write := func(password string) {
			s.write("new", "[default]\naws_access_key_id = "+miniotest.User+"\naws_secret_access_key = "+password+"\n")
			assert.OK(t, os.Rename(s.path("new"), s.path("credentials")))
		}
		s.env = []string{
			"AWS_ACCESS_KEY_ID=", "AWS_SECRET_ACCESS_KEY=", "MINIO_ACCESS_KEY=", "MINIO_SECRET_KEY=",
			"AWS_SHARED_CREDENTIALS_FILE=" + s.path("credentials"),
		}
		write(miniotest.Password)
		held := s.hold("backup", "held", "--ttl", "1m", "--verbose")
		waiter := s.start("prune", "--wait", "1h", "--", "touch", "pruned")
		waiter.says("waiting")
		for _, password := range []string{"another-secret", miniotest.Password} {
			write(password)
			m.Restart("MINIO_ROOT_PASSWORD=" + password)
			refreshes := func() int { return strings.Count(held.stderr.String(), "repolock: refreshed: ") }
			before := refreshes()
			held.reaches("two refreshes after the rotation", func() bool { return refreshes() >= before+2 })
		}
		assert.That(t, !s.exists("pruned"), "the prune was run beside the backup")
		held.end("held")
		waiter.exits(0)
		assert.That(t, s.exists("pruned"), "the prune wasn't run")
		s.nothingLeft()
	})
}

func policyShared(s *site, a account) {
	staleOfEachKind(s, a)
	s.passes("backup", 2*ttl)
	// A stale shared lock doesn't keep a shared one out, and lock.exclusive is for exclusive
	// acquirers to overwrite.
	leftovers := func() bool {
		left := s.left()
		return len(left) == 2 && strings.HasSuffix(left[0], "/lock.exclusive") && strings.Contains(left[1], "/lock.shared/")
	}
	assert.That(s.t, leftovers(), "left over: %q", s.left())
	s.holdsOn("backup")
	s.passes("restore", 0, "--name", "nightly")
	s.fails(77, "s3:PutObject", "prune", "--", "touch", "ran")
	assert.That(s.t, !s.exists("ran") && leftovers(), "a prune was run, or has left something: %q", s.left())
}

func policyExclusive(s *site, a account) {
	staleOfEachKind(s, a)
	s.passes("prune", 2*ttl)
	s.nothingLeft()
	s.holdsOn("prune")
	s.holdsOn("backup")
	s.nothingLeft()
	d := diagnose(s, 0, "fit")
	assert.That(s.t, d.result("delete") == "ok" && d.result("versioning") == "unknown" && d.result("object_lock") == "unknown", "%+v", d)
	more := *s
	more.env = newAccount(s.t, a.place, bytes.Replace(policy(s.t, "exclusive", a.place), []byte(`"Statement": [`), []byte(`"Statement": [
  {"Effect": "Allow", "Action": ["s3:GetBucketVersioning", "s3:GetBucketObjectLockConfiguration"], "Resource": "arn:aws:s3:::`+a.bucket+`"},`), 1)).env
	d = diagnose(&more, 0, "fit")
	assert.That(s.t, d.result("versioning") == "ok" && d.result("object_lock") == "ok", "%+v", d)
	s.passes("prune", 0, "--name", "nightly")
	s.nothingLeft()
	kept := s.at(s.repo + "&conditions=kept")
	for range 2 {
		kept.passes("prune", 0, "--fence")
	}
	left := s.left()
	assert.That(s.t, len(left) == 1 && strings.HasSuffix(left[0], "/lock-fence"), "left over: %q", left)
}

func policyNoDelete(s *site, a account) {
	staleOfEachKind(s, a)
	s.passes("prune", 2*ttl)
	s.holdsOn("backup")
	s.holdsOn("prune")
	// Any other client, with any rights, can acquire the lock.
	other := a.site(s.t)
	other.passes("backup", 0)
	other.passes("prune", 0)
	status := s.start("status")
	status.exits(0)
	status.contains("no locks\nlooked in ")
	for o := range rootOf(s.t).ListObjects(s.t.Context(), a.bucket, minio.ListObjectsOptions{Recursive: true}) {
		assert.That(s.t, o.Err == nil && o.Size == 0, "left over: %+v", o)
	}
	p := s.start("--json", "doctor")
	p.exits(0)
	var d diagnosis
	assert.OK(s.t, json.Unmarshal([]byte(p.stderr.String()), &d))
	assert.That(s.t, d.Verdict.Fitness == "fit" && d.result("delete") == "warn", "%+v", d)
}

func policyStatus(s *site, a account) {
	holder := a.site(s.t).hold("prune", "a")
	status := s.start("status")
	status.exits(0)
	status.contains(fmt.Sprintf("(pid %d, ", holder.Process.Pid))
	holder.end("a")
	for _, operation := range []string{"backup", "prune"} {
		s.fails(77, "s3:PutObject", operation, "--", "touch", "ran")
	}
	assert.That(s.t, !s.exists("ran"), "the command was run")
	s.start("doctor").exits(77)
	s.nothingLeft()
}

// staleOfEachKind leaves the objects that crashed holders leave.
func staleOfEachKind(s *site, a account) {
	s.t.Helper()
	const body = `{"operation":"prune","holder":"h (pid 1)","expires_at":"2020-01-01T00:00:00Z","ttl_seconds":10}`
	for _, key := range []string{"lock.exclusive", "lock.intent/x", "lock.shared/x"} {
		putAsRoot(s.t, a.bucket, "some/prefix/index/"+key, body)
	}
}

// passes checks that an operation acquires its lock. It may be refused until this time is over.
func (s *site) passes(operation string, within time.Duration, flags ...string) {
	s.t.Helper()
	args := append(append([]string{operation}, flags...), "--", "true")
	for end := time.Now().Add(within); ; time.Sleep(time.Second) {
		began := time.Now()
		p := s.start(args...)
		code := p.code()
		if code == 0 {
			out := p.stderr.String()
			assert.That(s.t, !strings.Contains(out, "warning"), "%q: %s", args, out)
			return
		}
		assert.Need(s.t, code == 75 && !began.After(end), "%q: exit code %d: %s", args, code, p.stderr.String())
	}
}

// holdsOn checks that an operation holds its lock for three refreshes, and releases it. A refresh may only
// fail as on a busy machine.
func (s *site) holdsOn(operation string) {
	s.t.Helper()
	name := operation + "-on"
	p := s.hold(operation, name, "--ttl", "30s", "--verbose")
	p.reaches("three refreshes", func() bool { return strings.Count(p.stderr.String(), "repolock: refreshed: ") >= 3 })
	p.end(name)
	for line := range strings.Lines(p.stderr.String()) {
		late := strings.Contains(line, "refreshing the lock failed") && (strings.Contains(line, "no answer within") || strings.Contains(line, "no answer in time"))
		assert.That(s.t, expected.MatchString(line) || late, "%s: %s", operation, line)
	}
}

// expected matches a line of --verbose for a held lock, and the line that says that the acquire takes long.
var expected = regexp.MustCompile("^repolock: (acquired|refreshed|released|acquiring the lock): ")

// TestRights: the policies of docs/permissions.md grant exactly these rights to list, read, write and delete.
func TestRights(t *testing.T) {
	t.Parallel()
	const locks = "some/prefix/index/"
	keys := []string{
		locks + "lock.exclusive", locks + "lock.intent/x", locks + "lock.shared/x", locks + "lock-fence",
		locks + "locks/a/lock.exclusive", locks + "locks/a/lock.intent/x", locks + "locks/a/lock.shared/x",
		locks + "locks/a/lock-fence", locks + "locks/doctor-x/y",
		locks + "x", "some/prefix/data", "some/prefix2/index/lock.shared/x", "index/lock.exclusive", "",
	}
	for name, rights := range map[string]string{
		"shared":    "lr lrd lrwd l lr lrd lrwd l l - - - - -",
		"exclusive": "lrwd lrwd lrwd lrwd lrwd lrwd lrwd lrwd lrwd - - - - -",
		"no-delete": "lrw lrw lrw lrw lrw lrw lrw lrw lrw - - - - -",
		"status":    "lr lr lr l lr lr lr l l - - - - -",
	} {
		t.Run(name, func(t *testing.T) {
			p := onMinIO.on(sharedMinIO(t))
			a := newAccount(t, p, policy(t, name, p))
			for i, want := range strings.Fields(rights) {
				assert.Equal(t, a.rights(t, keys[i]), want, "%q", keys[i])
			}
		})
	}
}

// rights tries out the rights of an account to a key, "" being all of a bucket.
func (a account) rights(t *testing.T, key string) (rights string) {
	t.Helper()
	c := a.client(t)
	for _, try := range []struct {
		letter string
		send   func(context.Context) error
	}{
		{"l", func(ctx context.Context) error {
			for o := range c.ListObjects(ctx, a.bucket, minio.ListObjectsOptions{Prefix: key, Recursive: true}) {
				return o.Err
			}
			return nil
		}},
		{"r", func(ctx context.Context) error {
			body, _, _, err := minio.Core{Client: c}.GetObject(ctx, a.bucket, key, minio.GetObjectOptions{})
			if err == nil {
				err = body.Close()
			}
			return err
		}},
		{"w", func(ctx context.Context) error {
			_, err := c.PutObject(ctx, a.bucket, key, strings.NewReader("x"), 1, minio.PutObjectOptions{})
			return err
		}},
		{"d", func(ctx context.Context) error {
			return c.RemoveObject(ctx, a.bucket, key, minio.RemoveObjectOptions{})
		}},
	} {
		if key == "" && try.letter != "l" {
			continue
		}
		switch err := try.send(t.Context()); {
		case err == nil, minio.ToErrorResponse(err).Code == minio.NoSuchKey:
			rights += try.letter
		case minio.ToErrorResponse(err).Code != minio.AccessDenied:
			t.Fatalf("%s %q: %v", try.letter, key, err)
		}
	}
	if rights == "" {
		return "-"
	}
	return rights
}

// rootOf is a client of the shared server with all rights.
func rootOf(t testing.TB) *minio.Client { return miniotest.Shared(t).Client() }

func putAsRoot(t testing.TB, bucket, key, body string) {
	t.Helper()
	_, err := rootOf(t).PutObject(t.Context(), bucket, key, strings.NewReader(body), int64(len(body)), minio.PutObjectOptions{})
	assert.OK(t, err)
}

// account is a session of the root's on a MinIO server, with the rights of its policy only.
type account struct {
	place
	creds *keys.Credentials
	env   []string // of a repolock that uses the account
}

func newAccount(t testing.TB, p place, policy []byte) account {
	t.Helper()
	creds, err := keys.NewSTSAssumeRole(p.Endpoint(), keys.STSAssumeRoleOptions{
		AccessKey: miniotest.User, SecretKey: miniotest.Password, Policy: string(policy),
	})
	assert.OK(t, err)
	v, err := creds.GetWithContext(nil)
	assert.OK(t, err)
	return account{p, creds, []string{
		"AWS_ACCESS_KEY_ID=" + v.AccessKeyID, "AWS_SECRET_ACCESS_KEY=" + v.SecretAccessKey, "AWS_SESSION_TOKEN=" + v.SessionToken,
		"MINIO_ACCESS_KEY=", "MINIO_SECRET_KEY=", // MinIO's own variables have no token
	}}
}

// client sends single requests with the account's rights.
func (a account) client(t testing.TB) *minio.Client {
	t.Helper()
	c, err := minio.New(a.host(), &minio.Options{Creds: a.creds, Region: "us-east-1", MaxRetries: 1})
	assert.OK(t, err)
	return c
}
