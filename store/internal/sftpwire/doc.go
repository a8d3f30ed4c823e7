// Package sftpwire is a client of the SFTP protocol, version 3 (draft-ietf-secsh-filexfer-02), on one connection: the
// pipes of `ssh -s HOST sftp`, or of a server. It handles packets, and doesn't know files.
//
// Several requests can be sent in one write, so that they cost one round trip. OpenSSH's server and ProFTPD process
// them in order. Servers that are made with github.com/pkg/sftp process a READ or a WRITE at the same time as the
// requests after it, up to the next CLOSE. So an FSTAT right after a WRITE can show the size before the WRITE.
//
// A failed request doesn't stop the requests after it: after a WRITE to a full disk, a RENAME in the same write still
// happens.
//
// # Failures
//
// The connection is one stream. If the server breaks the protocol in it, nothing after that is reliable. So any
// violation ends the connection, and all unanswered requests fail. Violations are a packet that is too long or too
// short, an answer of the wrong type, an answer to no request, and a second answer.
//
// If a context ends, the request is still under way, and the server might process it later. The client drops its answer
// when it comes. No handle leaks: the client closes a handle that comes too late.
package sftpwire
