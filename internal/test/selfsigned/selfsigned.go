// Package selfsigned makes certificates for tests.
package selfsigned

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
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
)

// Write writes a certificate for 127.0.0.1 that signs itself, and its key, as NAME.crt and NAME.key.
func Write(t testing.TB, dir, name string) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	assert.OK(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err1 := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	secret, err2 := x509.MarshalPKCS8PrivateKey(private)
	write := func(suffix, kind string, der []byte) (path string, err error) {
		path = filepath.Join(dir, name+suffix)
		return path, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
	}
	cert, err3 := write(".crt", "CERTIFICATE", der)
	key, err4 := write(".key", "PRIVATE KEY", secret)
	assert.OK(t, errors.Join(err1, err2, err3, err4))
	return cert, key
}
