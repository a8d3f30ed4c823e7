package programs

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mattn/go-shellwords"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store/open"
)

var update = flag.Bool("update", false, "write what the table makes of the lines into testdata/lines.txt")

// machine has the files and the remotes that the lines name.
var machine = System{
	Settings: "/home/user/.config",
	ReadFile: func(path string) ([]byte, error) {
		content, ok := map[string]string{
			"/etc/restic/repo":                           "sftp:nas:/srv/restic\n",
			"/etc/restic/empty":                          "\n",
			"/home/user/.config/kopia/repository.config": `{"storage":{"type":"filesystem","config":{"path":"/srv/kopia"}}}`,
			"/etc/kopia/s3.config":                       `{"storage":{"type":"s3","config":{"bucket":"bucket","prefix":"kopia/","endpoint":"minio:9000","doNotUseTLS":true,"accessKeyID":"k"}}}`,
			"/etc/kopia/sftp.config":                     `{"storage":{"type":"sftp","config":{"path":"/srv/kopia","host":"nas","port":22,"username":"backup"}}}`,
			"/etc/kopia/b2.config":                       `{"storage":{"type":"b2","config":{"bucket":"bucket","prefix":"","keyID":"k"}}}`,
			"/etc/kopia/webdav.config":                   `{"storage":{"type":"webdav","config":{}}}`,
			"/etc/kopia/server.config":                   `{"apiServer":{"url":"https://x"}}`,
		}[path]
		if !ok {
			return nil, fs.ErrNotExist
		}
		return []byte(content), nil
	},
	IsDir: func(path string) bool { return path == "/srv/pictures" || path == "/srv/a" },
	Run: func(args, _ []string) ([]byte, error) {
		return []byte(map[string]string{
			"remote": "[remote]\ntype = s3\nprovider = Other\nenv_auth = true\nendpoint = https://minio.example.com\n",
			"glob":   "[glob]\ntype = s3\nenv_auth = true\nglobal.copy_dest = old:\n",
			"s3":     "[s3]\ntype = s3\nprovider = AWS\nenv_auth = true\nregion = eu-west-1\n",
			"r2":     "[r2]\ntype = s3\nprovider = Cloudflare\naccess_key_id = k\nendpoint = https://account.r2.cloudflarestorage.com\n",
			"alias":  "[alias]\ntype = alias\nremote = s3:bucket/nightly/data\n",
			"crypt":  "[crypt]\ntype = crypt\nremote = alias:\npassword = secret\n",
			"b2":     "[b2]\ntype = b2\naccount = a\nkey = secret\n",
			"drive":  "[drive]\ntype = drive\n",
			"sftp":   "[sftp]\ntype = sftp\nhost = nas\nuser = backup\nport = 2222\n",
		}[args[3]]), nil
	},
}

// verdict is what repolock makes of a line, in words.
func verdict(args, env []string) string {
	l, err := Read(args, env)
	said := func(err error) string {
		return fmt.Sprintf("refused: %v\n  hint: %s", err, fault.Expand(fault.Advice(err), nil))
	}
	if err != nil {
		return said(err)
	}
	l.Look(machine)
	mode := "none"
	if l.Mode != None {
		mode = l.Mode.String()
	}
	out := mode + " " + l.Operation
	if l.Least != l.Mode {
		out += " (at least " + l.Least.String() + ")"
	}
	if l.Mode == None {
		return out
	}
	place, err := l.Place(machine)
	if err != nil {
		return out + ", no place: " + strings.TrimPrefix(said(err), "refused: ")
	}
	out += ", in " + place.URL
	if place.Name != "" {
		out += ", named " + place.Name
	}
	if len(place.Environ) > 0 {
		out += ", with " + strings.Join(place.Environ, " ")
	}
	if unlock := l.Unlock(); unlock != nil {
		out += "\n  after " + strings.Join(unlock, " ")
	}
	return out
}

