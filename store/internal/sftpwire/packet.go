package sftpwire

import (
	"bufio"
	"encoding/binary"
	"io"
	"slices"

	"github.com/repolock/repolock/internal/text"
)

// The types of packets: requests and answers.
const (
	typeInit, typeOpen, typeClose, typeRead, typeWrite   = 1, 3, 4, 5, 6
	typeLstat, typeFstat, typeSetstat, typeFsetstat      = 7, 8, 9, 10
	typeOpendir, typeReaddir, typeRemove, typeMkdir      = 11, 12, 13, 14
	typeRmdir, typeRealpath, typeStat, typeRename        = 15, 16, 17, 18
	typeVersion, typeStatus, typeHandle, typeData        = 2, 101, 102, 103
	typeName, typeAttrs, typeExtended, typeExtendedReply = 104, 105, 200, 201
)

const (
	version   = 3
	minPacket = 5          // bytes of a type and an id, or of a type and a version
	maxPacket = 257 * 1024 // bytes that we read: OpenSSH's limit, and 1 KiB
	maxSent   = 34000      // bytes that each server accepts, with the length
	maxHandle = 256        // bytes
)

// readPacket reads a packet into buf, and enlarges buf if necessary. body begins after the type.
func readPacket(in *bufio.Reader, buf *[]byte) (kind byte, body *fields, err error) {
	head := make([]byte, 4)
	if _, err := io.ReadFull(in, head); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head)
	if n < minPacket || n > maxPacket {
		return 0, nil, violation("a packet of %d bytes", n)
	}
	*buf = slices.Grow((*buf)[:0], int(n))[:n]
	_, err = io.ReadFull(in, *buf)
	return (*buf)[0], &fields{rest: (*buf)[1:]}, err
}

// fields reads the fields of a packet one after another.
type fields struct {
	rest  []byte
	short bool // a field was truncated, and all later ones are empty: the packet must be refused
}

func (f *fields) take(n uint64) (taken []byte) {
	if n > uint64(len(f.rest)) {
		n, f.short = uint64(len(f.rest)), true
	}
	taken, f.rest = f.rest[:n], f.rest[n:]
	return taken
}

// number reads an unsigned integer of n bytes, the highest byte first.
func (f *fields) number(n uint64) (v uint64) {
	for _, b := range f.take(n) {
		v = v<<8 | uint64(b)
	}
	return v
}

func (f *fields) u32() uint32    { return uint32(f.number(4)) }
func (f *fields) string() string { return string(f.take(f.number(4))) }

func (f *fields) status() Status {
	s := Status{Code: Code(f.u32())}
	if len(f.rest) > 0 { // some servers send only the code
		s.Msg = text.Line(f.string())
	}
	return s
}

func (f *fields) attrs() (a Attrs) {
	flags := f.u32()
	a.Flags = flags & (HasSize | HasOwner | HasPerm | HasTimes)
	optional := func(flag uint32, n uint64) uint64 {
		if flags&flag == 0 {
			return 0
		}
		return f.number(n)
	}
	a.Size = optional(HasSize, 8)
	a.UID, a.GID = uint32(optional(HasOwner, 4)), uint32(optional(HasOwner, 4))
	a.Perm = uint32(optional(HasPerm, 4))
	a.Atime, a.Mtime = uint32(optional(HasTimes, 4)), uint32(optional(HasTimes, 4))
	for n := optional(hasExtended, 4); n > 0 && !f.short; n-- {
		f.string()
		f.string()
	}
	return a
}

func (f *fields) names() (entries []Entry) {
	for n := f.u32(); n > 0 && !f.short; n-- {
		name, _ := f.string(), f.string() // the second string is a line as of ls -l
		entries = append(entries, Entry{name, f.attrs()})
	}
	return entries
}
