// Package dir is a store in a directory, on a local disk or on a network file
// system: an object is a file, its key the path below the directory.
//
// # Guarantees
//
// Put writes a body to a temporary file beside its place, and renames it, or links it for
// IfAbsent: a reader sees all of it or nothing, and a failed Put leaves nothing. A process
// that is killed leaves a file named .repolock-*.tmp, which List doesn't show and a later
// Put or Delete removes after a day.
//
// Put with IfMatch, and each method that replaces or removes an object, takes the flock of
// the repository's directory for the moment of the rename, so that a conditional Put never
// restores what was deleted meanwhile. There is no lock file, and the flock of a process
// that dies is free.
//
// The directory must exist. If it doesn't, or is no longer on the file system that it was
// opened on (a disk that was unmounted), every method returns store.ErrNotFound.
//
// Files and directories get the owner and the group of the directory that they are in, as
// far as the system permits it, and the rights of the repository's directory, setgid
// included, whatever the umask.
//
// # Cost
//
// Get opens one file. Put and Delete open the directories of the key, and wait for the
// flock. List reads each directory under the prefix at least twice, because a file that is
// renamed meanwhile can be missing from one read, and stats each file of the page; later
// pages of a listing reuse the names that the first one has read. Unless the file system is known
// to be local, List first makes and removes a file in each directory, so that a client that caches
// listings (sshfs, NFS) reads it anew. A file system that shows other machines' files late all the
// same (rclone) is refused with store.ErrConfig.
//
// # Caveats
//
// flock binds the programs that use this package, on one machine. It doesn't bind another
// program that writes the same files, nor another machine on a network file system.
// Therefore IfMatch is only claimed there, and unsupported if a directory can't be locked
// (NFS, Windows). A process that is stopped while it has the flock, or another program that
// takes it (flock(1) on the directory), holds up every Put and Delete until their contexts
// end; then the error names it, on Linux with its pid. List and Get take no flock.
//
// A file and a directory can't have the same name: while there is an object "a" there can
// be none named "a/b". On a file system that ignores case, "A" and "a" are one object. A
// symbolic link in place of a directory is refused, wherever it leads; the path to the
// repository can contain links.
//
// List shows names that aren't valid keys too, byte for byte, and links, pipes and the
// like, because they might be locks. Get refuses them, with store.ErrInvalidKey or
// store.ErrIrregular. Delete removes them, and empty directories (Page.Folders), except on
// Windows, where rmdir removes those.
//
// A system call that hangs (a dead NFS server) can't be interrupted: the methods look at
// their contexts between system calls.
package dir
