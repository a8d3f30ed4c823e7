package proxy

import (
	"bytes"
	"encoding/xml"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Quirks are deviations of S3 servers other than Amazon's, each as it was seen. The zero value
// has none.
type Quirks struct {
	// Markers refuses If-None-Match: * for a key whose newest version is a delete marker, as
	// versitygw does in a bucket with versions.
	Markers bool
	// Refuses is the answer to each put that has a condition.
	Refuses Fault
	// Twice lists each key twice, first with its previous state, as rclone does while the object is
	// overwritten.
	Twice bool
	// Disordered lists a prefix backwards the third time, and each sixteenth time from there,
	// as a gateway might that merges listings.
	Disordered bool
	// Web calls empty answers web pages, as Swift and moto do.
	Web bool
	// Accepted answers every eleventh put with 202 and no ETag, as Swift does when
	// another is under way.
	Accepted bool
	// Unquoted takes If-Match only without quotes, as Ceph's gateway does.
	Unquoted bool
}

// refused returns the answer to a request in the server's place, or the zero Fault.
func (p *Proxy) refused(q Request, quirks Quirks) Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	precondition := Fault{Status: http.StatusPreconditionFailed, Code: "PreconditionFailed"}
	if quirks.Markers && q.Op == "put" && q.Header.Get("If-None-Match") == "*" && p.markers[q.Key] {
		return precondition
	}
	if quirks.Refuses != (Fault{}) && q.Op == "put" && (q.Header.Get("If-None-Match") != "" || q.Header.Get("If-Match") != "") {
		return quirks.Refuses
	}
	if tag := q.Header.Get("If-Match"); quirks.Unquoted && tag != "" {
		if strings.HasPrefix(tag, `"`) {
			return precondition
		}
		q.Header.Set("If-Match", `"`+tag+`"`)
	}
	return Fault{}
}

// mark follows which keys have a delete marker.
func (p *Proxy) mark(q Request, status int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case status >= 300:
	case q.Op == "delete":
		p.markers[q.Key] = true
	case q.Op == "delete all":
		for _, key := range batchKeys(q.Body) {
			p.markers[key] = true
		}
	case q.Op == "put":
		delete(p.markers, q.Key)
	}
}

var (
	contents  = regexp.MustCompile(`(?s)<Contents>.*?</Contents>`)
	etagInXML = regexp.MustCompile(`<ETag>.*?</ETag>`)
)

// bend changes an answer into one of a server that has these quirks.
func (p *Proxy) bend(s *response, q Request, quirks Quirks) {
	p.mark(q, s.status)
	if s.status >= 300 {
		return
	}
	if q.Op == "list" {
		s.bendListing(q, quirks)
	}
	if quirks.Web && (q.Op == "put" || q.Op == "delete") {
		s.header.Set("Content-Type", "text/html; charset=UTF-8")
	}
	if quirks.Accepted && q.Op == "put" && p.puts.Add(1)%11 == 0 {
		s.status = http.StatusAccepted
		s.header.Del("Etag")
	}
}

func (s *response) bendListing(q Request, quirks Quirks) {
	if quirks.Twice {
		s.body = contents.ReplaceAllFunc(s.body, func(entry []byte) []byte {
			before := etagInXML.ReplaceAll(entry, []byte("<ETag>&#34;00000000000000000000000000000000&#34;</ETag>"))
			before = inXML.ReplaceAllFunc(before, func(field []byte) []byte { return shiftXML(field, -time.Hour) })
			return slices.Concat(before, entry)
		})
	}
	if !quirks.Disordered || q.N%16 != 3 {
		return
	}
	if entries := contents.FindAll(s.body, -1); len(entries) > 1 {
		forward := bytes.Join(entries, nil)
		slices.Reverse(entries)
		s.body = bytes.Replace(s.body, forward, bytes.Join(entries, nil), 1)
	}
}

// batchKeys returns the keys in the body of DeleteObjects.
func batchKeys(body []byte) (keys []string) {
	var d struct{ Object []struct{ Key string } }
	_ = xml.Unmarshal(body, &d)
	for _, o := range d.Object {
		keys = append(keys, o.Key)
	}
	return keys
}
