//go:build unix && minio

package e2e

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"testing"

	"github.com/minio/minio-go/v7"
	keys "github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/signer"

	"github.com/repolock/repolock/internal/test/miniotest"
)

// account is a service account of a MinIO server, with the rights of its policy only.
type account struct {
	place
	key, secret string
}

// newAccount makes an account, which ends with the test.
func newAccount(t testing.TB, p place, policy []byte) account {
	t.Helper()
	a := account{p, rand.Text()[:20], rand.Text()}
	request, err := json.Marshal(map[string]any{
		"policy": json.RawMessage(policy), "accessKey": a.key, "secretKey": a.secret, "name": "repolock-e2e",
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := administer(p, http.MethodPut, "add-service-account", sealed(t, request)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := administer(p, http.MethodDelete, "delete-service-account?accessKey="+a.key, nil); err != nil {
			t.Error(err)
		}
	})
	return a
}

// environ is the environment of a repolock that uses the account.
func (a account) environ() []string {
	return []string{
		"AWS_ACCESS_KEY_ID=" + a.key, "AWS_SECRET_ACCESS_KEY=" + a.secret,
		"MINIO_ACCESS_KEY=" + a.key, "MINIO_SECRET_KEY=" + a.secret,
	}
}

// client sends single requests with the account's rights.
func (a account) client(t testing.TB) *minio.Client {
	t.Helper()
	c, err := minio.New(a.host(), &minio.Options{
		Creds: keys.NewStaticV4(a.key, a.secret, ""), Region: "us-east-1", MaxRetries: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// administer sends a request of MinIO's administration, as the root. MinIO's own library for
// it would bring more dependencies than repolock has.
func administer(s server, method, what string, body []byte) error {
	r, err := http.NewRequest(method, s.Endpoint()+"/minio/admin/v3/"+what, bytes.NewReader(body))
	if err != nil {
		return err
	}
	sum := sha256.Sum256(body)
	r.Header.Set("X-Amz-Content-Sha256", hex.EncodeToString(sum[:]))
	res, err := http.DefaultClient.Do(signer.SignV4(*r, miniotest.User, miniotest.Password, "", ""))
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode >= 300 {
		said, _ := io.ReadAll(res.Body)
		return fmt.Errorf("%s: %s: %s", what, res.Status, said)
	}
	return nil
}

// sealed encrypts a body for the server's administration, by the root's password: salt, the
// number of the method, nonce, and one fragment, the last.
func sealed(t testing.TB, body []byte) []byte {
	t.Helper()
	salt, nonce := make([]byte, 32), make([]byte, 8)
	_, _ = rand.Read(salt)
	_, _ = rand.Read(nonce)
	key, err := pbkdf2.Key(sha256.New, miniotest.Password, salt, 8192, 32)
	if err != nil {
		t.Fatal(err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		t.Fatal(err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		t.Fatal(err)
	}
	numbered := func(n byte) []byte { return slices.Concat(nonce, []byte{n, 0, 0, 0}) }
	last := aead.Seal([]byte{0x80}, numbered(0), nil, nil)
	return slices.Concat(salt, []byte{0x02}, nonce, aead.Seal(nil, numbered(1), body, last))
}
