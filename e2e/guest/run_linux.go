package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// run runs the command, and reports its exit code to the test.
func run() error {
	o, err := readOrders()
	if err != nil {
		return err
	}
	if _, err := o.report("up", nil); err != nil {
		return err
	}
	var stepping sync.Mutex
	go o.step(&stepping)
	cmd := exec.Command(o.Command[0], o.Command[1:]...)
	cmd.Env = o.Env
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		return err
	}
	_, err = o.report("exit", url.Values{"code": {strconv.Itoa(cmd.ProcessState.ExitCode())}})
	stepping.Lock() // the report of a step comes before the end
	return err
}

// step waits until the test asks for a step of the wall clock, as chrony or an agent in
// the guest does after a pause, and makes it.
func (o orders) step(stepping *sync.Mutex) {
	answer, err := o.report("step", nil)
	if err != nil || answer == "" {
		return
	}
	stepping.Lock()
	defer stepping.Unlock()
	by, err := time.ParseDuration(answer)
	if err == nil {
		ts := unix.NsecToTimespec(time.Now().Add(by).UnixNano())
		err = unix.ClockSettime(unix.CLOCK_REALTIME, &ts)
	}
	if err == nil {
		_, err = o.report("stepped", nil)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "guest: step the wall clock: %v\n", err)
	}
}

// report sends a message to the test, with the time since the guest's boot, and returns
// the answer.
func (o orders) report(what string, values url.Values) (string, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return "", err
	}
	if values == nil {
		values = url.Values{}
	}
	values.Set("boot", strconv.FormatInt(ts.Nano(), 10))
	answer, err := http.PostForm(o.Listener+"/"+what, values)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", what, answer.Status)
	}
	return string(body), err
}
