package judge

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/repolock/repolock/internal/fault"
)

// Write writes an event to a log, as one line.
func Write(log io.Writer, e Event) error {
	if err := json.NewEncoder(log).Encode(e); err != nil {
		return fmt.Errorf("%w: the log can't be written: %w", fault.Unjudged, err)
	}
	return nil
}

// Parse parses a line of a child's log. known reports whether there is a child with this ID.
func Parse(line []byte, known func(id string) bool) (e Event, err error) {
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	err = d.Decode(&e)
	switch {
	case err != nil:
	case d.More():
		err = errors.New("it has more than one entry")
	case e.Kind == Start, e.Kind == End, e.Kind == Fault:
		err = fmt.Errorf("a child doesn't log %q", e.Kind)
	case e.At <= 0:
		err = errors.New("it has no time")
	case !known(e.ID):
		err = fmt.Errorf("there is no child %q", e.ID)
	}
	if err != nil {
		err = fmt.Errorf("%w: a line of a child's log can't be understood: %.200q: %w", fault.Unjudged, line, err)
	}
	return e, err
}
