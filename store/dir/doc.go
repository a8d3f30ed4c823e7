// Package dir is a store in a directory, on a local disk or on a network file
// system: an object is a file, its key the path below the directory.
//
// # Guarantees
//
// A body is written to a temporary file beside its place and renamed into it,
// or linked if it has to be absent: a reader sees all of it or nothing, and a
// failed Put leaves nothing. What a killed process leaves is a file named
// .repolock-*.tmp, which is never listed and is removed a day later.
//
// Put with IfMatch, and everything that replaces or removes an object, takes
// the flock of the repository's directory for the moment of the rename, so
// that a conditional Put never brings back what was deleted meanwhile. No lock
// file is left, and a process that dies frees it.
//
// The directory itself is never created: if it isn't there, or is no longer on
// the file system that it was opened on (a disk that was unmounted), every
// method gives store.ErrNotFound.
//
// Files and directories get the owner and the group of the directory that they are
// made in, as far as the system lets this process give them away, and the rights of
// the repository's directory, setgid included, whatever the umask.
//
// # Caveats
//
// flock binds the programs that use this package, on one machine. Another
// program that writes the same files isn't bound by it, and on a network file
// system neither is another machine, which is why IfMatch is no more than
// claimed there and unsupported where a directory can't be locked (NFS,
// Windows). A process that is stopped in the moment that it has it, or another
// program that takes it (flock(1) on the directory), holds up every Put and
// Delete until their contexts end, and then is named by the error, on Linux with
// its pid; List and Get take no lock.
//
// A file and a directory can't have the same name: while there is an object
// "a" there can be none called "a/b". On a file system that ignores case, "A"
// and "a" are one object. A symbolic link in place of a directory is refused,
// wherever it leads; the path to the repository may have some.
//
// File names that aren't valid keys are listed nevertheless, byte for byte,
// and so are links, pipes and the like: what might be a lock is shown. Get
// refuses them, with store.ErrInvalidKey or store.ErrIrregular. Delete removes
// them, and empty directories (Page.Folders); on Windows these are for rmdir.
//
// A system call that hangs (a dead NFS server) can't be interrupted: contexts
// are looked at between system calls.
package dir
