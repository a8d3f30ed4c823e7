package fakes3

import (
	"crypto/md5"
	"encoding/base64"
	"encoding/xml"
	"net/http"

	"github.com/repolock/repolock/store"
)

// deletion is the body of DeleteObjects, and result its answer.
type (
	deletion struct {
		Object []struct{ Key string }
		Quiet  bool
	}
	result struct {
		XMLName xml.Name `xml:"DeleteResult"`
		Deleted []named
	}
	named struct{ Key string }
)

// deleteAll insists on Content-MD5, as many servers do.
func (s *Server) deleteAll(w http.ResponseWriter, r *http.Request, body []byte) {
	sum := md5.Sum(body)
	switch want := r.Header.Get("Content-Md5"); want {
	case "":
		refuse(w, http.StatusBadRequest, "MissingContentMD5")
		return
	case base64.StdEncoding.EncodeToString(sum[:]):
	default:
		refuse(w, http.StatusBadRequest, "BadDigest")
		return
	}
	var d deletion
	if xml.Unmarshal(body, &d) != nil || len(d.Object) == 0 || len(d.Object) > store.MaxBatch {
		refuse(w, http.StatusBadRequest, "MalformedXML")
		return
	}
	var res result
	for _, o := range d.Object {
		if s.objects.Delete(r.Context(), o.Key) == nil && !d.Quiet {
			res.Deleted = append(res.Deleted, named{o.Key})
		}
	}
	answer(w, nil, func() {
		w.Header().Set("Content-Type", "application/xml")
		_ = xml.NewEncoder(w).Encode(res)
	})
}
