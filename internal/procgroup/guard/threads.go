package guard

import (
	"runtime"
	"sync"
)

const (
	// threads is the number of threads that repolock and the guard start with.
	threads = 16
	// processors bounds how many of them run Go code at the same time, because each garbage collection
	// wakes that number of threads.
	processors = 4
)

// ReserveThreads makes Go's runtime start the threads that it might need later. If the system has too many
// processes, it can't start a thread either, and Go's runtime then ends the process.
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
