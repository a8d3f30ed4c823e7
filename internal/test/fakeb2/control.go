package fakeb2

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
)

// Control serves the API, and under /fake/ the controls that tests use on a server in another
// process, without authorization.
//
//	POST /fake/bucket?name=NAME      makes a bucket
//	GET  /fake/versions?bucket=NAME  all versions, as JSON
//	GET  /fake/log                   the requests since the last time, as JSON
//	POST /fake/expire                ends the life of all tokens
//	POST /fake/fail?call=CALL&times=N&status=STATUS&code=CODE
func (s *Server) Control() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		what, ok := strings.CutPrefix(r.URL.Path, "/fake/")
		if !ok {
			s.ServeHTTP(w, r)
			return
		}
		result, err := s.control(what, r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(result)
	})
}

func (s *Server) control(what string, r *http.Request) (any, error) {
	q := r.URL.Query()
	switch what {
	case "bucket":
		return nil, s.AddBucket(Bucket{Name: q.Get("name")})
	case "versions":
		return s.Versions(q.Get("bucket")), nil
	case "log":
		return s.TakeLog(), nil
	case "expire":
		s.ExpireTokens()
		return nil, nil
	case "fail":
		times, err1 := strconv.Atoi(q.Get("times"))
		status, err2 := strconv.Atoi(q.Get("status"))
		if err1 != nil || err2 != nil {
			return nil, badRequest("times and status are numbers")
		}
		s.Fail(q.Get("call"), times, status, q.Get("code"))
		return nil, nil
	default:
		return nil, badRequest("no such knob: %s", what)
	}
}
