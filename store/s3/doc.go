// Package s3 keeps a repository in a bucket of Amazon S3, or of any server that
// speaks its protocol, on the AWS SDK for Go.
//
// # URL
//
//	s3://BUCKET/PREFIX?region=&endpoint=&profile=&path-style=&conditions=&if-match=
//
// The prefix may be missing. endpoint is the https:// or http:// address of another
// server than Amazon's; requests to it name the bucket in the path, unless
// path-style=false (path_style is the same). conditions says how far conditional puts may be relied on:
// auto (the default elsewhere than at Amazon: a condition is sent, and relied on
// once a process has seen it kept), kept, or none (it isn't sent). if-match=unquoted sends
// ETags in If-Match without quotes, as Ceph's gateway wants them.
//
// Credentials, region, endpoint and certificates are otherwise found where the AWS
// command line finds them: in the environment, in its configuration and
// credentials files, by SSO, or by the role of the machine. Where no region is set
// it is us-east-1.
//
// # Guarantees
//
// Each method is one request, and writes are sent once: the SDK repeats nothing. One is
// sent a second time only if the server refused the time in its signature, after
// the SDK has learnt the server's. What answers must answer as S3 does: a web page,
// an empty body or a cut listing is an error.
//
// # Versions
//
// In a bucket that keeps versions, those that this store wrote are removed: by a
// Put the one before, by a Delete the last one, and the delete marker too if
// nothing is hidden by it. That takes s3:DeleteObjectVersion and, for the marker,
// s3:ListBucketVersions; where they are lacking, or Object Lock keeps the versions,
// they stay, as what nobody sees. Nor are those removed of a process that crashed,
// or of a put that got no answer. A lifecycle rule for noncurrent versions and
// expired markers under the prefix does that.
//
// # Caveats
//
// Amazon documents that listings show what was written before, and that
// conditional puts are kept. Other servers differ: some ignore the conditions, some
// refuse them. Neither harms the lock. repolock doctor tries a server out.
//
// An ETag is taken for an opaque word. Directory buckets (S3 Express) list in no
// order, and are not supported.
package s3
