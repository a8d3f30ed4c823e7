//go:build linux && programs

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
)

// The page's blocks.
const (
	blockInstall = iota
	blockInitialize
	blockTry
	blockEnable
	blockDropIn
)

// The units of the job slow.
const (
	slowBackup = "repolock-backup@slow"
	slowPrune  = "repolock-prune@slow"
)

// TestSystemd: the commands of docs/systemd.md do what the page promises, with the units of the package and a
// real systemd, in a Debian container.
func TestSystemd(t *testing.T) {
	commands := blocks(t, "../docs/systemd.md")
	assert.Need(t, len(commands) == 5, "the document's commands are %q", commands)
	t.Parallel()
	b := newBox(t, commands)
	b.followPage()
	b.makeSlow()
	for _, c := range []struct {
		name string
		test func(*box)
	}{
		{"held", (*box).testHeld},
		{"unreachable", (*box).testUnreachable},
		{"fails", (*box).testFails},
		{"lost", (*box).testLost},
		{"stopped", (*box).testStopped},
		{"killed", (*box).testKilled},
		{"missed", (*box).testMissed},
		{"may write", (*box).testMayWrite},
		{"SIGINT", (*box).testSIGINT},
		{"another user", (*box).testAnotherUser},
		{"below home", (*box).testBelowHome},
		{"inhibit", (*box).testInhibit},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(b.of(t)) })
	}
}

// followPage runs the page from its beginning.
func (b *box) followPage() {
	// The repository to be edited in is a directory.
	b.sh(b.commands[blockInstall])
	b.is(`stat -c '%a %U' /etc/repolock/home.env`, "600 root")
	b.sh(`cd /etc/repolock
sed -i -e 's,s3:.*,/srv/repository,' -e 's,NAME.password,home.password,' -e 's,^#\([BP].*_OPTIONS\),\1,' -e /^AWS/d home.env
(umask 077; echo secret >home.password)
echo data >/home/file`)
	b.sh(b.commands[blockInitialize]) // systemd-run loses a terminal's last lines on a busy machine
	b.sh("RESTIC_PASSWORD=secret restic -r /srv/repository cat config")
	b.says(b.commands[blockTry], "snapshot ", " saved", "Deactivated successfully")
	b.says("RESTIC_PASSWORD=secret restic -r /srv/repository snapshots", "1 snapshots", "/home", "/etc")
	b.unlocked()
	b.says(b.commands[blockEnable], "repolock-backup@home.timer", "repolock-prune@home.timer", "2 timers listed.")
	b.sh(b.commands[blockDropIn])
	b.says("systemctl show -P TimersCalendar repolock-backup@home.timer", "OnCalendar=*-*-* 02:30:00 ")
	b.is("systemctl show -P TimersCalendar repolock-backup@home.timer | wc -l", "1")
	// It only warns about lines that it ignores.
	b.is("systemd-analyze verify repolock-backup@home.service repolock-prune@home.service repolock-backup@home.timer repolock-prune@home.timer 2>&1", "")
	b.is("systemctl show -p RestartUSec,StartLimitBurst,StartLimitIntervalUSec,TimeoutStopUSec repolock-backup@home repolock-prune@home | grep . | sort | uniq -c | sed 's/^ *//'",
		"2 RestartUSec=2min\n2 StartLimitBurst=5\n2 StartLimitIntervalUSec=15min\n2 TimeoutStopUSec=2min")
	b.sh("systemctl start --wait repolock-prune@home")
	b.says("journalctl -u repolock-prune@home", "keep 1 snapshots:")
	b.says("cat /var/log/repolock.jsonl", `"backup"`, `"prune"`) // the example's options
	b.unlocked()
}

