package audit

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os"

	"github.com/repolock/repolock/internal/plain"
	"github.com/repolock/repolock/internal/regular"
)

// Log is a file that records are appended to. It may be used concurrently, by any
// number of processes: each record is one write to the end of the file, which the
// system does as a whole (O_APPEND: open(2); not on NFS).
type Log struct{ file *os.File }

// Open opens the file, and creates it, for its owner alone, if there is none. It refuses a
// FIFO, which could make it wait.
func Open(path string) (*Log, error) {
	file, err := regular.Append(path)
	if err != nil {
		return nil, err
	}
	return &Log{file}, nil
}

// Append appends a record, with texts of a bounded length.
func (l *Log) Append(r Record) error {
	r.Timestamp = r.Timestamp.UTC()
	line, err := plain.Marshal(r.cut())
	if err != nil {
		return err
	}
	n, err := l.file.Write(append(line, '\n'))
	if err != nil && n > 0 {
		_, _ = l.file.Write([]byte{'\n'}) // the disk is full, and what comes next is to be a line of its own
	}
	return err
}

// maxLine is more than any record needs: a lock's body has at most 64 KiB, and the rest is cut.
const maxLine = 1 << 20

// Read returns the records of a log, and how many lines it skipped because they are too
// long or no records: of a log that was written to a full disk, one may be cut off.
func Read(r io.Reader) (records []Record, skipped int, err error) {
	lines := bufio.NewReaderSize(r, maxLine)
	for {
		line, err := lines.ReadSlice('\n')
		tooLong := errors.Is(err, bufio.ErrBufferFull)
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = lines.ReadSlice('\n')
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return records, skipped, err
		}
		if len(line) > 0 {
			var record Record
			if !tooLong && json.Unmarshal(line, &record) == nil && record.Event != "" && !record.Timestamp.IsZero() {
				records = append(records, record)
			} else {
				skipped++
			}
		}
		if err != nil {
			return records, skipped, nil
		}
	}
}
