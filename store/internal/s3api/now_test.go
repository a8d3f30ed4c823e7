package s3api_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/repolock/repolock/store"
)

// TestNowIsTheDate: the store's time is no later than the Date of its answer, a header that is
// rounded down to a second, as mod times are.
func TestNowIsTheDate(t *testing.T) {
	const date = "Thu, 01 Jan 2026 00:00:07 GMT"
	want, err := http.ParseTime(date)
	if err != nil {
		t.Fatal(err)
	}
	both(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", date)
		fmt.Fprint(w, listing)
	}, "", func(t *testing.T, s store.Store) {
		page, err := s.List(t.Context(), "index/", "")
		if err != nil {
			t.Fatal(err)
		}
		if !page.Now.Equal(want) {
			t.Errorf("the answer is of %v, and the store's time %v", want, page.Now)
		}
	})
}
