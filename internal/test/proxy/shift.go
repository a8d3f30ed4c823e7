package proxy

import (
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
)

var (
	inXML  = regexp.MustCompile(`<LastModified>[^<]+</LastModified>`)
	inJSON = regexp.MustCompile(`"uploadTimestamp":\s*\d+`)
)

// shift adds to the store's clock wherever the answer has it. Bodies of objects
// are left alone: their writer wrote the times in them.
func (s *response) shift(q Request, by time.Duration) {
	if by == 0 {
		return
	}
	for _, field := range []string{"Date", "Last-Modified"} {
		if at, err := http.ParseTime(s.header.Get(field)); err == nil {
			s.header.Set(field, at.Add(by).UTC().Format(http.TimeFormat))
		}
	}
	if millis, err := strconv.ParseInt(s.header.Get("X-Bz-Upload-Timestamp"), 10, 64); err == nil {
		s.header.Set("X-Bz-Upload-Timestamp", strconv.FormatInt(millis+by.Milliseconds(), 10))
	}
	switch {
	case q.Op == "list" || q.Op == "other":
		s.body = inXML.ReplaceAllFunc(s.body, func(field []byte) []byte { return shiftXML(field, by) })
	case strings.HasPrefix(q.Op, "b2_") && !strings.HasPrefix(q.Op, "b2_download"):
		s.body = inJSON.ReplaceAllFunc(s.body, func(field []byte) []byte { return shiftJSON(field, by) })
	}
}

const lastModified = "2006-01-02T15:04:05.000Z"

func shiftXML(field []byte, by time.Duration) []byte {
	text := strings.TrimSuffix(strings.TrimPrefix(string(field), "<LastModified>"), "</LastModified>")
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return field
	}
	return []byte("<LastModified>" + at.Add(by).UTC().Format(lastModified) + "</LastModified>")
}

func shiftJSON(field []byte, by time.Duration) []byte {
	name, text, _ := strings.Cut(string(field), ":")
	millis, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil {
		return field
	}
	return []byte(name + ":" + strconv.FormatInt(millis+by.Milliseconds(), 10))
}
