package sftp

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/internal/sftpwire"
)

// TestCommandWithSemicolon: a command of a shell can have a semicolon, escaped or not.
func TestCommandWithSemicolon(t *testing.T) {
	for _, query := range []string{"command=a;b&listings=fresh", "command=a%3Bb&listings=fresh"} {
		got, err := parse(&url.URL{Host: "h", Path: "/a", RawQuery: query})
		assert.That(t, err == nil && got.fresh && got.command[2] == "exec a;b", "%s: %+v, %v", query, got, err)
	}
}

// TestURLs: what a URL names, and what a message says that it isn't. Neither a host nor a user can be an option of ssh.
func TestURLs(t *testing.T) {
	for raw, root := range map[string]string{
		"sftp://h/a": "a", "sftp://h/a/": "a", "sftp://u@h:22/a/b": "a/b", "sftp://h//srv/a": "/srv/a", "sftp://h//": "/", "sftp://h/.": ".",
		"sftp://h/a%20b": "a b",
	} {
		u, err := url.Parse(raw)
		assert.OK(t, err)
		got, err := parse(u)
		assert.That(t, err == nil && got.root == root && got.command[0] == "ssh", "%s: %+v, %v", raw, got, err)
	}
	for _, c := range []struct {
		u    *url.URL
		want string
	}{
		{&url.URL{Path: "/a"}, "a host or a user is missing"},
		{&url.URL{Host: "-h", Path: "/a"}, "begins with -"},
		{&url.URL{Host: "h", User: url.User("-u"), Path: "/a"}, "begins with -"},
		{&url.URL{Host: "h h", Path: "/a"}, "a space or a control character"},
		{&url.URL{Host: "h", User: url.User("u\x7f"), Path: "/a"}, "a space or a control character"},
		{&url.URL{Host: "h", User: url.User("u\n"), Path: "/a"}, "a space or a control character"},
		{&url.URL{Host: "h", Path: "/a\x00"}, "it isn't a URL"},
		{&url.URL{Host: "h", Path: "/a", RawQuery: "command=%zz"}, "it isn't a URL"},
		{&url.URL{Host: "h:99999", Path: "/a"}, "port"},
		{&url.URL{Host: "h"}, "there is no path"},
		{&url.URL{Host: "h", Path: "/"}, "there is no path"},
		{&url.URL{Host: "h", Path: "/~/a"}, "the server knows no ~"},
		{&url.URL{Host: "h", Path: "/a", RawQuery: "a;b"}, "its options are command="},
		{&url.URL{Host: "h", Path: "/a", RawQuery: "other=1"}, "its options are command="},
		{&url.URL{Host: "h", Path: "/a", RawQuery: "command=a&command=b"}, "its options are command="},
		{&url.URL{Host: "h", Path: "/a", RawQuery: "command=+"}, "its options are command="},
	} {
		_, err := parse(c.u)
		assert.That(t, errors.Is(err, store.ErrURL) && strings.Contains(err.Error(), c.want), "%q: %v", c.u, err)
	}
}

// TestCommands: a command of the URL replaces ssh. Otherwise ssh gets the user and the port, if they are named.
func TestCommands(t *testing.T) {
	u, err := url.Parse("sftp://h/a?command=sftp-server+-R")
	assert.OK(t, err)
	got, err := parse(u)
	assert.OK(t, err)
	assert.Equal(t, got.command, []string{"sh", "-c", "exec sftp-server -R"})
	for _, user := range []string{"", "u"} {
		for _, port := range []string{"", "22"} {
			c := sshTo("h", user, port)
			assert.That(t, slices.Contains(c, "-l") == (user != "") && slices.Contains(c, "-p") == (port != "") && slices.Equal(c[len(c)-4:], []string{"-s", "--", "h", "sftp"}), "%q", c)
		}
	}
	for name, words := range map[string]string{"ssh": "Subsystem", "sh": "command="} {
		assert.That(t, strings.Contains(fmt.Sprint(fault.Advice(mute(name))), words), "%s: %v", name, mute(name))
	}
}

// TestClasses: the class of a method's error is that of the server's status, unless the error has one.
func TestClasses(t *testing.T) {
	for _, c := range []struct{ err, want error }{
		{sftpwire.PermissionDenied, store.ErrPermission},
		{sftpwire.OpUnsupported, store.ErrConfig},
		{fault.New(store.ErrNotFound, "x: %w", sftpwire.PermissionDenied), store.ErrNotFound},
		{store.ErrPrecondition, store.ErrPrecondition},
	} {
		err := failed("put", "k", c.err)
		assert.That(t, errors.Is(err, c.want) && errors.Is(err, c.err), "%v", err)
		for _, other := range []error{store.ErrPermission, store.ErrConfig, store.ErrNotFound, store.ErrPrecondition} {
			assert.That(t, other == c.want || !errors.Is(err, other), "%v is %v, too", err, other)
		}
	}
	assert.That(t, failed("put", "k", nil) == nil, "no error is one")
	err := failed("put", "k", sftpwire.Failure)
	assert.That(t, !store.Permanent(err), "a general failure is permanent: %v", err)
}
