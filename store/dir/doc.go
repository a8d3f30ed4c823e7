// Package dir is a store in a directory, on a local disk or on a network file
// system: an object is a file, and its key is the path below the directory.
//
// # Guarantees
//
// Put writes the body to a temporary file in the object's folder, and then renames it. For
// IfAbsent it links the temporary file instead. A reader sees the whole body or nothing, and a failed Put leaves
// nothing behind. A process that is killed can leave a file named .repolock-*.tmp. List doesn't show that file. After a
// day, a Delete in the same folder removes it, and so does a Put that fails.
//
// While a conditional method compares a file and then replaces or removes it, no other method
// replaces or removes that file. So a conditional Put never restores a deleted object. There is
// no lock file, and the system frees the flock of a process that dies.
//
// The directory must exist. If it is missing, or is no longer on the file system that it was
// opened on (a disk was unmounted), every method returns store.ErrNotFound.
//
// Files and directories get the owner and the group of their folder, as far as the system
// permits it. They get the permissions of the repository's directory, setgid included, whatever
// the umask.
//
// # Cost
//
// Get opens one file. Put and Delete open the directories of the key, and wait for a flock. List
// reads each directory under the prefix at least twice, because one read can miss a file that is
// renamed meanwhile, and reads each file under the prefix. It looks at no other name: a directory
// with other files costs only its two reads. A listing is one page. HasOther reads directories
// until it finds a file.
//
// On a file system that isn't known to be local, List first makes and removes a file in each
// directory. That makes a client with a cache of listings (sshfs, NFS) read the directory anew.
// Get lists the folder in the same way if the file is missing. It is an error if a listed file
// can't be opened because it is missing. If a file system shows the files of other machines late
// whatever we do (rclone, davfs2), Open returns store.ErrConfig.
//
// On btrfs and overlayfs, and on local file systems that we haven't tried, only a read counts during
// which the directory wasn't changed: an open directory of btrfs shows no file that was replaced
// after it was opened. On Linux before 6.13 such a read waits for the end of the kernel's tick in
// which the directory was changed, 10 ms at most. On a network file system that hides such names
// (FUSE above btrfs doesn't), List can miss an object that is overwritten in each of its two reads.
//
// # Flock
//
// A rename, a link and a removal are single steps of the system, and need no flock. A conditional
// method has two steps: it compares the file, and then replaces or removes it. Between the two
// steps the name must stay with that file. So each method that replaces or removes a file, with a
// condition or without, does this:
//
//   - On a local file system it takes the flock of the repository's directory, shared, and the
//     flock of the file, exclusive. Then it checks that the file still has its name. If another
//     file has the name by now, it begins again with that file. The name stays with the locked
//     file, because a method that wants to move it waits for the same flock.
//   - If the name has no file, or has a link, a pipe or a file that can't be opened, it takes only
//     the flock of the directory, exclusive. That excludes all methods that share it. Older
//     versions, and clients in other languages, do so for every file.
//   - A Put to a free name makes a link, and takes no flock: link(2) replaces nothing.
//
// So a process that is slow or stopped while it holds a flock delays only writers of the same
// file, and methods that need the flock of the directory.
//
// On any other file system each method takes the flock of the directory, exclusive. There the
// kernel changes one name in a folder at a time, and a method that waits in the kernel can't heed
// its context. With sshfs and 300 ms for a rename, 20 holders with a ttl of 60 s all got their
// locks one after another, but only 4 of 20 side by side.
//
// # Caveats
//
// flock binds only the programs on one machine that use this package. It binds neither another
// program that writes the same files, nor another machine on a network file system. Therefore
// IfMatch is only claimed on a network file system. Beside another program, such as an SFTP server,
// a Put with IfMatch exchanges its file with the present one. That fails if the file was deleted,
// so a deleted object stays deleted. A file that the other program puts between the comparison and
// the exchange stays, but is missing under its name for a moment: readers see our file instead.
// A deletion with a condition moves the file away, and compares it again. A file system that can't
// exchange files (ZFS before 2.2, FreeBSD's, most of FUSE) renames instead. There an object that
// another program deletes after the comparison comes back. It is unsupported if a directory can't be locked (NFS, Windows).
// If another program takes the flock of the directory, as flock(1) does, every Put and Delete of
// an existing file waits until its context ends. The error then names that program, on Linux with
// its pid. List and Get take no flock.
//
// A file and a directory can't have the same name: beside an object "a" there can be no object
// "a/b", and List refuses the prefix "a/". On a file system that ignores case, "A" and "a" are one
// object. A symbolic link in place of a directory below the repository is refused. The path of the
// repository can have links.
//
// List also shows names that aren't valid keys, byte for byte, and links, pipes and other special
// files, because they might be locks. Get refuses them with store.ErrInvalidKey or
// store.ErrIrregular. Delete removes them. It also removes empty directories (Page.Folders), but
// not on Windows, where rmdir does. A directory that this user can't read fails the listing, unless
// the caller skips it: see store.Skipping.
//
// A system call that hangs (a dead NFS server) can't be interrupted. The methods check their
// contexts between system calls.
package dir
