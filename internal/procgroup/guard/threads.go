package guard

import (
	"runtime"
	"sync"
)

const (
	// Threads is the number of threads that repolock reserves, mainly for requests to slow file systems. The
	// runtime starts some seven of its own.
	Threads = 8
	// processors bounds how many threads run Go code at the same time, because each garbage collection
	// wakes that number of threads.
	processors = 2
	// OwnThreads is the number of threads that the guard reserves. It needs one of them: it runs Go code on one
	// thread, and none of its reads blocks a thread (TestGuardStartsNoThread).
	OwnThreads = 4
)

// Environment makes Go's runtime run Go code on one thread. Guards and starters have it, because each further
// thread takes time at their start.
const Environment = "GOMAXPROCS=1"

// ReserveThreads makes Go's runtime start n threads that it might need later. If the system later has too many
// processes, no thread can be started, and Go's runtime ends a process that needs one.
func ReserveThreads(n int) {
	runtime.GOMAXPROCS(min(runtime.GOMAXPROCS(0), processors))
	var started, ended sync.WaitGroup
	free := make(chan struct{})
	started.Add(n)
	for range n {
		ended.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread() // otherwise the thread would end
			started.Done()
			<-free
		})
	}
	started.Wait()
	close(free)
	ended.Wait()
}
