package programs

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/lazyregexp"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/store/open"
)

// System is the part of this machine on which a place can depend, besides the command line and its environment.
type System struct {
	ReadFile func(path string) ([]byte, error)
	IsDir    func(path string) bool
	// Run runs rclone config show, and returns its output.
	Run func(args, environ []string) ([]byte, error)
	// Settings is the directory of the user's settings, as of os.UserConfigDir.
	Settings string
}

// Place is where the lock of a command line belongs.
type Place struct {
	URL  string // of a repository, or a path
	Name string // of the lock, if it isn't the repository's own
	// Beside is set if the place is a directory of its own, which a person must make.
	Beside bool
	// Alone is set if nothing but locks belongs there.
	Alone bool
	// By is the program's variable or argument that names the place.
	By string
	// Environ are variables with credentials, as our stores read them, from the variables of the program.
	Environ []string
}

// Place returns where the lock of the line belongs: in the program's repository, or beside it. It returns an error if
// the program names no repository, or if the repository can't hold a lock.
func (l *Line) Place(s System) (Place, error) {
	p, err := l.Program.locate(l, s)
	switch {
	case err != nil:
		return Place{}, err
	case l.relative:
		return Place{}, fault.Advise(fault.New(fault.Usage, "%s starts %s in another directory, so repolock can't find a relative path", l.login, l.Program.Name), "write the absolute path")
	}
	if err := open.Check(p.URL); err != nil {
		return Place{}, l.elsewhere("can't be written as a URL of repolock")
	}
	l.credentials(&p)
	p.By, p.Alone = l.by, l.Program == borg || l.Program == kopia
	return p, nil
}

// credentials adds the variables that env sets in front of the program, and that our stores read, too.
func (l *Line) credentials(p *Place) {
	prefix := map[string]string{"s3": "AWS_", "b2": "B2_"}[scheme(p.URL)]
	if prefix == "" || l.cut != "" {
		return
	}
	for name, value := range l.environ {
		if strings.HasPrefix(name, prefix) {
			p.Environ = append(p.Environ, name+"="+value)
		}
	}
	slices.Sort(p.Environ)
}

func scheme(raw string) string {
	location, _ := open.Parse(raw)
	return location.Scheme
}

// Same reports whether two names of repositories can mean one place. Parameters of a URL don't name a place, except for
// the endpoint.
func Same(a, b string) bool { return canonical(a) == canonical(b) }

// Contains reports whether the place is the repository, or a directory or prefix around it.
func Contains(place, repository string) bool {
	p, r := canonical(place), canonical(repository)
	return p == r || strings.HasPrefix(r, strings.TrimSuffix(p, "/")+"/")
}

func canonical(raw string) string {
	l, err := open.Parse(raw)
	switch {
	case err != nil:
		return raw
	case l.Scheme == "file":
		if abs, err := filepath.Abs(l.Path); err == nil {
			return "file " + abs
		}
		return "file " + l.Path
	}
	at := l.URL.Query().Get("endpoint")
	if at != "" && !strings.Contains(at, "://") {
		at = "https://" + at
	}
	at = strings.TrimSuffix(strings.ToLower(at), "/")
	for scheme, port := range map[string]string{"https://": ":443", "http://": ":80"} {
		if strings.HasPrefix(at, scheme) {
			at = strings.TrimSuffix(at, port)
		}
	}
	where := strings.TrimRight(l.URL.Path, "/")
	user := ""
	if l.URL.User != nil {
		user = l.URL.User.Username() + "@"
	}
	if l.Scheme == "minio" { // the same server by another name
		at = "https://" + strings.ToLower(l.URL.Host)
		if l.URL.Query().Get("tls") == "false" {
			at = "http://" + strings.ToLower(l.URL.Host)
		}
		return "s3 " + at + " " + strings.TrimPrefix(where, "/")
	}
	host := l.URL.Host
	if l.Scheme == "sftp" {
		host = strings.TrimSuffix(strings.ToLower(host), ":22")
	}
	return l.Scheme + " " + at + " " + user + host + where
}

