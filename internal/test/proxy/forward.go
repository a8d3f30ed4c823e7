package proxy

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// serve is the life of one request.
func (p *Proxy) serve(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	defer p.begin()()
	q, err := p.read(r)
	if err != nil {
		panic(http.ErrAbortHandler) // the client cut it off
	}
	b := p.behaviour.Load()
	var f Fault
	if b.Decide != nil {
		f = b.Decide(q)
	}
	status := 0
	// A request whose connection is cut is logged, too, with the status 0.
	defer func() { p.note(Entry{Request: q, Status: status, Start: start, End: time.Now()}) }()

	p.wait(r.Context(), b.Latency+f.Before)
	switch {
	case b.Blackhole || f.Hang:
		p.wait(r.Context(), hanging)
		cut()
	case f.Reset:
		reset(w)
	case f.Status != 0:
		status = f.Status
		refuse(w, r, f)
		return
	case f.Late > 0:
		p.later(f.Late, r, q, b)
		cut()
	}

	if refusal := p.refused(q, b.Quirks); refusal.Status != 0 {
		status = refusal.Status
		refuse(w, r, refusal)
		return
	}
	res, err := p.forward(r, q, b)
	if f.Again > 0 {
		p.later(f.Again, r, q, b)
	}
	p.wait(r.Context(), f.After+b.Latency)
	if p.behaviour.Load().Blackhole {
		p.wait(r.Context(), hanging)
		cut()
	}
	if err != nil || f.LoseAnswer {
		cut()
	}
	p.bend(res, q, b.Quirks)
	status = res.status
	res.shift(q, b.Shift)
	res.answer(w, r, f.Truncate)
}

const hanging = 24 * time.Hour

// wait ends early with the client's patience, and when the proxy is closed.
func (p *Proxy) wait(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-p.ctx.Done():
	}
}

// cut ends the connection without an answer.
func cut() { panic(http.ErrAbortHandler) }

// reset ends it with an RST, which the client sees as an error at once.
func reset(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err == nil {
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		_ = conn.Close()
	}
	cut()
}

// refuse answers in the store's place.
func refuse(w http.ResponseWriter, r *http.Request, f Fault) {
	body := fmt.Sprintf(`<?xml version="1.0" encoding="UTF-8"?><Error><Code>%s</Code><Message>as the test wants</Message></Error>`, f.Code)
	kind := "application/xml"
	if speaksB2(r.URL) {
		raw, _ := json.Marshal(map[string]any{"status": f.Status, "code": f.Code, "message": "as the test wants"})
		body, kind = string(raw), "application/json"
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(f.Status)
	if r.Method != http.MethodHead {
		_, _ = w.Write([]byte(body))
	}
}

// response is the store's answer, read whole.
type response struct {
	status int
	header http.Header
	body   []byte
}

// forward sends a request to the store. It continues when the client gives up: a request that has arrived is
// applied.
func (p *Proxy) forward(r *http.Request, q Request, b *Behaviour) (*response, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), time.Minute)
	defer cancel()

	out := r.Clone(ctx)
	out.URL.Scheme, out.URL.Host = p.target.Scheme, p.target.Host
	out.RequestURI = ""
	out.Host = r.Host // it is signed
	out.Header.Del("Expect")
	if p.tls != nil {
		out.Header.Set("X-Forwarded-Proto", "https")
	}
	if _, ok := out.Header["User-Agent"]; !ok {
		out.Header["User-Agent"] = nil
	}
	setBody(out, q.Body)
	if b.Sign != nil {
		if b.StripConditions {
			out.Header.Del("If-Match")
			out.Header.Del("If-None-Match")
		}
		if err := sign(out, q.Body, *b.Sign); err != nil {
			return nil, err
		}
	}

	res, err := p.transport.RoundTrip(out)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxBody))
	if err != nil {
		return nil, err
	}
	res.Header.Del("Connection") // ours, not the client's
	return &response{res.StatusCode, res.Header, body}, nil
}

func setBody(r *http.Request, body []byte) {
	r.Header.Del("Content-Length") // ContentLength has it, and this field would be signed
	r.ContentLength = int64(len(body))
	r.TransferEncoding = nil
	r.Body = http.NoBody
	if len(body) > 0 {
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
}

// later forwards a request, and drops its answer.
func (p *Proxy) later(after time.Duration, r *http.Request, q Request, b *Behaviour) {
	r = r.Clone(context.WithoutCancel(r.Context()))
	end := p.begin()
	go func() {
		defer end()
		p.wait(r.Context(), after)
		if p.ctx.Err() == nil {
			_, _ = p.forward(r, q, b)
		}
	}()
}

// answer passes the store's answer on.
func (s *response) answer(w http.ResponseWriter, r *http.Request, truncate bool) {
	maps.Copy(w.Header(), s.header)
	if r.Method != http.MethodHead && s.status != http.StatusNoContent && s.status != http.StatusNotModified {
		w.Header().Set("Content-Length", strconv.Itoa(len(s.body)))
	}
	w.WriteHeader(s.status)
	if truncate {
		_, _ = w.Write(s.body[:len(s.body)/2])
		_ = http.NewResponseController(w).Flush()
		cut()
	}
	_, _ = w.Write(s.body)
}

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
