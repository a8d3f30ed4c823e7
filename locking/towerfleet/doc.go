// Package towerfleet keeps the lock files of the specification tower-fleet/lock/v1: one JSON file
// NAME.lock per lock in a directory of mode 0700, which a holder makes and removes, and in which
// it writes a heartbeat. A lock whose heartbeat is older than its ttl is stale. It stays held
// until an acquirer with Options.Force steals it; the pid decides nothing.
//
// # Two repolocks
//
// Two holders that use this package never both have a lock, as long as their clocks agree better
// than ttl. A critical section of each process has the flock of the directory: looking at a lock
// and then writing, stealing or removing it is one step. The flock leaves no file behind.
// A lock file is complete when it appears: it is a link(2) to a written and synced file. If the
// file system has no hard links, O_EXCL creates it, and a reader can see it half written; such a
// file is malformed, and held.
//
// # Beside the specification's bash script
//
// The script takes no flock. So these rules hold besides:
//
//   - The script's "mv -n" is no atomic creation. GNU mv before 8.30 looks, and then renames over
//     what has appeared meanwhile; later ones can do the same if the file vanishes under them.
//     And mv exits with 0 if it has moved nothing, except that of coreutils 9.2 to 9.4: then the
//     script believes that it has the lock. But its temporary file NAME.lock.REQUEST.tmp exists
//     as long as mv can still replace something, and stays behind if mv moved nothing. So an
//     acquirer creates the lock, waits for Options.Settle, and then looks: the file must be its
//     own, and no temporary file of a live request may lie beside it. If one does, the acquirer
//     moves that file over its own lock, which ends the script's acquisition as the script
//     believes it has ended, and is refused.
//     Settle delays each acquisition; without it, only repolocks can share the directory.
//   - A heartbeat swaps the new file with the old one in one step (RENAME_EXCHANGE), and looks at
//     the file that it got: if that isn't its own lock, because another program has stolen it
//     between the look and the swap, it swaps them back. A steal does the same. There is no
//     moment without a lock file.
//   - A release refreshes an old heartbeat before it removes the file, so that no other program
//     is allowed to steal the lock between the look and the removal.
//
// What remains:
//
//   - A script that has seen no lock file, and writes its temporary file only after Settle has
//     passed, runs beside us if its mv exits with 0. Renew notices that file, gives the lock to
//     the script once the file has been there for Settle, and returns locking.ErrLost. Two
//     scripts run beside each other in the same way, without any Settle, and don't notice it.
//   - A temporary file that a killed script left blocks the lock until the request in it is stale.
//     One that can't be read blocks it for DefaultTTL after its last change.
//     If a script ends before Settle passes and its mv moved nothing, its lock can stay as that of a
//     crashed holder does.
//   - Another program that steals deletes the file and creates its own, after a look that can be
//     old by then. Renew notices it, after at most a heartbeat's interval.
//   - The script's update_heartbeat doesn't look at the owner. One that was suspended with a stale
//     lock can put that back over ours. Settle notices it if the temporary file is there, Renew
//     otherwise.
//   - On systems without RENAME_EXCHANGE or RENAME_SWAP (see rename_other.go), and on file systems
//     without them such as NFS, a heartbeat looks and then renames: a process that is suspended
//     between the two for longer than its lock's ttl replaces the lock of a thief that takes no
//     flock.
//   - Ages compare the wall clocks of hosts. A heartbeat in the future is live.
package towerfleet
