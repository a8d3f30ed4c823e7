// Package towerfleet keeps locks in the format of the specification tower-fleet/lock/v1: a JSON file
// NAME.lock for each lock, in a directory of mode 0700. A holder creates the file, writes heartbeats into
// it, and removes it. If the heartbeat is older than the ttl, the lock is stale. A stale lock stays held
// until a client with Options.Force steals it. The pid in the file decides nothing.
//
// # Among users of this package
//
// Two users of this package never both have a lock, unless their wall clocks differ by the ttl. Each
// looks at a lock file and then writes, steals or removes it while it has the flock of the directory.
// A lock file is complete when it appears, because it is a link(2) to a written and synced file. If the
// file system has no hard links, O_EXCL creates it, and a reader can see it half written. Such a file is
// malformed, and so the lock is held.
//
// # Beside the specification's bash script
//
// The script takes no flock. Therefore this package does three more things:
//
//   - TryLock creates the lock file, waits for Options.Settle, and looks again, because the script's
//     "mv -n" doesn't create a file atomically. GNU mv before 8.30 looks, and then renames over any file;
//     later versions can do the same if the file vanishes meanwhile. Except in coreutils 9.2 to 9.4, mv
//     also exits with 0 if it has moved nothing. In both cases the script believes that it has the lock.
//     But its temporary file NAME.lock.REQUEST.tmp exists until mv has moved it, and stays if mv moves
//     nothing. So if that file is there after Settle, TryLock renames it to the lock file, and is refused.
//   - A heartbeat swaps the new file with the lock file in one step (RENAME_EXCHANGE), and looks at the
//     file that it got. If another program has stolen the lock before the swap, the heartbeat swaps back.
//     A steal does the same. So there is always a lock file.
//   - A release writes a heartbeat first if the last one is old, so that no other program may steal the
//     lock before it is removed.
//
// # Limits
//
//   - A script that looks before our lock is there, and writes its temporary file after Settle, runs
//     beside us if its mv exits with 0. Renew notices the file. Once it has been there for Settle, Renew
//     gives the lock to the script and returns locking.ErrLost. Two scripts can run beside each other in
//     the same way, and neither notices it.
//   - The temporary file of a killed script blocks the lock until the request in it is stale, or for
//     DefaultTTL after its last change if it can't be read. If a script ends before Settle has passed,
//     and its mv has moved nothing, the lock can stay like a crashed holder's.
//   - Another program steals by deleting the file and creating its own. If its look was long ago, it
//     steals a live lock. Our next Renew notices that.
//   - The script's update_heartbeat doesn't check the owner. A script that was suspended with a stale lock
//     can write that over ours. TryLock notices it if the temporary file is there; otherwise Renew does.
//   - Where neither RENAME_EXCHANGE nor RENAME_SWAP exists (see swap_other.go, and NFS), a heartbeat looks
//     and then renames. If it is suspended in between for longer than the ttl, it replaces the lock of a
//     thief that takes no flock.
//   - A lock's age is the difference of two hosts' wall clocks. A heartbeat in the future is live.
package towerfleet
