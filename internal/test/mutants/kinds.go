package main

const (
	leases   = "internal/lease/lease.go"
	leaseSet = "internal/lease/set.go"
)

// kindsMutants are bugs of four kinds of rule, which docs/evidence/testing.md describes: a second call within a first
// one, an error between a look and the act that needs it, a bound that only another client's data reaches, and the time
// to give up.
var kindsMutants = []mutant{
	// The second of two.
	{"a release lets a resume that is under way go on", leases, "abandon != nil {", "abandon != nil && l.Lost() == nil {", own("TestReleaseEndsAResume")},
	{"a release frees the lock beside a resume that is under way", leases, "	l.resumes <- struct{}{} // and keeps it for ever: no Resume can begin\n", "", own("TestReleaseEndsAResume")},
	{"a second release returns before the first has ended", leases, "		<-l.released\n		return l.err", "		return l.err", own("TestReleaseEndsAResume")},
	{"a second resume waits for the first", leases, "	default:\n		if l.releasing.Load() {\n			return fault.Released\n		}\n		return errors.New(\"another call is resuming the lock\")\n", "	case <-l.released:\n		return fault.Released\n", own("TestResumeTwice")},
	{"a lock can be resumed only once", leases, "		defer func() { <-l.resumes }()\n", "", own("TestResumeTwice")},
	{"a lock whose release has begun is resumed", leases, "case old.term().Releasing():", "case false:", own("TestNoResumeInARelease")},
	{"a lock that is lost for good is resumed by its lease", leases, "	case lost.Definite:\n		return lost.Err\n", "", own("TestNoResume")},
	{"a held lock is resumed", leases, "case lost == nil:\n		return fmt.Errorf(\"the lock is held, so there is nothing to resume: %s\", old.About().Key)", "case lost == nil:\n		return nil", own("TestResume")},
	{"a resumed lock reports that before its lease has it", leases, "	l.current.Store(&next)\n	next.Resumed()\n", "	next.Resumed()\n	l.current.Store(&next)\n", own("TestResume")},
	{"a context whose parent has ended begins", leases, "	if parent.Err() != nil {\n		quit()\n	}\n", "", own("TestResumeEndsWithItsParent")},
	{"a resume goes on after its parent has ended", leases, "stop := context.AfterFunc(parent, quit)", "stop := func() bool { return false }", own("TestResumeEndsWithItsParent")},
	{"a second loss doesn't end the resume of the first", leaseSet, "				other.CompareAndSwap(nil, l.Lost())\n				cancel()\n", "				other.CompareAndSwap(nil, l.Lost())\n", own("TestSecondLossInAResume")},
	{"a second loss within a resume is reported as the end of a context", leaseSet, "if lost := other.Load(); lost != nil {", "if lost := other.Load(); lost != nil && lost.Err == nil {", own("TestSecondLossInAResume")},
	{"a set that was resumed keeps the context that has ended", leaseSet, "			s.begin()\n			return nil", "			return nil", own("TestSecondLossInAResume")},
	{"a set resumes its other locks beside one that is lost for good", leaseSet, "		case lost.Definite:\n			return lost.Err\n", "", own("TestNothingIsResumedBesideADefiniteLoss")},
	{"of two losses for good the last one counts", leaseSet, "loss.Definite && !lost.Definite", "loss.Definite", own("TestNothingIsResumedBesideADefiniteLoss")},

	// An error between a look and the act that needs it.
	{"break-lock --stale deletes though its second look failed", breaks, "if err == nil && !again {", "if !again {", own("TestBreakStaleNeedsItsSecondLook")},
	{"break-lock takes a failed second look for an unchanged lock", breaks, "	if err != nil || now == nil {\n		return err == nil, err", "	if err != nil || now == nil {\n		return false, nil", own("TestBreakStaleNeedsItsSecondLook")},
	{"break-lock is content with the first pages of a listing", status, "return fault.While(\"listing the locks\", err)", "return nil", own("TestBreakNeedsTheWholeListing")},
	{"break-lock --stale says nothing if the store's time is unknown", breaks, "if st, err = l.probeTime(ctx); err != nil {", "if st, err = l.probeTime(ctx); err == nil {", own("TestBreakStaleNeedsTheStoresTime")},
	{"a release deletes lock.exclusive though its look failed", withdraws, "	if err != nil || !ours {\n		return err\n	}\n	if etag", "	if err == nil && !ours {\n		return err\n	}\n	if etag", own("TestReleaseNeedsItsLook")},
	{"a release whose look failed succeeds", withdraws, "	case err != nil:\n		return \"\", false, err\n	case ctx.Err() != nil:", "	case err != nil:\n		return \"\", false, nil\n	case ctx.Err() != nil:", own("TestReleaseNeedsItsLook")},
	{"a refresh whose look failed takes the lock for broken", renews, "	page, err := r.listed(ctx, o.key)\n	if err != nil {\n		return err\n	}\n	seen, _", "	page, err := r.listed(ctx, o.key)\n	if ctx.Err() != nil {\n		return err\n	}\n	seen, _", own("TestRefreshNeedsItsLook")},
	{"a stale lock.exclusive is overwritten though the second look failed", enters, "		case err != nil:\n			return fault.While(\"looking at the lock\", err)\n		case now == nil:", "		case err != nil:\n		case now == nil:", own("TestClaimNeedsItsLook")},
	{"a failed look at the old flag ends a resume for good", resume, "	old, err := k.l.find(ctx, k.t.flag.key)\n	if err != nil {", "	old, err := k.l.find(ctx, k.t.flag.key)\n	if ctx.Err() != nil {", own("TestResumeNeedsItsLooks")},
	{"an acquirer puts though it couldn't find out whether the repository exists", enters, "case err != nil:\n\t\treturn f, fault.While(\"looking", "case err != nil && ctx.Err() != nil:\n\t\treturn f, fault.While(\"looking", own("TestFirstPutNeedsItsLook")},
	{"a read that fails is the end of the blocker", queues, "gone := errors.Is(err, store.ErrNotFound)", "gone := err != nil", own("TestWaiterNeedsItsRead")},
	{"over SFTP a general failure counts as deleted", "store/sftp/object.go", "errors.Is(err, sftpwire.NoSuchFile) || errors.Is(err, errStill) {\n\t\treturn err\n\t}\n", "errors.Is(err, sftpwire.NoSuchFile) || errors.Is(err, errStill) {\n\t\treturn err\n\t}\n\tif errors.Is(err, sftpwire.Failure) {\n\t\treturn nil\n\t}\n", own("TestUndeleted")},
	{"over SFTP the deletion of many counts a general failure as deleted", "store/sftp/object.go", "= err == nil || errors.Is(err, sftpwire.NoSuchFile)", "= err == nil || errors.Is(err, sftpwire.NoSuchFile) || errors.Is(err, sftpwire.Failure)", own("TestUndeleted")},
	{"over SFTP a failed look shows that a file is gone", "store/sftp/object.go", "errors.Is(c.absent(ctx, key, look.Err()), sftpwire.NoSuchFile)", "look.Err() != nil", own("TestUndeleted")},

	// Bounds that only another client's data reaches.
	{"a ttl of less than ten seconds is taken as it is", bodies, "max(l.TTLSeconds, MinTTL.Seconds())", "l.TTLSeconds", own("TestDecode")},
	{"a ttl of years is taken as it is", bodies, "min(max(l.TTLSeconds, MinTTL.Seconds()), MaxTTL.Seconds())", "max(l.TTLSeconds, MinTTL.Seconds())", own("TestDecode")},
	{"a negative ttl is the shortest one", bodies, "if l.TTLSeconds < 0 {", "if l.TTLSeconds < 0 && l.ID != \"\" {", own("TestDecode")},
	{"the largest metadata is dropped", bodies, "if BytesIn(b.Metadata) > MaxMetadata {", "if BytesIn(b.Metadata) >= MaxMetadata {", own("TestBoundsOfABody")},
	{"the largest compressed body is refused", bodies, "if len(plain) > MaxBody {", "if len(plain) >= MaxBody {", own("TestBoundsOfABody")},
	{"a lock's body can be followed by anything", bodies, "json.Unmarshal(plain, &l.Body); err", "json.NewDecoder(bytes.NewReader(plain)).Decode(&l.Body); err", own("TestDecode")},
	{"a lock without expires_at has no end", bodies, "parseTime(l.ExpiresAt); err != nil {", "parseTime(l.ExpiresAt); err != nil && l.RefreshedAt == \"\" {", own("TestDecode")},
	{"an acquired_at that is no time damages a lock", bodies, "	l.Acquired, _ = parseTime(l.AcquiredAt)\n", "	if l.Acquired, err = parseTime(l.AcquiredAt); err != nil {\n		return Decoded{}, err\n	}\n", own("TestDecode")},
	{"a compressed body is read to its end", bodies, "io.LimitReader(r, MaxBody+1)", "io.LimitReader(r, MaxBody<<20)", own("TestDecodeIsBounded")},
	{"one text of a body isn't cut", bodies, "&b.RefreshedAt, &b.Nonce,", "&b.RefreshedAt,", own("TestDecodeIsBounded")},
	{"a file that old versions of Windows make is a lock", keys, `"ehthumbs.db", `, "", engine("TestStraysAreNoLocks")},
	{"a year before 0 is written as it is", keys, "case y < 0:", "case y < -9999:", own("TestTimestamp")},
	{"year 9999 is clamped", keys, "case y > 9999:", "case y >= 9999:", own("TestTimestamp")},
	{"the age of a lock that is dated in a far year overflows", "replock/locker.go", "clock.Between(e.Lease.Refreshed, l.opts.Clock.Now())", "-e.Lease.Refreshed.Sub(l.opts.Clock.Now())", own("TestFarDates")},
	{"the time between two far dates overflows a sum", readings, "return min(max(to.Sub(from), -century), century)", "return to.Sub(from)", own("TestBetween")},
	{"the time for which a lock is held overflows", "cmd/internal/show/locks.go", "max(clock.Between(i.Acquired, refreshed), 0)", "max(refreshed.Sub(i.Acquired), 0)", own("TestHeldFor")},
	{"JSON has no form for the year that a time has in UTC", "cmd/internal/events/event.go", "	t = t.UTC() // before the year is read: the offset of a time can end another year than UTC's\n	if y := t.Year(); t.IsZero() || y < 0 || y > 9999 {\n		return nil\n	}\n", "	if y := t.Year(); t.IsZero() || y < 0 || y > 9999 {\n		return nil\n	}\n	t = t.UTC()\n", own("TestInstant")},
	{"a time since boot that nobody has written is a witness", judge, "return e.Lease.RefreshedBoot > 0 && j.Self.SameBoot(e.Lease.Process)", "return j.Self.SameBoot(e.Lease.Process)", own("TestBoundsOfTheTimeSinceBoot")},
	{"the wall clock alone calls an encrypted lock long dead", judge, "return st.When(now).After(dead) && j.Wall().After(dead)", "return j.Wall().After(dead)", own("TestLongDead")},
	{"an object of another size is the same version", entries, " || e.Size != o.Size {", " {", own("TestVersions")},
	{"an object with another mod time is the same version", entries, " || !e.ModTime.Equal(o.ModTime) || ", " || ", own("TestVersions")},
	{"the body of lock.exclusive is carried to its next version", entries, "if e.Kind == wire.KindExclusive || was.Err != nil || ", "if was.Err != nil || ", own("TestCarry")},
	{"the dates of a carried body move by an unknown time", entries, "if !e.ModTime.IsZero() && !was.ModTime.IsZero() {", "if !e.ModTime.IsZero() {", own("TestCarry")},
	{"lock.exclusive can be a ticket", entries, " && (e.Kind == wire.KindIntent || e.Kind == wire.KindShared)", "", own("TestWhatAnEntryIs")},
	{"a lock whose body wasn't read has an id", entries, "return (e.Read || e.Carried) && e.Err == nil", "return e.Err == nil", own("TestWhatAnEntryIs")},
	{"an empty page covers all keys", entries, "return page.Next == \"\" || n > 0 && page.Objects[n-1].Key > key", "return page.Next == \"\" || n == 0 || page.Objects[n-1].Key > key", own("TestPages")},
	{"a document after the end of a listing is ignored", "store/internal/s3api/listing.go", "case err == nil && len(bytes.TrimSpace(body[decoder.InputOffset():])) > 0:", "case err == nil && !bytes.HasSuffix(bytes.TrimSpace(body), []byte(\"</\"+root+\">\")):", own("TestListings")},
	{"a key that isn't encoded is decoded", "store/internal/s3api/listing.go", "if d.EncodingType != \"url\" {", "if d.EncodingType == \"none\" {", own("TestListings")},

	// Time to give up.
	{"a lease that waits for its release is lost meanwhile", leaseSet, "		l.Owner().term().stop(errStopped) // otherwise", "		_ = l.Owner().term() // otherwise", own("TestReleaseOfASet")},
	{"a release that hangs delays the next one for a minute", leaseSet, "case <-time.After(MaxDelay):", "case <-time.After(time.Minute):", own("TestReleaseOfASet")},
	{"the release of a set doesn't wait for one that hangs", leaseSet, "	all.Wait()\n	return fault.Join(errs...)", "	return fault.Join(errs...)", own("TestReleaseOfASet")},
	{"the errors of a set's releases are dropped", leaseSet, "			errs[i] = l.Release(ctx)\n", "			_, errs[i] = l.Release(ctx), nil\n", own("TestReleaseOfASet")},
	{"after a step of the wall clock a lease is renewed only when that is due", holding, "if clock.Read(t.Clock).SteppedSince(t.Seen()) {", "if clock.Read(t.Clock).Elapsed < 0 {", own("TestStep")},
	{"a new deadline isn't reported", holding, "	t.deadline.Store(int64(deadline))\n	t.changed()\n", "	t.deadline.Store(int64(deadline))\n", own("TestNotify")},
	{"a lost lock has time left", holding, "if t.lost.Load() != nil || t.releasing.Load() {", "if t.releasing.Load() {", own("TestTimes")},
	{"a look at another system's lock hangs for ten times as long", "cmd/internal/also/lock.go", "const maxInspect = 5 * time.Second", "const maxInspect = 50 * time.Second", own("TestLooksEnd")},
	{"doctor's look at another system hangs for ten times as long", "cmd/internal/also/examine.go", "const maxExamine = 30 * time.Second", "const maxExamine = 300 * time.Second", own("TestLooksEnd")},
	{"a failed look at another system's lock lets break-lock go on", "cmd/internal/also/lock.go", "	if seen == nil || err != nil {\n		return nil, err\n	}\n	info := l.info(seen)\n	shown", "	if seen == nil {\n		return nil, err\n	}\n	info := l.info(seen)\n	shown", own("TestActsNeedTheirLook")},
	{"a lost lock of another system whose release fails is released", "cmd/internal/also/lock.go", "case lost != nil && errors.Is(err, locking.ErrLost):", "case lost != nil:", own("TestReleaseOfALostLock")},
	{"a lost lock of another system is reported as released", "cmd/internal/also/lock.go", "	case lost == nil:\n		l.tell(replock.EventReleased, 0, nil)", "	default:\n		l.tell(replock.EventReleased, 0, nil)", own("TestReleaseOfALostLock")},
	{"a client library's repetition of a failed request is sent", "store/internal/httptransport/answer.go", "case f.status == 0 || f.status >= 300:\n		return errRepeated", "case f.status == 0 || f.status >= 300:\n		return nil", own("TestClaim")},
	{"a refusal whose body breaks off is one", "store/internal/httptransport/answer.go", "if refused && err != nil {", "if refused && err != nil && len(body) == 0 {", own("TestRead")},
	{"a write that was sent twice has an answer", "store/internal/httptransport/transport.go", "r.Method != http.MethodGet && sent.Load() > 1:", "r.Method != http.MethodGet && sent.Load() > 2:", own("TestRepeatedByADecorator")},
	{"a beads lock that was replaced is removed", "locking/beads/file.go", "if now != nil && now.Err == nil && os.SameFile(now.Info, f.Info) && bytes.Equal(now.Body, f.Body) {", "if now != nil && now.Err == nil && bytes.Equal(now.Body, f.Body) {", own("TestRemoveNeedsTheSameFile")},
}