// elsewhere returns the error of a repository that can't hold the lock.
func (l *Line) elsewhere(why string) error {
	return fault.Advise(fault.New(fault.Usage, "the repository of %s %s, so repolock can't keep its lock there", l.Program.Name, why),
		"keep the lock in another place that all machines reach, for locks alone: repolock --repo PLACE -- "+l.title()+" …")
}

// unnamed returns the error of a line whose repository isn't known.
func (l *Line) unnamed(where string) error {
	err := fault.New(fault.Usage, "no repository: give --repo, or set REPOLOCK_REPO, or name %s's by %s", l.Program.Name, where)
	if l.cut != "" {
		return fault.Advise(err, l.cut+" gives "+l.Program.Name+" another environment than repolock's: name the repository on the line")
	}
	return err
}

// join returns a path as seen from the directory in which the program runs.
func (l *Line) join(p string) string {
	switch {
	case filepath.IsAbs(p):
		return p
	case l.dir != "":
		return filepath.Join(l.dir, p)
	}
	l.relative = l.relative || l.login != ""
	return p
}

// sameHome reports whether the program finds the settings that repolock's own user has.
func (l *Line) sameHome() bool {
	return l.home == "" && !slices.ContainsFunc([]string{"HOME", "XDG_CONFIG_HOME", "AppData"}, func(v string) bool { return l.environ[v] != l.own[v] })
}

// directory returns the place of a path. A path that looks like a URL gets ./ in front.
func (l *Line) directory(p string) string {
	p = filepath.Clean(l.join(p))
	if !filepath.IsAbs(p) {
		return "./" + p
	}
	return p
}

// The parts of a URL are escaped as open.Parse reads them.

func sftpURL(user, host, port, dir, command string) string {
	u := url.URL{Scheme: "sftp", Host: host}
	if strings.Contains(host, ":") && !strings.HasPrefix(host, "[") {
		u.Host = "[" + host + "]"
	}
	if port != "" && port != "22" {
		u.Host = net.JoinHostPort(strings.Trim(host, "[]"), port)
	}
	if user != "" {
		u.User = url.User(user)
	}
	dir = path.Clean(dir)
	u.Path = "/" + dir // an absolute path has two slashes
	if command != "" {
		u.RawQuery = url.Values{"command": {command}}.Encode()
	}
	return u.String()
}

// amazon matches the names of Amazon's own servers, which need no endpoint.
var amazon = lazyregexp.New(`^s3(?:[.-](?:dualstack\.)?([a-z]{2}(?:-[a-z0-9]+)+-\d))?\.amazonaws\.com(?::443)?$`)

func s3URL(endpoint, bucket, prefix string, parameters url.Values) string {
	if parameters == nil {
		parameters = url.Values{}
	}
	host := strings.TrimPrefix(endpoint, "https://")
	if m := amazon.FindStringSubmatch(host); m != nil {
		if m[1] != "" && parameters.Get("region") == "" {
			parameters.Set("region", m[1])
		}
	} else if endpoint != "" {
		if !strings.Contains(endpoint, "://") {
			endpoint = "https://" + endpoint
		}
		parameters.Set("endpoint", endpoint)
	}
	return readable(bucketURL("s3", bucket, prefix, parameters))
}

func bucketURL(scheme, bucket, prefix string, parameters url.Values) string {
	u := url.URL{Scheme: scheme, Host: bucket, RawQuery: parameters.Encode()}
	if prefix = strings.Trim(path.Clean("/"+prefix), "/"); prefix != "" {
		u.Path = "/" + prefix
	}
	return u.String()
}

// readable replaces the escapes %3A and %2F in a query. repolock's URLs don't need them.
func readable(u string) string { return strings.NewReplacer("%3A", ":", "%2F", "/").Replace(u) }

func b2URL(bucket, prefix string) string { return bucketURL("b2", bucket, prefix, nil) }

// b2Environ returns the credentials for B2 under the names of our store.
func (l *Line) b2Environ(id, key string) (environ []string) {
	if l.getenv("B2_APPLICATION_KEY_ID") == "" && l.getenv(id) != "" {
		environ = append(environ, "B2_APPLICATION_KEY_ID="+l.getenv(id), "B2_APPLICATION_KEY="+l.getenv(key))
	}
	return environ
}

