//go:build unix

package guard

import (
	"errors"
	"io"
	"time"

	"github.com/repolock/repolock/internal/clock"
)

// Order is an order to the guard. It replaces the earlier orders.
type Order struct {
	Expiry Expiry
	Pgid   int
	Allowance
	Seq uint64
}

// Answer is sent when the guard follows the order Seq. Stopped is set if the guard had stopped the group
// and now lets it run. Parted is set while the guard stops the group because of ErrParted: when that
// begins, the guard answers the last order again.
type Answer struct {
	Seq             uint64
	Stopped, Parted bool
}

// magic distinguishes an order from text, if a person starts the guard by hand.
const magic = 0x72656c6f

// Write sends an order. It is smaller than PIPE_BUF, so it is never written in part: pipe(7).
func (o Order) Write(w io.Writer) error {
	return write(w, magic, uint64(o.Expiry), uint64(o.Pgid), uint64(o.Until), uint64(o.Seen.Wall), uint64(o.Seen.Elapsed), o.Seq)
}

func readOrder(r io.Reader) (Order, error) {
	var n [7]uint64
	if err := read(r, n[:]); err != nil {
		return Order{}, err
	}
	o := Order{
		Expiry: Expiry(n[1]), Pgid: int(n[2]), Seq: n[6],
		Allowance: Allowance{time.Duration(n[3]), clock.Reading{Wall: time.Duration(n[4]), Elapsed: time.Duration(n[5])}},
	}
	// kill(2): 0 is our own group, and -1 every process.
	if n[0] != magic || o.Pgid <= 1 {
		return Order{}, errors.New("not an order")
	}
	return o, nil
}

func (a Answer) write(w io.Writer) error {
	var flags uint64
	if a.Stopped {
		flags |= 1
	}
	if a.Parted {
		flags |= 2
	}
	return write(w, a.Seq, flags)
}

// ReadAnswer waits for an answer.
func ReadAnswer(r io.Reader) (Answer, error) {
	var n [2]uint64
	err := read(r, n[:])
	return Answer{n[0], n[1]&1 != 0, n[1]&2 != 0}, err
}

// write writes each number as eight bytes. Package encoding/binary is initialised too late for the guard.
func write(w io.Writer, numbers ...uint64) error {
	var b []byte
	for _, n := range numbers {
		for i := range 8 {
			b = append(b, byte(n>>(8*i)))
		}
	}
	_, err := w.Write(b)
	return err
}

func read(r io.Reader, numbers []uint64) error {
	b := make([]byte, 8*len(numbers))
	if _, err := io.ReadFull(r, b); err != nil {
		return err
	}
	for i, c := range b {
		numbers[i/8] |= uint64(c) << (i % 8 * 8)
	}
	return nil
}
