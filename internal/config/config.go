// Package config reads the file that names repositories and has defaults for flags. What
// the repositories and the flags are is for others to know.
package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/repolock/repolock/internal/regular"
)

// File is what a configuration file says.
type File struct {
	Path         string                `toml:"-"`
	Repo         string                `toml:"repo"`
	Defaults     Flags                 `toml:"defaults"`
	Repositories map[string]Repository `toml:"repositories"`
}

// Repository has a name, that it is listed under.
type Repository struct {
	URL  string `toml:"url"`
	Name string `toml:"name"` // of the lock
	Flags
}

// Flags are those that have a default in the file, by their names.
type Flags struct {
	TTL           *string           `toml:"ttl"`
	Look          *string           `toml:"look"`
	Wait          *string           `toml:"wait"`
	IfHeld        *string           `toml:"if-held"`
	IfUnreachable *string           `toml:"if-unreachable"`
	OnLost        *string           `toml:"on-lost"`
	ResumeFor     *string           `toml:"resume-for"`
	Audit         *string           `toml:"audit"`
	MetricsFile   *string           `toml:"metrics-file"`
	HeldExitCode  *int64            `toml:"held-exit-code"`
	Metadata      map[string]string `toml:"metadata"`
}

// Each calls f with the name and the value of each flag that is there.
func (f Flags) Each(do func(name string, value any)) {
	v := reflect.ValueOf(f)
	for i := range v.NumField() {
		field := v.Field(i)
		if field.IsNil() {
			continue
		}
		if field.Kind() == reflect.Pointer {
			field = field.Elem()
		}
		do(v.Type().Field(i).Tag.Get("toml"), field.Interface())
	}
}

// maxSize is far more than a file needs.
const maxSize = 1 << 20

// Load reads a regular file. Nobody but its owner, who is root or us, may be able to change it,
// or a folder or a link on the way to it: it says which lock is taken. Errors show no value of it, which may be a secret.
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
	}
	file := &File{Path: path}
	if err := toml.NewDecoder(bytes.NewReader(text)).DisallowUnknownFields().Decode(file); err != nil {
		return nil, explain(path, err)
	}
	return file, spelled(path, text)
}

// spelled refuses keys in other letters than the documentation's, for which the library
// doesn't care: who has url and URL would get one of them.
func spelled(path string, text []byte) error {
	var all struct {
		Defaults     map[string]any            `toml:"defaults"`
		Repositories map[string]map[string]any `toml:"repositories"`
	}
	var top map[string]any
	if err := errors.Join(toml.Unmarshal(text, &top), toml.Unmarshal(text, &all)); err != nil {
		return fmt.Errorf("%s: can't be read twice", path)
	}
	tables := map[string]map[string]any{"": top, "defaults.": all.Defaults}
	for name, table := range all.Repositories {
		tables["repositories."+name+"."] = table
	}
	for prefix, table := range tables {
		for key := range table {
			if strings.ToLower(key) != key {
				return fmt.Errorf("%s: unknown key %.80q: keys are in lower case", path, prefix+key)
			}
		}
	}
	return nil
}

// explain says where in the file an error is.
func explain(path string, err error) error {
	var strict *toml.StrictMissingError
	if errors.As(err, &strict) {
		e := &strict.Errors[0]
		line, _ := e.Position()
		key := strings.Join(e.Key(), ".")
		if Secret(key) {
			return fmt.Errorf("%s:%d: %.80q: credentials don't belong in this file; give them by the environment or by an AWS profile (profile= in the URL)", path, line, key)
		}
		return fmt.Errorf("%s:%d: unknown key %.80q", path, line, key)
	}
	text := strings.TrimPrefix(err.Error(), "toml: ")
	var decode *toml.DecodeError
	if !errors.As(err, &decode) {
		return fmt.Errorf("%s: %s", path, text)
	}
	line, column := decode.Position()
	if strings.HasPrefix(text, "cannot ") { // and goes on in Go's words
		switch {
		case strings.HasSuffix(text, "int64"):
			text = "must be a whole number"
		case strings.HasSuffix(text, " string"):
			text = "must be a text in quotes"
		default:
			text = "must be a table"
		}
	}
	if key := strings.Join(decode.Key(), "."); key != "" {
		text = fmt.Sprintf("%.80q: %s", key, text)
	}
	return fmt.Errorf("%s:%d:%d: %s", path, line, column, text)
}

var secret = regexp.MustCompile(`(?i)passw|secret|credential|token|private|(api|access|application)[-_.]?key`)

// Secret reports whether a name smells of credentials.
func Secret(name string) bool { return secret.MatchString(name) }
