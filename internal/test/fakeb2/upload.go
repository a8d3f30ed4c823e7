package fakeb2

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"strings"
)

const maxUpload = 5 << 30

// upload is b2_upload_file. The URL's last element is the use that its token is
// good for.
func (s *Server) upload(w http.ResponseWriter, r *http.Request) error {
	done, k, b, err := s.startUpload(r)
	if err != nil {
		return err
	}
	defer done()
	v, err := readUpload(r)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !k.may("writeFiles") || !k.inside(b, v.Name) {
		return errUnauthorized
	}
	v, err = s.state.newVersion(b, v, s.now())
	if err != nil {
		return err
	}
	s.changed("b2_upload_file", b, v.Name)
	return reply(w, file(v))
}

// startUpload takes the URL for one upload, until done.
func (s *Server) startUpload(r *http.Request) (done func(), k Key, b *bucket, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	elements := strings.Split(r.URL.Path, "/") // "", b2api, v3, b2_upload_file, bucket, use
	if len(elements) != 6 {
		return nil, k, nil, badRequest("not an upload URL")
	}
	token := r.Header.Get("Authorization")
	if s.tokens.spent[token] {
		return nil, k, nil, refusal{http.StatusServiceUnavailable, "service_unavailable", "no tomes available"}
	}
	if k, err = s.holder(token, elements[5]); err != nil {
		return nil, k, nil, err
	}
	if b = s.state.withID(elements[4]); b == nil {
		return nil, k, nil, refusal{http.StatusBadRequest, "bad_bucket_id", "Bucket does not exist"}
	}
	if s.tokens.busy[token] {
		return nil, k, nil, refusal{http.StatusBadRequest, "auth_token_limit", fmt.Sprintf("more than one upload using auth token %s", token)}
	}
	s.tokens.busy[token] = true
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.tokens.busy, token)
	}, k, b, nil
}

func readUpload(r *http.Request) (Version, error) {
	name, err := decode(r.Header.Get("X-Bz-File-Name"))
	if err != nil {
		return Version{}, err
	}
	if err := checkName(name); err != nil {
		return Version{}, err
	}
	if r.ContentLength < 0 {
		return Version{}, refusal{http.StatusLengthRequired, "length_required", "Missing header: Content-Length"}
	}
	if r.ContentLength > maxUpload {
		return Version{}, badRequest("the file is too large")
	}
	v := Version{Name: name, Action: "upload", ContentType: r.Header.Get("Content-Type"), Info: info(r.Header)}
	if v.ContentType == "" {
		return Version{}, badRequest("Missing header: Content-Type")
	}
	v.Body, err = io.ReadAll(r.Body)
	if err != nil {
		return Version{}, badRequest("the upload was cut off")
	}
	want := r.Header.Get("X-Bz-Content-Sha1")
	switch {
	case want == "do_not_verify":
		return v, nil
	case want == "hex_digits_at_end" && len(v.Body) >= 40:
		end := len(v.Body) - 40
		want, v.Body = string(v.Body[end:]), v.Body[:end]
	}
	if got := sum(v.Body); got != want {
		return Version{}, badRequest("Sha1 did not match data received")
	}
	return v, nil
}

func sum(body []byte) string {
	sum := sha1.Sum(body)
	return hex.EncodeToString(sum[:])
}

const infoHeader = "X-Bz-Info-"

func info(h http.Header) map[string]string {
	info := map[string]string{}
	for name, values := range h {
		if key, ok := strings.CutPrefix(name, infoHeader); ok {
			if value, err := decode(values[0]); err == nil {
				info[strings.ToLower(key)] = value
			}
		}
	}
	return info
}
