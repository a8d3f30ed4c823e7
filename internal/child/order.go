//go:build unix

package child

import (
	"encoding/binary"
	"errors"
	"io"

	"github.com/repolock/repolock/internal/clock"
)

// An order tells the guard everything that it needs to know, every time.
type order struct {
	Magic  uint32
	Expiry uint32
	Pgid   int64
	Allowance
	Seq uint64
}

func (o order) judge(now clock.Reading) error { return o.Allowance.judge(Expiry(o.Expiry), now) }

// orderMagic tells an order from something that was typed.
const orderMagic = 0x72656c6f

// An answer says that the guard goes by the order with this number from now on, whether
// it had stopped the group before and doesn't any more, and whether it stops the group
// because of ErrParted. Without being asked it answers once more when that begins.
type answer struct {
	Seq     uint64
	Stopped uint64
	Parted  uint64
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
