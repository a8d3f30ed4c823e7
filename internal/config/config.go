// Package config reads the configuration file, which names repositories and sets defaults of flags. It checks neither
// URLs nor values.
package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"

	"github.com/repolock/repolock/internal/lazyregexp"
	"github.com/repolock/repolock/internal/regular"
)

// File is a configuration file that Load has read.
type File struct {
	Path         string                `toml:"-"`            // of the file
	Repo         string                `toml:"repo"`         // the default of --repo
	Defaults     Flags                 `toml:"defaults"`     // for all repositories
	Repositories map[string]Repository `toml:"repositories"` // by the names that --repo accepts

	text []byte
}

// Line returns the line of a key. If the file doesn't have the key, it returns the line of the closest table around it.
func (f *File) Line(key ...string) int {
	var p unstable.Parser
	var table []string
	line, longest := 1, 0
	for p.Reset(f.text); p.NextExpression(); {
		e := p.Expression()
		var names []string
		at := 0
		for it := e.Key(); it.Next(); {
			names = append(names, string(it.Node().Data))
			at = p.Shape(it.Node().Raw).Start.Line
		}
		if e.Kind == unstable.KeyValue {
			names = slices.Concat(table, names)
		} else {
			table = names
		}
		if n := len(names); n > longest && n <= len(key) && slices.Equal(names, key[:n]) {
			line, longest = at, n
		}
	}
	return line
}

// Repository is a repository that the file names.
type Repository struct {
	URL    string `toml:"url"`  // of the repository
	Name   string `toml:"name"` // name of its lock
	SSE    string `toml:"sse"`  // parameters of an s3: or minio: URL, which Load adds to URL
	SSEKey string `toml:"sse-key"`
	ACL    string `toml:"acl"`
	Flags
}

// Flags are defaults of flags. A flag that isn't in the file is nil.
type Flags struct {
	TTL           *string           `toml:"ttl"`
	Look          *string           `toml:"look"`
	Wait          *string           `toml:"wait"`
	IfHeld        *string           `toml:"if-held"`
	IfUnreachable *string           `toml:"if-unreachable"`
	OnLost        *string           `toml:"on-lost"`
	Beside        *string           `toml:"beside"`
	ResumeFor     *string           `toml:"resume-for"`
	Audit         *string           `toml:"audit"`
	MetricsFile   *string           `toml:"metrics-file"`
	HeldExitCode  *int64            `toml:"held-exit-code"`
	NoUnlock      *bool             `toml:"no-unlock"`
	Metadata      map[string]string `toml:"metadata"`
}

// Values returns the values that are in the file, by the names of the flags, in types that Kong accepts.
func (f Flags) Values() map[string]any {
	values := map[string]any{}
	for field, v := range reflect.ValueOf(f).Fields() {
		name := field.Tag.Get("toml")
		switch {
		case v.IsNil():
		case v.Kind() == reflect.Pointer:
			values[name] = v.Elem().Interface()
		default:
			table := map[string]any{}
			for key, value := range f.Metadata {
				table[key] = value
			}
			values[name] = table
		}
	}
	return values
}

// maxSize is the largest size of the file, in bytes.
const maxSize = 1 << 20

// Load reads a regular file. It refuses the file if other users, except for root, can change the file, or a folder or a
// link on the way to it, because the file decides which lock is acquired. Its errors contain no value of the file,
// because a value might be a secret.
func Load(path string) (*File, error) {
	f, err := regular.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := trusted(f, path); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	switch {
	case err != nil:
		return nil, err
	case len(text) > maxSize:
		return nil, fmt.Errorf("%s: is larger than a configuration file can be", path)
	case bytes.HasPrefix(text, []byte("\ufeff")):
		return nil, fmt.Errorf("%s: begins with a byte order mark, as some editors write: save it as UTF-8 without one", path)
	}
	file := &File{Path: path, text: text}
	if err := toml.NewDecoder(bytes.NewReader(text)).DisallowUnknownFields().Decode(file); err != nil {
		return nil, explain(path, text, err)
	}
	for name, r := range file.Repositories {
		r.URL = r.whole()
		file.Repositories[name] = r
	}
	return file, file.spelled()
}

// whole returns the URL with the parameters that have keys of their own.
func (r Repository) whole() string {
	for _, p := range []struct{ name, value string }{{"sse", r.SSE}, {"sse-key", r.SSEKey}, {"acl", r.ACL}} {
		if p.value == "" {
			continue
		}
		separator := "?"
		if strings.Contains(r.URL, "?") {
			separator = "&"
		}
		r.URL += separator + p.name + "=" + url.QueryEscape(p.value)
	}
	return r.URL
}

