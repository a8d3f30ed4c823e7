//go:build linux && programs && !minio

package e2e

import "strings"

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

	// A second start does nothing, and neither does another version of the package.
	pid := b.sh("systemctl show -P MainPID " + slowBackup)
	b.sh("systemctl start " + slowBackup + "; dpkg -i /root/repolock_*.deb")
	b.is("systemctl show -P MainPID "+slowBackup, strings.TrimSpace(pid))

	// It gets in when the backup has ended.
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
	b.is("journalctl -u "+unit+" | grep -c status=69", "5")
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

// testMayWrite: a job can write where the page says.
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
