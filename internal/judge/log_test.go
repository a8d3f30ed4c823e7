package judge

import (
	"testing"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/test/assert"
)

// TestParse: a line that isn't completely understood is an error.
func TestParse(t *testing.T) {
	for _, line := range []string{
		"", "x", "[]", `{"at":1,"kind":"in","id":"a"`, `{"at":0,"kind":"in","id":"a"}`, `{"at":1,"kind":"end","id":"a"}`,
		`{"at":1,"kind":"start","id":"a"}`, `{"at":1,"kind":"fault","id":"a"}`, `{"at":1,"kind":"in","id":"a","new":1}`,
		`{"at":1,"kind":"in","id":"a"} {"at":2}`, `{"at":1,"kind":"in","id":"b"}`,
	} {
		_, err := Parse([]byte(line), func(id string) bool { return id == "a" })
		assert.Is(t, err, fault.Unjudged, "%q", line)
	}
	assert.Says(t, assert.Err(Parse([]byte("[]"), func(string) bool { return false })), fault.Unjudged, "cannot unmarshal array")
}
