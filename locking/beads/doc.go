// Package beads holds the exclusive lock of a beads database: the file .exclusive-lock in the
// .beads directory, as EXCLUSIVE_LOCK of beads defines it. While a valid lock is there,
// the daemon (or the Dolt server) of beads skips the database.
//
// # The file
//
// It is a JSON object with holder, pid, hostname, started_at and version. A lock is stale if its
// hostname is this machine's, ignoring case, and kill(pid, 0) returns ESRCH. A zombie is a living
// process, and so is a process of another user, for which kill returns EPERM. A lock of another host is
// held, and so is a file that can't be parsed. The format has no ttl: a lock lasts until its process
// ends. The ttl of TryLock has no effect.
//
// If a holder is killed and the system gives its pid to another process, the lock stays held until that
// process ends.
//
// # Between users of this package
//
// The format itself doesn't exclude two tools. This package excludes its own users:
//
//   - TryLock links a complete file to the name. That fails if the name exists. Then TryLock verifies
//     that the file there is its own.
//   - TryLock removes a stale lock under the flock of the .beads directory, so that it never removes a
//     newer lock of another user of this package. On a file system without flock (NFS) a stale lock
//     stays held until Break removes it. The daemon doesn't remove it either: up to v0.49.6 it takes
//     every ended process for a living one. New refuses a system without flock (Windows).
//   - A removal renames the file aside, compares it, and puts it back if it is another lock's.
//   - The handle keeps its file open, so that no other file can get its inode number. Renew, Resume and
//     Release compare inode and content.
//
// # Beside other tools
//
// A tool that calls os.WriteFile, as the document's example does, overwrites any lock, and its os.Remove
// removes any lock. Both tools run until our next Renew, which returns ErrLost. A tool that writes into
// our file in the microseconds between our comparison and our removal loses its lock. If a third tool
// locks while another tool's file is aside, that file can't be put back. It stays as
// .exclusive-lock.repolock-*.tmp until Cleanup removes it after a day.
//
// The daemon removes a stale lock by its name. If it has read a stale lock, and TryLock replaces that
// before the daemon removes it, the daemon removes the new lock. Therefore TryLock checks its file after
// 100 ms. If the daemon is slower, it removes a held lock, and the next Renew returns ErrLost.
//
// A sync cycle that runs when the lock is created goes on to its end.
//
// Containers that share a directory must have different hostnames: otherwise a process of another
// container seems to have ended.
package beads
