//go:build programs

package postgres_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/pgtest"
	"github.com/repolock/repolock/locking/postgres"
)

func parse(t *testing.T, url string) postgres.Target {
	t.Helper()
	to, err := postgres.Parse(url)
	if err != nil {
		t.Fatal(err)
	}
	return to
}

func socketURL(s *pgtest.Server) string {
	_, port, _ := strings.Cut(s.Address(), ":")
	return "postgres://postgres@/postgres?host=" + s.Socket() + "&port=" + port + "&key=" + key
}

// secure is the target of a server that has a certificate.
func secure(t *testing.T, s *pgtest.Server, mode string, parameters ...string) postgres.Target {
	t.Helper()
	return parse(t, strings.Join(append([]string{"postgres://postgres@" + s.Address() + "/postgres?key=" + key +
		"&sslmode=" + mode}, parameters...), "&"))
}

// certify gives a server a certificate that it has signed itself, and returns the file.
func certify(t *testing.T, s *pgtest.Server) (path string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(24 * time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	owner, err := os.Stat(filepath.Join(s.Socket(), "data")) // its user is the server's
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{
		"server.crt": {Type: "CERTIFICATE", Bytes: certificate},
		"server.key": {Type: "PRIVATE KEY", Bytes: secret},
	} {
		path := filepath.Join(s.Socket(), name)
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(path, int(owner.Sys().(*syscall.Stat_t).Uid), -1); err != nil {
			t.Fatal(err)
		}
		s.PSQL("alter system set ssl_" + map[string]string{"server.crt": "cert", "server.key": "key"}[name] + "_file = '" + path + "'")
	}
	s.PSQL("alter system set ssl = on")
	s.Restart()
	return filepath.Join(s.Socket(), "server.crt")
}

// TestTLS: the session is encrypted as sslmode says, and a certificate that isn't trusted, or is of
// another host, gets no lock.
func TestTLS(t *testing.T) {
	s := pgtest.New(t)
	root := certify(t, s)
	for _, c := range []struct{ name, mode, root, host, refused string }{
		{"required", "require", "", "", ""},
		{"verified", "verify-full", root, "", ""},
		{"not trusted", "verify-full", "", "", "certificate"},
		{"another host", "verify-full", root, "localhost", "certificate"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var more []string
			if c.root != "" {
				more = append(more, "sslrootcert="+c.root)
			}
			to := secure(t, s, c.mode, more...)
			if c.host != "" {
				to.Host = c.host
			}
			b := backend(t, to)
			h, ok, err := b.TryLock(t.Context(), key, ttl)
			if c.refused != "" {
				if ok || err == nil || !strings.Contains(err.Error(), c.refused) || strings.Contains(err.Error(), "\n") {
					t.Errorf("%v, %v, want one line about %q", ok, err, c.refused)
				}
				return
			}
			if !ok || err != nil {
				t.Fatal(ok, err)
			}
			if got := s.PSQL("select count(*) from pg_stat_ssl natural join pg_locks where ssl and locktype = 'advisory'"); got != "1" {
				t.Errorf("%s sessions with the lock are encrypted", got)
			}
			if err := b.Renew(t.Context(), h); err != nil {
				t.Error(err)
			}
			if err := b.Release(t.Context(), h); err != nil {
				t.Error(err)
			}
		})
	}
	s.Hosts("local all all trust", "hostssl all all all trust")
	for mode, want := range map[string]bool{"disable": false, "require": true} {
		if _, ok, err := backend(t, secure(t, s, mode)).TryLock(t.Context(), key, ttl); ok != want {
			t.Errorf("a server that wants TLS, sslmode %s: %v, %v", mode, ok, err)
		}
	}
}