// makeSlow installs the job slow. Its command prints its mode, and the signals that it gets. One of its
// processes is in another session, so it gets no signal for the process group.
func (b *box) makeSlow() {
	b.sh(`cat >/usr/local/bin/slow <<'END'
#!/bin/sh
trap 'echo TERM >>/srv/said; exit 143' TERM
setsid sh -c 'trap "echo apart: TERM >>/srv/said" TERM; while :; do sleep 0.1; done' &
echo $$ $! >/srv/pids
echo $REPOLOCK_MODE >>/srv/said
while :; do sleep 0.1; done
END
chmod 755 /usr/local/bin/slow`)
	b.slow = b.job("slow", "BACKUP=slow", "PRUNE=slow", "BACKUP_OPTIONS=--ttl 10s", "PRUNE_OPTIONS=--ttl 10s --wait 3s")
}

// box is a Debian in a container, with systemd as its first process.
type box struct {
	t        *testing.T
	name     string
	commands []string              // the blocks of the page
	slow     func(lines ...string) // adds lines to the job slow
}

// newBox makes a box with this machine's Debian, from this machine's mirror, and the package.
// The container can mount for itself, and sees nothing of this machine, which a systemd would
// tidy up.
func newBox(t *testing.T, commands []string) *box {
	t.Helper()
	dir := clone(t)
	b := &box{t: t, name: fmt.Sprintf("repolock-systemd-%d", os.Getpid()), commands: commands}
	t.Cleanup(func() {
		if t.Failed() {
			out, _ := exec.Command("docker", "exec", b.name, "journalctl", "-n", "50").CombinedOutput()
			t.Logf("%s", out)
		}
		in(t, dir, "docker rm -f "+b.name+" >/dev/null 2>&1 || true; docker image rm -f "+b.name+" "+b.name+"-base >/dev/null 2>&1 || true")
	})
	name := "name=" + b.name
	in(t, t.TempDir(), `. /etc/os-release
mirror=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' | sed -n "s/ $VERSION_CODENAME main\$//p" | head -n 1)
debootstrap --foreign --variant=minbase --include=systemd-sysv,dbus,restic "$VERSION_CODENAME" root "$mirror"
tar -C root -c . | docker import - $name-base`, name)
	// This runs in the container, not beside it. Outside an lxc it would mount and make
	// devices there.
	in(t, dir, `docker run --name $name --network none -e container=lxc $name-base /debootstrap/debootstrap --second-stage
docker commit $name $name
docker rm $name
docker run -d --name $name --network none --cgroupns private --cap-add SYS_ADMIN --security-opt seccomp=unconfined --security-opt apparmor=unconfined \
	--tmpfs /run --tmpfs /tmp -e container=docker $name sh -c '
	cd /sys/fs/cgroup; if [ -d systemd ]; then cd systemd; fi
	mount -o remount,bind,rw "$PWD" && cd / && exec /sbin/init'`, name)
	b.until("systemd", "systemctl is-system-running --wait | grep -E 'running|degraded'")
	in(t, dir, `docker cp dist/repolock_*_linux_amd64.deb $name:/root/
docker exec $name sh -c 'dpkg -i /root/repolock_*.deb'`, name)
	// A job's last lines reach the journal some time after its end.
	b.sh(`cat >/usr/local/bin/journalctl <<'END'
#!/bin/sh
/usr/bin/journalctl --sync
exec /usr/bin/journalctl "$@"
END
chmod 755 /usr/local/bin/journalctl`)
	return b
}

// of is the same box for a part of the test, after which no job runs.
func (b *box) of(t *testing.T) *box {
	of := &box{t, b.name, b.commands, b.slow}
	t.Cleanup(func() {
		out, err := of.try("systemctl stop 'repolock-*.service'; systemctl reset-failed")
		assert.That(t, err == nil, "%v\n%s", err, out)
	})
	return of
}

// try runs a script in the box, at a terminal, as a reader of the page does.
func (b *box) try(script string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, "docker", "exec", "-t", "-e", "SYSTEMD_PAGER=cat", b.name, "sh", "-euc", script).CombinedOutput()
	return strings.ReplaceAll(string(out), "\r", ""), err
}