// TestLines: testdata/lines.txt has command lines, and what repolock makes of each. With -update the file is written
// anew: read it as a person whose backup depends on it.
func TestLines(t *testing.T) {
	const golden = "testdata/lines.txt"
	file, err := os.ReadFile(golden)
	assert.OK(t, err)
	var got strings.Builder
	seen := map[string]bool{}
	for line := range strings.Lines(string(file)) {
		line = strings.TrimSuffix(line, "\n")
		typed, ok := strings.CutPrefix(line, "$ ")
		if !ok {
			if strings.HasPrefix(line, "#") {
				fmt.Fprintf(&got, "%s\n", line)
				if !strings.HasSuffix(line, "operation") {
					fmt.Fprintln(&got)
				}
			}
			continue
		}
		assert.That(t, !seen[typed], "twice: %s", typed)
		seen[typed] = true
		args, err := shellwords.Parse(typed)
		assert.Need(t, err == nil, "%s: %v", typed, err)
		env := []string{"HOME=/home/user"}
		for len(args) > 0 && setting.MatchString(args[0]) {
			env, args = append(env, args[0]), args[1:]
		}
		fmt.Fprintf(&got, "$ %s\n  %s\n\n", typed, verdict(args, env))
	}
	assert.That(t, len(seen) >= 150, "%d lines, and not 150", len(seen))
	text := strings.TrimSuffix(got.String(), "\n")
	assert.That(t, !strings.Contains(strings.ReplaceAll(text, "secret.txt", ""), "secret"), "a secret is printed")
	if *update {
		assert.OK(t, os.WriteFile(golden, []byte(text), 0o644))
		return
	}
	assert.Equal(t, cmp.Diff(string(file), text), "", "-%s +what the table makes of it", golden)
}

// TestSpellings: all names of one repository come to one place, and a URL of repolock for it is the same place. Two
// machines that lock in two places exclude nothing.
func TestSpellings(t *testing.T) {
	for place, lines := range map[string][]string{
		"/srv/r":                                 {"restic -r /srv/r", "restic -r /srv/r/", "restic -r local:/srv/r", "restic -r /srv/x/../r", "restic -r //srv/r", "env -C /srv restic -r r", "rustic -r local:/srv/r"},
		"s3://bucket/p":                          {"restic -r s3:s3.amazonaws.com/bucket/p", "restic -r s3:https://s3.amazonaws.com/bucket/p/", "restic -r s3://s3.amazonaws.com/bucket/p", "restic -r s3:s3.eu-west-1.amazonaws.com/bucket/p", "restic -r s3:https://s3.amazonaws.com:443/bucket/p", "restic -o s3.region=eu-west-1 -r s3:s3.amazonaws.com/bucket//p"},
		"s3://bucket?endpoint=https://host:9000": {"restic -r s3:https://host:9000/bucket", "restic -r s3:host:9000/bucket/", "restic -r s3:https://HOST:9000/bucket", "restic -o s3.bucket-lookup=path -r s3:https://host:9000/bucket"},
		"s3://bucket?endpoint=https://host":      {"restic -r s3:https://host:443/bucket", "restic -r s3:host/bucket/", "restic -r s3://HOST/bucket"},
		"s3://bucket?endpoint=https://host:443":  {"restic -r s3:https://host/bucket"},
		"s3://bucket?endpoint=http://host":       {"restic -r s3:http://host:80/bucket"},
		"s3://bucket/nightly":                    {"rclone s3:bucket/nightly/data", "rclone s3:bucket/nightly/data/x/", "rclone alias:", "rclone alias:pictures", "rclone crypt:x"},
		"sftp://backup@nas:2222//srv/backups":    {"rclone sftp:/srv/backups/data", "rclone :sftp,host=nas,user=backup,port=2222:/srv/backups/data/x"},
		"/srv/backups":                           {"rclone /srv/backups/data", "rclone /srv/x/../backups/data/a/", "env -C /srv rclone backups/data"},
		"/srv/kopia-lock":                        {"kopia", "kopia --config-file=/home/user/.config/kopia/repository.config", "env KOPIA_CONFIG_PATH=/home/user/.config/kopia/repository.config kopia"},
		"minio://host:9000/bucket/p":             {"restic -r s3:https://host:9000/bucket/p"},
		"minio://host:9000/bucket?tls=false":     {"restic -r s3:http://host:9000/bucket"},
		"b2://bucket/a/b":                        {"restic -r b2:bucket:a/b", "restic -r b2:bucket:/a/b/"},
		"b2://bucket":                            {"restic -r b2:bucket", "restic -r b2:bucket:", "restic -r b2:bucket:/"},
		"sftp://user@host/srv":                   {"restic -r sftp:user@host:srv", "restic -r sftp://user@host/srv", "restic -r sftp://user@host:22/srv/", "restic -r sftp:user@host:./srv"},
		"sftp://user@host//srv":                  {"restic -r sftp:user@host:/srv", "restic -r sftp://user@host//srv", "restic -r sftp:user@HOST:/srv/"},
		"sftp://host:2222//srv/b-lock":           {"borg --repo ssh://host:2222/srv/b", "borg --repo ssh://host:2222/srv/b/"},
		"sftp://u@host/b-lock":                   {"borg --repo ssh://u@host/./b", "borg --repo ssh://u@host/~/b", "borg --repo u@host:b", "borg --repo u@host:~/b"},
		"/srv/b-lock":                            {"borg --repo /srv/b", "borg --repo /srv/b/", "borg --repo file:///srv/b", "env BORG_REPO=/srv/b borg", "env BORG_REPO=/srv/b::a borg"},
		"s3://b/p":                               {"cloudstic -store s3:b/p", "cloudstic --store=s3:b/p/", "env CLOUDSTIC_STORE=s3:b/p cloudstic"},
	} {
		assert.Is(t, open.Check(place), nil, "%s", place)
		for _, line := range lines {
			args, err := shellwords.Parse(line)
			assert.OK(t, err)
			program := slices.IndexFunc(args, func(w string) bool { return Find(w) != nil })
			command, other := map[string][]string{"rclone": {"sync", "/x"}, "kopia": {"maintenance", "run"}}[args[program]]
			if !other {
				command = []string{"prune"}
			}
			args = slices.Insert(args, program+1, command...)
			l, err := Read(args, nil)
			assert.Need(t, err == nil, "%s: %v", line, err)
			p, err := l.Place(machine)
			assert.That(t, err == nil && Same(p.URL, place), "%s: in %s, and not in %s: %v", line, p.URL, place, err)
			assert.That(t, Contains(place, p.URL) && !Contains(place+"x", p.URL), "%s: %s doesn't contain %s", line, place, p.URL)
		}
	}
	for _, two := range [][2]string{{"/srv/a", "/srv/ab"}, {"s3://b/p", "s3://b/p?endpoint=https://host"}, {"sftp://host/srv", "sftp://host//srv"}, {"b2://b/p", "s3://b/p"}} {
		assert.That(t, !Same(two[0], two[1]) && !Contains(two[0], two[1]), "%s is %s", two[0], two[1])
	}
}

