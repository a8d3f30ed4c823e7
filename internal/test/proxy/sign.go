package proxy

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"

	"github.com/minio/minio-go/v7/pkg/signer"
)

// sign signs a request anew, with the time that it really is, for the region that
// the client has signed it for. One that isn't signed stays so.
func sign(r *http.Request, body []byte, c Credentials) error {
	region, ok := signedRegion(r.Header.Get("Authorization"))
	if !ok {
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
	r.Header = signer.SignV4(*r, c.User, c.Password, "", region).Header
	return nil
}

// signedRegion reads "AWS4-HMAC-SHA256 Credential=USER/DATE/REGION/s3/aws4_request, …".
func signedRegion(authorization string) (string, bool) {
	_, rest, ok := strings.Cut(authorization, "Credential=")
	scope, _, _ := strings.Cut(rest, ",")
	parts := strings.Split(scope, "/")
	if !ok || len(parts) < 5 {
		return "", false
	}
	return parts[len(parts)-3], true
}

// unchunk returns the body of a request in aws-chunked encoding, where each chunk carries a
// signature of its own, and makes it the request's plain body.
func unchunk(r *http.Request, body []byte) ([]byte, error) {
	if !strings.HasPrefix(r.Header.Get("X-Amz-Content-Sha256"), "STREAMING-") {
		return body, nil
	}
	plain, trailer, err := decodeChunks(body)
	if err != nil {
		return nil, fmt.Errorf("aws-chunked: %w", err)
	}
	for _, field := range []string{"X-Amz-Decoded-Content-Length", "X-Amz-Trailer", "Content-Encoding"} {
		r.Header.Del(field)
	}
	for name, value := range trailer {
		if !strings.EqualFold(name, "X-Amz-Trailer-Signature") {
			r.Header.Set(name, value) // a checksum
		}
	}
	return plain, nil
}
