package session

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestNoFailureInAnswer: an answer has no failure unless the request failed, and null is none.
func TestNoFailureInAnswer(t *testing.T) {
	raw, err := json.Marshal(Answer{})
	if err != nil || strings.Contains(string(raw), "failure") {
		t.Errorf("without a failure: %s, %v", raw, err)
	}
	failure := json.RawMessage(`{"error":"lost"}`)
	raw, err = json.Marshal(Answer{Failure: &failure})
	if err != nil || !strings.HasSuffix(string(raw), `,"failure":{"error":"lost"}}`) {
		t.Errorf("with one: %s, %v", raw, err)
	}
	for text, want := range map[string]string{`{}`: "", `{"failure":null}`: "", `{"failure":{"error":"lost"}}`: `{"error":"lost"}`} {
		var a Answer
		if err := json.Unmarshal([]byte(text), &a); err != nil {
			t.Fatal(err)
		}
		if got := a.Failure; (got != nil) != (want != "") || got != nil && string(*got) != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}
