//go:build programs

package redis_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/freeport"
	"github.com/repolock/repolock/internal/test/redistest"
	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/locking/redis"
)

// certificate writes a certificate for 127.0.0.1 that signs itself, and its key.
func certificate(t *testing.T, dir, name string) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, name+".pem"), filepath.Join(dir, name+".key")
	for path, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY",
		Bytes: secret}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

// TestTLS: rediss checks the server's certificate against ca.
func TestTLS(t *testing.T) {
	dir := t.TempDir()
	cert, key := certificate(t, dir, "server")
	other, _ := certificate(t, dir, "other")
	port, err := freeport.Free()
	if err != nil {
		t.Fatal(err)
	}
	s := redistest.New(t, "--tls-port", strconv.Itoa(port), "--tls-cert-file", cert, "--tls-key-file", key,
		"--tls-auth-clients", "no")
	address := "127.0.0.1:" + strconv.Itoa(port)
	b := open(t, "rediss://"+address+"/0?key=k&ca="+cert, redis.Options{})
	h := acquire(t, b, "k", ttl)
	if err := b.Renew(t.Context(), h); err != nil {
		t.Error(err)
	}
	isHeld(t, client(t, s.Addr()), "k")
	if err := b.Release(t.Context(), h); err != nil {
		t.Error(err)
	}
	for _, raw := range []string{
		"rediss://" + address + "/0?key=k", "rediss://" + address + "/0?key=k&ca=" + other,
		"rediss://localhost:" + strconv.Itoa(port) + "/0?key=k&ca=" + cert, "rediss://" + s.Addr() + "/0?key=k&ca=" + cert,
		"redis://" + address + "/0?key=k",
	} {
		_, ok, err := open(t, raw, redis.Options{}).TryLock(soon(t), "k", ttl)
		if ok || err == nil || errors.Is(err, locking.ErrLost) {
			t.Errorf("%s: acquired %v, %v", raw, ok, err)
		}
		if strings.HasPrefix(raw, "rediss://"+address) && !errors.Is(err, locking.ErrUnfit) {
			t.Errorf("%s: %v", raw, err)
		}
		t.Log(err)
	}
	for _, ca := range []string{dir, dir + "/none", key} {
		target, err := redis.Parse("rediss://h/0?key=k&ca=" + ca)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := redis.Open(target, redis.Options{}); b != nil || err == nil {
			t.Errorf("%s is opened: %v", ca, err)
		}
	}
}
