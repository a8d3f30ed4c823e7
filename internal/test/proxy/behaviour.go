package proxy

import "time"

// Behaviour is what a proxy does to all that passes. The zero value passes it on
// as it is.
type Behaviour struct {
	// Decide, if set, gives each request its fault. It can be called by many
	// requests at once.
	Decide func(Request) Fault
	// Latency is added each way.
	Latency time.Duration
	// Blackhole accepts connections and requests, forwards and answers nothing.
	Blackhole bool
	// Shift is added to the store's clock, wherever an answer has it: the fields
	// Date and Last-Modified, and the times in a listing.
	Shift time.Duration
	// StripConditions removes If-Match and If-None-Match from what is forwarded,
	// as if the server had never heard of them. It needs Sign.
	StripConditions bool
	// Sign, if set, replaces the signature of an S3 request, so that one that was
	// changed, or signed by a clock that is wrong, is taken.
	Sign *Credentials
	// Quirks are those of some server.
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
	// Late cuts the connection, and forwards the request so much later.
	Late time.Duration

	// The following forward the request.

	// LoseAnswer cuts the connection in place of an answer.
	LoseAnswer bool
	// Truncate answers in full length, and cuts the connection after half of the
	// body.
	Truncate bool
	// Again forwards the request once more, so much later than the first time.
	Again time.Duration
}

// Throttled is the way in which S3 asks for patience.
var Throttled = Fault{Status: 503, Code: "SlowDown"}
