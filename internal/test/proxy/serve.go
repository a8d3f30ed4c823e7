package proxy

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"
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
	q = q.bendBatch(b.Quirks)
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
