//go:build unix

package towerfleet

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// musts maps the beginning of each line of the document that demands, recommends or allows
// something to the tests that show it.
var musts = map[string]string{
	"The key words":                        "",
	"1. Prevent concurrent mutation":       "TestNeverTwo TestCreationIsAtomic TestConformance TestScriptRaces TestMethods",
	"2. Survive crashes":                   "TestKilledHolder TestSteal TestBreak TestCleanup",
	"3. Be diagnosable":                    "TestInspect TestBlocked TestStaleIsRefused TestDocumentsJSON",
	"4. Support timeouts":                  "TestStaleByHeartbeat TestSteal",
	"Lock names MUST:":                     "TestNames",
	"Lock names MUST NOT:":                 "TestNames",
	"Lock files MUST contain":              "TestFields TestMalformedIsHeld",
	"lock_version string":                  "TestFields TestMalformedIsHeld",
	"lock_name string":                     "TestFields TestMalformedIsHeld",
	"request_id string":                    "TestFields TestRequestID TestMalformedIsHeld",
	"actor string":                         "TestFields TestMalformedIsHeld",
	"intent string":                        "TestFields TestMalformedIsHeld",
	"intent_version string":                "TestFields TestMalformedIsHeld",
	"host_id string":                       "TestFields TestMalformedIsHeld",
	"pid integer":                          "TestFields TestMalformedIsHeld",
	"created_at string":                    "TestFields TestMalformedIsHeld",
	"last_heartbeat_at string":             "TestFields TestMalformedIsHeld",
	"ttl_seconds integer":                  "TestFields TestTTL TestMalformedIsHeld",
	"metadata object":                      "TestFields TestMalformedIsHeld",
	"Intents MAY override via":             "TestTTL",
	"Lock creation MUST be atomic":         "TestCreationIsAtomic TestNoLinks TestNeverTwo TestMethods",
	"When blocked by an active lock":       "TestBlocked TestDocumentsJSON",
	"1. NOT proceed with execution":        "TestBlocked TestStaleIsRefused TestMalformedIsHeld",
	"The executor MUST update":             "TestInterval TestRenewAfterTTL",
	"RECOMMENDED: Use shorter interval":    "TestInterval",
	"Heartbeat updates MUST:":              "TestHeartbeat TestHeartbeatRacesSteal",
	"Lock stealing is ONLY allowed":        "TestSteal TestStaleIsRefused TestStealMissesHeartbeat",
	"Lock stealing is NEVER allowed":       "TestBlocked TestBreak TestStealMissesHeartbeat",
	"observe MUST NOT lock":                "TestModes TestObserve",
	"mutate MUST lock if":                  "TestModes",
	"reconcile SHOULD lock":                "TestModes",
	"Intents with mode: observe:":          "TestModes TestObserve",
	"For mode: mutate intents without":     "TestModes",
	"The lock directory SHOULD:":           "TestDirectory TestDirectoryOfAnother TestDirectoryWithoutParent",
	"Lock files: - SHOULD be validated on": "TestMalformedIsHeld TestIrregularIsHeld",
	"The pid field is informational only":  "TestPID TestKilledHolder",
}

// TestMusts: each line of the document that demands, recommends or allows something has its
// tests, and they exist.
func TestMusts(t *testing.T) {
	var source strings.Builder
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		source.Write(text)
	}
	demands := regexp.MustCompile(`\b(MUST|ONLY|NEVER|NOT|SHALL|SHOULD|REQUIRED|RECOMMENDED|MAY|OPTIONAL)\b`)
	seen := map[string]bool{}
	for line := range strings.Lines(document(t)) {
		line = strings.TrimSpace(line)
		if !demands.MatchString(line) {
			continue
		}
		found := false
		for start := range musts {
			if strings.HasPrefix(line, start) {
				found, seen[start] = true, true
			}
		}
		if !found {
			t.Errorf("no test shows: %s", line)
		}
	}
	for start, tests := range musts {
		if !seen[start] {
			t.Errorf("the document has no line %q", start)
		}
		for _, name := range strings.Fields(tests) {
			if !strings.Contains(source.String(), "\nfunc "+name+"(t *testing.T) {") {
				t.Errorf("%s: there is no %s", start, name)
			}
		}
	}
}
