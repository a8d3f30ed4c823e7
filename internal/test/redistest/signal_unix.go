//go:build unix

package redistest

import "syscall"

// Stop stops the server with SIGSTOP. The kernel still accepts connections for it.
func (s *Server) Stop() { s.signal(syscall.SIGSTOP) }

// Cont continues a stopped server.
func (s *Server) Cont() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(which syscall.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(which); err != nil {
		s.t.Fatal(err)
	}
}
