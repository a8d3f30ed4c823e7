package sftpwire

import (
	"encoding/binary"
	"errors"
	"maps"
	"slices"
)

// handles is a model of the handles that OpenSSH's server gives. They are numbers of four bytes. An open gets the
// handle that was closed last, or else the next number. The model is exact as of the last answer. It is off for good
// once an answer differs from it, as the first handle of another server does.
type handles struct {
	off  bool
	free []uint32 // the closed ones, in this order
	next uint32
}

// open returns the handle of the next open, and takes it.
func (h *handles) open() uint32 {
	if n := len(h.free); n > 0 {
		last := h.free[n-1]
		h.free = h.free[:n-1]
		return last
	}
	h.next++
	return h.next - 1
}

func (h *handles) close(handle uint32) { h.free = append(h.free, handle) }

// answered updates the model by the answer to a request.
func (h *handles) answered(r *Request, a Answer) {
	switch r.kind {
	case typeOpen, typeOpendir:
		if a.Handle != "" && a.Handle != name(h.open()) {
			h.off = true
		}
	case typeClose:
		if handle, ok := r.handle(); ok && a.Err() == nil {
			h.close(handle)
		} else {
			h.off = true
		}
	}
}

// expect updates the model as if the server had executed a request with success, and returns the handle that it opens.
func (h *handles) expect(r *Request) (opened uint32) {
	switch r.kind {
	case typeOpen, typeOpendir:
		return h.open()
	case typeClose:
		if handle, ok := r.handle(); ok {
			h.close(handle)
		}
	}
	return 0
}

func name(handle uint32) string { return string(binary.BigEndian.AppendUint32(nil, handle)) }

// handle returns the only field as a handle of OpenSSH.
func (r *Request) handle() (handle uint32, ok bool) {
	if len(r.body) != 8 {
		return 0, false
	}
	return binary.BigEndian.Uint32(r.body[4:]), true
}

// ReaddirOf is a Readdir of the directory that open opens in the same Do, in the same flight. It needs a guess of the
// handle, which only OpenSSH's server allows. If the client can't guess, or has guessed wrong, the request has no answer.
//
// A guess names no handle that is open. Suppose that some opens under way fail. Then the handles that the server has
// given are among the handles that the client expects of these opens, and the guess is the next one after them. A guess
// must be sent before the next open, which can get its handle.
func ReaddirOf(open *Request) *Request { return guess(open, Readdir("")) }

// ReadOf and FstatOf are a Read and an Fstat of the file that open opens: see ReaddirOf.
func ReadOf(open *Request, offset uint64, n uint32) *Request { return guess(open, Read("", offset, n)) }
func FstatOf(open *Request) *Request                         { return guess(open, Fstat("")) }

// guess returns a request for the handle that open opens.
func guess(open, r *Request) *Request {
	r.of, r.rest, r.body = open, r.body[4:], nil
	return r
}

// Guesses reports whether the client can guess handles: the server is OpenSSH's, as far as its answers show.
func (c *Client) Guesses() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.handles.off && c.handles.next > 0
}

// Misread returns how often a wrong guess was the handle of another directory. Then a Readdir of that directory misses
// entries. It happens only with a server that isn't OpenSSH's, and once: the client guesses no more.
func (c *Client) Misread() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.misread
}

// guess sets the handles of the guesses, and marks those without a handle as unsent.
func (c *Client) guess(reqs []*Request) {
	if !slices.ContainsFunc(reqs, func(r *Request) bool { return r.of != nil }) {
		return
	}
	model := c.handles
	model.free = slices.Clone(model.free)
	sent := slices.SortedFunc(maps.Keys(c.pending), func(a, b uint32) int { return int(int32(a - b)) })
	for _, id := range sent {
		model.expect(c.pending[id].Request)
	}
	opened := map[*Request]uint32{}
	for _, r := range reqs {
		opened[r] = model.expect(r)
		if r.of == nil {
			continue
		}
		r.body = nil
		if handle, ok := opened[r.of]; ok && !c.handles.off && c.handles.next > 0 {
			r.string(name(handle)).body = append(r.body, r.rest...)
		}
	}
}

// checked reports whether the answer belongs to the guessed handle, so that the guess was right.
func (c *Client) checked(r *Request, a Answer) bool {
	if r.of == nil || r.of.Handle != "" && r.of.Handle == string(r.body[4:len(r.body)-len(r.rest)]) {
		return true
	}
	if a.Err() == nil || errors.Is(a.Err(), EOF) {
		c.handles.off = true
		if r.kind == typeReaddir { // a wrong read or look takes nothing from another one
			c.misread++
		}
	}
	return false
}
