package proxy

import (
	"bytes"
	"crypto/md5"
	"encoding/base64"
	"encoding/xml"
	"fmt"
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
	// NoETags leaves the ETag out of answers to GET and out of listings.
	NoETags bool
	// NoBatch refuses DeleteObjects, as servers do that lack it.
	NoBatch bool
	// Forgetful leaves out each third key of DeleteObjects, and doesn't name it in the answer.
	Forgetful bool
	// Partial deletes two thirds of the keys of DeleteObjects, and has an error for each other
	// one in its answer, as a server has that is slow, or that some keys are denied by.
	Partial bool
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
	if quirks.NoBatch && q.Op == "delete all" {
		return Fault{Status: http.StatusNotImplemented, Code: "NotImplemented"}
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
	if q.Op == "delete all" {
		s.body = bytes.Replace(s.body, []byte("</DeleteResult>"), []byte(q.left+"</DeleteResult>"), 1)
	}
	if quirks.NoETags && q.Op == "get" {
		s.header.Del("Etag")
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
	if quirks.NoETags {
		s.body = etagInXML.ReplaceAll(s.body, nil)
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

var objectInBatch = regexp.MustCompile(`(?s)<Object>.*?</Object>`)

// batchKeys returns the keys in the body of DeleteObjects.
func batchKeys(body []byte) (keys []string) {
	var d struct{ Object []struct{ Key string } }
	_ = xml.Unmarshal(body, &d)
	for _, o := range d.Object {
		keys = append(keys, o.Key)
	}
	return keys
}

// bendBatch takes each third key out of DeleteObjects, if that is the server's quirk.
func (q Request) bendBatch(quirks Quirks) Request {
	if q.Op != "delete all" || !quirks.Forgetful && !quirks.Partial {
		return q
	}
	n := 0
	var left strings.Builder
	q.Body = objectInBatch.ReplaceAllFunc(q.Body, func(object []byte) []byte {
		if n++; n%3 != 0 {
			return object
		}
		if quirks.Partial {
			for _, key := range batchKeys([]byte("<Delete>" + string(object) + "</Delete>")) {
				fmt.Fprintf(&left, "<Error><Key>%s</Key><Code>InternalError</Code><Message>as the test wants</Message></Error>", key)
			}
		}
		return nil
	})
	q.left = left.String()
	sum := md5.Sum(q.Body)
	q.Header.Set("Content-Md5", base64.StdEncoding.EncodeToString(sum[:]))
	for name := range q.Header {
		if strings.HasPrefix(name, "X-Amz-Checksum-") {
			q.Header.Del(name)
		}
	}
	return q
}
