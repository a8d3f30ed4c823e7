package sftpwire

// HasSize and the others are the flags of Attrs.
const (
	HasSize, HasOwner, HasPerm, HasTimes = 1, 2, 4, 8
	hasExtended                          = 1 << 31
)

// KindDir and the others are the kinds of files that Attrs.Kind returns.
const KindDir, KindRegular, KindLink = 0o040000, 0o100000, 0o120000

// Attrs are the attributes of a file. Flags names the attributes that are set; the others are zero.
type Attrs struct {
	Flags        uint32 // the attributes that are set: HasSize and others
	Size         uint64 // in bytes
	UID, GID     uint32 // the owner
	Perm         uint32 // st_mode: the permissions, and in an answer the kind
	Atime, Mtime uint32 // seconds since 1970
}

// Kind returns the bits of st_mode for the kind of the file, or 0 if the server doesn't send them.
func (a Attrs) Kind() uint32 { return a.Perm & 0o170000 }

// Entry is a name in a directory, as the server sends it: "." and ".." too.
type Entry struct {
	Name  string // without the directory
	Attrs Attrs  // as far as the server sends them
}

// Statvfs describes a file system. Its fields are named after the fields of statvfs(3).
type Statvfs struct {
	Bsize, Frsize, Blocks, Bfree, Bavail, Files, Ffree, Favail, Fsid, Flag, Namemax uint64
}
