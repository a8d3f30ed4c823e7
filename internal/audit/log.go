package audit

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os"
	"slices"

	"github.com/repolock/repolock/internal/regular"
	"github.com/repolock/repolock/internal/text"
)

// Log is a file that records are appended to. Any number of processes can use it
// concurrently: each record is one write to the end of the file, which is atomic (O_APPEND:
// open(2); not on NFS).
type Log struct{ file *os.File }

// Open opens the file, or creates it for its owner alone. It refuses a FIFO, which could
// make it wait.
func Open(path string) (*Log, error) {
	file, err := regular.Append(path)
	if err != nil {
		return nil, err
	}
	return &Log{file}, nil
}

// Append appends a record, and cuts its texts.
func (l *Log) Append(r Record) error {
	r.Timestamp = r.Timestamp.UTC()
	return l.AppendForeign(r.cut())
}

// AppendForeign appends an event in a form of its own, which marshals to a JSON object.
func (l *Log) AppendForeign(event any) error {
	line, err := text.Marshal(event)
	if err != nil {
		return err
	}
	n, err := l.file.Write(append(line, '\n'))
	if err != nil && n > 0 {
		_, _ = l.file.Write([]byte{'\n'}) // the disk is full: the next record must begin a line
	}
	return err
}

// maxLine is more than any record needs: a lock's body has at most 64 KiB, and the rest is cut.
const maxLine = 1 << 20

// Read returns the records of a log, and the number of lines that it skipped because they
// are too long or no records: a full disk can have cut a line off.
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

// Limits of texts in the log: Read must accept each line.
const (
	// maxText bounds a text of a holder, in bytes. Other clients' bodies have up to 64 KiB;
	// repolock's own texts are shorter than this.
	maxText = 1 << 10
	// maxOwn bounds the other texts of a record. An error can quote a holder's.
	maxOwn = 5 << 10
	// maxHolders is the number of holders that a record names.
	maxHolders = 16
)

// cut returns the record within these limits.
func (r Record) cut() Record {
	for _, s := range []*string{&r.LockPath, &r.Operation, &r.Job, &r.Actor, &r.Hostname, &r.HostID, &r.RequestID, &r.ResumedFrom, &r.Reason, &r.Error} {
		*s = text.Cut(*s, maxOwn)
	}
	if more := len(r.HeldBy) - maxHolders; more > 0 {
		r.HeldBy, r.HeldByMore = r.HeldBy[:maxHolders], more
	}
	r.HeldBy = slices.Clone(r.HeldBy) // don't change the caller's
	for i := range r.HeldBy {
		h := &r.HeldBy[i]
		for _, s := range []*string{&h.RequestID, &h.Actor, &h.Intent, &h.Holder, &h.Mode, &h.State} {
			*s = text.Cut(*s, maxText)
		}
	}
	return r
}
