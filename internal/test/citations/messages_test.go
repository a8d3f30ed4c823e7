package citations

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
)

// printers are the functions whose first literal is a message, or a part of one.
var printers = map[string]bool{"New": true, "Errorf": true, "Say": true, "say": true, "While": true}

// ofCommandLine are arguments and functions that mark a message about the command line: its hint names the help, and the
// page's section on exit code 64 sends there.
var ofCommandLine = map[string]bool{"Usage": true, "UnknownOrder": true, "LockKey": true, "ErrURL": true, "URL": true, "WrongFlag": true, "invalid": true, "mistake": true}

// message is the text of an error or a warning in the source, with its verbs.
type message struct{ at, text string }

// messages returns the messages of a file that aren't about the command line.
func messages(t *testing.T, path string) (all []message) {
	t.Helper()
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
	assert.OK(t, err)
	add := func(e ast.Expr) {
		if text, ok := literal(e); ok {
			all = append(all, message{set.Position(e.Pos()).String(), text})
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.KeyValueExpr:
			if key, ok := n.Key.(*ast.Ident); ok && key.Name == "says" {
				add(n.Value)
			}
		case *ast.CallExpr:
			called := last(n.Fun)
			if ofCommandLine[called] || slices.ContainsFunc(n.Args, func(arg ast.Expr) bool { return ofCommandLine[last(arg)] }) {
				return false
			}
			if !printers[called] || strings.HasSuffix(qualifier(n.Fun), "regexp") {
				return true
			}
			for _, arg := range n.Args[:min(len(n.Args), 2)] {
				if _, ok := literal(arg); ok {
					add(arg)
					break
				}
			}
		}
		return true
	})
	return all
}

// qualifier returns the package or the variable of a selector, or "".
func qualifier(e ast.Expr) string {
	if s, ok := e.(*ast.SelectorExpr); ok {
		return last(s.X)
	}
	return ""
}

// last returns the last name of a selector such as fault.New.
func last(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	default:
		return ""
	}
}

// literal returns the value of a string, or of a sum of strings.
func literal(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		s, err := strconv.Unquote(e.Value)
		return s, e.Kind == token.STRING && err == nil
	case *ast.BinaryExpr:
		x, okX := literal(e.X)
		y, okY := literal(e.Y)
		return x + y, okX || okY
	default:
		return "", false
	}
}

// reason has messages that the page doesn't need, by the longest part of each without verbs.
type reason struct {
	why      string
	messages []string
}

var unlisted = []reason{
	{"about the command line or a URL, with a hint", []string{
		"--hint can't be used together with --if-held or --if-unreachable", "must be from", "must be unknown, nobody or cloudstic", "both a prefix", "must end in a slash",
		"must have 1 to", "there is no port after the colon", "its port isn't from 1 to 65535", "wrong usage", "not a key for this backend", "empty path",
		"a control character", "an element longer than 250 bytes", "has other characters than letters, digits, dots, hyphens and underscores", "an endpoint is https://HOST or http://HOST",
		"credentials don't belong in an endpoint", "has a NUL", "is larger than",
	}},
	{"only the name of a class, whose messages say more", []string{
		"wrong configuration file", "wrong configuration", "torture failed", "whether there was a violation isn't known", "nothing was begun", "the directory for keepers' sockets",
		"deletion of many objects in one request not supported", "object too large", "invalid key",
	}},
	{"reports what was done, and needs no action", []string{"can't be signalled", "was sent", "waiting for", "looking again"}},
	{"a part of \"can't start its threads and its guard\"", []string{
		"MB of address space, of which Go's runtime has reserved", "ulimit -u allows this user", "processes and threads (pids.max), and", "its starter ended too early", "it ends without an answer",
	}},
	{"a part of \"no fencing token\" or \"store too slow for the ttl\"", []string{
		"has no conditional put that can be relied on", "has the largest number already", "before each write, or the store refuses to write it again after a deletion", "of them must fit into",
	}},
	{"a part of the loss of a lock, or of a refresh that is tried again", []string{
		"the renewals have ended", "was changed between two requests", "was not refreshed, because looking at it took", "not listed after it was written", "with If-None-Match (412) although it listed no such object",
		"learning the store's time", "still there", "it is still needed",
	}},
	{"a part of \"a listing can't be relied on\"", []string{
		"the listing of the versions of", "is listed, but can't be opened because it is missing: if this mount caches missing names, mount it with negative_timeout=0 (FUSE) or lookupcache=none (NFS",
		"is changed all the time", "there is more data after the end of the", "which wasn't asked for", "it isn't in order", "a listing isn't complete, and the server sends no cursor for its next page",
		"a page is empty, although the listing goes on", "the server's handles aren't OpenSSH's, so another listing has read some of this listing's names", "but can't open it because it is missing", "the server lists", "isn't a cursor",
	}},
	{"a part of a message that names the request, and the server's own words", []string{
		"entering the directory", "opening the directory", "listing the directory", "looking at", "there is no such object", "there is no such version", "there is nothing to hide",
		"only Backblaze's own tools can delete it, for example: b2 rm --versions", "nor can it be hidden", "but a", "the file has", "the file has more bytes", "a directory", "the request is a", "of the AWS SDK", "no answer",
	}},
	{"names its own remedy", []string{
		"mount the directory by sshfs, or use the URL of the storage itself (s3:, b2:, minio", "remove this directory by hand", "correct HTTPS_PROXY, or name the server in NO_PROXY", "can't find the working directory",
		"too many links",
	}},
	{"a mistake of a Go program, or of this one", []string{
		"must be Shared or Exclusive", "no store: open one first", "minio: the client's options weren't set up by Configure", "s3: the client has no region", "is a temporary file's name",
		"the page is at its end", "the client's own retries are refused", "the HTTP client has repeated the request, so it might have been applied twice", "the connection was retired",
		"the client made no request", "closed by this side", "pause the command", "unpause the command",
	}},
}

