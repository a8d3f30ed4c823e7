//go:build unix

package e2e

import (
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
)

const (
	// inTest need Go alone.
	inTest = `TestRuns TestDocs TestAlsoPage TestRepositoryLockPage TestBeadsPage TestTowerFleetPage
		TestOnDirectory TestOnLost TestSignals
		TestCloudstic TestAnimation TestQuantiles TestTable TestLockPart `
	// onMinIOShort need MinIO: the tag minio.
	onMinIOShort = `TestOnStores TestMixed TestDoctor TestRequestCounts
		TestDoctorOfDeafServer TestDoctorOfWrongClock `
)

// runs lists the tests that each run takes, by the value of REPOLOCK_E2E_RUN. make test, and so .ci/run,
// has test, and minio-short if MinIO is built; both with -short. All others are steps of make proof.
var runs = map[string]string{
	"test":        inTest,
	"unit":        inTest + `TestLocalScript TestAloud TestSoak`,
	"minio-short": onMinIOShort,
	"minio": onMinIOShort + `TestPartition TestUnusableStoreIsNamed TestIfMatchOnAbsentKey
		TestPolicies TestLackingPermission TestRights TestVersions TestOldVersions TestVersionPermissions`,
	"chaos":     `TestChaos TestChaosFinds`,
	"old-minio": `TestIfMatchOnAbsentKey TestDoctor`,
	// They need what .ci/proof installs: the tag programs.
	"programs": `TestProtocolHolder TestProtocolRaceFinds TestRestic TestRclone TestBorg TestReadme TestKopia TestRedisPage TestPostgresPage TestOthersPage
		TestTortureClocks TestNodeExporter TestJobNames TestMetricsPage TestAlsoKeeper TestAlsoKilled
		TestAlsoLostOne TestAlsoOrder TestAlsoRefused TestAlsoSecrets TestAlsoServerGone
		TestAlsoStopped TestJobControl TestWaitingOnAScreen TestWaitingInBackground
		TestCtrlCWhileWaiting TestSuspended TestWatchOnAScreen TestNoEscapes TestShells TestFish TestManualRenders
		TestCannotBeSignalled TestNoneCanBeSignalled TestPackagesDocument TestSystemd TestDemo`,
	"protocol-race": `TestProtocolRace`,
	// They need both.
	"programs-minio": `TestPrograms TestNginx`,
	"paused-guest":   `TestPausedGuest`,
}

// chosen returns the expression for -run of a run's tests.
func chosen(run string) (expression string, known bool) {
	names, known := runs[run]
	return "^(" + strings.Join(strings.Fields(names), "|") + ")$", known
}

// testFunc matches the head of a test.
var testFunc = regexp.MustCompile(`(?m)^func (Test\w+)\(t `)

// testFiles returns the file of each test of these directories, by name.
func testFiles(t *testing.T, dirs ...string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, dir := range dirs {
		files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
		assert.OK(t, err)
		for _, file := range files {
			raw := read(t, file)
			for _, m := range testFunc.FindAllStringSubmatch(raw, -1) {
				all[m[1]] = raw
			}
		}
	}
	return all
}

// TestRuns: each test is in a run, and has the build tags of that run. Each run is started: by a line of
// .ci/run or .ci/proof, of make for them, or of short.sh.
func TestRuns(t *testing.T) {
	in := map[string]string{}
	for run, names := range runs {
		for name := range strings.FieldsSeq(names) {
			in[name] = run
		}
	}
	tags := map[string]string{
		"test": "", "unit": "", "minio-short": "minio", "minio": "minio", "chaos": "minio", "old-minio": "minio",
		"programs": "programs", "protocol-race": "programs", "programs-minio": "minio && programs", "paused-guest": "minio && programs",
	}
	lines := slices.Concat(newCI(t).lines, strings.Split(read(t, "short.sh"), "\n"))
	for run := range runs {
		starts := regexp.MustCompile(`^[^#]*\bREPOLOCK_E2E_RUN=` + run + ` `)
		// These two are go test's without a variable.
		if run != "test" && run != "unit" && !slices.ContainsFunc(lines, starts.MatchString) {
			t.Errorf("nothing starts the run %s", run)
		}
	}
	files := testFiles(t, ".")
	for name, text := range files {
		first, _, _ := strings.Cut(text, "\n")
		_, tag, _ := strings.Cut(first, " && ")
		if run, ok := in[name]; !ok {
			t.Errorf("%s is in no run: see runs", name)
		} else if tags[run] != tag {
			t.Errorf("%s is in the run %s, and its file has %s", name, run, first)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(in)) {
		assert.That(t, files[name] != "", "there is no %s", name)
	}
}
