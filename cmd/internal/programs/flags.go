package programs

import (
	"slices"
	"strings"
)

// syntax is how a program reads its flags.
type syntax struct {
	oneDash bool // a long flag can have one dash, and there are no short ones, as in Go's package flag
	negated bool // --no-x is the opposite of the flag --x that takes no value, as in kingpin
	files   bool // @FILE stands for the words in a file, as in kingpin
}

// flagSet parses the text of a table into flags: "repo,r=" is --repo, or -r, with a value; "quiet,q" has none, and
// ",i=" is a short flag alone. The key of a short flag has one dash: "-r".
func flagSet(specs ...string) map[string]flagSpec {
	all := map[string]flagSpec{}
	for _, spec := range specs {
		for word := range strings.FieldsSeq(spec) {
			word, valued := strings.CutSuffix(word, "=")
			long, short, _ := strings.Cut(word, ",")
			f := flagSpec{long, valued}
			if long == "" {
				f.name = "-" + short
			} else {
				all[long] = f
			}
			if short != "" {
				all["-"+short] = f
			}
		}
	}
	return all
}

type flagSpec struct {
	name   string // long, or with its dash if it has no long name
	valued bool
}

// usedFlag is a flag of a command line. A flag that takes no value has the value "true", unless the line gives another.
type usedFlag struct{ name, value string }

// parsed are the words of a command line after the program's name.
type parsed struct {
	command    *Command // nil: it isn't known
	flags      []usedFlag
	positional []string // after the command
	unknown    string   // the first flag that isn't known
}

// has reports whether a flag is set that takes no value. If it is given twice, both must agree: a rule for a flag weakens
// a mode, so in doubt the flag isn't set.
func (w parsed) has(name string) bool {
	found := false
	for _, f := range w.flags {
		if f.name == name {
			if slices.Contains([]string{"false", "False", "FALSE", "f", "F", "0"}, f.value) {
				return false
			}
			found = true
		}
	}
	return found
}

// off reports whether a flag that takes no value is switched off, as by --no-x, and never on.
func (w parsed) off(name string) bool {
	values := w.all(name)
	return len(values) > 0 && !slices.ContainsFunc(values, func(value string) bool { return value != "false" })
}

// last returns the last value of a flag.
func (w parsed) last(name string) (value string, ok bool) {
	for _, f := range w.flags {
		if f.name == name {
			value, ok = f.value, true
		}
	}
	return value, ok
}

// all returns all values of a flag.
func (w parsed) all(name string) (values []string) {
	for _, f := range w.flags {
		if f.name == name {
			values = append(values, f.value)
		}
	}
	return values
}

// parse reads the words after the program's name. Flags and arguments can alternate.
func (p *Program) parse(words []string) parsed {
	var w parsed
	known := flagSet(p.flags)
	var heads []string // the arguments that can be the command's name
	argument := func(word string) {
		if w.unknown != "" && w.command == nil {
			return // the word can be the value of the unknown flag
		}
		heads = append(heads, word)
		w.positional = append(w.positional, word)
		if c := p.match(heads); c != nil && c != w.command {
			w.command = c
			known = flagSet(p.flags, c.flags)
			w.positional = heads[len(strings.Fields(c.Words)):]
		}
	}
	use := func(f flagSpec, value string) { w.flags = append(w.flags, usedFlag{f.name, value}) }
	unknown := func(word string) {
		if w.unknown == "" {
			w.unknown, _, _ = strings.Cut(word, "=")
		}
	}
	for i := 0; i < len(words); i++ {
		word := words[i]
		next := func() (string, bool) {
			if i+1 >= len(words) {
				return "", false
			}
			i++
			return words[i], true
		}
		switch {
		case word == "--":
			for _, rest := range words[i+1:] {
				argument(rest)
			}
			return w
		case w.command != nil && w.command.runs && len(w.positional) > 0:
			argument(word)
		case p.syntax.files && strings.HasPrefix(word, "@"):
			unknown("@FILE")
		case word == "-" || !strings.HasPrefix(word, "-"):
			argument(word)
		case strings.HasPrefix(word, "--") || p.syntax.oneDash:
			p.syntax.long(word, known, next, use, unknown)
		default:
			short(word[1:], known, next, use, unknown)
		}
	}
	return w
}

// long reads a long flag.
func (s syntax) long(word string, known map[string]flagSpec, next func() (string, bool), use func(flagSpec, string), unknown func(string)) {
	name, value, written := strings.Cut(strings.TrimLeft(word, "-"), "=")
	f, ok := known[name]
	positive, negated := strings.CutPrefix(name, "no-")
	switch {
	case ok && f.valued && !written:
		if value, ok = next(); !ok {
			unknown(word)
			return
		}
		use(f, value)
	case ok && !f.valued && !written:
		use(f, "true")
	case ok && (f.valued || !s.negated): // kingpin takes the value of --x=false for an argument
		use(f, value)
	case s.negated && negated && !written && known[positive].name != "" && !known[positive].valued:
		use(known[positive], "false")
	default:
		unknown(word)
	}
}

// short reads short flags that share one dash. The last one can have a value.
func short(letters string, known map[string]flagSpec, next func() (string, bool), use func(flagSpec, string), unknown func(string)) {
	for i := range len(letters) {
		f, ok := known["-"+letters[i:i+1]]
		rest := letters[i+1:]
		switch {
		case !ok:
			unknown("-" + letters[i:i+1])
			return
		case !f.valued && strings.HasPrefix(rest, "="):
			use(f, rest[1:])
			return
		case !f.valued:
			use(f, "true")
			continue
		case rest != "":
			use(f, strings.TrimPrefix(rest, "="))
			return
		}
		value, ok := next()
		if !ok {
			unknown("-" + letters[i:i+1])
			return
		}
		use(f, value)
		return
	}
}

// match returns the command with the longest name that these words begin with, or nil.
func (p *Program) match(words []string) (found *Command) {
	longest := 0
	for i := range p.Commands {
		c := &p.Commands[i]
		name := strings.Fields(c.Words)
		if len(name) <= longest || len(name) > len(words) {
			continue
		}
		fits := true
		for n, word := range name {
			meant := words[n]
			if other, ok := p.alias[meant]; ok {
				meant = other
			}
			fits = fits && (meant == word || words[n] == word)
		}
		if fits {
			found, longest = c, len(name)
		}
	}
	return found
}
