package proxy

import (
	"bytes"
	"context"
	"io"
	"maps"
	"net/http"
	"strconv"
	"time"
)

// response is the store's answer, read whole.
type response struct {
	status int
	header http.Header
	body   []byte
}

// forward sends a request on. It isn't withdrawn when the client gives up: a
// request that has arrived is applied.
func (p *Proxy) forward(r *http.Request, q Request, b *Behaviour) (*response, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), time.Minute)
	defer cancel()

	out := r.Clone(ctx)
	out.URL.Scheme, out.URL.Host = p.target.Scheme, p.target.Host
	out.RequestURI = ""
	out.Host = r.Host // it is signed
	out.Header.Del("Expect")
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
