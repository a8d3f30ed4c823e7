// Package minio keeps a repository in a bucket of a MinIO server, on MinIO's own
// client library.
//
// # URL
//
//	minio://HOST:PORT/BUCKET/PREFIX?tls=false&region=&alias=&conditions=
//
// [Open] takes such a URL, and [New] a client of the program's own. The prefix can be
// missing. The connection has TLS unless tls=false. alias is an alias of mc, whose credentials
// Open takes from MC_HOST_ALIAS, or else from mc's file. It takes nothing else from the alias.
// conditions is as in package s3, auto by default.
//
// Otherwise Open finds credentials in the environment (MINIO_ROOT_USER and
// MINIO_ROOT_PASSWORD, or MINIO_ACCESS_KEY and MINIO_SECRET_KEY, or
// AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN), in mc's and
// Amazon's files, or by the role of the machine. The failure of a service of credentials is as in
// package s3.
//
// A server's certificate must be signed by an authority that this machine trusts, or that
// AWS_CA_BUNDLE names instead, or by one of mc's, in ~/.mc/certs/CAs. MC_CONFIG_DIR
// replaces ~/.mc.
//
// # Cost and guarantees
//
// They are as in package s3, versions included. The library always has a region, so that it sends no
// request to find one.
//
// # Caveats
//
// The library doesn't learn the server's time. If this machine's clock is more than 15 minutes off,
// the server refuses its requests, which is [store.ErrConfig].
//
// MinIO ignores If-Match on a deletion, so DeleteIfMatch doesn't send it.
//
// MinIO before September 2025 accepts a put with If-Match on a key without an object
// (github.com/minio/minio/issues/21526): conditions=kept is wrong there.
package minio
