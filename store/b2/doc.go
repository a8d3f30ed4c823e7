// Package b2 is a store in a bucket of Backblaze B2, through its native API:
//
//	b2://bucket/prefix?endpoint=URL
//
// [Open] takes such a URL, and the application key from B2_APPLICATION_KEY_ID and
// B2_APPLICATION_KEY. [New] takes both from its options. The endpoint is the server that
// authorizes, Backblaze's own by default. It must be https://, except on this machine.
//
// # Cost and guarantees
//
// List, Get and Put are one request each, and Delete is two. A Put over a version of the
// same Store is two, and one with PutOptions.Replaces three. A session adds an
// authorization and a request for the bucket's ID, at first use and once a day. It also
// adds a request for an upload URL for each upload that runs beside others. The Store
// repeats a request only if the server refused it because an authorization had expired.
//
// An object is the newest version of its name. Its ETag is the version's ID, and its mod time
// is Backblaze's upload timestamp. There are no conditional puts.
//
// Delete removes every version of a name, the newest last, so that no older one becomes
// visible meanwhile. A Put removes the version that the same Store put under the key
// before. Other versions below it stay, invisible.
//
// A Put with PutOptions.Replaces then lists the versions. If its version covers another
// one than the one to replace, the Put removes its own version. So a late refresh doesn't
// restore a lock that was broken. If a deletion runs at the same time, both delete the
// replaced version, and B2 reports success to only one of them. That one counts as the
// first: either the Put fails, or the deletion also removes the new version. Then the Put
// removes the versions that it covers, so that a refreshed object has one version.
//
// # What the application key must be able to do
//
//	status              listFiles, readFiles
//	shared, exclusive   listFiles, readFiles, writeFiles, deleteFiles
//
// and listBuckets, unless the key is restricted to the bucket, which is better, or to
// several buckets with this one among them. The key can be restricted to names that begin
// with the repository's prefix, or with prefix/index/, where the locks are. An error names
// the capability that is missing.
//
// Without deleteFiles, or if Object Lock retains a version, Delete hides the object
// instead: readers don't see it, and its versions stay until a lifecycle rule removes them
// (daysFromHidingToDeleting on the prefix). If such a Put must take back its version, it
// covers the version with a hide marker or with a copy of the version before. Without
// listFiles no lock works.
//
// # Caveats
//
// If a process crashes or gets no answer between an upload and the requests that follow
// it, the versions that the upload covers stay, invisible, until any client refreshes or
// deletes the object. If the Put should have taken its version back, the version stays, as
// on a store without versions. The same Store takes it back before it replaces it. If an
// upload got no answer, or came after the deletion of its object, its version stays until
// a client deletes it.
//
// A Put without deleteFiles can miss a deletion that listed the versions before the upload:
// then its version stays. It never misses a deletion that hides.
//
// A lifecycle rule on the bucket that hides files (daysFromUploadingToHiding) would end a
// lock that is held for as many days. A refresh uploads the lock again, so that a rule of
// one day does no harm.
//
// The Date of an answer and the timestamp of an upload count as one clock, though
// Backblaze has many machines.
//
// Uploads, deletions and hiding are free of charge (class A), downloads are class
// B, listings and authorizations class C: holding a lock lists twice in each half
// of its ttl, an exclusive one four times. An element of a name is at most 250 bytes
// long, and no name has control characters. Other keys are store.ErrInvalidKey.
//
// # How blazer is used
//
// Its package base makes one request for each call, in the third version of the API. The
// transport notes the facts that base doesn't return: the key's capabilities, headers, and
// the error of a request without an answer. The third version refuses keys that the fourth
// has made for certain buckets (multi-bucket application keys, which the b2 command makes even
// for one). So the transport sends the authorization to the fourth version. If the key is
// restricted to the bucket, the transport answers blazer's request for the bucket's ID.
// This package sends b2_copy_file itself, which base lacks, and b2_list_buckets for Object
// Lock, which base leaves out.
//
// The tests run on a fake of the native API, internal/test/fakeb2, since there is no
// server of it to run.
package b2
