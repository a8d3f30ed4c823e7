package child

import (
	"runtime"
	"sync"
)

const (
	// threads is how many threads we and the guard have from the start.
	threads = 16
	// processors is how many of them run Go code at once, on however large a machine:
	// each collection of garbage wakes as many threads.
	processors = 4
)

// ReserveThreads has Go's runtime start the threads that it might need. It ends the
// process if it needs another and can't start it, and where no process can be forked no
// thread can be started either. What it has it keeps.
func ReserveThreads() {
	runtime.GOMAXPROCS(min(runtime.GOMAXPROCS(0), processors))
	var there, gone sync.WaitGroup
	free := make(chan struct{})
	there.Add(threads)
	for range threads {
		gone.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread() // or the thread would end
			there.Done()
			<-free
		})
	}
	there.Wait()
	close(free)
	gone.Wait()
}
