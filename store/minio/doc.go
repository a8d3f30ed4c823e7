// Package minio keeps a repository in a bucket of a MinIO server, on MinIO's own
// client library.
//
// # URL
//
//	minio://HOST:PORT/BUCKET/PREFIX?tls=false&region=&alias=&conditions=
//
// The prefix may be missing. The server is spoken to with TLS unless tls=false.
// alias takes the credentials of an alias of mc, from MC_HOST_ALIAS or else from mc's file, and
// nothing else of it; conditions is as in package s3, auto by default.
//
// Credentials are otherwise found in the environment (MINIO_ROOT_USER and
// MINIO_ROOT_PASSWORD, or MINIO_ACCESS_KEY and MINIO_SECRET_KEY, or
// AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN), in mc's and
// Amazon's files, or by the role of the machine.
//
// A server's certificate must be signed by an authority that this machine trusts, or that
// AWS_CA_BUNDLE names in its place, or by one of mc's, in ~/.mc/certs/CAs. MC_CONFIG_DIR is
// heeded in place of ~/.mc.
//
// # Guarantees
//
// Those of package s3, versions included. The library is told its region, so that
// it doesn't ask for it.
//
// # Caveats
//
// The library doesn't learn the server's time: a machine whose clock is more than
// 15 minutes off is refused, and is told so.
//
// MinIO ignores If-Match on a deletion, so nothing here sends it.
//
// MinIO before September 2025 takes a put with If-Match on a key that isn't there
// (github.com/minio/minio/issues/21526): conditions=kept is wrong there.
package minio