func (b *box) sh(script string) string {
	b.t.Helper()
	out, err := b.try(script)
	assert.Need(b.t, err == nil, "%s: %v\n%s", script, err, out)
	return out
}

// fails checks that a command fails.
func (b *box) fails(command string) {
	b.t.Helper()
	out, err := b.try(command)
	assert.That(b.t, err != nil, "%s doesn't fail: %s", command, out)
}

// is checks that a command prints exactly this text.
func (b *box) is(command, want string) {
	b.t.Helper()
	assert.Equal(b.t, strings.TrimSuffix(b.sh(command), "\n"), want, command)
}

// says checks that a command prints all of these texts.
func (b *box) says(command string, wants ...string) {
	b.t.Helper()
	out := b.sh(command)
	for _, want := range wants {
		assert.That(b.t, strings.Contains(out, want), "%s: %q isn't in\n%s", command, want, out)
	}
}

// until waits for a command to succeed.
func (b *box) until(what, command string) {
	b.t.Helper()
	waitFor(b.t, what, nil, func() bool { _, err := b.try(command); return err == nil })
}

// job makes a job like the page's, with these lines changed. The last line counts. It returns
// a function that adds lines.
func (b *box) job(name string, lines ...string) func(lines ...string) {
	b.t.Helper()
	file := "/etc/repolock/" + name + ".env"
	b.sh("install -m 0600 /etc/repolock/home.env " + file)
	add := func(lines ...string) {
		b.sh("cat >>" + file + " <<'END'\n" + strings.Join(lines, "\n") + "\nEND")
	}
	add(lines...)
	return add
}

// dropIn changes a unit.
func (b *box) dropIn(unit string, lines ...string) {
	b.t.Helper()
	dir := "/etc/systemd/system/" + unit + ".d"
	b.sh("mkdir -p " + dir + "; cat >" + dir + "/test.conf <<'END'\n" + strings.Join(lines, "\n") + "\nEND\nsystemctl daemon-reload")
}

// begin starts the job slow, and waits until its command has printed its first line.
func (b *box) begin(unit, word string) {
	b.t.Helper()
	b.sh("rm -f /srv/said; systemctl start " + unit)
	b.until(unit+" to run", "grep -x "+word+" /srv/said")
}

// gone checks that the job slow has left no process.
func (b *box) gone() {
	b.t.Helper()
	b.until("its processes to be gone", "for pid in $(cat /srv/pids); do ! kill -0 $pid || exit 1; done")
}

// ended checks that a service has failed, in that way, and was not started again.
func (b *box) ended(unit, result, status string) {
	b.t.Helper()
	b.is("systemctl show -p ActiveState,Result,NRestarts,ExecMainStatus "+unit+" | sort",
		"ActiveState=failed\nExecMainStatus="+status+"\nNRestarts=0\nResult="+result)
}

// unlocked checks that no lock is left.
func (b *box) unlocked() {
	b.t.Helper()
	b.is("find /srv/repository/index -path '*lock*' -type f", "")
}

// testHeld: a prune waits for a backup, and fails if the wait ends first.
func (b *box) testHeld() {
	b.begin(slowBackup, "shared")
	b.is("ls /srv/repository/index/lock.shared | wc -l", "1")
	b.sh("systemctl start --wait " + slowPrune) // which fails if the unit does
	b.says("journalctl -u "+slowPrune, "waiting for the exclusive lock", "still locked after ")
	b.dropIn(slowPrune+".service", "[Service]", "SuccessExitStatus=")
	b.fails("systemctl start --wait " + slowPrune)
	b.ended(slowPrune, "exit-code", "75")
	b.is("cat /srv/said", "shared")

	// A second start, and another version of the package, change nothing.
	pid := b.sh("systemctl show -P MainPID " + slowBackup)
	b.sh("systemctl start " + slowBackup + "; dpkg -i /root/repolock_*.deb")
	b.is("systemctl show -P MainPID "+slowBackup, strings.TrimSpace(pid))

	// It acquires the lock when the backup has ended.
	b.slow("PRUNE_OPTIONS=--ttl 10s --wait 1h")
	b.sh("systemctl start --no-block " + slowPrune)
	b.until(slowPrune+" to wait", "journalctl -n 1 -u "+slowPrune+" | grep waiting")
	b.sh("systemctl stop " + slowBackup)
	b.until(slowPrune+" to get in", "grep exclusive /srv/said")
	b.sh("systemctl stop " + slowPrune)
	b.unlocked()
}

