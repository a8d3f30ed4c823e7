package proxy

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/textproto"
	"strconv"
	"strings"
)

// decodeChunks reads the aws-chunked encoding: a line with the size in hexadecimal
// and perhaps a signature, the bytes, a line end; a chunk of size 0, and fields.
func decodeChunks(raw []byte) (body []byte, trailer map[string]string, err error) {
	r := textproto.NewReader(bufio.NewReader(bytes.NewReader(raw)))
	for {
		line, err := r.ReadLine()
		if err != nil {
			return nil, nil, err
		}
		digits, _, _ := strings.Cut(line, ";")
		size, err := strconv.ParseUint(digits, 16, 31)
		if err != nil {
			return nil, nil, err
		}
		if size == 0 {
			trailer, err = readTrailer(r)
			return body, trailer, err
		}
		chunk := make([]byte, size)
		if _, err := io.ReadFull(r.R, chunk); err != nil {
			return nil, nil, err
		}
		body = append(body, chunk...)
		if end, err := r.ReadLine(); err != nil || end != "" {
			return nil, nil, fmt.Errorf("a chunk of %d bytes doesn't end where it should: %v", size, err)
		}
	}
}

func readTrailer(r *textproto.Reader) (map[string]string, error) {
	trailer := map[string]string{}
	for {
		line, err := r.ReadLine()
		if err == io.EOF || err == nil && line == "" {
			return trailer, nil
		}
		if err != nil {
			return nil, err
		}
		name, value, _ := strings.Cut(line, ":")
		trailer[name] = strings.TrimSpace(value)
	}
}
