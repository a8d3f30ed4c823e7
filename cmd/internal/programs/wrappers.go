package programs

import (
	"maps"
	"slices"
	"strings"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/lazyregexp"
)

// wrapper is a program that runs another program, with the words after its own flags and arguments.
type wrapper struct {
	flags string // as for flagSet; flags after the first argument belong to the program
	words int    // arguments before the program
	// settings is set if arguments of the form NAME=VALUE set variables.
	settings bool
	// cuts is set if the program gets another environment, unless keeps is among the flags.
	cuts  bool
	keeps string
	// needs is a flag without which the wrapper isn't run, and why.
	needs, why string
	numbers    bool // a number can be a flag, as in nice -5
}

// wrappers are programs that run another program, which repolock finds in their arguments. Flags that make the wrapper
// do something else aren't known, and so refused.
var wrappers = map[string]wrapper{
	"env":             {flags: "ignore-environment,i unset,u= chdir,C= debug,v", settings: true},
	"nice":            {flags: "adjustment,n=", numbers: true},
	"ionice":          {flags: "class,c= classdata,n= ignore,t"},
	"timeout":         {flags: "signal,s= kill-after,k= preserve-status foreground verbose,v", words: 1},
	"nohup":           {},
	"time":            {flags: "format,f= output,o= append,a verbose,v portability,p quiet,q"},
	"chrt":            {flags: "batch,b deadline,d fifo,f idle,i other,o rr,r reset-on-fork,R sched-runtime,T= sched-period,P= sched-deadline,D= verbose,v", words: 1},
	"taskset":         {flags: "cpu-list,c", words: 1},
	"caffeinate":      {flags: ",d ,i ,m ,s ,u ,t="},
	"flock":           {flags: "shared,s exclusive,x ,e nonblock,n nb timeout,w= wait= close,o conflict-exit-code,E= no-fork,F verbose", words: 1},
	"chronic":         {flags: ",e ,v"},
	"systemd-inhibit": {flags: "what= who= why= mode= no-ask-password"},
	"sudo":            {flags: "user,u= group,g= set-home,H non-interactive,n stdin,S preserve-env,E login,i chdir,D= prompt,p= preserve-groups,P", settings: true, cuts: true, keeps: "preserve-env"},
	"doas":            {flags: ",u= ,n", cuts: true},
	"systemd-run":     {flags: "scope user system quiet,q collect,G unit,u= property,p= description= slice= slice-inherit nice= uid= gid= setenv,E= same-dir,d working-directory=", needs: "scope", why: "it starts the program outside of repolock's reach: write systemd-run before repolock, or add --scope"},
}

// shells are programs that run other programs in a way that repolock can't look through.
var shells = map[string]string{
	"sh": aScript, "bash": aScript, "dash": aScript, "zsh": aScript, "fish": aScript, "ksh": aScript, "busybox": aScript, "pwsh": aScript,
	"setsid":    "it starts the program outside of repolock's reach: leave it out",
	"daemonize": "it starts the program outside of repolock's reach: leave it out",
	"su":        "write it before repolock: su USER -c 'repolock -- …'",
	"docker":    elsewhere, "podman": elsewhere, "kubectl": elsewhere, "ssh": elsewhere, "nsenter": elsewhere,
	"at": elsewhere, "batch": elsewhere, "systemctl": elsewhere,
	"xargs": aScript, "find": aScript, "parallel": aScript,
}

const (
	aScript   = "repolock doesn't look into scripts: put repolock before each command in it"
	elsewhere = "the work is elsewhere: run repolock there (docs/examples.md)"
)

// environ are variables by name.
type environ map[string]string

func newEnviron(env []string) environ {
	e := environ{}
	for _, v := range env {
		if name, value, ok := strings.Cut(v, "="); ok {
			e[name] = value
		}
	}
	return e
}

// list returns the variables as a process gets them.
func (e environ) list() (all []string) {
	for name, value := range e {
		all = append(all, name+"="+value)
	}
	return all
}

// getenv returns a variable as the program finds it.
func (l *Line) getenv(name string) string { return l.environ[name] }

var setting = lazyregexp.New(`^[A-Za-z_]\w*=`)

