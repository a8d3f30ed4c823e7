package programs

import (
	"cmp"
	"maps"
	"net/url"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/text"
)

// isRemote reports whether rclone takes a word for a path on a remote. A word with a slash before the colon is a path,
// unless it begins with a colon.
func isRemote(word string) bool {
	if strings.HasPrefix(word, ":") {
		return true
	}
	before, _, ok := strings.Cut(word, ":")
	return ok && before != "" && !strings.Contains(before, "/") && filepath.VolumeName(word) == ""
}

// two are the commands of rclone that read one place and write another.
var two = []string{"copy", "copyto", "move", "moveto", "sync", "bisync", "check", "cryptcheck"}

// fromRemote reports whether the line is a copy from a remote into a directory. Such a restore only reads the repository.
func (l *Line) fromRemote() bool {
	words := l.words.positional
	return slices.Contains([]string{"copy", "copyto"}, l.Command.Words) && len(words) > 1 && isRemote(words[0]) && !canBeRepository(words[1])
}

// canBeRepository reports whether a word of rclone can be a repository: a remote, or a directory below one that is named
// data.
func canBeRepository(word string) bool {
	return isRemote(word) || slices.Contains(strings.Split(filepath.ToSlash(word), "/"), data)
}

// In adapts the line to the place that a person has named: a copy into a directory of that place is no restore. It must
// be called before Look.
func (l *Line) In(place string) {
	if l.restores && Contains(place, l.join(l.words.positional[1])) {
		l.restores = false
		_ = l.settle()
	}
}

// data is the name of the directory that has rclone's data. The lock is beside it.
const data = "data"

// rclonePlace: the lock is one level above the data.
func (l *Line) rclonePlace(s System) (Place, error) {
	words := l.words.positional
	if len(words) == 0 {
		return Place{}, l.unnamed("a path on the line")
	}
	where := words[0]
	l.by = "the path on rclone's line"
	if len(words) > 1 && slices.Contains(two, l.Command.Words) {
		from, to := canBeRepository(words[0]), canBeRepository(words[1])
		both := slices.Contains([]string{"move", "moveto", "bisync"}, l.Command.Words) // change both places
		switch {
		case both && from && to:
			return Place{}, fault.Advise(fault.New(fault.Usage, "rclone %s changes two places, and repolock can't know which of them is the repository", l.Command.Words), l.inWords())
		case both && from:
		case isRemote(words[1]) || !isRemote(words[0]) || l.Mode == exclusive:
			where = words[1]
		}
	}
	p, err := l.remote(s, where, 0)
	if err != nil {
		return Place{}, err
	}
	above, ok := aboveData(p.path)
	if !ok {
		return Place{}, fault.Advise(fault.New(fault.Usage, "rclone's lock must be outside of what rclone copies, and %.80q isn't below one directory that is named data", where),
			"keep the data one level below, in PLACE/data (docs/rclone.md), or name the place: repolock --repo PLACE -- "+l.title()+" …")
	}
	return p.place(above), nil
}

// aboveData returns the part of a path above its only element that is named data.
func aboveData(p string) (above string, ok bool) {
	elements := strings.Split(filepath.ToSlash(p), "/")
	at := slices.Index(elements, data)
	if at < 0 || slices.Contains(elements[at+1:], data) {
		return "", false
	}
	above = strings.Join(elements[:at], "/")
	return above, above != ""
}

// resolved is a path that a remote of rclone stands for. place returns the place of a directory above it.
type resolved struct {
	path  string // of a bucket's object it begins with the bucket
	place func(above string) Place
}

// local resolves a path of this machine.
func (l *Line) local(p string) resolved {
	p = l.join(p)
	if abs, err := filepath.Abs(p); err == nil {
		p = abs
	}
	return resolved{p, func(above string) Place { return Place{URL: above} }}
}

// remote resolves a word of rclone to a path in a store that can hold a lock.
func (l *Line) remote(s System, word string, depth int) (resolved, error) {
	if !isRemote(word) {
		return l.local(word), nil
	}
	if depth > 5 {
		return resolved{}, l.elsewhere("is a remote that names itself")
	}
	name, rest, settings, err := l.settings(s, word)
	if err != nil {
		return resolved{}, err
	}
	get := func(key string) string { return settings[key] }
	for _, r := range l.Command.Rules {
		for flag := range strings.FieldsSeq(r.Unless) {
			global := "global." + strings.ReplaceAll(flag, "-", "_")
			if get(global) != "" && l.Mode == shared && !l.restores {
				return resolved{}, fault.Advise(fault.New(fault.Usage, "the remote %.80q sets %s, so rclone can replace files", name, global), eitherWords(l.title()))
			}
		}
	}
	switch kind := get("type"); kind {
	case "alias", "crypt", "compress", "chunker", "hasher":
		inner, err := l.remote(s, get("remote"), depth+1)
		if err != nil {
			return resolved{}, err
		}
		if kind == "alias" && rest != "" {
			inner.path = strings.TrimRight(inner.path, "/") + "/" + strings.Trim(rest, "/")
		}
		return inner, nil
	case "local":
		return l.local(rest), nil
	case "sftp":
		if get("ssh") != "" || get("host") == "" {
			return resolved{}, l.elsewhere("needs rclone's own ssh")
		}
		return resolved{path.Clean(rest), func(above string) Place {
			return Place{URL: sftpURL(get("user"), get("host"), get("port"), above, "")}
		}}, nil
	case "s3":
		if err := l.s3Keys(get("access_key_id") != "" && get("env_auth") != "true", "the remote "+text.Brief(name)); err != nil {
			return resolved{}, err
		}
		parameters := url.Values{}
		if get("region") != "" {
			parameters.Set("region", get("region"))
		}
		if get("profile") != "" {
			parameters.Set("profile", get("profile"))
		}
		if get("force_path_style") == "false" {
			parameters.Set("path-style", "false")
		}
		return resolved{strings.Trim(rest, "/"), func(above string) Place {
			bucket, prefix, _ := strings.Cut(above, "/")
			return Place{URL: s3URL(strings.TrimRight(get("endpoint"), "/"), bucket, prefix, parameters)}
		}}, nil
	case "b2":
		if err := l.b2Keys(true, "the remote "+text.Brief(name)); err != nil {
			return resolved{}, err
		}
		return resolved{strings.Trim(rest, "/"), func(above string) Place {
			bucket, prefix, _ := strings.Cut(above, "/")
			return Place{URL: b2URL(bucket, prefix)}
		}}, nil
	case "":
		return resolved{}, fault.Advise(fault.New(fault.Usage, "rclone has no remote %.80q", name), "give --repo, or correct rclone's configuration")
	default:
		return resolved{}, l.elsewhere("is of the type " + text.Brief(kind))
	}
}

