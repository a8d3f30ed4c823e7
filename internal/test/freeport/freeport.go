// Package freeport finds ports for servers that tests stop and start again.
package freeport

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
)

// given are the ports that this process was given, and might listen on later.
var given sync.Map

// Free returns a port of the loopback interface without a listener. It is none of
// those that the system gives to connections, which might take it while the server
// is stopped: a client that dials it could even be connected with itself.
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
