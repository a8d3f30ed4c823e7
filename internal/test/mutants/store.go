package main

// storeMutants are bugs of the stores.
var storeMutants = []mutant{
	{"a file that its folder lists and that isn't there to be opened is gone", "store/dir/read.go",
		"if len(listed) == 0 {", "if len(listed) >= 0 {", test("./store/dir", "^TestReplacedOnFUSE$", "programs")},
	{"a folder that a mount remembers as missing is missing", "store/dir/list.go",
		"if !errors.Is(err, fs.ErrNotExist) || !l.cached {", "if !errors.Is(err, fs.ErrNotExist) || l.scan != nil {", test("./store/dir", "^TestNegativeTimeout$", "programs")},
	{"a name that can't be looked at isn't listed", "store/dir/readdir.go",
		"if err != nil && !errors.Is(err, fs.ErrNotExist) {", "if errors.Is(err, fs.ErrNotExist) {\n\t\t\t\tcontinue\n\t\t\t}\n\t\t\tif err != nil {",
		test("./store/dir", "^TestNegativeTimeout$", "programs")},
	{"HTTP/2 is offered in TLS", "store/internal/httptransport/transport.go",
		"\tt.TLSClientConfig.NextProtos = []string{\"http/1.1\"}\n", "", test("./store/internal/httptransport", "^TestHTTP2IsNotOffered$")},
	// Listings that don't end.
	{"a listing that shows a key again and again goes on", "store/finite.go",
		`case o.Key <= next.last:`, `case o.Key < next.last:`, test("./store", "^TestFiniteRefuses$")},
	{"empty pages aren't counted from one to the next", "store/finite.go",
		`next.empty = at.empty + 1`, `next.empty = 1`, test("./store", "^TestFiniteEnds$")},
	{"the last key of a page is forgotten on the next one", "store/finite.go",
		`next := place{cursor: page.Next, last: at.last}`, `next := place{cursor: page.Next}`, test("./store", "^TestFiniteEnds$")},
	{"a key of another prefix passes", "store/finite.go",
		`case !strings.HasPrefix(o.Key, prefix):`, `case o.Key == prefix+"?":`, test("./store", "^TestFiniteRefuses$")},
	{"a store without conditional deletions reports one as done", "store/optional.go",
		`return &Error{Op: "delete", Key: key, Err: ErrConditionUnsent}`, `return nil`, test("./store", "^TestFiniteKeepsAbilities$")},
	{"a key can lead out of the repository", "store/key.go",
		`case "", ".", "..":`, `case "", ".":`, test("./store", "^FuzzCheckKey$")},
	{"a request that was withdrawn counts as an answer", "store/answers.go",
		`if !errors.Is(err, ErrUnreachable) && !errors.Is(err, context.Canceled) {`, `if !errors.Is(err, ErrUnreachable) {`, test("./store", "^TestAnswers$")},
	{"a batch that was never sent counts as an answer", "store/answers.go",
		`if !errors.Is(err, ErrBatchUnsent) {`, `if err != nil || deleted != nil {`, test("./store", "^TestAnswers$")},

	// Directories.
	{"a put makes a directory in a repository that was moved away", "store/dir/put.go",
		`cmp.Or(ctx.Err(), s.gone(root))`, `cmp.Or(ctx.Err())`, test("./store/dir", "^TestReplacedRoot$")},
	{"a put whose context has ended while it wrote is applied", "store/dir/put.go",
		`if err := ctx.Err(); err != nil {
		return obj, err // the disk might have been slow`, `if err := ctx.Err(); err != nil && w.durable {
		return obj, err // the disk might have been slow`, test("./store/dir", "^TestEndedWhileWriting$")},
	{"a failed put leaves its temporary file", "store/dir/put.go",
		`			_ = d.Remove(temp)
			w.prune`, `			w.prune`, test("./store/dir", "^TestFileSizeLimit$")},
	{"the flock is released before the rename", "store/dir/rename.go",
		`	defer unlock()
	if err := matches(d, w.name, w.opts.IfMatch)`, `	unlock()
	if err := matches(d, w.name, w.opts.IfMatch)`, test("./store/dir", "^TestContract$")},
	{"a put takes no flock", "store/dir/lock.go",
		`if !s.flock {`, `if s.flock || root != nil {`, test("./store/dir", "^TestStoppedHolder$")},
	{"all writers of a directory wait for one flock", "store/dir/lock.go",
		`if s.local {`, `if s.local && root == nil {`, test("./store/dir", "^TestSlowRenames$")},
	{"a file that lost its name before its flock was taken is locked", "store/dir/lock.go",
		`if stillNamed(d, name, f) {`, `if stillNamed(d, name, f) || true {`, test("./store/dir", "^TestReplacedBeforeItsFlock$")},
	{"a client that locks a file doesn't keep out one that locks the directory", "store/dir/lock.go",
		`lockRoot(ctx, root, flock.TryShared)`, `func() {}, ctx.Err()`, test("./store/dir", "^TestDirectoryIsLocked$")},
	{"a client that locks the directory doesn't keep out one that locks a file", "store/dir/lock.go",
		`return lockRoot(ctx, root, flock.Try)`, `return lockRoot(ctx, root, flock.TryShared)`, test("./store/dir", "^TestLinkIsLocked$")},
	{"a put with If-Match writes where there is nothing", "store/dir/rename.go",
		`case errors.Is(err, fs.ErrNotExist):
		return store.ErrPrecondition`, `case errors.Is(err, fs.ErrNotExist):
		return nil`, test("./store/dir", "^TestContract$/^if_match_writes_nothing_where_there_is_nothing$")},
	{"a conditional deletion doesn't look", "store/dir/delete.go",
		`if err := matches(d, name, ifMatch); err != nil {`, `if err := matches(d, name, ""); err != nil {`, test("./store/dir", "^TestContract$/^delete_if_match$")},
	{"its own link of a lost answer counts as another's", "store/dir/rename.go",
		`err != nil && !linked(d, temp, name) {`, `err != nil {`, test("./store/dir", "^TestLinkAnsweredTwice$")},
	{"a rename takes the place of another's file", "store/dir/rename_linux.go",
		`unix.RENAME_NOREPLACE`, `0`, test("./store/dir", "^TestRenameNoReplace$")},
	{"a listing is as old as the file system's cache of it", "store/dir/list.go",
		`if l.cached {`, `if l.cached && d == nil {`, test("./store/dir", "^TestListRereads$")},
	{"the store's time is the clock's, which the kernel's stamps lag behind", "store/dir/list.go",
		`s.now().Round(0).Add(-tick)`, `s.now().Round(0)`, test("./store/dir", "^TestNow$")},
	{"this machine's clock counts as a network file system's", "store/dir/list.go",
		`if s.local {`, `if s.scan != nil {`, test("./store/dir", "^TestNow$")},
	{"conditions are kept on a network file system", "store/dir/dir.go",
		`case s.flock && s.local:`, `case s.flock:`, test("./store/dir", "^TestProperties$")},
	{"if absent is kept on a network file system", "store/dir/dir.go",
		`if s.local {
		p.IfAbsent`, `if s.flock {
		p.IfAbsent`, test("./store/dir", "^TestProperties$")},
	{"names that an earlier scan has shown are forgotten", "store/dir/readdir.go",
		`set(slices.Concat(all, next)), next`, `set(slices.Clone(next)), next`, test("./store/dir", "^TestSettled$")},
	{"one scan is enough", "store/dir/readdir.go",
		`if n > 0 && slices.Equal(last, next) {
			break
		}
		all, last = set(slices.Concat(all, next)), next`, `all, last = set(slices.Concat(all, next)), next
		if n >= 0 && slices.Equal(last, next) {
			break
		}`, test("./store/dir", "^TestSettled$")},
	{"a dead process's temporary files are listed", "store/dir/readdir.go",
		`if isTemp(name) || !wanted(name)`, `if isTemp(name) && d == nil || !wanted(name)`, test("./store/dir", "^TestTemporaryNames$")},
	{"an unreadable lock fails the listing", "store/dir/list.go",
		`(errors.Is(err, errIrregular) || errors.Is(err, fs.ErrPermission))`, `errors.Is(err, errIrregular)`, test("./store/dir", "^TestUnreadableFile$")},
	{"a directory that can't be read counts as empty", "store/dir/list.go",
		`if absent(err) {
		return false, nil // nothing`, `if err != nil {
		return false, nil // nothing`, test("./store/dir", "^TestUnreadableDirectory$")},
	{"a page of an older listing is answered from a younger one's names", "store/dir/page_cache.go",
		`s.prefix == prefix && s.cursors[cursor]`, `(s.prefix == prefix || s.cursors[cursor])`, test("./store/dir", "^TestListingsShowWhatWasPut$")},
	{"an older listing's names replace a younger one's", "store/dir/page_cache.go",
		`case s.listing != l.begun:`, `case s.listing > l.begun:`, test("./store/dir", "^TestListingsShowWhatWasPut$")},
	{"each page scans the directories again", "store/dir/page_cache.go",
		`s.cursors[next] = true`, `s.cursors[next] = false`, test("./store/dir", "^TestOneScanForAListing$")},
	{"a directory that other programs need is removed", "store/dir/prune.go",
		`if dir == "" || slices.Contains(kept, dir) {`, `if dir == "" {`, test("./store/dir", "^TestDeletePrunes$")},
	{"a living process's temporary file is removed", "store/dir/prune.go",
		`<= abandoned`, `<= abandoned/48`, test("./store/dir", "^TestSweep$")},
	{"another program's empty directory is removed", "store/dir/prune.go",
		`return mine || strings.HasPrefix(dir, kept[0]+"/")`, `return mine || dir != kept[0]`, test("./store/dir", "^TestFoldersOfOthersStay$")},
	{"a lock is put onto the mount point of a disk that is gone", "store/dir/dir.go",
		`if err == nil && !sameFileSystem(s.opened, info) {`, `if err == nil && s.opened == nil {`, test("./store/dir", "^TestUnmounted$")},
	{"the group can't write to a lock", "store/dir/dir.go",
		`0o600 | shared&0o066`, `0o600 | shared&0o044`, test("./store/dir", "^TestModes$")},
	{"root's lock belongs to root in a user's repository", "store/dir/system_unix.go",
		`if ok && ok1 && is.Uid == 0 && above.Uid != 0 && os.Geteuid() == 0 {`, `if ok && ok1 && is.Uid != 0 && above.Uid != 0 && os.Geteuid() == 0 {`, test("./store/dir", "^TestRootLeavesItToTheOwner$")},
	{"a link in place of a directory is followed", "store/dir/path.go",
		`case !info.IsDir():
		return nil, fmt`, `case info.Mode()&fs.ModeNamedPipe != 0:
		return nil, fmt`, test("./store/dir", "^TestLinkedDirectory$")},
	{"a holder's refresh is a hint of a release", "store/dir/watch_linux.go",
		`case isTemp(name), top`, `case top`, test("./store/dir", "^TestWatchHeedsRemovals$")},
	{"a network file system promises hints", "store/dir/watch.go",
		`if !s.local {`, `if s.scan == nil {`, test("./store/dir", "^TestWatchIsLocal$")},
	{"a network file system without its server isn't unreachable", "store/dir/errors.go",
		`err = store.Unreachable(fmt.Errorf("the server`, `err = (fmt.Errorf("the server`, test("./store/dir", "^TestErrorsOfTheSystem$")},
	{"a waiter for a directory's flock hears of no process", "store/dir/lock_flock.go",
		`if len(f) < 6 || f[1] != "FLOCK" || f[5] != file {`, `if len(f) < 6 || f[1] != "FLOCK" || !strings.HasPrefix(f[5], file) {`, test("./store/dir", "^TestFlockPID$")},

	// S3's protocol.
	{"conditions=none sends them", "store/internal/s3api/store.go",
		`if r.conditional && s.props.IfAbsent == store.Unsupported {`, `if r.conditional && s.props.Name == "" {`, test("./store/internal/s3api", "^TestConditions$")},
	{"a put without an ETag is a success", "store/internal/s3api/store.go",
		`if etag == "" { // it`, `if etag == "" && r.conditional { // it`, test("./store/internal/s3api", "^TestAnswers$")},
	{"a listing of another prefix passes", "store/internal/s3api/store.go",
		`if !ok || !strings.HasPrefix(key, prefix) {`, `if !ok {`, test("./store/internal/s3api", "^TestListings$")},
	{"a listing in no order passes", "store/internal/s3api/store.go",
		`if !slices.IsSortedFunc(page.Objects, func`, `if page.Now.IsZero() == false && !slices.IsSortedFunc(page.Objects, func`, test("./store/internal/s3api", "^TestListings$")},
	{"of a key that is listed twice the released form counts", "store/internal/s3api/store.go",
		`case out[n-1].Size == 0 || o.Size > 0 && !o.ModTime.Before(out[n-1].ModTime):`, `case !o.ModTime.Before(out[n-1].ModTime):`, test("./store/internal/s3api", "^TestListedTwice$")},
	{"the store's time is this machine's", "store/internal/s3api/store.go",
		`page.Now = answer.Date()`, `page.Now = s.now()`, test("./store/internal/s3api", "^TestListings$")},
	{"any refused request is sent again", "store/internal/s3api/store.go",
		`return r.op == "put"`, `return true`, test("./store/internal/s3api", "^TestPutBesideDelete$")},
	{"the refusal of the first put is taken for the answer to the second", "store/internal/s3api/store.go",
		`r.answer.Reset()`, `_ = r.answer`, test("./store/internal/s3api", "^TestSkewedAndLost$")},
	{"a put covers a version that was put beside it", "store/internal/s3api/store.go",
		`s.tidy.wrote(ctx, s, key, r.answer.Header("X-Amz-Version-Id"), covered)`, `s.tidy.wrote(ctx, s, key, r.answer.Header("X-Amz-Version-Id"), append(covered[:0], s.tidy.covered(key)...))`, test("./store/internal/s3api", "^TestPutsAtOnce$")},
	{"a throttling store is unreachable", "store/internal/s3api/errors.go",
		`case httptransport.Down(status) && refusal.Code == "":`, `case httptransport.Down(status):`, test("./cmd/repolock", "^TestOnlySilenceIsUnreachable$/^503")},
	{"a throttling B2 is unreachable", "store/b2/errors.go",
		`httptransport.Down(e.status) && e.code == ""`, `httptransport.Down(e.status)`, test("./cmd/repolock", "^TestOnlySilenceIsUnreachable$/^503")},
	{"a proxy that forbids the way is down", "store/internal/httptransport/unreachable.go",
		`return Passing(refused.Status)`, `return true`, test("./cmd/repolock", "^TestProxyRefuses$/^403")},
	{"a proxy that answers for the server isn't named", "store/internal/httptransport/proxy.go",
		`r.URL.Scheme != "http" {`, `r.URL.Scheme != "https" {`, test("./cmd/repolock", "^TestProxyRefuses$/^407")},
	{"credentials that can't be renewed are a wrong configuration", "store/internal/s3api/store.go",
		`case s.signed.Load():`, `case !s.signed.Load() && ctx == nil:`, test("./store/internal/s3api", "^TestCredentialsFail$")},
	{"a service of credentials that fails is a wrong configuration", "store/internal/s3api/store.go",
		`case errors.As(err, new(PassingError)):`, `case errors.As(err, new(PassingError)) && ctx == nil:`, test("./store/internal/s3api", "^TestCredentialServiceFails$")},
	{"any machine has a service of credentials", "store/s3/client.go",
		`case known && slices`, `case known && !known && slices`, test("./store/internal/s3api", "^TestCredentialServiceFails$")},
	{"what a service of credentials answers isn't noted", "store/minio/credentials.go",
		`s.status = res.StatusCode`, `s.status = 200`, test("./store/internal/s3api", "^TestCredentialServiceFails$")},
	{"a key that wasn't sent counts as deleted", "store/internal/s3api/batch.go",
		`i, asked := index[d.Key]
		if !asked {`, `i, asked := index[d.Key]
		if !asked && len(done) > len(keys) {`, test("./store/internal/s3api", "^TestDeleteAll$")},
	{"a throttled batch counts as a request that the server lacks", "store/internal/s3api/batch.go",
		`if ctx.Err() != nil || status == 0 || httptransport.Passing(status) &&`, `if ctx.Err() != nil || status == 0 || status >= 500 &&`, test("./store/internal/s3api", "^TestDeleteAllRefused$")},
	{"a server that can't delete in batches is asked each time", "store/internal/s3api/batch.go",
		`s.unbatched.Store(true)`, `s.unbatched.Store(false)`, test("./store/internal/s3api", "^TestDeleteAllRefused$")},
	{"a batch leaves its own versions", "store/internal/s3api/batch.go",
		`d.Marker, covered[d.Key])`, `d.Marker, nil)`, test("./store/internal/s3api", "^TestDeleteAllOfVersions$")},
	{"the delete marker goes, and uncovers another's version", "store/internal/s3api/tidy.go",
		`if at >= 0 && (at == len(versions)-1 || versions[at+1].Marker) {`, `if at >= 0 {`, test("./store/internal/s3api", "^TestMarkerHidesOthers$")},
	{"versions that are kept are removed again and again", "store/internal/s3api/tidy.go",
		`t.refused = true`, `t.refused = false`, test("./store/internal/s3api", "^TestKeptVersions$")},
	{"tidying uses up the time of the put", "store/internal/s3api/tidy.go",
		`time.Until(end)/2`, `time.Until(end)*2`, test("./store/internal/s3api", "^TestTidyingTakesNothingAway$")},
	{"a failing server's 503 with a code of S3's is permanent", "store/internal/s3api/errors.go",
		`case status >= 500 && status != http.StatusNotImplemented:
		return mightPass`, `case status >= 504 && status != http.StatusNotImplemented:
		return mightPass`, test("./store/internal/s3api", "^TestAnswers$")},
	{"a put with If-Match on nothing finds no object instead of a failed condition", "store/internal/s3api/errors.go",
		`if r.ifMatch {`, `if r.ifMatch && r.op != "put" {`, test("./store/internal/s3api", "^TestAnswers$")},
	{"a conditional deletion that is refused for its condition can be repeated", "store/internal/s3api/errors.go",
		`case status == 412 && r.conditional:`, `case status == 412 && r.conditional && r.op == "put":`, test("./store/internal/s3api", "^TestAnswers$")},
	{"a server that has no conditional deletions is asked again and again", "store/internal/s3api/errors.go",
		`		r.conditional && slices.Contains(unconditional, status)`, `		r.op == "put" && r.conditional && slices.Contains(unconditional, status)`, test("./store/internal/s3api", "^TestAnswers$")},
	{"wrong credentials are a lack of permission", "store/internal/s3api/errors.go",
		`"%w: the credentials are wrong (%s)", store.ErrCredentials`, `"%w: the credentials are wrong (%s)", store.ErrPermission`, test("./store/internal/s3api", "^TestAnswers$")},
	{"a request that was answered in part is silence", "store/internal/s3api/errors.go",
		`if !r.answer.Begun() {`, `if r.answer.Status() == 0 {`, test("./store/internal/s3api", "^TestBegunAndHanging$")},
	{"a server that was silent isn't unreachable", "store/internal/s3api/errors.go",
		`return store.Unreachable(err)
		}
		return err
	}
	if why`, `return err
		}
		return err
	}
	if why`, test("./store/internal/s3api", "^TestNewTakesSilenceForSilence$")},
	{"an empty success of a proxy is a deletion", "store/internal/s3api/transport.go",
		`if res.StatusCode != http.StatusNoContent {`, `if res.StatusCode > http.StatusNoContent {`, test("./store/internal/s3api", "^TestAnswers$")},
	{"a listing that doesn't say whether it goes on has ended", "store/internal/s3api/transport.go",
		`strconv.ParseBool(head.IsTruncated); err != nil {`, `strconv.ParseBool(head.IsTruncated); err != nil && head.IsTruncated != "" {`, test("./store/internal/s3api", "^TestListings$")},
	{"an entry without a size is an empty object", "store/internal/s3api/transport.go",
		`strconv.ParseUint(o.Size, 10, 63); err != nil ||`, `strconv.ParseUint("0"+o.Size, 10, 63); err != nil ||`, test("./store/internal/s3api", "^TestListings$")},
	{"an object without an ETag passes", "store/internal/s3api/transport.go",
		`case res.Header.Get("Etag") == "":`, `case res.Header.Get("Etag") == "" && res.ContentLength < 0:`, test("./store/internal/s3api", "^TestAnswers$")},
	{"a page of any length is read", "store/internal/s3api/transport.go",
		`if b.left -= n; b.left < 0 {`, `if b.left -= n; b.left < -1<<40 {`, test("./store/internal/s3api", "^TestHugeAnswers$")},

	// HTTP.
	{"a connection that can't be left is used again after a condition", "store/internal/httptransport/transport.go",
		`sent.Close = conditional(r) && !leaves`, `sent.Close = false`, test("./store/internal/httptransport", "^TestConditionKeepsItsConnection$")},
	{"a connection is used again after a refused condition", "store/internal/httptransport/transport.go",
		`on.leave()`, `_ = on`, test("./store/internal/httptransport", "^TestConditionKeepsItsConnection$")},
	{"a write that a client has repeated is a success", "store/internal/httptransport/transport.go",
		`r.Method != http.MethodGet && sent.Load() > 1`, `r.Method != http.MethodGet && sent.Load() > 2`, test("./store/internal/s3api", "^TestRepeatedWritesAreAmbiguous$")},
	{"after a failure the other idle connections are used", "store/internal/httptransport/transport.go",
		`own.CloseIdleConnections()`, `_ = own`, test("./store/internal/httptransport", "^TestFailureDropsConnections$")},
	{"a try after a failure goes over a connection that was just opened", "store/internal/httptransport/leave.go",
		`if w.distrusts() {`, `if w.distrusts() && r == nil {`, test("./store/internal/httptransport", "^TestTryAfterFailureTakesNewConnections$")},
	{"a library repeats a request", "store/internal/httptransport/answer.go",
		`case !f.sent:
		f.sent = true`, `case !f.sent || f.status >= 500:
		f.sent = true`, test("./store/internal/s3api", "^TestNewSendsOnce$")},
	{"a connection that was left sends a request", "store/internal/httptransport/leave.go",
		`if c.left.Load() {`, `if c.left.Load() && len(p) == 0 {`, test("./store/internal/httptransport", "^TestLeftConnectionSendsNothing$")},
	{"TLS sessions aren't kept", "store/internal/httptransport/transport.go",
		`if t.TLSClientConfig.ClientSessionCache == nil {`, `if t.TLSClientConfig.ClientSessionCache != nil {`, test("./store/internal/httptransport", "^TestTLSSessionIsResumed$")},
	{"an error shows a parameter that is a secret", "store/internal/httptransport/query.go",
		`if !parameterName.MatchString(name) || values[0] == "" {`, `if !parameterName.MatchString(name) {`, test("./store/internal/httptransport", "^TestQuery$")},

	// S3 and MinIO.
	{"conditions of a program's own resolver are kept", "store/s3/s3.go",
		`}, store.Claimed, nil
	}
	if o.BaseEndpoint`, `}, store.Kept, nil
	}
	if o.BaseEndpoint`, test("./store/internal/s3api", "^TestResolversServerIsNotAmazons$")},
	{"conditions of another server than Amazon's are kept", "store/s3/s3.go",
		`PlainHint: "write endpoint=http://" + name + " if that is wanted",
	}, store.Claimed, nil`, `PlainHint: "write endpoint=http://" + name + " if that is wanted",
	}, store.Kept, nil`, test("./store/internal/s3api", "^TestConditions$")},
	{"a body goes without the checksum that every server knows", "store/s3/client.go",
		`ContentMD5: aws.String(base64.StdEncoding.EncodeToString(sum[:])),`, `ContentLanguage: aws.String(base64.StdEncoding.EncodeToString(sum[:])),`, test("./store/internal/s3api", "^TestNewSendsOnce$")},
	{"if-match=unquoted sends quotes", "store/s3/client.go",
		`if c.unquoted {`, `if c.unquoted && etag == "" {`, test("./store/internal/s3api", "^TestUnquoted$")},
	{"the age of a delete marker isn't compared", "store/s3/client.go",
		`return aws.ToTime(v.LastModified).After(aws.ToTime(m.LastModified))`, `return true`, test("./store/internal/s3api", "^TestMarkerHidesOthers$")},
	{"the second page begins where the first did", "store/minio/client.go",
		`StartAfter: cursor,`, `StartAfter: "",`, test("./store/internal/s3api", "^TestShortPage$")},
	{"a provider's requests count as the store's", "store/minio/own.go",
		`return (r.Method != http.MethodPost || r.URL.Query().Has("delete")) &&`, `return r.Method != "" &&`, test("./store/minio", "^TestProvidersRequestsAreNotOwn$")},
	{"a transport around the store's is taken", "store/minio/minio.go",
		`if !s3api.Transports(c.CredContext().Client.Transport) {`, `if c.CredContext().Client.Transport == nil {`, test("./store/internal/s3api", "^TestNewRefuses$")},
	{"mc's authorities aren't trusted", "store/minio/mc.go",
		`pool.AppendCertsFromPEM(text)
	}
	return`, `_ = text
	}
	return`, test("./store/internal/s3api", "^TestPrivateAuthority$")},

	// B2.
	{"a put that came after a deletion stays", "store/b2/replace.go",
		`if len(below) == 0 || below[0].id != c.replaces {`, `if len(below) > 0 && below[0].id != c.replaces {`, test("./store/b2", "^TestReplacesWhatIsGone$")},
	{"each replacement costs a second look at the versions", "store/b2/replace.go",
		"	at := slices.IndexFunc(versions, func(v version) bool { return v.id == c.put.id })", "	_, _ = s.versions(ctx, name)\n	at := slices.IndexFunc(versions, func(v version) bool { return v.id == c.put.id })", test("./store/b2", "^TestRequests$")},
	{"a put that lost to a deletion at the same time stays", "store/b2/replace.go",
		`if i == 0 && err == nil && !removed {`, `if i == 0 && err == nil && removed && !may {`, test("./store/b2", "^TestEveryOrder$")},
	{"a look that failed is never made up for", "store/b2/replace.go",
		`if ok && owed.put.id == etag {`, `if ok && owed.put.id == "" {`, test("./store/b2", "^TestOwedLook$")},
	{"a late put without the right to delete stays", "store/b2/replace.go",
		`err = s.copyVersion(ctx, name, below[0])`, `err = nil`, test("./store/b2", "^TestReplacesWhatIsGone$")},
	{"a deletion uncovers older versions", "store/b2/delete.go",
		`for i := len(versions) - 1; i >= 0; i-- {`, `for i := range versions {`, test("./store/b2", "^TestDeleteLeavesNothing$")},
	{"a deletion doesn't follow a replacement", "store/b2/delete.go",
		`if done || err != nil {`, `if done || err == nil || err != nil {`, test("./store/b2", "^TestEveryOrder$")},
	{"a retained version fails the deletion", "store/b2/delete.go",
		`if errors.Is(err, store.ErrPermission) {
			return s.hideInstead`, `if errors.Is(err, store.ErrInvalidKey) {
			return s.hideInstead`, test("./store/b2", "^TestRetained$")},
	{"an expired upload URL is tried again", "store/b2/upload.go",
		`in.uploads.empty()
	}`, `in.uploads.put(u)
	}`, test("./store/b2", "^TestManyExpiredURLs$")},
	{"an upload URL is used after an error", "store/b2/upload.go",
		`if again || !expired(err) {`, `if again || !expired(err) {
			in.uploads.put(u)`, test("./store/b2", "^TestUploadURLs$")},
	{"a changed body is what was stored", "store/b2/get.go",
		`if got := sha1.Sum(body); err == nil &&`, `if got := sha1.Sum(body); err != nil &&`, test("./store/b2", "^TestBrokenDownloads$")},
	{"an error shows the token", "store/b2/errors.go",
		`if token != "" {`, `if token == "" {`, test("./store/b2", "^TestNoSecrets$")},
	{"a session that can't begin shows that an object is missing", "store/b2/errors.go",
		`|| errors.As(err, new(noSession)) {`, `{`, test("./store/b2", "^TestAnswers$")},
	{"the order of two puts at once is that of their answers", "store/b2/put.go",
		`if !ok || old.time.Before(v.time) {`, `if !ok || !old.time.Equal(v.time) {`, test("./store/b2", "^TestRemember$")},
	{"secrets go to any machine in the clear", "store/b2/url.go",
		`ip != nil && ip.IsLoopback()`, `ip != nil`, test("./store/b2", "^TestNotB2$")},
	{"a restricted key's prefix isn't looked at", "store/b2/session.go",
		`!strings.HasPrefix(name, prefix) {`, `!strings.HasPrefix(name, prefix) && prefix == "" {`, test("./store/b2", "^TestRestricted$")},
	{"a bucket that was made anew isn't found", "store/b2/session.go",
		`s.current.CompareAndSwap(in, nil)`, `s.current.CompareAndSwap(in, in)`, test("./store/b2", "^TestBucketMadeAnew$")},

	// URLs.
	{"credentials in a URL are taken", "store/open/parse.go",
		`case u.User != nil:`, `case u.User != nil && u.Host == "":`, test("./store/open", "^TestParseErrors$")},
	{"a file URL of another host is this machine's", "store/open/parse.go",
		`if host != "" && !strings.EqualFold(host, "localhost") {`, `if host != "" && strings.Contains(host, "@") {`, test("./store/open", "^TestParseErrors$")},
	{"a space at the end of a URL names another place", "store/open/parse.go",
		`case strings.TrimSpace(path) != path, strings.TrimSpace(query) != query:`, `case strings.TrimSpace(query) != query:`, test("./store/open", "^TestParseErrors$")},
	{"an option after a & is a part of the prefix", "store/open/parse.go",
		`case parameter.MatchString(path):`, `case parameter.MatchString(query) && path == "":`, test("./store/open", "^TestParseErrors$")},
	{"a translated URL shows a secret", "store/open/parse.go",
		"if !strings.ContainsAny(rest, \"@?#%\") {", "if !strings.ContainsAny(rest, \"?#%\") {", test("./store/open", "^TestParseErrors$")},
	{"a store that can't be opened isn't nil", "store/open/open.go",
		`return nil, err // without s, which can be a nil pointer`, `return s, err`, test("./store/open", "^TestStoreErrors$")},
}
