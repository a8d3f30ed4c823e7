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
// While a conditional method compares a file and then replaces or removes it, no other method does that to
// the same file. So a conditional Put never restores what was deleted meanwhile. There is no lock file, and the
// flock of a process that dies is free.
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
// Get opens one file, and lists its folder as List does if the file is missing, unless the file system is known to
// be local. Put and Delete open the directories of the key, and wait for a
// flock. List reads each directory under the prefix at least twice, because a file that is
// renamed meanwhile can be missing from one read, and stats each file of the page; later
// pages of a listing reuse the names that the first one has read. Unless the file system is known
// to be local, List first makes and removes a file in each directory, so that a client that caches
// listings (sshfs, NFS) reads it anew. A file system that shows other machines' files late all the
// same (rclone, davfs2) is refused with store.ErrConfig. A name that is listed, and that isn't there to be opened, is
// an error.
//
// # Flock
//
// A rename, a link and a removal are single steps, and exclude each other without a flock. Two steps are the
// comparison of a file and its replacement or removal. Between the two the name must stay that file's. So each
// method that replaces or removes a file keeps to this, also without a condition:
//
//   - On a local file system it takes two flocks: the repository's directory, shared, and the file, exclusive.
//     Then it looks whether the file still has its name, or else it begins again with the file that has. The name
//     stays, because whatever would give it to another file waits for the same flock.
//   - If there is no file at the name, or a link or a pipe, or a file that it can't open, it takes the flock of the
//     directory alone, exclusive. That excludes all that have it shared. Older versions, and clients in
//     other languages, do that for every file.
//   - A Put to a name that isn't there makes a link, and takes no flock: link(2) replaces nothing.
//
// So a process that is slow or stopped while it has the flock holds up those that write the same file, and those
// that need the whole directory.
//
// On any other file system each method takes the flock of the directory, exclusive. There the kernel itself
// changes one name in a folder at a time, and a method that waits in the kernel can't heed its context: by sshfs,
// at 300 ms a rename, 20 holders whose ttl is 60 s all got in one after another, and 4 of 20 side by side.
//
// # Caveats
//
// flock binds the programs that use this package, on one machine. It doesn't bind another
// program that writes the same files, nor another machine on a network file system.
// Therefore IfMatch is only claimed there, and unsupported if a directory can't be locked
// (NFS, Windows). Another program that takes the directory's flock (flock(1) on the directory) holds up every Put
// and Delete of a file that is there, until their contexts end; then the error names it, on Linux with its
// pid. List and Get take no flock.
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
