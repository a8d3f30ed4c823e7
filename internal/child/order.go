//go:build unix

package child

import (
	"encoding/binary"
	"errors"
	"io"
	"time"
)

// An order tells the guard everything that it needs to know, every time.
type order struct {
	Magic  uint32
	Expiry uint32
	Pgid   int64
	Until  time.Duration // an absolute reading of clock.System{}.Elapsed
	Seq    uint64
}

// orderMagic tells an order from something that was typed.
const orderMagic = 0x72656c6f

// An answer says that the order with this number holds from now on, and whether
// the guard had stopped the group before.
type answer struct {
	Seq     uint64
	Stopped uint64
}

// Both sides are the same program, and a record is smaller than PIPE_BUF, so it
// is never written in part: pipe(7).
func write(w io.Writer, record any) error {
	return binary.Write(w, binary.NativeEndian, record)
}

func readOrder(r io.Reader) (o order, err error) {
	err = binary.Read(r, binary.NativeEndian, &o)
	// To kill(2) the "groups" 0 and 1 are our own and every process there is.
	if err == nil && (o.Magic != orderMagic || o.Pgid <= 1) {
		err = errors.New("not an order")
	}
	return o, err
}

func readAnswer(r io.Reader) (a answer, err error) {
	err = binary.Read(r, binary.NativeEndian, &a)
	return a, err
}
