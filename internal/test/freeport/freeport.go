// Package freeport finds ports for servers that tests stop and start again.
package freeport

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
)

// reserved maps each port that Free has returned to the UDP socket that reserves it.
var reserved sync.Map

// Free returns a TCP port of the loopback interface without a listener, and reserves it until this process
// exits, so that a server can be stopped and started again on it. The reservation is a UDP socket of the same
// number, which tests in other processes respect. The port is outside the range that the system assigns to
// connections. Otherwise a connection could take it while the server is stopped, and a client could even
// connect to itself.
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

// Listen listens on a TCP address. Once the listener is closed, the address can be used again at once.
func Listen(address string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	return listener{l.(*net.TCPListener)}, nil
}

// listener stops listening before it closes its socket. Otherwise a child of this process that hasn't reached
// its exec would keep listening, because it has the socket open, too.
type listener struct{ *net.TCPListener }

func (l listener) Close() error {
	if raw, err := l.SyscallConn(); err == nil {
		_ = raw.Control(shutdown)
	}
	return l.TCPListener.Close()
}
