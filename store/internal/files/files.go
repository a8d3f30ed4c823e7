// Package files has the rules that store/dir and store/sftp share, whose objects are files. A repository can be used
// through both, so they must agree on names and on ETags.
package files

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/repolock/repolock/store"
)

// CheckKey is store.CheckKey, but also refuses temporary names.
func CheckKey(key string) error {
	if err := store.CheckKey(key); err != nil {
		return err
	}
	for element := range strings.SplitSeq(key, "/") {
		if IsTemp(element) {
			return fmt.Errorf("%w: %q is a temporary file's name", store.ErrInvalidKey, element)
		}
	}
	return nil
}

// Listable reports whether List can show a key. A listed key can be invalid, because a file can have any name. The key
// of a folder ends with a slash.
func Listable(key string) bool {
	for element := range strings.SplitSeq(strings.TrimSuffix(key, "/"), "/") {
		if element == "" || element == "." || element == ".." || IsTemp(element) || strings.Contains(element, "\x00") {
			return false
		}
	}
	return true
}

// Split cuts a key after its last slash; dir is "" for a key in the root.
func Split(key string) (dir, name string) {
	if i := strings.LastIndexByte(key, '/'); i >= 0 {
		return key[:i], key[i+1:]
	}
	return "", key
}

const (
	tempPrefix = ".repolock-"
	tempSuffix = ".tmp"
)

// NewTemp returns a temporary name that no other process uses.
func NewTemp() string { return tempPrefix + rand.Text() + tempSuffix }

// IsTemp reports whether a name has the form of NewTemp's names.
func IsTemp(name string) bool {
	return strings.HasPrefix(name, tempPrefix) && strings.HasSuffix(name, tempSuffix)
}

// Abandoned is the age from which a temporary file belongs to no living process. It allows for clocks that are hours
// apart.
const Abandoned = 24 * time.Hour

// kept are directories that other programs make once, and then expect to exist.
var kept = []string{"index", "index/lock.shared", "index/lock.intent"}

// Prunes reports whether to remove an empty directory: this process has made it, or it is only for locks. It returns
// false for the root, and for a directory that other programs need.
func Prunes(dir string, made bool) bool {
	return dir != "" && !slices.Contains(kept, dir) && (made || strings.HasPrefix(dir, kept[0]+"/"))
}

// Wanted reports whether a listing wants a file of this name, and whether it wants a directory of this name.
type Wanted func(name string) (file, folder bool)

// Below returns the Wanted of a directory whose keys begin with at. It wants files whose keys have the prefix, and
// directories below which keys can have it. A listing calls it for each name in the directory, so it doesn't build a
// key.
func Below(prefix, at string) Wanted {
	rest := strings.TrimPrefix(prefix, at)
	if strings.HasPrefix(at, prefix) {
		rest = ""
	}
	return func(name string) (file, folder bool) {
		file = strings.HasPrefix(name, rest)
		way, on := strings.CutPrefix(rest, name)
		return file, file || on && strings.HasPrefix(way, "/")
	}
}

// OfRclone reports whether statvfs(3) and the size of a directory look like a mount of rclone. Most file systems above
// a mount pass them on (bindfs, gocryptfs). sshfs invents the same number of files, in blocks of 512 bytes.
func OfRclone(files, blockSize, size uint64) bool {
	return files == 1e9 && blockSize != 512 && size == 0
}

// Set sorts names and removes duplicates.
func Set(names []string) []string {
	slices.Sort(names)
	return slices.Compact(names)
}

// MaxScans bounds the scans of a directory that changes all the time.
const MaxScans = 16

// maxBodies bounds the bodies in a page, in bytes.
const maxBodies = 8 << 20

// Page is a page of a listing that is being built.
type Page struct {
	store.Page
	room int // how many bytes of bodies still fit
}

// NewPage returns an empty page.
func NewPage() Page { return Page{store.Page{Bodies: map[string][]byte{}}, maxBodies} }

// Show adds an object, and its body if there is room for it. body is nil if it wasn't read.
func (p *Page) Show(obj store.Object, body []byte) {
	p.Objects = append(p.Objects, obj)
	if len(body) > 0 && len(body) <= p.room && CheckKey(obj.Key) == nil {
		p.room -= len(body)
		p.Bodies[obj.Key] = body
	}
}

// MaxHashed is the largest body whose ETag is a hash, in bytes. The body of a lock has about a hundredth of that.
const MaxHashed = 64 << 10

// ETag returns a hash of a body, which has at most MaxHashed bytes. The file's inode and times aren't enough: a file
// system uses an inode's number again at once, and two versions can have the same mod time.
func ETag(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:16])
}