// settings returns a remote's name, the path after it, and its settings, in rclone's order (rclone.org/docs, Precedence):
// from the word itself, from flags, from variables of the remote and of its type, and from rclone's configuration.
func (l *Line) settings(s System, word string) (name, rest string, settings map[string]string, err error) {
	settings = map[string]string{}
	if strings.HasPrefix(word, ":") {
		name, rest, written := onTheFly(word[1:])
		if written == nil {
			return "", "", nil, fault.Advise(fault.New(fault.Usage, "%.80q isn't a path that repolock can read", word), "give --repo")
		}
		l.fromVariables(settings, typePrefix(written["type"]))
		l.fromFlags(settings, written["type"])
		maps.Copy(settings, written)
		return name, rest, settings, nil
	}
	name, rest, _ = strings.Cut(word, ":")
	if name, options, ok := strings.Cut(name, ","); ok {
		return "", "", nil, fault.Advise(fault.New(fault.Usage, "the remote %.80q has options on the line (%.80s)", name, options), "give --repo")
	}
	prefix := "RCLONE_CONFIG_" + strings.ToUpper(strings.NewReplacer("-", "_", ".", "_", " ", "_").Replace(name)) + "_"
	if _, ok := l.words.last("config"); !ok && l.home != "" && l.getenv(prefix+"TYPE") == "" && l.getenv("RCLONE_CONFIG") == "" {
		return "", "", nil, l.unnamed("--config") // the remote can be another in the configuration of another user
	}
	if l.getenv(prefix+"TYPE") == "" && s.Run != nil {
		show := []string{l.args[l.at], "config", "show", name}
		for _, flag := range []string{"config", "password-command"} {
			if value, ok := l.words.last(flag); ok {
				show = append(show, "--"+flag+"="+value)
			}
		}
		out, err := s.Run(show, l.environ.list())
		if err != nil {
			return "", "", nil, fault.Advise(fault.New(fault.Usage, "rclone config show %.80s failed: %w", name, err), "give --repo, or correct rclone's configuration")
		}
		for line := range strings.Lines(string(out)) {
			if key, value, ok := strings.Cut(line, "="); ok {
				settings[strings.TrimSpace(key)] = strings.TrimSpace(value)
			}
		}
	}
	kind := cmp.Or(l.getenv(prefix+"TYPE"), settings["type"])
	l.fromVariables(settings, typePrefix(kind))
	l.fromVariables(settings, prefix)
	l.fromFlags(settings, kind)
	settings["type"] = kind // no variable of a type changes it
	return name, rest, settings, nil
}

// typePrefix returns how the variables of a type begin.
func typePrefix(kind string) string { return "RCLONE_" + strings.ToUpper(kind) + "_" }

// fromVariables adds the settings in variables that begin with a prefix.
func (l *Line) fromVariables(settings map[string]string, prefix string) {
	for variable, value := range l.environ {
		if key, ok := strings.CutPrefix(variable, prefix); ok {
			settings[strings.ToLower(key)] = value
		}
	}
}

// fromFlags adds the settings in flags of a type.
func (l *Line) fromFlags(settings map[string]string, kind string) {
	for _, f := range l.words.flags {
		if key, ok := strings.CutPrefix(f.name, kind+"-"); ok {
			settings[strings.ReplaceAll(key, "-", "_")] = f.value
		}
	}
}

// onTheFly reads backend,key=value,key="value":path. It returns nil for a text that it can't read.
func onTheFly(word string) (name, rest string, settings map[string]string) {
	settings = map[string]string{}
	end := strings.IndexFunc(word, unquoted(':'))
	if end < 0 {
		return "", "", nil
	}
	head, rest := word[:end], word[end+1:]
	for i, field := range strings.FieldsFunc(head, unquoted(',')) {
		key, value, valued := strings.Cut(field, "=")
		switch {
		case i == 0 && !valued:
			name, settings["type"] = key, key
		case i == 0:
			return "", "", nil
		case !valued:
			settings[key] = "true"
		default:
			settings[key] = strings.Trim(value, `"'`)
		}
	}
	return name, rest, settings
}

// unquoted returns a function that reports whether the next rune of a text is the separator, outside of quotes.
func unquoted(separator rune) func(rune) bool {
	quoted := false
	return func(r rune) bool {
		if r == '"' || r == '\'' {
			quoted = !quoted
		}
		return r == separator && !quoted
	}
}
