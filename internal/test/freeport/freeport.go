// Package freeport finds ports for servers that tests stop and start again.
package freeport

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
)

// reserved maps each port that this process was given to the UDP socket that reserves it.
var reserved sync.Map

// Free returns a TCP port of the loopback interface that has no listener, and reserves it
// for this process until it exits: a server can be stopped and started again on it. The
// reservation is a UDP socket of the same number, which tests in other processes respect.
// The port is outside the range that the system gives to connections: a connection could
// take it while the server is stopped, and a client that dials it can even reach itself.
func Free() (int, error) {
	for range 1000 {
		port := 20000 + rand.IntN(10000)
		address := fmt.Sprintf("127.0.0.1:%d", port)
		reservation, err := net.ListenPacket("udp", address)
		if err != nil {
			continue
		}
		l, err := net.Listen("tcp", address)
		if err != nil {
			_ = reservation.Close()
			continue
		}
		reserved.Store(port, reservation)
		return port, l.Close()
	}
	return 0, fmt.Errorf("no port from 20000 to 29999 is free")
}
