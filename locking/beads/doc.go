// Package beads holds the exclusive lock of a beads database: the file .exclusive-lock in the
// .beads directory, as EXCLUSIVE_LOCK of beads defines it. While a valid lock is there,
// the daemon (or the Dolt server) of beads skips the database.
//
// # The file
//
// It is a JSON object with holder, pid, hostname, started_at and version. A lock is stale if its
// hostname is this machine's without regard to case, and kill(pid, 0) returns ESRCH. EPERM is a
// living process, and so is a zombie. A lock of another host is valid, and so is a file that
// can't be parsed. The format has no ttl: a lock lasts until its process ends, so that its pid
// must be that of a process that lives as long as the lock. The ttl of TryLock has no effect.
//
// If the system uses the pid of a holder that was killed for another process, the lock is held
// until that process ends.
//
// # Between users of this package
//
// The format itself doesn't exclude two tools. This package does, among its own users:
//
//   - TryLock links a complete file to the name, which fails if there is one, and verifies
//     afterwards that the file there is its own.
//   - TryLock removes a stale lock under the flock of the .beads directory, so that it never
//     removes the lock that another user of this package has put in its place. On a file system
//     without flock (NFS) a stale lock stays held, until Break removes it: the daemon, up to
//     v0.49.6, takes a process that is gone for one that runs. New
//     refuses a system without flock (Windows).
//   - A removal renames the file aside, looks at it, and puts it back if it is another one.
//   - The handle keeps its file open, so that no other file has its inode number meanwhile.
//     Renew, Resume and Release compare inode and content.
//
// # Beside other tools
//
// A tool that calls os.WriteFile, as the document's example does, overwrites a lock without
// looking, and its os.Remove removes any lock. Then Renew returns ErrLost: until the next
// renewal, two tools run. A tool that writes into the file in the microseconds between our look
// and our removal loses its lock. If a third tool locks while a file is aside by mistake, the
// file isn't put back, and stays beside as .exclusive-lock.repolock-*.tmp until Cleanup removes
// it after a day.
//
// The daemon removes a stale lock by name. If it has read a stale lock, and a new lock takes the
// place of that one before the daemon removes it, then the daemon removes the new lock. Therefore
// TryLock looks again 100 ms after it has created its file. A daemon that is slower than that,
// and than Options.Settle, removes a lock that is held, which the next Renew notices.
//
// A sync cycle that runs when the lock is created completes. Options.Settle waits for its end.
//
// Containers that share a directory must have different hostnames: with the same one, a process
// of another container seems to have ended.
package beads