// testUnreachable: a job without its repository is tried again a few times.
func (b *box) testUnreachable() {
	const unit = "repolock-backup@away"
	b.job("away", "BACKUP=sh -c 'echo it runs'", "REPOLOCK_REPO=/mnt/disk")
	b.dropIn(unit+".service", "[Service]", "RestartSec=100ms")
	b.fails("systemctl start --wait " + unit)
	b.until("the last try", "journalctl -u "+unit+" | grep 'too quickly'")
	b.is("systemctl show -P ActiveState "+unit, "failed")
	b.is("journalctl -u "+unit+" | grep -c status=66", "5")
	b.sh("mkdir /mnt/disk")
	b.fails("systemctl start " + unit)
	b.sh("systemctl reset-failed " + unit + "; systemctl start --wait " + unit)
	b.is("journalctl -u "+unit+" | grep -c 'it runs'", "1")
}

// testFails: a job fails with its command's exit code.
func (b *box) testFails() {
	b.job("bad", `BACKUP=sh -c "exit 7"`)
	b.fails("systemctl start --wait repolock-backup@bad")
	b.ended("repolock-backup@bad", "exit-code", "7")
	b.unlocked()
}

// testLost: a job whose lock is broken fails, and leaves no process.
func (b *box) testLost() {
	b.begin(slowBackup, "shared")
	b.sh("repolock break-lock --yes -r /srv/repository")
	b.until("it to be noticed", "systemctl is-failed "+slowBackup)
	b.ended(slowBackup, "exit-code", "79")
	b.gone()
	b.unlocked()
}

// testStopped: stopping a job ends its command by TERM, and releases the lock.
func (b *box) testStopped() {
	b.begin(slowBackup, "shared")
	b.sh("systemctl stop " + slowBackup)
	b.is("cat /srv/said", "shared\nTERM")
	b.ended(slowBackup, "exit-code", "143")
	b.gone()
	b.unlocked()
}

// testKilled: a job that is killed leaves no process, and its lock expires.
func (b *box) testKilled() {
	b.begin(slowBackup, "shared")
	b.sh("systemctl kill --kill-whom=main --signal=KILL " + slowBackup)
	b.until("it to be noticed", "systemctl is-failed "+slowBackup)
	b.gone()
	b.is("cat /srv/said", "shared")

	// So is a command that doesn't end when the unit is stopped.
	const deaf = "repolock-backup@deaf"
	b.job("deaf", `BACKUP=sh -c "trap : TERM; echo it runs; while :; do sleep 1; done"`, "BACKUP_OPTIONS=--ttl 10s")
	b.dropIn(deaf+".service", "[Service]", "TimeoutStopSec=1s")
	b.sh("systemctl start " + deaf)
	b.until(deaf+" to run", "journalctl -u "+deaf+" | grep 'it runs'")
	b.sh("systemctl stop " + deaf)
	b.ended(deaf, "timeout", "9")

	b.is("ls /srv/repository/index/lock.shared | wc -l", "2")
	b.sh("repolock prune -r /srv/repository --wait 1m -- true") // their locks expire
	b.ended(slowBackup, "signal", "9")                          // still the same value: it was not started again
	b.unlocked()
}