// wholes are the words of the page that describe all messages of a part of the source.
var wholes = map[string]string{
	"cmd/internal/also/":        "## another system's lock",
	"locking/":                  "## another system's lock",
	"cmd/internal/cli/":         "## the command line (64)",
	"cmd/internal/cli/settings": "configuration: …",
	"internal/config/":          "configuration: …",
	"cmd/internal/doctor/":      "## doctor and torture",
	"cmd/repolock/doctor.go":    "## doctor and torture",
	"cmd/repolock/torture.go":   "## doctor and torture",
	"internal/judge/":           "## doctor and torture",
	"internal/torture/":         "## doctor and torture",
	"cmd/repolock/acquire.go":   "## the keeper of a script's lock (69, 79)",
	"internal/daemon/":          "## the keeper of a script's lock (69, 79)",
	"replock/internal/":         "an object in the lock's place is no lock, or is damaged",
}

// TestMessages: docs/troubleshooting.md has words of each message of the code, in quotes, or a section on all messages
// of its part of the source. A message that is in unlisted isn't one that a user can search for.
func TestMessages(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join(root, "docs/troubleshooting.md"))
	assert.OK(t, err)
	quoted, used := quotes(string(raw)), map[string]bool{}
	for part, words := range wholes {
		assert.That(t, strings.Contains(string(raw), words), "%s: the page doesn't have %q", part, words)
	}
	all := 0
	for _, dir := range []string{"cmd", "internal", "locking", "replock", "store"} {
		assert.OK(t, filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() && slices.Contains([]string{"test", "tool", "bench", "lockingtest", "storetest", "testdata"}, d.Name()) {
				return fs.SkipDir
			}
			if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			at, err := filepath.Rel(root, path)
			assert.OK(t, err)
			for part := range wholes {
				if strings.HasPrefix(filepath.ToSlash(at), part) {
					return nil
				}
			}
			for _, m := range messages(t, path) {
				words := fixed(m.text)
				if words == "" {
					continue
				}
				all++
				listed := slices.ContainsFunc(unlisted, func(u reason) bool { return slices.Contains(u.messages, words) })
				used[words] = true
				found := slices.ContainsFunc(quoted, func(q string) bool { return strings.Contains(m.text, q) })
				assert.That(t, found != listed, "%s: %q: on the page: %v, in unlisted: %v", m.at, words, found, listed)
			}
			return nil
		}))
	}
	assert.That(t, all >= 200, "only %d messages were found", all)
	for _, u := range unlisted {
		for _, words := range u.messages {
			assert.That(t, used[words], "%s: there is no message %q", u.why, words)
		}
	}
}

var (
	verb  = regexp.MustCompile(`%[-+# 0-9.*\[\]]*[a-zA-Z]`)
	quote = regexp.MustCompile(`"([^"]+)"`)
)

// fixed returns the longest part of a message without verbs, or "" if it has fewer than two words.
func fixed(text string) (longest string) {
	for _, part := range verb.Split(text, -1) {
		if part = strings.Trim(part, " :;,.\"'()"); len(strings.Fields(part)) > 1 && len(part) > len(longest) {
			longest = part
		}
	}
	return longest
}

// quotes returns the quoted texts of a page. An ellipsis separates two.
func quotes(page string) (all []string) {
	page = strings.Join(strings.Fields(strings.ReplaceAll(page, "**", "")), " ")
	for _, m := range quote.FindAllStringSubmatch(page, -1) {
		for part := range strings.SplitSeq(m[1], "…") {
			if part = strings.TrimSpace(part); len(part) > 3 {
				all = append(all, part)
			}
		}
	}
	return all
}
