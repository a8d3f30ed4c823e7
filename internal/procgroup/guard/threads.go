package guard

import (
	"runtime"
	"sync"
)

const (
	// Threads is the number of threads that repolock reserves, for requests to slow file systems above all. The
	// runtime starts some seven of its own.
	Threads = 8
	// processors bounds how many of them run Go code at the same time, because each garbage collection
	// wakes that number of threads.
	processors = 2
	// OwnThreads is the number that the guard reserves. It runs Go code on one thread, and no read of it blocks
	// a thread, so TestGuardStartsNoThread needs only one of them.
	OwnThreads = 4
)

// Environment makes Go's runtime run Go code on one thread. Guards and starters have it, because each further
// thread takes time at their start.
const Environment = "GOMAXPROCS=1"

// ReserveThreads makes Go's runtime start n threads that it might need later. If the system has too many
// processes, it can't start a thread either, and Go's runtime then ends the process.
func ReserveThreads(n int) {
	runtime.GOMAXPROCS(min(runtime.GOMAXPROCS(0), processors))
	var there, gone sync.WaitGroup
	free := make(chan struct{})
	there.Add(n)
	for range n {
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
