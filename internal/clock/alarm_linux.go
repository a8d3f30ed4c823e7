package clock

import (
	"errors"
	"io"
	"os"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

// realtime is CLOCK_REALTIME. It and the flags are arguments of timerfd_create(2) and timerfd_settime(2), which
// package syscall lacks.
const (
	realtime    = 0
	absolute    = 1
	cancelOnSet = 2
)

// alarm wakes a Watch after a time, and after a suspend or a step of the wall clock. It has two timers of the kernel.
// One counts suspend. The other never expires, but the kernel cancels it when the wall clock is set.
type alarm struct {
	c            chan time.Time
	timer, steps *os.File
	fd           uintptr // of timer
	readers      sync.WaitGroup
}

// newAlarm returns nil if the system has no such timers, which some sandboxes lack.
func newAlarm() *alarm {
	a := &alarm{c: make(chan time.Time, 1)}
	var never syscall.Timespec
	never.Sec = 1<<(8*unsafe.Sizeof(never.Sec)-1) - 1
	if a.timer, a.fd = newTimer(boottime); a.timer == nil {
		return nil
	}
	var fd uintptr
	if a.steps, fd = newTimer(realtime); a.steps == nil || !setTimer(fd, absolute|cancelOnSet, never) {
		a.stop()
		return nil
	}
	for _, f := range []*os.File{a.timer, a.steps} {
		a.readers.Go(func() { a.readFrom(f) })
	}
	return a
}

// set sets the time of the next wake-up. The wake-up of an earlier set can still come.
func (a *alarm) set(d time.Duration) bool {
	return setTimer(a.fd, 0, syscall.NsecToTimespec(int64(max(d, 1))))
}

// readFrom wakes the Watch when a timer expires or is cancelled, until the timer is closed.
func (a *alarm) readFrom(timer io.Reader) {
	for count := make([]byte, 8); ; {
		if _, err := timer.Read(count); err != nil && !errors.Is(err, syscall.ECANCELED) {
			return
		}
		select {
		case a.c <- time.Time{}:
		default:
		}
	}
}

func (a *alarm) stop() {
	a.timer.Close()
	a.steps.Close()
	a.readers.Wait()
}

func newTimer(clock uintptr) (*os.File, uintptr) {
	fd, _, err := syscall.Syscall(syscall.SYS_TIMERFD_CREATE, clock, syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if err != 0 {
		return nil, 0
	}
	return os.NewFile(fd, "timerfd"), fd
}

func setTimer(fd, flags uintptr, at syscall.Timespec) bool {
	spec := struct{ interval, value syscall.Timespec }{value: at}
	_, _, err := syscall.Syscall6(syscall.SYS_TIMERFD_SETTIME, fd, flags, uintptr(unsafe.Pointer(&spec)), 0, 0, 0)
	return err == 0
}
