// Package freeport finds ports for servers that tests stop and start again.
package freeport

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
)

// given are the ports that this process was given, which may listen on them later.
var given sync.Map

// Free is a port of the loopback interface that nobody listens on. It is none of
// those that the system gives to connections, which might take it while the server
// is stopped: a client that dials it may even be connected with itself.
func Free() (int, error) {
	for range 1000 {
		port := 20000 + rand.IntN(10000)
		if _, ok := given.LoadOrStore(port, true); ok {
			continue
		}
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			return port, l.Close()
		}
	}
	return 0, fmt.Errorf("no port from 20000 to 29999 is free")
}
