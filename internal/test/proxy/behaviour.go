package proxy

import "time"

// Behaviour is what a proxy does to the requests that pass. The zero value passes them on
// unchanged.
type Behaviour struct {
	// Decide, if set, returns the fault of each request. Requests call it concurrently.
	Decide func(Request) Fault
	// Latency is added each way.
	Latency time.Duration
	// Blackhole accepts connections and requests, forwards and answers nothing.
	Blackhole bool
	// Shift is added to the store's clock everywhere in an answer: the fields Date and
	// Last-Modified, and the times in a listing.
	Shift time.Duration
	// StripConditions removes If-Match and If-None-Match from forwarded requests, as if the
	// server ignored them. It needs Sign.
	StripConditions bool
	// Sign, if set, replaces the signature of an S3 request, so that the server takes a
	// request that was changed, or signed by a wrong clock.
	Sign *Credentials
	// Quirks are those of a particular server.
	Quirks Quirks
}

// Credentials sign requests to an S3 server.
type Credentials struct{ User, Password string }

// Fault is what happens to one request. The zero value is nothing.
type Fault struct {
	// Before and After are delays, before the request is forwarded and before it
	// is answered.
	Before, After time.Duration

	// Of the following, which forward nothing, the first that is set counts.

	// Hang answers nothing until the client gives up.
	Hang bool
	// Reset resets the connection.
	Reset bool
	// Status answers with it, and with Code as the store's own code of the error.
	Status int
	Code   string
	// Late cuts the connection, and forwards the request after this time.
	Late time.Duration

	// The following forward the request.

	// LoseAnswer cuts the connection in place of an answer.
	LoseAnswer bool
	// Truncate answers in full length, and cuts the connection after half of the
	// body.
	Truncate bool
	// Again forwards the request once more, this long after the first time.
	Again time.Duration
}

// Throttled is S3's answer to a client that sends too fast.
var Throttled = Fault{Status: 503, Code: "SlowDown"}
