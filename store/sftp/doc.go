// Package sftp is a store in a directory of a server that has SSH. An object is a file, and its key is the path below
// the directory, as in store/dir. Programs on the server can use the same directory through store/dir.
//
// # Connection
//
// Open starts the user's ssh, in a session of its own, and speaks SFTP version 3 on its stdin and stdout. All requests
// share the connection. After its end the next request opens another one; no request is repeated. If a request's
// context ends by its deadline, and the server has answered nothing for a second or more, the store closes the
// connection.
//
// # Guarantees
//
// Put writes the body to a temporary file in the object's folder, flushes it (fsync@openssh.com), renames it
// (posix-rename@openssh.com), and flushes the folder and the folders above it. It returns after the answers to all of
// that. For IfAbsent it links the temporary file instead (hardlink@openssh.com). A reader sees the whole body or
// nothing. Some servers answer with success, and do nothing. So Put and Delete also look, in the same flight: after a
// rename the temporary file is gone, after a link the new name is there, after a removal the name is gone.
//
// The extension alone doesn't show that the server's file system has hard links. So the first Put of a connection with
// IfAbsent links its temporary file twice to another name. If the first link isn't there, or the second one isn't refused,
// the Put returns ErrConditionUnsupported before it stores anything, and IfAbsent is unsupported from then on. A server
// whose links aren't there later counts as one without hard links, too.
//
// If the file system refuses the flush of each file, even of an empty one, Put stores without it. A crash of the server's
// machine can then lose an object. If it refuses one flush alone, Put fails.
//
// A connection that breaks can leave a file named .repolock-*.tmp. List doesn't show that file, and a Delete after a day
// removes it. On a server without fsync@openssh.com that includes files in the root, up to a thousand names.
//
// If the connection breaks after the rename was sent, the server might still process it. It processes the requests of a
// connection in order, so no later request overtakes it on the same connection, but one on another connection can.
//
// The directory must exist. Files and directories below it get its permissions, setgid included, whatever the server's
// umask.
//
// A connection that only reads writes nothing. The first Put makes a file, and removes its name at once. From then on each
// List writes into that file, and learns the server's time from its mod time. The precision is a second. Before the first
// Put, List has no time. Some servers write such a file back when it is closed. On a server without fsync@openssh.com the
// Put tries that, and to rclone it makes no such file. There List never has a time.
//
// # Cost
//
// A request here is a flight: packets that are sent together, and cost one round trip. Put is three flights, and two
// more if it makes directories. If a List before it has made the temporary file (store.Preparing), Put is two. List is two
// on OpenSSH's server if lock.shared exists, and four on another server: it scans each directory at least twice, as
// store/dir does, and reads each file under the prefix. More levels of directories than a lock has can add flights, and so
// can each further 128 files. Get is three. Delete is one, and so is DeleteAll of any number of keys. One more follows
// for each key that the server refuses to remove. If the first request of a connection isn't a Put, a look at the root
// precedes it. Opening a connection takes the round trips of ssh's own login, and one.
//
// # Files that are replaced
//
// On OpenSSH's server a listing also reads a file in the flight that opens it.
//
// On btrfs a directory that is open shows no file that was replaced after it was opened. So a scan that opens a
// directory in one flight and reads it in the next misses a file that is replaced in between. If the server's handles
// show that it is OpenSSH's, a listing guesses the next handle, and sends both requests in one flight. Two such quick
// scans must agree. The server has both requests when it begins with the first, so a listing misses a file only if it
// is replaced between the two, in both scans.
//
// On another server two scans of three flights must agree. There, on btrfs, a listing misses an object that is
// overwritten twice within it. The refreshes of a lock that are due are 4.5 s apart or more.
//
// # Caveats
//
// IfMatch is unsupported: SFTP has no such condition. IfAbsent is unsupported on a server without hard links. Put is
// refused by a server without posix-rename@openssh.com (SFTPGo, MySecureShell, a plain server of paramiko). The rename of
// version 3 must not replace a file, and where it does, nothing promises one step. If Put removed the file first, a List
// could miss it. ETags are hashes of the bodies, as store/dir's.
//
// List also shows links, pipes and other special files, because they might be locks; Get refuses them. A link in place
// of a directory is refused or listed, and List reads nothing below it, except on servers whose LSTAT follows links
// (ProFTPD). A List that finds more than 65,536 names fails. pkg/sftp's server also removes empty directories in place of
// files.
package sftp
