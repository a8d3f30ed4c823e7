// Package s3 keeps a repository in a bucket of Amazon S3, or of any server that
// speaks its protocol, on the AWS SDK for Go.
//
// # URL
//
//	s3://BUCKET/PREFIX?region=&endpoint=&profile=&path-style=&conditions=&if-match=
//
// [Open] takes such a URL, and [New] a client of the program's own. The prefix can be
// missing. endpoint is the https:// or http:// address of a server other than Amazon's;
// requests to it name the bucket in the path, unless path-style=false (path_style is the
// same). conditions is how far conditional puts can be relied on: kept, none (they aren't
// sent), or auto (they are sent, and relied on once a process has seen them kept), which is
// the default for servers other than Amazon's. if-match=unquoted sends ETags in If-Match
// without quotes, as Ceph's gateway needs them.
//
// Otherwise Open takes credentials, region, endpoint and certificates from where the AWS
// command line does: the environment, its configuration and credentials files, SSO, or the
// role of the machine. If a service of credentials is throttling, down, slow or not up yet,
// the error might pass, and isn't [store.ErrConfig]. The default region is us-east-1.
//
// # Cost and guarantees
//
// Each method is one request, and the SDK repeats none. A program's own HTTP client must not
// repeat any either, see [New]. The store sends a request a second time only after a refusal:
// if the server refused the time in the signature, because the SDK has then learnt the
// server's time; or if the server refused a put as not permitted, which MinIO does while
// another object is being deleted. A success must have the form of S3's: a web page, an empty
// body or a cut listing is an error.
//
// # Versions
//
// In a bucket that keeps versions, a Put removes the version that the same Store put
// before. A Delete removes the last version, and also the delete marker if that hides
// nothing. Each version is one more request, and the marker two. They need
// s3:DeleteObjectVersion and, for the marker, s3:ListBucketVersions. Without these, or if
// Object Lock keeps the versions, they stay, and readers don't see them. The versions of a
// process that crashed, and of a put that got no answer, stay too. A lifecycle rule for
// noncurrent versions and expired markers under the prefix removes them.
//
// # Caveats
//
// Amazon documents that listings show earlier writes, and that conditional puts are kept.
// Some other servers ignore the conditions, and some refuse them. Neither harms the lock;
// the command repolock doctor tests a server.
//
// ETags are opaque. Directory buckets (S3 Express) list in no order, and are refused.
package s3
