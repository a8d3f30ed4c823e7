//go:build linux && programs

package e2e

import (
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/sshd"
)

var updateSFTP = flag.Bool("update-sftp", false, "write testdata/sftp.txt anew")

// TestSFTPMistakes: testdata/sftp.txt has what repolock prints and exits with if something is wrong with ssh, its
// server or the URL. The command never runs. With -update-sftp the file is written anew: read it as a person who
// has made the mistake.
func TestSFTPMistakes(t *testing.T) {
	const golden = "testdata/sftp.txt"
	assert.Need(t, os.Getuid() == 0, "this test must be run as root: it mounts file systems")
	m := newMistakes(t)
	type run struct {
		what string
		*process
	}
	var runs []run
	for _, c := range sftpMistakes {
		m.site.repo, m.site.env = m.sshd.URL(m.path("repo")), []string{"PATH=" + bin + ":" + m.sshd.Bin() + ":" + os.Getenv("PATH")}
		c.make(m)
		p := m.start("prune", "--", "touch", "ran")
		p.quiet = true
		runs = append(runs, run{c.what, p})
	}
	var got strings.Builder
	for _, r := range runs {
		code := r.code()
		out := m.plain(r.stderr.String())
		assert.That(t, code > 0 && strings.Count(out, "error: ") == 1 && strings.Contains(out, "nothing was run"), "%s: exit code %d: %s", r.what, code, out)
		fmt.Fprintf(&got, "# %s\n%s  exit code %d\n\n", r.what, out, code)
	}
	assert.That(t, !m.exists("ran"), "a command was run")
	if *updateSFTP {
		assert.OK(t, os.WriteFile(golden, []byte(got.String()), 0o644))
		return
	}
	assert.Equal(t, cmp.Diff(read(t, golden), got.String()), "", "-%s +what is printed", golden)
}

// mistakes is a site on a server. Each mistake changes the site's repo and env.
type mistakes struct {
	*site
	sshd  *sshd.Server
	place string // a directory that only root can write to, as a chroot must be
}

func newMistakes(t *testing.T) *mistakes {
	t.Helper()
	t.Parallel()
	m := &mistakes{site: &site{t: t, dir: t.TempDir()}, sshd: sshd.Apart(t)}
	m.backend = directory{m.site}
	m.mkdir("repo")
	m.write("file", "")
	var err error
	m.place, err = os.MkdirTemp("/run", "repolock-e2e-")
	assert.OK(t, err)
	assert.OK(t, os.Chmod(m.place, 0o755))
	t.Cleanup(func() { os.RemoveAll(m.place) })
	for _, name := range []string{"inside", "roots"} {
		assert.OK(t, os.Mkdir(filepath.Join(m.place, name), 0o755))
	}
	return m
}

// plain returns an output without what differs between runs.
func (m *mistakes) plain(out string) string {
	for _, v := range []struct{ pattern, by string }{
		{slow.String(), ""},
		{regexp.QuoteMeta(m.dir), "DIR"}, {regexp.QuoteMeta(m.place), "PLACE"}, {`127\.0\.0\.1 port \d+`, "127.0.0.1 port PORT"},
		{`\]:\d+`, "]:PORT"}, {`127\.0\.0\.1:\d+`, "127.0.0.1:PORT"}, {`/tmp/\S*/ssh_config`, "SSH_CONFIG"}, {`SHA256:[^ .]+`, "SHA256:HASH"},
		{`(x){200,}`, "LONG"},
		{`lock\.intent/[^"]+`, "lock.intent/ID"}, {", and 1 more like it", ""}, // two requests are under way
		{"(kex_exchange_identification: ).*( \\(writing)", "${1}REASON${2}"},
	} {
		out = regexp.MustCompile(v.pattern).ReplaceAllString(out, v.by)
	}
	return out
}

// server uses another server, and client another ssh.
func (m *mistakes) server(lines ...string) *sshd.Server {
	m.t.Helper()
	s := m.sshd.Another(m.t, lines...)
	m.repo = s.URL(m.path("repo"))
	return s
}

func (m *mistakes) client(lines ...string) {
	m.t.Helper()
	m.env = []string{"PATH=" + bin + ":" + m.sshd.Client(m.t, lines...) + ":" + os.Getenv("PATH")}
}

// nobody uses a server as the user nobody, who has no shell.
func (m *mistakes) nobody(path string, lines ...string) {
	m.t.Helper()
	s := m.server(append(lines, "AuthorizedKeysCommand /bin/cat "+m.sshd.File("authorized"), "AuthorizedKeysCommandUser root")...)
	m.repo = sshd.At("nobody", s.Port, path)
}

// mount mounts something at a directory, until the test ends.
func (m *mistakes) mount(at string, args ...string) {
	m.t.Helper()
	m.mkdir(at)
	assert.Output(m.t, exec.Command("mount", append(args, m.path(at))...))
	m.t.Cleanup(func() { _ = exec.Command("umount", "--lazy", m.path(at)).Run() })
	m.repo = m.sshd.URL(m.path(at))
}

