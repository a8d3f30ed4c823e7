//go:build linux && programs && !minio

package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The secrets that must appear nowhere, and a wrong one.
const (
	redisSecret    = "rEdIs-4711-sEcReT"
	postgresSecret = "pOsTgReS-4712-sEcReT"
	wrongSecret    = "wRoNg-4713-sEcReT"
)

var secrets = []string{redisSecret, postgresSecret, wrongSecret}

// TestAlsoSecrets: redis and PostgreSQL want passwords. repolock gets them from variables or
// files, and they appear nowhere else.
func TestAlsoSecrets(t *testing.T) {
	s := newSystems(t, kindRedis, kindPostgres)
	s.redis.CLI("config", "set", "requirepass", redisSecret)
	s.pg.PSQL("create role backup login password '" + postgresSecret + "'") // by scram-sha-256, the default
	s.pg.Hosts("local all postgres trust", "host all all 127.0.0.1/32 scram-sha-256")
	s.urls[kindPostgres] = strings.Replace(s.urls[kindPostgres], "postgres@", "backup@", 1)
	s.until("PostgreSQL to want passwords", hang, func() bool {
		return s.start(append([]string{"status"}, s.also(kindPostgres)...)...).code() == 77
	})
	files := map[string]string{
		"redis.password": redisSecret + "\n",
		"passfile":       fmt.Sprintf("127.0.0.1:%d:*:backup:%s\n", s.pg.Port(), postgresSecret),
		"wrong.password": wrongSecret + "\n",
	}
	for name, content := range files {
		if err := os.WriteFile(s.path(name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	byVariables := []string{"REPOLOCK_REDIS_PASSWORD=" + redisSecret, "REPOLOCK_POSTGRES_PASSWORD=" + postgresSecret}
	byFiles := map[string]string{
		kindRedis:    s.urls[kindRedis] + "&password-file=" + s.path("redis.password"),
		kindPostgres: s.urls[kindPostgres] + "&passfile=" + s.path("passfile"),
	}
	t.Run("variables", func(t *testing.T) { s.keepsSecrets(t, byVariables, s.urls) })
	t.Run("files", func(t *testing.T) { s.keepsSecrets(t, nil, byFiles) })
	t.Run("libpq and redis-cli", func(t *testing.T) {
		// The command gets the variables of other programs, because it can be one of those.
		s.keepsSecrets(t, []string{"REDISCLI_AUTH=" + redisSecret, "PGPASSWORD=" + postgresSecret}, s.urls)
	})
	t.Run("wrong", func(t *testing.T) {
		wrong := []string{"REPOLOCK_REDIS_PASSWORD=" + wrongSecret, "REPOLOCK_POSTGRES_PASSWORD=" + wrongSecret}
		s.refusesSecrets(t, wrong, s.urls)
		s.refusesSecrets(t, nil, s.urls)
	})
	t.Run("in the URL", func(t *testing.T) {
		for _, url := range []string{
			"redis://:" + wrongSecret + "@h/0?key=k", "redis://u:" + wrongSecret + "@h/0?key=k",
			"postgres://u:" + wrongSecret + "@h/d?key=k",
			"postgres://u@h/d?key=k&password=" + wrongSecret, "redis://h/0?key=k&password=" + wrongSecret,
			"rediss://" + wrongSecret,
		} {
			for _, command := range []string{"run", "status", "doctor", "break-lock"} {
				args := []string{command, "--also", url}
				if command == "run" {
					args = append(args, "--", "true")
				}
				p := s.start(args...)
				p.exits(64)
				hasNone(t, command+" with a password in the URL", p.stderr.String())
			}
		}
	})
}

// keepsSecrets runs all commands, and looks for the secrets wherever one could be.
func (s *systems) keepsSecrets(t *testing.T, env []string, urls map[string]string) {
	before := s.env
	s.env = append(slices.Clone(env), "TEST_MARK="+t.Name())
	defer func() { s.env = before }()
	flags := []string{"--also", urls[kindRedis], "--also", urls[kindPostgres]}
	records := []string{"--audit", s.path("audit"), "--metrics-file", s.path("metrics.prom")}
	start := []string{"run", "-v", "--look", "1s"}
	command := []string{"--", "sh", "-c", "env >environment; " + ticks("work")[3]}
	p := s.start(slices.Concat(start, flags, records, command)...)
	p.ticksOn("work")

	places := 0
	check := func(what, text string) {
		t.Helper()
		if text == "" {
			t.Errorf("%s: is empty", what)
		}
		hasNone(t, what, text)
		places++
	}
	s.inArguments(t)
	if env == nil || strings.HasPrefix(env[0], "REPOLOCK_") {
		check("the command's environment", s.content("environment"))
		check("the environment of the command's process", s.environOf(s.pidIn("pid-work")))
	}
	for _, args := range [][]string{
		{"status"}, {"status", "--json"}, {"status", "-v"}, {"doctor"}, {"doctor", "--json"},
		{"break-lock", "--stale", "--yes"}, {"run", "--json", "--audit", s.path("audit"), "--", "true"},
		{"run", "-v", "--wait", "1s", "--", "true"}, {"run", "--dry-run", "--", "true"},
	} {
		at := len(args)
		if i := slices.Index(args, "--"); i >= 0 {
			at = i
		}
		q := s.start(slices.Concat(args[:at], flags, args[at:])...)
		code := q.code()
		if !slices.Contains([]int{0, 1, 75}, code) {
			t.Errorf("%v: exit code %d: %s", args, code, q.stderr.String())
		}
		check(strings.Join(args, " "), q.stderr.String()+".")
	}
	s.touch("stop-work")
	p.exits(0)
	_ = os.Remove(s.path("stop-work"))
	check("stderr with -v", p.stderr.String())
	check("the audit log", s.content("audit"))
	check("the metrics", s.content("metrics.prom"))
	history := s.start("history", s.path("audit"))
	history.exits(0)
	check("history", history.stderr.String())
	for _, command := range []string{"run", "acquire", "status", "doctor", "break-lock"} {
		check(command+" --help", s.said(command, "--help"))
	}
	s.inKeeper(t, flags)
	t.Logf("%d places have no secret; status says: %s", places+2, s.said(append([]string{"status"}, flags...)...))
}

// inKeeper looks for the secrets in what acquire prints, and in the keeper's arguments.
func (s *systems) inKeeper(t *testing.T, flags []string) {
	acquire := []string{"acquire", "--exclusive", "--json", "--for-pid", fmt.Sprint(os.Getpid()), "--log", s.path("log")}
	out := s.said(slices.Concat(acquire, flags)...)
	hasNone(t, "acquire --json", out)
	var holding struct{ Token string }
	if err := json.Unmarshal([]byte(out), &holding); err != nil {
		t.Fatalf("acquire: %v: %s", err, out)
	}
	s.inArguments(t)
	s.env = append(s.env, "REPOLOCK_TOKEN="+holding.Token)
	for _, command := range []string{"check", "renew", "release"} {
		p := s.start(command, "--json")
		p.exits(0)
		hasNone(t, command+" --json", p.stderr.String())
	}
	hasNone(t, "the keeper's log", s.content("log"))
}

// refusesSecrets checks what commands say about passwords that are wrong or missing.
func (s *systems) refusesSecrets(t *testing.T, env []string, urls map[string]string) {
	before := s.env
	s.env = env
	defer func() { s.env = before }()
	for _, kind := range []string{kindRedis, kindPostgres} {
		for _, args := range [][]string{
			{"run", "-v", "--", "touch", "ran"}, {"run", "--json", "--", "touch", "ran"}, {"status"}, {"doctor"},
			{"break-lock", "--yes"}, {"run", "--if-unreachable", "run", "--", "touch", "ran"},
		} {
			p := s.start(slices.Concat(args[:1], []string{"--also", urls[kind]}, args[1:])...)
			p.exits(77)
			hasNone(t, strings.Join(args, " "), p.stderr.String())
			if said := p.stderr.String(); args[0] == "run" && args[1] == "-v" {
				t.Logf("%s: %s", kind, said)
			}
		}
	}
	if s.exists("ran") {
		t.Error("a command ran")
	}
}

func hasNone(t *testing.T, what, text string) {
	t.Helper()
	for _, secret := range secrets {
		if before, _, found := strings.Cut(text, secret); found {
			t.Errorf("%s: has a secret after %q", what, before[max(0, len(before)-60):])
		}
	}
}

// inArguments looks for the secrets in the arguments of all processes.
func (s *systems) inArguments(t *testing.T) {
	t.Helper()
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range all {
		args, _ := os.ReadFile(path) // it can be gone
		hasNone(t, path, string(bytes.ReplaceAll(args, []byte{0}, []byte{' '})))
	}
}

func (s *systems) environOf(pid int) string {
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		s.t.Fatal(err)
	}
	return string(env)
}

func (s *systems) content(name string) string {
	raw, err := os.ReadFile(s.path(name))
	if err != nil {
		s.t.Fatal(err)
	}
	return string(raw)
}

// said returns what a command prints.
func (s *systems) said(args ...string) string {
	p := s.start(args...)
	p.exits(0)
	return p.stderr.String()
}
