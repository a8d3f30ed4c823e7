//go:build linux && programs

package e2e

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
	running "github.com/repolock/repolock/internal/test/server"
)

// exporter is a real node_exporter of one test, with the textfile collector alone.
type exporter struct {
	s   *site
	url string
}

// exporterFlags leave out what doesn't concern these tests.
const exporterFlags = " --collector.disable-defaults --collector.textfile --web.disable-exporter-metrics --web.listen-address "

func newExporter(s *site) *exporter {
	s.t.Helper()
	address := fmt.Sprintf("127.0.0.1:%d", running.Port(s.t))
	e := &exporter{s, "http://" + address + "/metrics"}
	s.mkdir("collected")
	cmd := exec.Command("sh", "-c", "exec prometheus-node-exporter --collector.textfile.directory collected"+exporterFlags+address+" 2>exporter.log")
	cmd.Dir = s.dir
	process, err := running.Start(cmd, func() bool { _, _, err := e.get(); return err == nil })
	assert.OK(s.t, err)
	s.t.Cleanup(func() { process.End(os.Kill) })
	return e
}

// complaint returns what node_exporter logs about files that contradict each other. (It also logs that it runs
// as root.)
func (e *exporter) complaint() string {
	return regexp.MustCompile(`(?m)^.*(level=error|inconsistent|failed|collector=textfile .*err=).*$`).FindString(read(e.s.t, e.s.path("exporter.log")))
}

func (e *exporter) get() (code int, body string, err error) {
	answer, err := http.Get(e.url)
	if err != nil {
		return 0, "", err
	}
	defer answer.Body.Close()
	raw, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(raw), err
}

// scrape returns the series of a scrape that has succeeded, without their values.
func (e *exporter) scrape() (series []string, body string) {
	e.s.t.Helper()
	code, body, err := e.get()
	assert.Need(e.s.t, err == nil && code == http.StatusOK, "%d %v\n%s", code, err, body)
	assert.Need(e.s.t, strings.Contains(body, "\nnode_textfile_scrape_error 0\n"), "%s", body)
	body = strings.ReplaceAll(body, noJob, "")
	assert.Equal(e.s.t, e.complaint(), "", "node_exporter says")
	for line := range strings.Lines(body) {
		if name, _, ok := strings.Cut(line, "} "); ok && strings.HasPrefix(line, "repolock_") {
			series = append(series, name+"}")
		}
	}
	return series, body
}

// noJob is the label of a job without a name in a file with named jobs. To Prometheus an empty label is no
// label.
const noJob = `job_name="",`

// recorded is a repolock that writes its metrics into a file.
func (s *site) recorded(repository, operation, file, job, command string) *process {
	s.t.Helper()
	args := []string{"-r", s.path(repository), operation, "--metrics-file", file}
	if job != "" {
		args = append(args, "--job", job)
	}
	return s.start(append(args, "--", "sh", "-c", command)...)
}

// TestNodeExporter: the real node_exporter shows the series of all jobs, each once and without a complaint, in
// one file or several, after a failure and after a success.
func TestNodeExporter(t *testing.T) {
	modes := map[string]string{"backup": "shared", "prune": "exclusive"}
	for name, file := range map[string]string{"files of their own": "REPO-OPERATION.prom", "one file": "repolock.prom", "files by operation": "OPERATION.prom"} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			s.mkdir("one", "two")
			exporter := newExporter(s)
			// run runs each job, and checks how many metrics node_exporter shows of it.
			run := func(job string, code, metrics int) {
				t.Helper()
				for operation, mode := range modes {
					var both []*process // at the same time
					for _, repository := range []string{"one", "two"} {
						path := s.path("collected/" + strings.NewReplacer("REPO", repository, "OPERATION", operation).Replace(file))
						both = append(both, s.recorded(repository, operation, path, job, fmt.Sprint("exit ", code)))
					}
					both[0].exits(code)
					both[1].exits(code)
					series, body := exporter.scrape()
					for _, repository := range []string{"one", "two"} {
						labels := fmt.Sprintf(`{lock="repository",mode="%s",operation="%s",repository="%s"}`, mode, operation, s.path(repository))
						if job != "" {
							labels = strings.Replace(labels, "{", `{job_name="`+job+`",`, 1)
						}
						own := slices.DeleteFunc(slices.Clone(series), func(name string) bool { return !strings.HasSuffix(name, labels) })
						slices.Sort(own)
						assert.That(t, len(own) == metrics && len(slices.Compact(own)) == metrics, "%d metrics of %s, want %d:\n%s", len(own), labels, metrics, body)
					}
				}
			}
			run("", 3, 15)
			run("", 0, 16)
			if name != "files of their own" { // which are of one job each
				run("home", 0, 16)
				run("", 0, 16)
			}
		})
	}
}

