package proxy

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/minio/minio-go/v7/pkg/signer"
)

// sign replaces the signature of a request by one with the present time, for MinIO's default region. It leaves
// requests alone that have no such signature.
func sign(r *http.Request, body []byte, c Credentials) error {
	if !strings.HasPrefix(r.Header.Get("Authorization"), "AWS4-") {
		return nil
	}
	body, err := unchunk(r, body)
	if err != nil {
		return err
	}
	setBody(r, body)
	for _, field := range []string{"Authorization", "X-Amz-Date", "X-Amz-Security-Token"} {
		r.Header.Del(field)
	}
	sum := sha256.Sum256(body)
	r.Header.Set("X-Amz-Content-Sha256", hex.EncodeToString(sum[:]))
	r.Header = signer.SignV4(*r, c.User, c.Password, "", "us-east-1").Header
	return nil
}

// unchunk returns the body of a request in aws-chunked encoding, and makes it the request's plain body: a
// line with its size in hexadecimal and a signature, and the bytes. Our objects are less than a chunk, and our
// clients send no trailer.
func unchunk(r *http.Request, body []byte) ([]byte, error) {
	if !strings.HasPrefix(r.Header.Get("X-Amz-Content-Sha256"), "STREAMING-") {
		return body, nil
	}
	for _, field := range []string{"X-Amz-Decoded-Content-Length", "Content-Encoding"} {
		r.Header.Del(field)
	}
	head, rest, _ := bytes.Cut(body, []byte("\r\n"))
	digits, _, _ := strings.Cut(string(head), ";")
	size, err := strconv.ParseUint(digits, 16, 31)
	if err != nil || size > uint64(len(rest)) {
		return nil, fmt.Errorf("aws-chunked: %q begins a body of %d bytes", head, len(body))
	}
	return rest[:size], nil
}
