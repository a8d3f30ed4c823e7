// Package b2 is a store in a bucket of Backblaze B2, through its native API:
//
//	b2://bucket/prefix?endpoint=URL
//
// [Open] takes such a URL, and the application key from B2_APPLICATION_KEY_ID and
// B2_APPLICATION_KEY; [New] takes both from its options. The endpoint is the server that
// authorizes, Backblaze's own by default; it must be https://, except on this machine.
//
// # Cost and guarantees
//
// List, Get and Put are one request each, and Delete is two. A Put over what the same
// Store has put is two, and one with PutOptions.Replaces three. A session adds an
// authorization and the bucket's ID, at first use and once a day, and an upload URL for
// each upload that runs beside others. The Store repeats a request only if the server
// refused it because an authorization had expired.
//
// An object is the newest version of its name. Its ETag is the version's ID, its mod time
// Backblaze's upload timestamp. There are no conditional puts.
//
// Delete removes every version of a name, the newest last, so that no older one becomes
// visible on the way. A Put removes the version that the same Store put under the key
// before. Other versions below it stay, invisible.
//
// A Put with PutOptions.Replaces looks afterwards which version it has covered. If it is
// another than the one to replace, the Put takes its own version back, so that a refresh
// under way doesn't restore a lock that was broken. If a deletion runs at the same time,
// B2 reports to only one of the two that it has deleted the replaced version, and that
// one counts as the first: either the Put fails, or the deletion removes the new version
// too. Then the Put removes what it has covered, so that a refreshed object has one
// version.
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
// (daysFromHidingToDeleting on the prefix). To take a version back, a Put then covers it
// with a hide marker or with a copy of the version before. Without listFiles no lock
// works.
//
// # Caveats
//
// If a process crashes or gets no answer between an upload and the requests that follow
// it, the versions that the upload covers stay, invisible, until any client refreshes or
// deletes the object. If the upload should have been taken back, its version stays, as on
// a store without versions; the same Store takes it back before it replaces it. An upload
// that was applied without an answer, or after the object was deleted, is an object until
// a client deletes it.
//
// A Put without deleteFiles doesn't notice a deletion that had listed the versions before:
// its version might stay. It always notices a deletion that hides.
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
// of its ttl, an exclusive one four times. A name's element is 250 bytes long at
// most, and no name has control characters; such keys are store.ErrInvalidKey.
//
// # How blazer is used
//
// Its package base makes one request for each call, in the third version of the API. The
// transport notes what base doesn't return: the key's capabilities, headers, and the reason
// that there was no answer. The third version doesn't authorize keys that were made by the
// fourth for certain buckets (multi-bucket application keys, which the b2 command makes even
// for one), and so the transport sends that one request to the fourth. If the key is
// restricted to the bucket, the transport answers blazer's request for the bucket's ID.
// This package sends b2_copy_file itself, which base lacks, and b2_list_buckets for Object
// Lock, which base leaves out.
//
// The tests run on a fake of the native API, internal/test/fakeb2, since there is no
// server of it to run.
package b2