// TestJobNames: of two files with the same series node_exporter shows one at most and complains, as
// docs/monitoring.md says.
func TestJobNames(t *testing.T) {
	s := newSite(t)
	s.mkdir("one")
	exporter := newExporter(s)
	for _, file := range []string{"home", "etc"} {
		s.recorded("one", "backup", s.path("collected/"+file+".prom"), "", "true").exits(0)
	}
	_, body, err := exporter.get()
	assert.That(t, err == nil && strings.Count(body, "\nrepolock_held{") == 1, "%v\n%s", err, body)
	s.until("a complaint", func() bool { return exporter.complaint() != "" })
}

// TestMetricsPage: the commands of the page do what it says, and promtool accepts the rules. The
// page has each metric that repolock writes, and each alert.
func TestMetricsPage(t *testing.T) {
	p := alone(t, "monitoring.md").with("repo")
	p.touch("repo/config") // a repository that contains only locks gets a hint
	p.program("restic", `echo "restic $* $REPOLOCK_MODE"`)
	p.mkdir("collected", "packaging")
	assert.OK(t, os.CopyFS(p.path("packaging/prometheus"), os.DirFS("../packaging/prometheus")))
	blocks := p.serve("/var/lib/prometheus/node-exporter", p.path("collected"))
	const status, prune, serve, scrape, jobs, rules, audit = 0, 1, 2, 3, 4, 5, 6
	assert.Need(t, len(blocks) == 7, "%d blocks", len(blocks))
	p.each([]string{blocks[status], blocks[prune], blocks[jobs], blocks[rules], blocks[audit]},
		`no locks`, `^restic prune exclusive\n$`, `^restic backup /home shared\nrestic backup /etc shared\n$`,
		`SUCCESS: 11 rules found\n.*Unit Testing:.*SUCCESS\n`, `OUTCOME\n.*success\n$`)
	address := fmt.Sprintf("127.0.0.1:%d", running.Port(t))
	const answers = "until curl -sf http://ADDRESS/ >/dev/null; do sleep 0.05; done\n"
	server := strings.TrimSuffix(blocks[serve], "\n") + exporterFlags + "ADDRESS 2>/dev/null &\ntrap \"kill $!\" EXIT\n"
	script := strings.ReplaceAll(server+answers+blocks[scrape], "127.0.0.1:9100", "ADDRESS")
	out := strings.ReplaceAll(p.sh(strings.ReplaceAll(script, "ADDRESS", address)), noJob, "")
	for _, labels := range []string{`lock="repository",mode="exclusive",operation="prune",`, `job_name="home",lock="repository",mode="shared",operation="backup",`, `job_name="etc",lock=`} {
		p.contains(out, "repolock_last_success_timestamp_seconds{"+labels)
	}
	page := read(t, "../docs/monitoring.md")
	alerts := read(t, "../packaging/prometheus/repolock.rules.yml")
	names := regexp.MustCompile(`(?m)^repolock_\w+|alert: \w+`).FindAllString(out+alerts, -1)
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		name = strings.TrimPrefix(name, "alert: ")
		assert.That(t, strings.Contains(page, "`"+name+"`"), "the page lacks %s", name)
	}
}
