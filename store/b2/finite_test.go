package b2_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/repolock/repolock/internal/test/fakeb2"
	"github.com/repolock/repolock/store"
)

// TestListingsEnd: a server whose listings have no end isn't asked for ever.
func TestListingsEnd(t *testing.T) {
	f := serve(t, fakeb2.Options{})
	var listings atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !strings.Contains(r.URL.Path, "/b2_list_file_"):
			f.ServeHTTP(w, r)
		case listings.Add(1) > 300:
			http.Error(w, "{}", http.StatusTeapot)
		default:
			answer := httptest.NewRecorder()
			f.ServeHTTP(answer, r)
			page := map[string]any{}
			if err := json.NewDecoder(bytes.NewReader(answer.Body.Bytes())).Decode(&page); err != nil {
				t.Error(err)
			}
			page["nextFileName"], page["nextFileId"] = prefix+"index/k", "an-id"
			w.WriteHeader(answer.Code)
			_ = json.NewEncoder(w).Encode(page)
		}
	}))
	t.Cleanup(server.Close)
	s := open(t, "b2://"+bucket+"/"+prefix+"?endpoint="+server.URL)
	if _, err := s.Put(t.Context(), "index/k", []byte("{}"), store.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	for name, request := range map[string]func() error{
		"versions": func() error { return s.Delete(t.Context(), "index/k") },
		"names": func() (err error) {
			page := store.Page{}
			for more := true; more && err == nil; more = page.Next != "" {
				page, err = store.Finite(s).List(t.Context(), "index/", page.Next)
			}
			return err
		},
	} {
		listings.Store(0)
		if err := request(); !errors.Is(err, store.ErrListing) || !strings.Contains(err.Error(), "index/k") && name == "versions" {
			t.Errorf("%s: after %d pages: %v", name, listings.Load(), err)
		}
	}
}
