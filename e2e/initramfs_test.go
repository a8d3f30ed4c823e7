//go:build linux && programs && minio

package e2e

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
)

// initramfs writes a kernel's first root file system, all of whose files can be executed.
// The kernel's Documentation/driver-api/early-userspace/buffer-format.rst describes the
// format, cpio's "newc".
func initramfs(name string, files map[string][]byte) error {
	var b bytes.Buffer
	dirs := map[string]bool{}
	for _, at := range slices.Sorted(maps.Keys(files)) {
		if dir := path.Dir(at); dir != "." && !dirs[dir] {
			dirs[dir] = true
			cpio(&b, dir, 0o040755, nil)
		}
		cpio(&b, at, 0o100755, files[at])
	}
	cpio(&b, "TRAILER!!!", 0, nil)
	return os.WriteFile(name, b.Bytes(), 0o600)
}

// cpio appends one file. Its header and its content end at multiples of four bytes.
func cpio(b *bytes.Buffer, name string, mode int, content []byte) {
	const inode, uid, gid, links, mtime, major, minor, rmajor, rminor, check = 0, 0, 0, 1, 0, 0, 0, 0, 0, 0
	fmt.Fprintf(b, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00", inode, mode, uid, gid, links, mtime,
		len(content), major, minor, rmajor, rminor, len(name)+1, check, name)
	pad(b)
	b.Write(content)
	pad(b)
}

func pad(b *bytes.Buffer) { b.Write(make([]byte, -b.Len()&3)) }
