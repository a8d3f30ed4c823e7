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
		l, err := Listen(address)
		if err != nil {
			_ = reservation.Close()
			continue
		}
		reserved.Store(port, reservation)
		return port, l.Close()
	}
	return 0, fmt.Errorf("no port from 20000 to 29999 is free")
}

// Listen listens on the TCP address. Whoever has closed the listener can listen there again
// at once.
func Listen(address string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	return listener{l.(*net.TCPListener)}, nil
}

// listener stops to listen before it closes its socket. A child of this process that hasn't
// got to its exec has the socket open too, and would listen on.
type listener struct{ *net.TCPListener }

func (l listener) Close() error {
	if raw, err := l.SyscallConn(); err == nil {
		_ = raw.Control(shutdown)
	}
	return l.TCPListener.Close()
}