// spelled refuses keys with capital letters. The library ignores case. If a file had both url and URL, it would use
// either of them.
func (f *File) spelled() error {
	var all map[string]any
	if err := toml.Unmarshal(f.text, &all); err != nil {
		return fmt.Errorf("%s: can't be parsed again", f.Path)
	}
	check := func(table any, path ...string) error {
		keys, _ := table.(map[string]any)
		for key := range keys {
			if path := append(path, key); strings.ToLower(key) != key {
				return fmt.Errorf("%s:%d: unknown key %.80q: keys are in lower case", f.Path, f.Line(path...), strings.Join(path, "."))
			}
		}
		return nil
	}
	err := cmp.Or(check(all), check(all["defaults"], "defaults"))
	repositories, _ := all["repositories"].(map[string]any)
	for name, table := range repositories {
		err = cmp.Or(err, check(table, "repositories", name))
	}
	return err
}

// explain returns an error of the library in our words, with the line and the key.
func explain(path string, text []byte, err error) error {
	var strict *toml.StrictMissingError
	if errors.As(err, &strict) {
		e := &strict.Errors[0]
		line, _ := e.Position()
		key := strings.Join(e.Key(), ".")
		if Secret(key) {
			return fmt.Errorf("%s:%d: %.80q: credentials don't belong in this file; set them in the environment, or in an AWS profile (profile= in the URL)", path, line, key)
		}
		if table, _, _ := strings.Cut(key, "."); table == "locking" { // bext's configuration file has it
			return fmt.Errorf("%s:%d: unknown key %q: a lock of another system is named on the command line, as --also 'redis://HOST/0?key=KEY': docs/also.md", path, line, table)
		}
		return fmt.Errorf("%s:%d: unknown key %.80q", path, line, key)
	}
	says := strings.TrimPrefix(err.Error(), "toml: ") // the library has its message in no field
	var decode *toml.DecodeError
	if !errors.As(err, &decode) {
		return fmt.Errorf("%s: %s", path, says)
	}
	line, column := decode.Position()
	var all map[string]any
	if toml.Unmarshal(text, &all) == nil || strings.HasPrefix(says, "cannot ") { // the message names a type of Go
		says = wanted(decode.Key(), all)
	}
	if key := strings.Join(decode.Key(), "."); key != "" {
		says = fmt.Sprintf("%.80q: %s", key, says)
	}
	return fmt.Errorf("%s:%d:%d: %s", path, line, column, says)
}

// wanted describes the values that a key can have. file is the parsed file. If the key must be a table and is one,
// wanted describes the values that can be in the table.
func wanted(key []string, file any) string {
	t, value := reflect.TypeFor[File](), file
	for _, name := range key {
		table, _ := value.(map[string]any)
		value = table[name]
		switch t.Kind() {
		case reflect.Map:
			t = t.Elem()
		case reflect.Struct:
			for _, field := range reflect.VisibleFields(t) {
				if strings.EqualFold(field.Tag.Get("toml"), name) {
					t = field.Type
					break
				}
			}
		}
		if t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
	}
	if _, isTable := value.(map[string]any); isTable && t.Kind() == reflect.Map {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Int64:
		return "must be a whole number"
	case reflect.Bool:
		return "must be true or false"
	case reflect.String:
		return "must be a text in quotes"
	default:
		return "must be a table"
	}
}

var secret = lazyregexp.New(`(?i)passw|secret|credential|token|private|(api|access|application)[-_.]?key`)

// Secret reports whether a name looks like the name of a credential.
func Secret(name string) bool { return secret.MatchString(name) }

// Places returns the paths that Find tries, in their order: the file in $XDG_CONFIG_HOME or the system's equivalent,
// and then the file for all users if the system has one.
func Places() []string {
	var places []string
	if dir, err := os.UserConfigDir(); err == nil {
		places = append(places, filepath.Join(dir, "repolock", "config.toml"))
	}
	return append(places, system...)
}

// System returns the path of the file for all users, if the system has one.
func System() []string { return system }

// Find returns the first existing file of Places, or "". A broken link or an unreadable file counts as existing,
// because the next file could name another lock.
func Find() string {
	for _, path := range Places() {
		if _, err := os.Lstat(path); !missing(path, err) {
			return path
		}
	}
	return ""
}

// missing reports whether an error means that there is no file. It also does so if the home isn't a directory or isn't
// ours (su keeps HOME), and if we can't read the folder of the file for all users.
func missing(path string, err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, fs.ErrPermission) && !forUs(path)
}

// forUs reports whether an unreadable path is below a home that we can read. Then the file is this user's, and repolock
// must not use the next file instead.
func forUs(path string) bool {
	if slices.Contains(system, path) {
		return false
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return false
	}
	_, err = os.Lstat(filepath.Join(home, ".config"))
	return !errors.Is(err, fs.ErrPermission)
}
