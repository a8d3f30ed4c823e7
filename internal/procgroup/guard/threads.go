package guard

import (
	"runtime"
	"sync"
)

const (
	// threads is the number of threads that repolock and the guard start with.
	threads = 16
	// processors bounds how many of them run Go code at once, on a machine of any size:
	// each garbage collection wakes as many threads.
	processors = 4
)

// ReserveThreads makes Go's runtime start the threads that it might need, which it keeps.
// The runtime ends the process if it can't start a thread, and a system that can't fork a
// process can't start a thread either.
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
