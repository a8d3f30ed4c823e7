package sftp

import (
	"context"
	"errors"
	"strings"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/internal/files"
	"github.com/repolock/repolock/store/internal/sftpwire"
)

// late returns store.ErrConfig if the server shows the files of other machines too late to hold locks. look and space
// are a Stat and a Space of the root. If the user vouches for the server's listings, late returns its name instead.
//
// rclone has no version or extension of its own in SFTP, because it uses a library of other servers too. But it has three
// signs. It shows no owner of a file. A directory has no size. It names the extension statvfs, but lacks it (before
// 1.76) or invents the number of files. If an rclone is mounted on the server, its answer to statvfs shows that.
func (c *conn) late(look, space *sftpwire.Request) (server string, err error) {
	fresh, a, unsupported := c.fresh, look.Attrs, errors.Is(space.Err(), sftpwire.OpUnsupported)
	invented := space.Err() == nil && files.OfRclone(space.Statvfs.Files, space.Statvfs.Frsize, a.Size)
	served := a.Flags&sftpwire.HasOwner == 0 && a.Size == 0 && c.has(sftpwire.ExtStatvfs)
	where, advice := "the server looks like rclone serve sftp",
		"use the URL of the storage itself (s3:, b2:, minio:), or run the server with --dir-cache-time 0s, without --vfs-cache-mode, and add listings=fresh to the URL"
	switch {
	case served && (unsupported || invented):
	case invented:
		where, advice = "the directory on the server is in a mount of rclone",
			"keep the locks in a directory of the server's own disk, or use the URL of the storage itself (s3:, b2:, minio:)"
		fresh = false
	default:
		return "", nil
	}
	if fresh {
		return "rclone, or a server like it: repolock relies on its listings because of listings=fresh in the URL", nil
	}
	return "", fault.Advise(fault.New(store.ErrConfig, "%s, which shows the locks of other machines minutes late", where), advice)
}

// Describe names up to three flaws of the server: it might show the files of other machines late, it can't flush, or
// its file system refuses hard links.
func (s *Store) Describe(ctx context.Context) (d store.Description, err error) {
	c, err := s.ready(ctx)
	if err == nil {
		d.Server = strings.Join(c.remarks(), "; ")
	}
	return d, failed("describe", "", err)
}

func (c *conn) remarks() (all []string) {
	c.mu.Lock()
	if c.server != "" {
		all = append(all, c.server)
	}
	c.mu.Unlock()
	if c.flushless.Load() {
		all = append(all, "the server's file system refuses to flush a file (fsync): a crash of the server's machine can lose a lock")
	}
	if c.has(sftpwire.ExtHardlink) && c.has(sftpwire.ExtPosixRename) && !c.makesLinks() {
		all = append(all, "the server's file system refuses hard links: an exclusive lock takes one round trip more")
	}
	return all
}