// unwrap returns the words from the program on. It changes the environment as the wrappers do.
func (l *Line) unwrap(args []string) ([]string, error) {
	for len(args) > 0 {
		name := base(args[0])
		w, ok := wrappers[name]
		if !ok {
			if setting.MatchString(args[0]) {
				return nil, fault.Advise(fault.New(fault.Usage, "only a shell sets a variable like this"), "write env before it")
			}
			return args, nil
		}
		rest, err := l.through(name, w, args[1:])
		if err != nil {
			return nil, err
		}
		args = rest
	}
	return nil, fault.Advise(fault.New(fault.Usage, "the line has no backup program"), "repolock help programs lists the programs")
}

// through returns the words after a wrapper, its flags and its arguments.
func (l *Line) through(name string, w wrapper, args []string) ([]string, error) {
	known := flagSet(w.flags)
	var used parsed
	skip := w.words
	var sets []string
	unknown := ""
	use := func(f flagSpec, value string) { used.flags = append(used.flags, usedFlag{f.name, value}) }
	i := 0
loop:
	for ; i < len(args); i++ {
		word := args[i]
		next := func() (string, bool) {
			if i+1 >= len(args) {
				return "", false
			}
			i++
			return args[i], true
		}
		switch {
		case word == "--":
			i++
			for ; i < len(args) && (skip > 0 || w.settings && setting.MatchString(args[i])); i++ {
				if w.settings && setting.MatchString(args[i]) {
					sets = append(sets, args[i])
				} else {
					skip--
				}
			}
			break loop
		case w.numbers && len(word) > 1 && strings.Trim(word[1:], "-+0123456789") == "" && (word[0] == '-' || word[0] == '+'): // nice -5
		case strings.HasPrefix(word, "--"):
			syntax{}.long(word, known, next, use, func(flag string) { unknown, _, _ = strings.Cut(flag, "=") })
		case strings.HasPrefix(word, "-") && word != "-":
			short(word[1:], known, next, use, func(flag string) { unknown = flag })
		case name == "env" && word == "-":
			use(known["ignore-environment"], "true")
		case w.settings && setting.MatchString(word):
			sets = append(sets, word)
		case skip > 0:
			skip--
		default:
			break loop
		}
		if unknown != "" {
			return nil, fault.Advise(fault.New(fault.Usage, "repolock doesn't know the flag %.80s of %s, so it can't find the program", unknown, name), "put "+name+" before repolock, or "+eitherWords("PROGRAM"))
		}
	}
	if _, ok := used.last(w.needs); w.needs != "" && !ok {
		return nil, fault.Advise(fault.New(fault.Usage, "%s: %s", name, w.why), "docs/examples.md has the commands whose work is elsewhere")
	}
	l.environment(name, w, used, sets)
	return args[i:], nil
}

// environment changes the environment and the directory as a wrapper does.
func (l *Line) environment(name string, w wrapper, used parsed, sets []string) {
	keeps := slices.ContainsFunc(used.flags, func(f usedFlag) bool { return f.name == w.keeps && (f.value == "true" || f.value == "") })
	kept := environ{}
	if list, ok := used.last(w.keeps); ok && !keeps { // --preserve-env=NAME,NAME
		for variable := range strings.SplitSeq(list, ",") {
			if value, ok := l.environ[variable]; ok {
				kept[variable] = value
			}
		}
	}
	switch {
	case w.cuts && !keeps:
		l.environ, l.cut = kept, name
	case name == "env" && used.has("ignore-environment"):
		l.environ = environ{}
	default:
		l.environ = maps.Clone(l.environ)
	}
	for _, variable := range used.all("unset") {
		delete(l.environ, variable)
	}
	if name == "systemd-run" {
		sets = append(sets, used.all("setenv")...)
	}
	for _, s := range sets {
		variable, value, _ := strings.Cut(s, "=")
		l.environ[variable] = value
	}
	if w.cuts && !keeps || used.has("set-home") || used.has("login") || len(used.all("uid")) > 0 {
		l.home = name
	}
	if used.has("login") {
		l.login, l.dir = name, ""
	}
	for _, flag := range []string{"chdir", "working-directory"} {
		if dir, ok := used.last(flag); ok {
			l.dir = l.join(dir)
		}
	}
}
