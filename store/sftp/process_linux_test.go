package sftp

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/text"
)

// TestDiesWithUs: the kernel ends the command when our process is killed, although nothing closes its session. The
// command doesn't look at its stdin.
func TestDiesWithUs(t *testing.T) {
	const variable = "REPOLOCK_TEST_SFTP_PIPE"
	if pipe := os.Getenv(variable); pipe != "" {
		p, err := startProcess([]string{"sh", "-c", "exec 3>" + text.Quote(pipe) + "; echo; exec sleep 1000"})
		assert.OK(t, err)
		_, err = bufio.NewReader(p).ReadString('\n')
		assert.OK(t, err)
		assert.OK(t, unix.Kill(os.Getpid(), unix.SIGKILL))
		select {}
	}
	pipe := t.TempDir() + "/pipe"
	assert.OK(t, unix.Mkfifo(pipe, 0o600))
	cmd := exec.Command(os.Args[0], "-test.run=^TestDiesWithUs$")
	cmd.Env = append(os.Environ(), variable+"="+pipe)
	assert.OK(t, cmd.Start())
	in, err := os.Open(pipe)
	assert.OK(t, err)
	_, err = io.ReadAll(in) // until the command has ended
	assert.OK(t, err)
	assert.OK(t, in.Close())
	assert.That(t, cmd.Wait() != nil, "our process wasn't killed")
}
