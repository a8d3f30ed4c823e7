package sftpwire

import (
	"encoding/binary"
	"fmt"
	"strings"
)

// MaxWrite is the largest number of bytes of a Write.
const MaxWrite = 32 * 1024

// The flags of Open.
const FlagRead, FlagWrite, FlagCreate, FlagTrunc, FlagExcl = 0x01, 0x02, 0x08, 0x10, 0x20

// Request is a request. Do adds its answer. A Request can be sent again once Do has returned.
type Request struct {
	Answer

	kind, wanted byte     // the types of the request and of its answer
	body         []byte   // the fields after the id
	limit        uint32   // of a Read: the most bytes of Data
	err          error    // why it can't be sent
	of           *Request // of a guess: the Open or Opendir that opens its handle
	rest         []byte   // of a guess: the fields after the handle
}

// Answer is the answer to a request. Only the fields of its kind of request are set.
type Answer struct {
	Answered bool    // the server has answered
	Status   Status  // OK if the answer has another field
	Handle   string  // of Open and Opendir
	Data     []byte  // of Read; there can be less than was asked for
	Attrs    Attrs   // of Lstat, Stat and Fstat
	Names    []Entry // of Readdir; of Realpath exactly one
	Statvfs  Statvfs // of Space
}

// Err returns nil if the request succeeded. It returns an error with the Code if the request failed, and another error
// if it has no answer.
func (a *Answer) Err() error {
	switch {
	case !a.Answered:
		return errUnanswered
	case a.Status.Code == OK:
		return nil
	}
	return a.Status.err()
}

// Open opens a file. The permissions are for a file that it creates.
func Open(path string, flags, perm uint32) *Request {
	return of(typeOpen, typeHandle).path(path).u32(flags).mode(perm)
}

// Close closes the handle of a file or a directory.
func Close(handle string) *Request { return of(typeClose, typeStatus).string(handle) }

// Read reads at most n bytes. At the end of the file the status is EOF.
func Read(handle string, offset uint64, n uint32) *Request {
	r := of(typeRead, typeData).string(handle).u64(offset).u32(n)
	r.limit = n
	return r
}

// Write writes at most MaxWrite bytes.
func Write(handle string, offset uint64, data []byte) *Request {
	r := of(typeWrite, typeStatus).string(handle).u64(offset).string(string(data))
	if len(data) > MaxWrite {
		r.err = fmt.Errorf("a write of %d bytes: at most %d are allowed", len(data), MaxWrite)
	}
	return r
}

// Lstat reads the attributes of a file, or of a link itself.
func Lstat(path string) *Request { return of(typeLstat, typeAttrs).path(path) }

// Stat reads the attributes of a file. It follows links.
func Stat(path string) *Request { return of(typeStat, typeAttrs).path(path) }

// Fstat reads the attributes of an open file.
func Fstat(handle string) *Request { return of(typeFstat, typeAttrs).string(handle) }

// Setstat sets the attributes that a.Flags names. It follows links.
func Setstat(path string, a Attrs) *Request { return of(typeSetstat, typeStatus).path(path).attrs(a) }

// Fsetstat sets the attributes that a.Flags names.
func Fsetstat(handle string, a Attrs) *Request {
	return of(typeFsetstat, typeStatus).string(handle).attrs(a)
}

// Opendir opens a directory for Readdir.
func Opendir(path string) *Request { return of(typeOpendir, typeHandle).path(path) }

// Readdir reads the next entries of a directory. After the last one the status is EOF.
func Readdir(handle string) *Request { return of(typeReaddir, typeName).string(handle) }

// Remove removes a file.
func Remove(path string) *Request { return of(typeRemove, typeStatus).path(path) }

// Mkdir makes a directory.
func Mkdir(path string, perm uint32) *Request { return of(typeMkdir, typeStatus).path(path).mode(perm) }

// Rmdir removes an empty directory.
func Rmdir(path string) *Request { return of(typeRmdir, typeStatus).path(path) }