// resticPlace: the lock is in restic's repository.
func (l *Line) resticPlace(s System) (Place, error) {
	repo, err := l.named(s, "repo", "repository-file", "RESTIC_REPOSITORY", "RESTIC_REPOSITORY_FILE")
	if err != nil {
		return Place{}, err
	}
	kind, rest, ok := strings.Cut(repo, ":")
	if !ok {
		return Place{URL: l.directory(repo)}, nil
	}
	options := map[string]string{}
	for _, o := range l.words.all("option") {
		name, value, _ := strings.Cut(o, "=")
		options[strings.ToLower(strings.TrimSpace(name))] = strings.TrimSpace(value)
	}
	switch kind {
	case "local":
		return Place{URL: l.directory(rest)}, nil
	case "sftp":
		if options["sftp.args"] != "" {
			return Place{}, l.elsewhere("needs sftp.args")
		}
		return l.resticSFTP(rest, options["sftp.command"])
	case "s3":
		return l.resticS3(rest, options)
	case "b2":
		bucket, prefix, _ := strings.Cut(rest, ":")
		return Place{URL: b2URL(bucket, prefix), Environ: l.b2Environ("B2_ACCOUNT_ID", "B2_ACCOUNT_KEY")}, nil
	case "rest":
		return Place{}, l.elsewhere("is on a REST server")
	case "azure", "gs", "swift", "rclone":
		return Place{}, l.elsewhere("is in " + map[string]string{"azure": "Azure", "gs": "Google Cloud Storage", "swift": "Swift", "rclone": "a remote of rclone"}[kind])
	default: // restic, too, takes it for a path
		return Place{URL: l.directory(repo)}, nil
	}
}

// named returns the repository of restic or rustic. A flag or a variable has its name, or names a file that has it.
func (l *Line) named(s System, flag, fileFlag, variable, fileVariable string) (string, error) {
	if repo, ok := l.words.last(flag); ok && repo != "" {
		l.by = l.Program.Name + "'s --" + flag
		return repo, nil
	}
	file, ok := l.words.last(fileFlag)
	l.by = l.Program.Name + "'s --" + fileFlag
	if !ok {
		l.by = variable
		if repo := l.getenv(variable); repo != "" {
			return repo, nil
		}
		file, l.by = l.getenv(fileVariable), fileVariable
	}
	if file == "" {
		return "", l.unnamed(variable + ", -r" + " or --" + fileFlag)
	}
	content, err := s.ReadFile(l.join(file))
	if err != nil {
		return "", fault.Advise(fault.New(fault.Usage, "the file with the repository's name can't be read: %w", err), "give --repo, or correct --"+fileFlag)
	}
	repo := strings.TrimSpace(string(content))
	if repo == "" {
		return "", l.unnamed("the file of --" + fileFlag + ", which is empty")
	}
	return repo, nil
}

func (l *Line) resticSFTP(rest, command string) (Place, error) {
	if strings.HasPrefix(rest, "//") {
		u, err := url.Parse("sftp:" + rest)
		if err != nil || u.Hostname() == "" {
			return Place{}, l.elsewhere("has a name that isn't a URL")
		}
		dir := strings.TrimPrefix(u.Path, "/")
		return Place{URL: sftpURL(u.User.Username(), u.Hostname(), u.Port(), cmp.Or(dir, "."), command)}, nil
	}
	at := strings.Index(rest, ":")
	if end := strings.Index(rest, "]:"); end >= 0 {
		at = end + 1
	}
	if at < 0 {
		return Place{}, l.elsewhere("has a name that isn't sftp:USER@HOST:PATH")
	}
	host, dir := rest[:at], rest[at+1:]
	user := ""
	if i := strings.LastIndex(host, "@"); i >= 0 {
		user, host = host[:i], host[i+1:]
	}
	return Place{URL: sftpURL(user, strings.Trim(host, "[]"), "", cmp.Or(dir, "."), command)}, nil
}

