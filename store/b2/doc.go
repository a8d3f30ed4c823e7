// Package b2 is a store in a bucket of Backblaze B2, through its native API:
//
//	b2://bucket/prefix?endpoint=URL
//
// The application key is in B2_APPLICATION_KEY_ID and B2_APPLICATION_KEY. The
// endpoint is the server that authorizes, Backblaze's own if it isn't given; it is
// https:// unless it is on this machine.
//
// # Guarantees
//
// List, Get and Put are one request each, and Delete is two, plus those that set up
// a session: an authorization and the bucket's ID at first use and once a day, and
// an upload URL for each upload that is made at the same time as others. Nothing
// is repeated but what was refused because an authorization had expired.
//
// An object is the newest version of its name. Its ETag is the version's ID, its
// mod time Backblaze's upload timestamp. There are no conditional puts.
//
// Delete removes every version of a name, whoever wrote it, the newest last, so
// that no older one is uncovered on the way. A Put removes what this process put
// under the key before. What a Put leaves under it otherwise is hidden.
//
// A Put with PutOptions.Replaces looks afterwards what it has covered. If that
// isn't what it was to replace, it is taken back: a lock that was broken isn't put
// there again by a refresh under way. If a deletion is under way too, only one of
// the two is told that it has deleted the replaced version, and that one is first:
// either the Put fails, or the deletion removes what was put as well. Then what it
// has covered is removed, so that a refreshed object has one version.
//
// # What the application key must be able to do
//
//	status              listFiles, readFiles
//	shared, exclusive   listFiles, readFiles, writeFiles, deleteFiles
//
// and listBuckets, unless the key is restricted to the bucket, which is better, or to
// several, one of which it is. It can be restricted to names that begin with the
// repository's prefix, or with prefix/index/, where the locks are. An error names what is
// lacking.
//
// Without deleteFiles, or where Object Lock retains a version, Delete hides the
// object instead: nobody sees it, and its versions stay until a lifecycle rule
// removes them (daysFromHidingToDeleting on the prefix). A Put that has to be
// taken back is covered by what was there before it, a hide marker or a copy.
// Without listFiles no lock works.
//
// # Caveats
//
// What is left if a process crashes, or isn't answered, between an upload and what
// follows it: the versions that the upload covers, invisible, until the object is
// refreshed or deleted by whomever. If an upload had to be taken back and wasn't,
// what it put stands, as it would on a store without versions; the same Store
// makes up for it before it replaces that. An upload that is applied though nobody
// was told so is not looked after, and neither is one that is applied after the
// object was deleted: it is an object until somebody deletes it.
//
// A Put without deleteFiles can't tell that a deletion was under way which had
// listed the versions before: what was put may stay. A deletion that hides is
// always seen.
//
// A lifecycle rule on the bucket that hides files (daysFromUploadingToHiding)
// would end a lock that is held for as many days; refreshing a lock uploads it
// again, so that one of a day does no harm.
//
// The Date of an answer and the timestamp of an upload are taken for one clock,
// though Backblaze has many machines.
//
// Uploads, deletions and hiding are free of charge (class A), downloads are class
// B, listings and authorizations class C: holding a lock lists twice in each half
// of its ttl, an exclusive one four times. A name's element is 250 bytes long at
// most, and no name has control characters; such keys are store.ErrInvalidKey.
//
// # How blazer is used
//
// Its package base makes one request for each call. What it doesn't pass on, the
// package gets from the transport: what an authorization says of the key, the
// headers of an answer, and why there was none. Package base speaks the third
// version of the API. That version doesn't authorize keys that were made by the fourth
// for certain buckets (multi-bucket application keys, which the b2 command makes even for
// one), and so the transport sends that one request to the fourth. A bucket that the key is
// restricted to is known from the authorization, so that the request with which
// blazer would ask for it is answered without being sent. It has no function for
// b2_copy_file, and leaves Object Lock out of b2_list_buckets: those two are this
// package's own.
//
// The tests run on a fake of the native API, internal/fakeb2, since there is no
// server of it to run.
package b2