// Realpath makes a path absolute.
func Realpath(path string) *Request { return of(typeRealpath, typeName).path(path) }

// Rename is the rename of version 3 of the protocol. The server must refuse it if the new name exists.
func Rename(from, to string) *Request { return of(typeRename, typeStatus).path(from).path(to) }

// The extensions for which this package has a request. A server without an extension answers OpUnsupported.
const (
	ExtPosixRename = "posix-rename@openssh.com"
	ExtHardlink    = "hardlink@openssh.com"
	ExtFsync       = "fsync@openssh.com"
	ExtStatvfs     = "statvfs@openssh.com"
)

// PosixRename is rename(2): it replaces a file that has the new name.
func PosixRename(from, to string) *Request { return ext(ExtPosixRename).path(from).path(to) }

// Hardlink is link(2): it gives a file a second name.
func Hardlink(from, to string) *Request { return ext(ExtHardlink).path(from).path(to) }

// Fsync is fsync(2): it makes an open file durable.
func Fsync(handle string) *Request { return ext(ExtFsync).string(handle) }

// Space asks for the file system of a path. The answer is in Answer.Statvfs.
func Space(path string) *Request {
	r := ext(ExtStatvfs).path(path)
	r.wanted = typeExtendedReply
	return r
}

func ext(name string) *Request { return of(typeExtended, typeStatus).string(name) }

func of(kind, wanted byte) *Request { return &Request{kind: kind, wanted: wanted} }

func (r *Request) u32(v uint32) *Request { r.body = binary.BigEndian.AppendUint32(r.body, v); return r }

func (r *Request) u64(v uint64) *Request { return r.u32(uint32(v >> 32)).u32(uint32(v)) }

func (r *Request) string(s string) *Request {
	r.body = append(r.u32(uint32(len(s))).body, s...)
	return r
}

func (r *Request) path(path string) *Request {
	if strings.ContainsRune(path, 0) { // OpenSSH's server would end the connection
		r.err = fmt.Errorf("path %q has a NUL", path)
	}
	return r.string(path)
}

func (r *Request) mode(perm uint32) *Request { return r.attrs(Attrs{Flags: HasPerm, Perm: perm}) }

func (r *Request) attrs(a Attrs) *Request {
	r.u32(a.Flags)
	if a.Flags&HasSize != 0 {
		r.u64(a.Size)
	}
	if a.Flags&HasOwner != 0 {
		r.u32(a.UID).u32(a.GID)
	}
	if a.Flags&HasPerm != 0 {
		r.u32(a.Perm)
	}
	if a.Flags&HasTimes != 0 {
		r.u32(a.Atime).u32(a.Mtime)
	}
	return r
}

// answer reads an answer of this type.
func (r *Request) answer(kind byte, f *fields) (Answer, error) {
	a := Answer{Answered: true}
	switch kind {
	case typeStatus:
		a.Status = f.status()
	case typeHandle:
		a.Handle = f.string()
	case typeData:
		a.Data = []byte(f.string())
	case typeName:
		a.Names = f.names()
	case typeAttrs:
		a.Attrs = f.attrs()
	case typeExtendedReply:
		_, err := binary.Decode(f.rest, binary.BigEndian, &a.Statvfs)
		f.short = err != nil
	}
	switch {
	case kind != r.wanted && (kind != typeStatus || a.Status.Code == OK):
		return a, violation("an answer of type %d to a request of type %d", kind, r.kind)
	case f.short:
		return a, violation("a truncated answer of type %d", kind)
	case kind == typeHandle && (a.Handle == "" || len(a.Handle) > maxHandle):
		return a, violation("a handle of %d bytes", len(a.Handle))
	case uint64(len(a.Data)) > uint64(r.limit):
		return a, violation("%d bytes, and %d were asked for", len(a.Data), r.limit)
	case kind == typeName && r.kind == typeRealpath && len(a.Names) != 1:
		return a, violation("%d names for one path", len(a.Names))
	}
	return a, nil
}
