package fakeb2

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// download is b2_download_file_by_name, GET and HEAD.
func (s *Server) download(w http.ResponseWriter, r *http.Request) error {
	v, err := s.downloadable(r)
	if err != nil {
		return err
	}
	h := w.Header()
	h.Set("X-Bz-File-Id", v.ID)
	h.Set("X-Bz-File-Name", encode(v.Name))
	h.Set("X-Bz-Content-Sha1", sum(v.Body))
	h.Set("X-Bz-Upload-Timestamp", strconv.FormatInt(v.Timestamp, 10))
	h.Set("Content-Type", v.ContentType)
	h.Set("Accept-Ranges", "bytes")
	for key, value := range v.Info {
		h.Set(infoHeader+key, encode(value))
	}
	body, status := v.Body, http.StatusOK
	if asked := r.Header.Get("Range"); asked != "" {
		first, last, ok := span(asked, len(body))
		if !ok {
			return refusal{http.StatusRequestedRangeNotSatisfiable, "range_not_satisfiable", "The Range header in the request is outside the size of the file"}
		}
		h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", first, last, len(body)))
		body, status = body[first:last+1], http.StatusPartialContent
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body)
	}
	return nil
}

func (s *Server) downloadable(r *http.Request) (Version, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, err := s.holder(r.Header.Get("Authorization"), "account")
	if err != nil {
		return Version{}, err
	}
	name, encoded, _ := strings.Cut(strings.TrimPrefix(r.URL.EscapedPath(), "/file/"), "/")
	b := s.state.named(name)
	if name, err = decode(encoded); err != nil {
		return Version{}, err
	}
	if !k.may("readFiles") || !k.inside(b, name) {
		return Version{}, errUnauthorized
	}
	if b == nil || b.visible(name) == nil {
		return Version{}, refusal{http.StatusNotFound, "not_found", "File with such name does not exist."}
	}
	return *b.visible(name), nil
}

// span returns the part of a body of this size that a Range requests.
func span(asked string, size int) (first, last int, ok bool) {
	from, to, found := strings.Cut(strings.TrimPrefix(asked, "bytes="), "-")
	first, err := strconv.Atoi(from)
	if !found || err != nil || first >= size {
		return 0, 0, false
	}
	last = size - 1
	if to != "" {
		asked, err := strconv.Atoi(to)
		if err != nil || asked < first {
			return 0, 0, false
		}
		last = min(last, asked)
	}
	return first, last, true
}
