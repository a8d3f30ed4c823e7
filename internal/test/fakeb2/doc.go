// Package fakeb2 is Backblaze's native API, for tests: what its documentation
// says of the calls that a lock needs, over a store in memory that may be kept in
// a file.
//
// What it does is taken from these pages of https://www.backblaze.com/apidocs and
// https://www.backblaze.com/docs:
//
//   - b2_authorize_account, v3 and v4, "Native API Versions": the answer's
//     apiInfo.storageApi with the key's capabilities, its buckets and its name prefix;
//     v3 answers 400 bad_request for a multi-bucket key; tokens last 24 hours.
//   - b2_list_buckets, b2_create_bucket, b2_delete_bucket: a key that is restricted
//     to a bucket has to name it; fileLockConfiguration is shown to keys with
//     readBucketRetentions.
//   - b2_get_upload_url, b2_upload_file, "Upload Files with the Native API": a URL
//     goes with its token and takes one upload at a time (400 auth_token_limit);
//     SHA-1 and length are checked; a URL that has answered 503 answers nothing else.
//   - b2_list_file_names: byte order, one entry a name, hidden names left out,
//     prefix, delimiter, startFileName, nextFileName, maxFileCount up to 10,000.
//   - b2_list_file_versions: newest version first, hide markers included,
//     startFileId, nextFileId.
//   - b2_download_file_by_name: Range, 404 for what is hidden or isn't there.
//   - b2_get_file_info, b2_copy_file (whole files), b2_hide_file (400 no_such_file,
//     400 already_hidden), b2_delete_file_version (400 file_not_present; 403
//     access_denied while Object Lock retains it).
//   - "File Names" and "Native API String Encoding": which names there are, and how
//     they are written in URLs and headers.
//   - "Native API Error Handling", "Application Key Capabilities": the JSON of an
//     error; 401 unauthorized for what a key has no right to, 401 bad_auth_token and
//     expired_auth_token for a token that is none or no longer one.
//
// A request that was answered is seen by all that come after it. No two versions
// of a name have the same timestamp.
//
// Left out: large files, public buckets, download authorizations, the calls about
// keys (they are given to New), lifecycle rules, encryption, replication, CORS,
// notifications, legal holds, all caps but by [Server.Fail], rate limits, and every
// version of the API but the third and the fourth, which differ in b2_authorize_account
// alone.
package fakeb2
