package proxy

import (
	"strings"
	"testing"
	"time"
)

const signed = "AWS4-HMAC-SHA256 Credential=someone/20200101/eu-north-1/s3/aws4_request, SignedHeaders=host;if-none-match, Signature=00"

// TestStripConditions: the conditions are removed, also from the signature. e2e shows that a
// real server takes such a request.
func TestStripConditions(t *testing.T) {
	f := newFixture(t, "")
	f.Behave(Behaviour{StripConditions: true, Sign: &Credentials{"root", "secret"}})
	_, _, err := f.do("PUT", "/bucket/key", "body", "Authorization", signed, "X-Amz-Date", "20200101T000000Z", "If-None-Match", "*", "If-Match", `"e"`)
	if err != nil {
		t.Fatal(err)
	}
	h := f.got[0].Header
	if h.Get("If-None-Match") != "" || h.Get("If-Match") != "" || f.sent[0] != "body" {
		t.Errorf("%v %q", h, f.sent)
	}
	contains(t, h.Get("Authorization"), "Credential=root/")
	contains(t, h.Get("Authorization"), "/eu-north-1/s3/aws4_request")
	if at, err := time.Parse("20060102T150405Z", h.Get("X-Amz-Date")); err != nil || time.Since(at) > time.Minute {
		t.Errorf("signed at %v", h.Get("X-Amz-Date"))
	}
}

func TestSignChunked(t *testing.T) {
	f := newFixture(t, "")
	f.Behave(Behaviour{Sign: &Credentials{"root", "secret"}})
	body := "4;chunk-signature=00\r\nbody\r\n3;chunk-signature=00\r\n it\r\n0;chunk-signature=00\r\nx-amz-checksum-crc32c:abcd==\r\nx-amz-trailer-signature:00\r\n\r\n"
	_, _, err := f.do("PUT", "/bucket/key", body, "Authorization", signed, "X-Amz-Content-Sha256", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER",
		"Content-Encoding", "aws-chunked", "X-Amz-Decoded-Content-Length", "7", "X-Amz-Trailer", "x-amz-checksum-crc32c")
	if err != nil {
		t.Fatal(err)
	}
	h := f.got[0].Header
	if f.sent[0] != "body it" || strings.Contains(h.Get("Authorization"), "content-length") || h.Get("Content-Encoding") != "" || h.Get("X-Amz-Checksum-Crc32c") != "abcd==" {
		t.Errorf("%q %v", f.sent[0], h)
	}
}

// TestUnsigned: a request without a signature doesn't get one.
func TestUnsigned(t *testing.T) {
	f := newFixture(t, "")
	f.Behave(Behaviour{Sign: &Credentials{"root", "secret"}})
	if _, _, err := f.do("PUT", "/bucket/key", "body"); err != nil || f.got[0].Header.Get("Authorization") != "" {
		t.Errorf("%v %v", err, f.got[0].Header)
	}
}

func TestBadChunks(t *testing.T) {
	for _, body := range []string{"", "zz\r\n", "4\r\nbo", "4\r\nbodyX\r\n0\r\n\r\n"} {
		if _, _, err := decodeChunks([]byte(body)); err == nil {
			t.Errorf("%q is taken", body)
		}
	}
}