func (l *Line) resticS3(rest string, options map[string]string) (Place, error) {
	scheme := "https://"
	switch {
	case strings.HasPrefix(rest, "http://"):
		scheme, rest = "http://", rest[len("http://"):]
	case strings.HasPrefix(rest, "https://"):
		rest = rest[len("https://"):]
	case strings.HasPrefix(rest, "//"):
		rest = rest[2:]
	}
	host, rest, _ := strings.Cut(rest, "/")
	bucket, prefix, _ := strings.Cut(rest, "/")
	if host == "" || bucket == "" {
		return Place{}, l.elsewhere("has a name that isn't s3:HOST/BUCKET/PREFIX")
	}
	parameters := url.Values{}
	if options["s3.region"] != "" {
		parameters.Set("region", options["s3.region"])
	}
	switch options["s3.bucket-lookup"] {
	case "dns":
		parameters.Set("path-style", "false")
	case "path":
		parameters.Set("path-style", "true")
	}
	if l.getenv("AWS_ACCESS_KEY_ID") == "" && l.getenv("MINIO_ACCESS_KEY") != "" {
		return Place{}, l.withoutCredentials("MINIO_ACCESS_KEY", "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
	}
	return Place{URL: s3URL(scheme+host, bucket, prefix, parameters)}, nil
}

// withoutCredentials returns the error of a program that reads its credentials from a place that repolock doesn't read.
func (l *Line) withoutCredentials(has, set string) error {
	return fault.Advise(fault.New(fault.Usage, "%s finds its credentials in %s, where repolock doesn't read them", l.Program.Name, has), "set "+set+", to the same")
}

// rusticPlace: the lock is in rustic's repository, if that is a directory. Its other kinds are options of a profile.
func (l *Line) rusticPlace(s System) (Place, error) {
	repo := l.getenv("RUSTIC_REPOSITORY")
	l.by = "RUSTIC_REPOSITORY"
	for _, flag := range []string{"repo", "repository"} {
		if value, ok := l.words.last(flag); ok {
			repo, l.by = value, "rustic's --"+flag
		}
	}
	if repo == "" {
		return Place{}, l.unnamed("RUSTIC_REPOSITORY or -r: repolock doesn't read rustic's profiles")
	}
	kind, rest, ok := strings.Cut(repo, ":")
	switch {
	case !ok:
		return Place{URL: l.directory(repo)}, nil
	case kind == "local":
		return Place{URL: l.directory(rest)}, nil
	default:
		return Place{}, l.elsewhere("is " + text.Brief(kind) + ":…, whose place is in rustic's options")
	}
}

// scpName matches USER@HOST:PATH, the form of scp.
var scpName = lazyregexp.New(`^(?:([^/@:]+)@)?([^/@:]+):(.+)$`)

// borgPlace: the lock is beside Borg's repository.
func (l *Line) borgPlace(System) (Place, error) {
	repo, _, _ := strings.Cut(l.getenv("BORG_REPO"), "::")
	if value, ok := l.words.last("repo"); ok {
		repo = value
	} else if words := l.words.positional; len(words) > 0 {
		if len(words) > 1 && slices.Contains([]string{"benchmark", "debug"}, l.Command.Words) { // the rest of the command
			words = words[1:]
		}
		first := words[0]
		location, _, archive := strings.Cut(first, "::")
		switch {
		case archive && location != "":
			repo = location
		case archive: // ::ARCHIVE
		case strings.Contains(first, "/") && l.Command.Words != "create":
			repo = first
		case strings.Contains(first, ":") && l.Command.Words != "create", slices.Contains(ofRepository, l.Command.Words):
			return Place{}, fault.Advise(fault.New(fault.Usage, "%.80q can be Borg's repository or an archive", first), "write a path with a slash, ./REPOSITORY, or give --repo")
		}
	}
	if repo == "" {
		return Place{}, l.unnamed("BORG_REPO, --repo or REPOSITORY::ARCHIVE")
	}
	rsh := l.getenv("BORG_RSH")
	if value, ok := l.words.last("rsh"); ok {
		rsh = value
	}
	kind, rest, isURL := strings.Cut(repo, "://")
	scp := scpName.FindStringSubmatch(repo)
	switch {
	case isURL && kind == "file":
		return Place{URL: l.directory(strings.TrimRight(rest, "/")) + besides, Beside: true}, nil
	case isURL && kind == "ssh":
		u, err := url.Parse(repo)
		if err != nil || u.Hostname() == "" {
			return Place{}, l.elsewhere("has a name that isn't a URL")
		}
		dir := u.Path
		for _, home := range []string{"/./", "/~/"} {
			if relative, ok := strings.CutPrefix(dir, home); ok {
				dir = relative
			}
		}
		if strings.HasPrefix(dir, "/~") {
			return Place{}, l.elsewhere("is in another user's home")
		}
		return l.borgSSH(u.User.Username(), u.Hostname(), u.Port(), dir, rsh)
	case isURL:
		return Place{}, l.elsewhere("is " + text.Brief(kind) + "://…")
	case scp != nil && filepath.VolumeName(repo) == "":
		if kind := scp[2]; scp[1] == "" && slices.Contains([]string{"rclone", "s3", "b2", "rest", "socket", "sftp"}, kind) {
			return Place{}, l.elsewhere("is " + kind + ":…")
		}
		return l.borgSSH(scp[1], scp[2], "", strings.TrimPrefix(scp[3], "~/"), rsh)
	default:
		return Place{URL: l.directory(strings.TrimRight(repo, "/")) + besides, Beside: true}, nil
	}
}

// ofRepository are Borg 1's commands whose first argument is the repository. Borg 2 has an archive's name there, or none.
var ofRepository = []string{"list", "info", "delete", "prune", "check", "compact", "upgrade", "with-lock", "break-lock", "mount", "config", "init",
	"recreate", "benchmark", "key change-passphrase", "key migrate-to-repokey", "key import"}

// besides is added to a repository's name for a place beside it.
const besides = "-lock"

func (l *Line) borgSSH(user, host, port, dir, rsh string) (Place, error) {
	command := ""
	if rsh != "" { // such as ssh -i KEY
		command = rsh
		if port != "" {
			command += " -p " + port
		}
		command += " " + strings.TrimPrefix(user+"@"+host, "@") + " -s sftp"
	}
	return Place{URL: sftpURL(user, host, port, strings.TrimRight(dir, "/")+besides, command), Beside: true}, nil
}

// kopiaPlace: the lock is beside the data of the repository that Kopia is connected to.
func (l *Line) kopiaPlace(s System) (Place, error) {
	file := l.getenv("KOPIA_CONFIG_PATH")
	if value, ok := l.words.last("config-file"); ok {
		file = value
	}
	switch {
	case file != "":
	case l.sameHome():
		file = filepath.Join(s.Settings, "kopia", "repository.config")
	default: // the file of another user
		return Place{}, l.unnamed("--config-file")
	}
	content, err := s.ReadFile(l.join(file))
	if errors.Is(err, fs.ErrNotExist) {
		return Place{}, l.unnamed("kopia repository connect: there is no " + text.Brief(file))
	}
	var c struct {
		APIServer *struct{} `json:"apiServer"`
		Storage   struct {
			Type   string
			Config struct {
				Path, Bucket, Prefix, Endpoint, Region, Host, Username string
				Port                                                   int
				DoNotUseTLS                                            bool
				AccessKeyID, KeyID                                     string
			}
		}
	}
	if err != nil || json.Unmarshal(content, &c) != nil {
		return Place{}, fault.Advise(fault.New(fault.Usage, "kopia's configuration file can't be read: %s", text.Brief(file)), "give --repo")
	}
	k := c.Storage.Config
	prefix := strings.TrimSuffix(k.Prefix, "/")
	switch kind := c.Storage.Type; {
	case c.APIServer != nil:
		return Place{}, l.elsewhere("is behind a Kopia server")
	case (kind == "s3" || kind == "b2") && prefix == "":
		return Place{}, l.elsewhere("is a whole bucket")
	case kind == "filesystem":
		return Place{URL: l.directory(k.Path) + besides, Beside: true}, nil
	case kind == "s3":
		if err := l.s3Keys(k.AccessKeyID != "", "its configuration file"); err != nil {
			return Place{}, err
		}
		endpoint, parameters := k.Endpoint, url.Values{}
		if k.DoNotUseTLS {
			endpoint = "http://" + endpoint
		}
		if k.Region != "" {
			parameters.Set("region", k.Region)
		}
		return Place{URL: s3URL(endpoint, k.Bucket, prefix+besides, parameters)}, nil
	case kind == "b2":
		if err := l.b2Keys(k.KeyID != "", "its configuration file"); err != nil {
			return Place{}, err
		}
		return Place{URL: b2URL(k.Bucket, prefix+besides)}, nil
	case kind == "sftp":
		port := ""
		if k.Port != 0 {
			port = fmt.Sprint(k.Port)
		}
		return Place{URL: sftpURL(k.Username, k.Host, port, strings.TrimRight(k.Path, "/")+besides, ""), Beside: true}, nil
	default:
		return Place{}, l.elsewhere("is in " + cmp.Or(text.Brief(kind), "an unknown store"))
	}
}

// s3Keys refuses a store whose keys the program has and repolock hasn't.
func (l *Line) s3Keys(has bool, where string) error {
	if has && l.getenv("AWS_ACCESS_KEY_ID") == "" && l.getenv("AWS_PROFILE") == "" {
		return l.withoutCredentials(where, "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE")
	}
	return nil
}

func (l *Line) b2Keys(has bool, where string) error {
	if has && l.getenv("B2_APPLICATION_KEY_ID") == "" {
		return l.withoutCredentials(where, "B2_APPLICATION_KEY_ID and B2_APPLICATION_KEY")
	}
	return nil
}

// cloudsticPlace: the lock is in Cloudstic's repository, under a name, because Cloudstic takes the repository's own.
func (l *Line) cloudsticPlace(System) (Place, error) {
	value := func(flag, variable string) string {
		if v, ok := l.words.last(flag); ok {
			return v
		}
		return l.getenv(variable)
	}
	_, onLine := l.words.last("store")
	if !onLine && (value("profile", "CLOUDSTIC_PROFILE") != "" || l.words.has("all-profiles")) {
		return Place{}, l.unnamed("-store or CLOUDSTIC_STORE: repolock doesn't read Cloudstic's profiles")
	}
	repo := value("store", "CLOUDSTIC_STORE")
	l.by = "CLOUDSTIC_STORE"
	if onLine {
		l.by = "cloudstic's -store"
	}
	if repo == "" {
		return Place{}, l.unnamed("CLOUDSTIC_STORE or -store")
	}
	kind, rest, _ := strings.Cut(repo, ":")
	bucket, prefix, _ := strings.Cut(rest, "/")
	switch kind {
	case "local":
		return Place{URL: l.directory(rest), Name: l.Program.Lock}, nil
	case "s3":
		if v, ok := l.words.last("s3-access-key"); ok && v != l.getenv("AWS_ACCESS_KEY_ID") {
			return Place{}, l.withoutCredentials("-s3-access-key", "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
		}
		parameters := url.Values{"region": {cmp.Or(value("s3-region", "CLOUDSTIC_S3_REGION"), "us-east-1")}}
		if profile := value("s3-profile", "CLOUDSTIC_S3_PROFILE"); profile != "" {
			parameters.Set("profile", profile)
		}
		return Place{URL: s3URL(value("s3-endpoint", "CLOUDSTIC_S3_ENDPOINT"), bucket, prefix, parameters), Name: l.Program.Lock}, nil
	case "b2":
		return Place{URL: b2URL(bucket, prefix), Name: l.Program.Lock, Environ: l.b2Environ("B2_KEY_ID", "B2_APP_KEY")}, nil
	default:
		return Place{}, l.elsewhere("is " + text.Brief(kind) + ":…")
	}
}