// testMissed: a run that was missed is made up for.
func (b *box) testMissed() {
	b.dropIn("repolock-backup@home.timer", "[Timer]", "RandomizedDelaySec=0") // otherwise systemd adds it to the time of the boot
	b.sh(`systemctl stop repolock-backup@home.timer
touch -d '2 days ago' /var/lib/systemd/timers/stamp-repolock-backup@home.timer
systemctl start repolock-backup@home.timer`)
	b.until("a second snapshot", "journalctl -u repolock-backup@home | grep -c saved | grep 2")
}

// testMayWrite: a job can write exactly where the page allows it.
func (b *box) testMayWrite() {
	b.job("write", `BACKUP=sh -c "for d in /var /srv /mnt /media /usr /boot /etc /home; do ls $d >/dev/null && if touch $d/x; then echo may: $d; else echo may not: $d; fi; done"`)
	b.sh("systemctl start --wait repolock-backup@write")
	b.is("journalctl -o cat -u repolock-backup@write | grep '^may'",
		"may: /var\nmay: /srv\nmay: /mnt\nmay: /media\nmay not: /usr\nmay not: /boot\nmay not: /etc\nmay not: /home")
}

// testSIGINT: the drop-in for SIGINT lets restic remove its own lock.
func (b *box) testSIGINT() {
	const unit = "repolock-backup@big"
	b.job("big", "BACKUP=restic --limit-upload 10 backup /home")
	b.dropIn(unit+".service", "[Service]", "KillSignal=SIGINT")
	b.sh("head -c 10000000 /dev/urandom >/home/big; systemctl start " + unit)
	b.until("restic to be at it", "journalctl -u "+unit+" | grep 'parent snapshot'")
	b.is("ls /srv/repository/locks | wc -l", "1")
	b.sh("systemctl stop " + unit)
	b.is("ls /srv/repository/locks", "")
	b.ended(unit, "exit-code", "130")
	b.unlocked()
}

// testAnotherUser: the drop-in for another user runs the job as that user.
func (b *box) testAnotherUser() {
	b.sh("mkdir /srv/theirs; install -m 600 /etc/repolock/home.password /srv/theirs.password; chown backup: /srv/theirs*")
	b.job("theirs", "BACKUP=restic backup /usr/share/doc/repolock", "REPOLOCK_REPO=/srv/theirs", "RESTIC_REPOSITORY=/srv/theirs",
		"RESTIC_PASSWORD_FILE=/srv/theirs.password", "BACKUP_OPTIONS=--wait 1h")
	b.dropIn("repolock-backup@theirs.service", "[Service]", "User=backup")
	b.sh(strings.NewReplacer("home.env", "theirs.env", "--pty", "--pty --uid=backup").Replace(b.commands[blockInitialize]))
	b.sh("systemctl start --wait repolock-backup@theirs")
	b.says("journalctl -u repolock-backup@theirs", " saved")
	b.is("find /srv/theirs /var/cache/repolock/theirs ! -user backup", "")
}

// testBelowHome: the drop-in for a repository below /home makes it writable.
func (b *box) testBelowHome() {
	const unit = "repolock-backup@below"
	b.sh("mkdir /home/repository")
	b.job("below", "BACKUP=sh -c 'echo it runs'", "REPOLOCK_REPO=/home/repository", "BACKUP_OPTIONS=--wait 1h")
	b.fails("systemctl start --wait " + unit)
	b.dropIn(unit+".service", "[Service]", "ProtectHome=no")
	b.sh("systemctl start --wait " + unit)
	b.is("journalctl -u "+unit+" | grep -c 'it runs'", "1")
}

// testInhibit: a prune can keep the machine from sleeping.
func (b *box) testInhibit() {
	b.job("awake", `PRUNE=systemd-inhibit --what=sleep --why=prune systemd-inhibit --list`)
	b.sh("systemctl start --wait repolock-prune@awake")
	b.says("journalctl -u repolock-prune@awake", " sleep ", " prune ")
}
