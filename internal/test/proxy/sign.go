package proxy

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"strconv"
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

// decodeChunks reads the aws-chunked encoding: a line with the size in hexadecimal
// and perhaps a signature, the bytes, a line end; a chunk of size 0, and fields.
func decodeChunks(raw []byte) (body []byte, trailer map[string]string, err error) {
	r := textproto.NewReader(bufio.NewReader(bytes.NewReader(raw)))
	for {
		line, err := r.ReadLine()
		if err != nil {
			return nil, nil, err
		}
		digits, _, _ := strings.Cut(line, ";")
		size, err := strconv.ParseUint(digits, 16, 31)
		if err != nil {
			return nil, nil, err
		}
		if size == 0 {
			trailer, err = readTrailer(r)
			return body, trailer, err
		}
		chunk := make([]byte, size)
		if _, err := io.ReadFull(r.R, chunk); err != nil {
			return nil, nil, err
		}
		body = append(body, chunk...)
		if end, err := r.ReadLine(); err != nil || end != "" {
			return nil, nil, fmt.Errorf("a chunk of %d bytes doesn't end where it should: %v", size, err)
		}
	}
}

func readTrailer(r *textproto.Reader) (map[string]string, error) {
	trailer := map[string]string{}
	for {
		line, err := r.ReadLine()
		if err == io.EOF || err == nil && line == "" {
			return trailer, nil
		}
		if err != nil {
			return nil, err
		}
		name, value, _ := strings.Cut(line, ":")
		trailer[name] = strings.TrimSpace(value)
	}
}
