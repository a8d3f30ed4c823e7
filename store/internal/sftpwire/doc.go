// Package sftpwire is a client of the SFTP protocol, version 3 (draft-ietf-secsh-filexfer-02), over
// one connection: the pipes of `ssh -s HOST sftp`, or of a server. It knows packets, not files.
//
// Several requests can travel in one write, so that they cost one round trip. OpenSSH's server and
// ProFTPD process them in order. Servers that are made with github.com/pkg/sftp process a READ or a
// WRITE beside the requests after it, up to the next CLOSE: an FSTAT right after a WRITE can show the
// size of before.
//
// A failed request doesn't stop the requests after it: after a WRITE to a full disk, a RENAME in the
// same write still happens.
//
// # Failures
//
// The connection is one stream. If the server breaks the protocol in it, then nothing after that
// can be relied on. So any violation ends the connection, and all requests in flight fail: a
// packet that is too long or too short, an answer of the wrong type, an answer to no request, a
// second answer.
//
// If a context ends, the request is still under way, and the server might process it later. Its
// answer is dropped when it comes. No handle leaks: the client closes a handle that comes too late.
package sftpwire