// TestWeak: a mode that the table knows to be too weak is refused, with the line to type. What the table doesn't know is
// the person's word.
func TestWeak(t *testing.T) {
	for line, refused := range map[string]bool{
		"restic prune": true, "restic -r x forget --keep-last 3": true, "nice restic check": true, "borg create ::a /": true,
		"kopia maintenance run": true, "rclone sync a b:": true, "rustic prune": true, "cloudstic forget -prune": true,
		"restic forget --unknown": true, "restic --unknown prune": false, "restic prune --dry-run": false, "restic prune --unknown --dry-run": true,
		"restic backup /": false, "restic snapshots": false, "rclone copy a b:": false, "sh -c 'restic prune'": false, "touch x": false, "borg mount x": false,
		"restic copy": false, "restic prune --help": false, "rclone moveto a: b": true, "rclone copy --rc a b:": true, "rclone bisync a b:": true,
		"kopia snapshot create x": true, "kopia snapshot create x --no-auto-maintenance": false, "kopia policy set --global": true,
		"rustic snapshots -i": true, "cloudstic forget -dry-run id": true,
	} {
		args, err := shellwords.Parse(line)
		assert.OK(t, err)
		err = Weak(args, nil, replock.Shared, "backup")
		assert.That(t, (err != nil) == refused, "%s: %v", line, err)
		assert.Is(t, Weak(args, nil, replock.Exclusive, "prune"), nil, "%s", line)
	}
	err := Weak([]string{"restic", "prune"}, nil, replock.Shared, "backup")
	assert.Equal(t, err.Error(), "restic prune needs the exclusive lock, and repolock backup takes a shared one")
	assert.Equal(t, fault.Expand(fault.Advice(err), nil), "write repolock -- restic prune …, or repolock run --exclusive -- restic prune …")
	err = Weak([]string{"kopia", "snapshot", "create", "x"}, nil, replock.Shared, "backup")
	assert.Equal(t, fault.Expand(fault.Advice(err), nil), "write repolock -- kopia snapshot create …, or repolock run --exclusive -- kopia snapshot create …, or add --no-auto-maintenance: with it a shared lock is enough")
}