var sftpMistakes = []struct {
	what string
	make func(*mistakes)
}{
	{"the host key is new", func(m *mistakes) { m.client("UserKnownHostsFile /dev/null") }},
	{"the host key has changed", func(m *mistakes) {
		m.write("known", strings.Replace(read(m.t, m.sshd.File("user.pub")), "ssh-", fmt.Sprintf("[127.0.0.1]:%d ssh-", m.sshd.Port), 1))
		m.client("UserKnownHostsFile " + m.path("known"))
	}},
	{"the server doesn't have the key", func(m *mistakes) { m.server("AuthorizedKeysFile /dev/null") }},
	{"the server takes passwords alone", func(m *mistakes) { m.server("PubkeyAuthentication no", "PasswordAuthentication yes") }},
	{"there is no such directory", func(m *mistakes) { m.repo = m.sshd.URL(m.path("nowhere")) }},
	{"the path is relative to the home directory", func(m *mistakes) {
		m.repo = strings.Replace(m.sshd.URL("backups/nowhere"), "//backups", "/backups", 1)
	}},
	{"the path is a file's", func(m *mistakes) { m.repo = m.sshd.URL(m.path("file")) }},
	{"the user can't write into the directory", func(m *mistakes) {
		m.nobody(filepath.Join(m.place, "roots"), "Subsystem sftp internal-sftp")
	}},
	{"the user can't search the directory", func(m *mistakes) { m.nobody(m.path("repo"), "Subsystem sftp internal-sftp") }},
	{"in a chroot, with the path outside it", func(m *mistakes) {
		m.server("Subsystem sftp internal-sftp", "ChrootDirectory "+m.place)
	}},
	{"the chroot isn't root's", func(m *mistakes) { m.server("Subsystem sftp internal-sftp", "ChrootDirectory "+m.dir) }},
	{"nothing listens at the port", func(m *mistakes) {
		m.repo = sshd.At("root", freePort(m.t), m.path("repo"))
	}},
	{"there is no such host", func(m *mistakes) { m.repo = "sftp://backup.invalid/repo" }},
	{"ssh isn't installed", func(m *mistakes) {
		m.mkdir("few")
		assert.OK(m.t, os.Symlink("/bin/touch", m.path("few/touch")))
		m.env = []string{"PATH=" + bin + ":" + m.path("few")}
	}},
	{"the server prints something first", func(m *mistakes) {
		m.server(`ForceCommand echo "Welcome to the server"; exec /usr/lib/openssh/sftp-server`)
	}},
	{"the server has another command for us", func(m *mistakes) { m.server("ForceCommand echo no files here") }},
	{"the server's command does nothing", func(m *mistakes) { m.server("ForceCommand exit 3") }},
	{"the user has no shell", func(m *mistakes) { m.nobody(m.place) }},
	{"the server permits no sessions", func(m *mistakes) { m.server("MaxSessions 0") }},
	{"too many logins at once", func(m *mistakes) {
		s := m.server("MaxStartups 1")
		m.until("a login that doesn't go on", func() bool {
			c, err := net.Dial("tcp", s.Address())
			assert.OK(m.t, err)
			m.t.Cleanup(func() { c.Close() })
			hello := make([]byte, 4)
			_, _ = c.Read(hello) // another one while the look whether the server is ready hasn't ended
			return string(hello) == "SSH-"
		})
	}},
	{"the server's disk is full", func(m *mistakes) {
		m.mount("full", "-t", "tmpfs", "-o", "size=16k,mode=755", "repolock-e2e")
		m.write("full/data", strings.Repeat("x", 16<<10))
	}},
	{"the server's disk has no more inodes", func(m *mistakes) { m.mount("inodes", "-t", "tmpfs", "-o", "nr_inodes=1,mode=755", "repolock-e2e") }},
	{"the server's file system is read-only", func(m *mistakes) { m.mount("ro", "--bind", "-o", "ro", m.path("repo")) }},
	{"the server permits no changes", func(m *mistakes) { m.server("Subsystem sftp /usr/lib/openssh/sftp-server -R") }},
	{"the server has no SFTP", func(m *mistakes) { m.server("Subsystem other /bin/false") }},
	{"the server's SFTP program is missing", func(m *mistakes) { m.server("Subsystem sftp /nowhere/sftp-server") }},
	{"command= is missing", func(m *mistakes) { m.repo += "?command=sssh+host+-s+sftp" }},
	{"command= fails", func(m *mistakes) { m.repo += "?command=false" }},
	{"the server is rclone's", func(m *mistakes) { m.repo += "?command=rclone+serve+sftp+--stdio+/" }},
	{"the server has mounted rclone", func(m *mistakes) {
		m.mkdir("mounted")
		assert.Output(m.t, exec.Command("rclone", "mount", "--daemon", ":local:"+m.path("repo"), m.path("mounted")))
		m.t.Cleanup(func() { _ = exec.Command("umount", "--lazy", m.path("mounted")).Run() })
		m.repo = m.sshd.URL(m.path("mounted"))
	}},
	{"an option with a typo", func(m *mistakes) { m.repo += "?comand=ssh" }},
	{"a password in the URL", func(m *mistakes) { m.repo = "sftp://root:secret@127.0.0.1/repo" }},
	{"restic's form", func(m *mistakes) { m.repo = "sftp:root@127.0.0.1:/srv/repo" }},
	{"Borg's form", func(m *mistakes) { m.repo = "ssh://root@127.0.0.1/srv/repo" }},
	{"rsync's form", func(m *mistakes) { m.repo = "root@127.0.0.1:/srv/repo" }},
	{"a host that begins with -", func(m *mistakes) { m.repo = "sftp://-oProxyCommand/repo" }},
	{"no path", func(m *mistakes) { m.repo = "sftp://root@127.0.0.1" }},
	{"a home directory by ~", func(m *mistakes) { m.repo = "sftp://root@127.0.0.1/~/repo" }},
	{"a bad line in ssh's configuration", func(m *mistakes) { m.client("IdentitiyFile ~/.ssh/key") }},
	{"ssh's configuration has a bad value", func(m *mistakes) { m.client("StrictHostKeyChecking perhaps") }},
	{"the key file is missing", func(m *mistakes) {
		m.server("AuthorizedKeysFile /dev/null")
		m.client("IdentityFile " + m.path("nowhere"))
	}},
	{"a name is too long", func(m *mistakes) { m.repo = m.sshd.URL(m.path(strings.Repeat("x", 300))) }},
}
