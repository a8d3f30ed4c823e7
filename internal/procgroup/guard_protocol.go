//go:build unix

package procgroup

import (
	"encoding/binary"
	"errors"
	"io"
)

// guardOrder contains all that the guard needs to know.
type guardOrder struct {
	Magic  uint32
	Expiry Expiry
	Pgid   int64
	Allowance
	Seq uint64
}

// orderMagic distinguishes an order from typed text.
const orderMagic = 0x72656c6f

// guardAnswer says that the guard follows the order with this number from now on. Stopped is
// set if the guard had stopped the group and no longer does, Parted if it stops the group
// because of ErrParted. When that begins, the guard answers the last order once more.
type guardAnswer struct {
	Seq             uint64
	Stopped, Parted bool
}

// write needs no byte order, because both sides are the same program. A record is smaller
// than PIPE_BUF, so it is never written in part: pipe(7).
func write(w io.Writer, record any) error {
	return binary.Write(w, binary.NativeEndian, record)
}

func receive(r io.Reader, record any) error {
	return binary.Read(r, binary.NativeEndian, record)
}

func readOrder(r io.Reader) (o guardOrder, err error) {
	err = receive(r, &o)
	// kill(2) takes 0 for our own group and 1 for every process.
	if err == nil && (o.Magic != orderMagic || o.Pgid <= 1) {
		err = errors.New("not an order")
	}
	return o, err
}