// TestTable: no command is there twice, each flag of a rule is one of the program's, and no letter stands for two flags.
func TestTable(t *testing.T) {
	for _, p := range All {
		var names []string
		for _, c := range p.Commands {
			assert.That(t, !slices.Contains(names, c.Words), "%s %s: twice", p.Name, c.Words)
			names = append(names, c.Words)
			known := flagSet(p.flags, c.flags)
			for _, r := range slices.Concat(c.Rules, p.rules) {
				assert.That(t, known[r.Flag].name == r.Flag && !known[r.Flag].valued, "%s %s: no flag %s without a value", p.Name, c.Words, r.Flag)
				for flag := range strings.FieldsSeq(r.Unless) {
					assert.That(t, known[flag].name == flag, "%s %s: no flag %s", p.Name, c.Words, flag)
				}
			}
			assert.That(t, c.Least <= c.Mode, "%s %s: the weakest mode is stronger", p.Name, c.Words)
		}
		letters := map[string]string{}
		for word := range strings.FieldsSeq(p.flags) {
			long, short, ok := strings.Cut(strings.TrimSuffix(word, "="), ",")
			if ok {
				other := letters[short]
				assert.That(t, other == "" || short == "v", "%s: -%s is %s and %s", p.Name, short, long, other)
				letters[short] = long
			}
			assert.That(t, strings.Trim(long, "abcdefghijklmnopqrstuvwxyz0123456789-.") == "", "%s: %q", p.Name, word)
		}
		assert.Is(t, assert.Err(os.Stat(filepath.Join("../../../docs", p.Page))), nil, "%s", p.Name)
	}
}

var code = regexp.MustCompile("`([^`]+)`")

// TestPages: the table of each program's page has the program's commands, and no others, each with its lock.
func TestPages(t *testing.T) {
	for _, p := range All {
		page, err := os.ReadFile(filepath.Join("../../../docs", p.Page))
		assert.OK(t, err)
		_, table, ok := strings.Cut(string(page), "'s command | lock |\n|---|---|\n")
		if p == rustic {
			_, table, ok = strings.Cut(string(page), "| rustic's command | lock |\n|---|---|\n")
		}
		assert.Need(t, ok, "docs/%s has no table of the commands of %s", p.Page, p.Name)
		table, _, _ = strings.Cut(table, "\n\n")
		found := map[string]bool{}
		for row := range strings.Lines(table) {
			cells := strings.Split(row, "|")
			assert.Need(t, len(cells) >= 4, "%q is no row", row)
			says, _, _ := strings.Cut(strings.Trim(strings.TrimSpace(cells[2]), ":"), " ")
			says = strings.Trim(says, ".,;:")
			for _, m := range code.FindAllStringSubmatch(cells[1], -1) {
				words := strings.Fields(m[1])
				if strings.HasPrefix(words[0], "-") {
					continue
				}
				if strings.Contains(cells[1], "from a remote") {
					words = append(words, "remote:x", "x")
				}
				l, err := Read(append([]string{p.Name}, words...), nil)
				assert.Need(t, l.Command != nil, "docs/%s: %s has no command %s", p.Page, p.Name, m[1])
				found[l.Command.Words] = true
				mode := "none"
				switch {
				case err != nil:
					mode = "isn't"
				case l.Mode != None:
					mode = l.Mode.String()
				}
				assert.That(t, mode == says, "docs/%s: %s: %s, and on the page %s", p.Page, m[1], mode, says)
			}
		}
		for _, c := range p.Commands {
			assert.That(t, found[c.Words], "docs/%s lacks %s", p.Page, c.Words)
		}
	}
}
