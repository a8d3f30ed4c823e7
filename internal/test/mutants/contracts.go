package main

import "strings"

// contractMutants are bugs in backends, each of which a subtest of storetest.Run or of lockingtest.Run finds. So they
// test these suites: each rule of lockingtest has one.
var contractMutants = []mutant{
	{"a put in memory is visible when half of it is written", inMem,
		"\ts.objects[key] = object{", "\ts.objects[key] = object{body: slices.Clone(body[:len(body)/2]), info: info}\n" + inTwoSteps + "\ts.objects[key] = object{", stored("reads are never torn")},
	{"a put in memory deletes the old object first", inMem,
		"\tif !found {\n\t\tat, _ :=", "\tif at, there := slices.BinarySearch(s.keys, key); there {\n\t\ts.keys, found = slices.Delete(s.keys, at, at+1), false\n" + inTwoSteps + "\t}\n\tif !found {\n\t\tat, _ :=",
		stored("list never misses what is overwritten")},
	{"a put of memory with If-None-Match looks, and then writes", inMem,
		"\tinfo := store.Object{\n\t\tKey: ", "\tif opts.IfAbsent {\n" + inTwoSteps + "\t}\n\tinfo := store.Object{\n\t\tKey: ", stored("if absent has one winner")},
	{"a put of memory with If-Match looks, and then writes", inMem,
		"\tinfo := store.Object{\n\t\tKey: ", "\tif opts.IfMatch != \"\" {\n" + inTwoSteps + "\t}\n\tinfo := store.Object{\n\t\tKey: ", stored("if match loses no increment")},
	{"a put of memory with If-Match ignores the ETag", inMem,
		`met := found && old.info.ETag == opts.IfMatch ||`, `met := found ||`, stored("if match")},
	{"a put of memory with If-Match is always refused", inMem,
		`return s.opts.IfMatch.outcome(met)`, `return s.opts.IfMatch.outcome(met && s == nil)`, stored("if match loses no increment")},
	{"a put in memory is applied after the end of its context", inMem,
		"\tif err := check(ctx, key); err != nil {\n\t\treturn store.Object{}, ", "\tif err := check(context.WithoutCancel(ctx), key); err != nil {\n\t\treturn store.Object{}, ", stored("an ended context is heeded")},
	{"a get of memory ignores its limit", inMem, `case o.info.Size > limit:`, `case limit < 0:`, stored("get heeds its limit")},
	{"a listing of memory is a millisecond old", inMem,
		"\t\tpage.Objects = append(page.Objects, s.objects[key].info)\n", "\t\tif o := s.objects[key].info; s.now().Sub(o.ModTime) > time.Millisecond {\n\t\t\tpage.Objects = append(page.Objects, o)\n\t\t}\n",
		stored("list shows every put of another handle")},
	{"a listing of memory is in the order of a walk through directories", inMem,
		"s.objects[key].info)\n\t}\n\treturn page, nil", "s.objects[key].info)\n\t}\n\tslices.SortFunc(page.Objects, func(a, b store.Object) int {\n\t\treturn slices.Compare(strings.Split(a.Key, \"/\"), strings.Split(b.Key, \"/\"))\n\t})\n\treturn page, nil",
		stored("list is in byte order")},
	{"a listing of memory is dated in the future", inMem, `page.Now = s.now()`, `page.Now = s.now().Add(time.Second)`, stored("mod time and now are one clock")},
	{"a page of memory lacks its last object", inMem,
		"page.Next = page.Objects[n-1].Key\n", "page.Next, page.Objects = page.Objects[n-1].Key, page.Objects[:n-1]\n", stored("list returns pages")},
	{"a listing of memory never ends", inMem, `slices.BinarySearch(s.keys, cursor)`, `slices.BinarySearch(s.keys, cursor[:0])`, stored("list returns pages")},
	{"a listing of memory fails", inMem,
		"\tif err := ctx.Err(); err != nil {\n\t\treturn store.Page{}, failed(\"list\", prefix, err)", "\tif err := ctx.Err(); err != nil || prefix != \"\" {\n\t\treturn store.Page{}, failed(\"list\", prefix, store.ErrPermission)",
		stored("list never misses what is overwritten")},
	{"a conditional deletion in memory looks, and then deletes", inMem,
		"\t\t\treturn failed(\"delete\", key, err)\n\t\t}\n\t}\n\tif found {", "\t\t\treturn failed(\"delete\", key, err)\n\t\t}\n" + inTwoSteps + "\t}\n\tif found {", stored("delete if match removes nothing newer")},
	{"a batch in memory reports a key that it leaves out as deleted", inMem,
		`deleted[i] = s.delete(context`, `deleted[i] = i == 0 || s.delete(context`, stored("delete all reports what it deletes")},
	{"a batch in memory takes a key for a prefix", inMem,
		"\t\tdeleted[i] = s.delete(context", "\t\t_ = s.delete(context.WithoutCancel(ctx), key+\"/below\", \"\")\n\t\tdeleted[i] = s.delete(context", stored("delete all reports what it deletes")},
	{"a watch of memory gives no hint", inMem, `if !strings.HasPrefix(key, w.prefix) {`, `if strings.HasPrefix(key, w.prefix) {`, stored("watch gives a hint of a deletion, or is unsupported")},

	{"a held lock in memory is an error", inMemory,
		`return locking.Handle{}, false, nil`, `return locking.Handle{}, false, fmt.Errorf("lock %q: held", key)`, moved("contention is no error")},
	{"a client of beads acquires its own lock again", "locking/beads/lock.go",
		"\tif there != nil {\n\t\tif !exclusive", `	b.mu.Lock()
	defer b.mu.Unlock()
	for _, mine := range b.held {
		if there != nil && os.SameFile(there.Info, mine.Info) {
			return mine, nil
		}
	}
	if there != nil {
		if !exclusive`, own("TestConformance/flock/contention_is_no_error")},
	{"all keys in memory are one", inMemory, "\th, now := locking.NewHandle(key, ttl)", "\tkey = \"a\"\n\th, now := locking.NewHandle(key, ttl)", moved("keys are independent")},
	{"TryLock of memory accepts any key", inMemory,
		"\tif err := check(ctx, key); err != nil {\n\t\treturn locking.Handle{}", "\tif err := check(ctx, \"_\"+key); err != nil {\n\t\treturn locking.Handle{}", moved("bad keys are ErrKey")},
	{"Inspect of memory accepts any key", inMemory,
		"\tif err := check(ctx, key); err != nil {\n\t\treturn nil, err", "\tif err := check(ctx, \"_\"+key); err != nil {\n\t\treturn nil, err", moved("bad keys are ErrKey")},
	{"Break of memory accepts any key", inMemory, `check(ctx, seen.Key)`, `check(ctx, "_"+seen.Key)`, moved("bad keys are ErrKey")},
	{"a lock in memory can have no ttl", inMemory, `if ttl <= 0 {`, `if ttl < 0 {`, moved("a ttl is positive")},
	{"all locks of a key in memory have one token", inMemory, "\tb.last++\n", `	if old, again := b.locks["last "+key]; again && old.handle.TTL() == ttl {
		h = old.handle
	}
	b.locks["last "+key] = lock{handle: h, deadline: 1 << 62}
	b.last++
`, moved("a handle has its key and ttl and a token of its own")},
	{"a lock in memory is never acquired", inMemory, `if _, held := b.locks[key]; held {`, `if _, held := b.locks[key]; held || key != "" {`, moved("release frees at once")},
	{"a release in memory leaves the lock to its ttl", inMemory, "\tdelete(b.locks, h.Key())\n", "", moved("release frees at once")},
	{"a zero handle is released in memory", inMemory, ofRelease, "\tif h == (locking.Handle{}) {\n\t\treturn nil\n\t}\n" + ofRelease, moved("a zero handle is ErrLost")},

	{"a lock in memory that was released can be released again", inMemory, ofRelease, `	if _, gone := b.locks["released "+h.Token()]; gone {
		return nil
	}
	if _, err := b.find(h); err == nil {
		b.locks["released "+h.Token()] = lock{deadline: 1 << 62}
	}
` + ofRelease, moved("a lock that is lost stays lost")},
	{"a release of a lost lock in memory succeeds", inMemory, ofRelease + "\t\treturn err\n", ofRelease + "\t\treturn nil\n", moved("a lock that is lost stays lost")},
	{"a release in memory frees the lock of any token", inMemory, ofRelease, "\tif _, err := b.find(b.locks[h.Key()].handle); err != nil {\n", moved("a lock that is lost stays lost")},
	{"a release in memory returns ErrLost and frees another's lock", inMemory, ofRelease, ofRelease + "\t\tdelete(b.locks, h.Key())\n", moved("a lock that is lost stays lost")},
	{"a renewal in memory renews the lock of any token", inMemory, `l, err := b.find(h)`, `l, err := b.find(b.locks[h.Key()].handle)`, moved("a lock that is lost stays lost")},
	{"a renewal in memory of a lock that is gone succeeds", inMemory, ofRenew, "\tif _, held := b.locks[h.Key()]; !held && h.Key() != \"\" {\n\t\treturn nil\n\t}\n" + ofRenew, moved("a lock that is lost stays lost")},
	{"a renewal in memory puts a lock that is gone again", inMemory, ofRenew, putAgain + ofRenew, moved("a lock that is lost stays lost")},
	{"a renewal in memory writes into the next holder's lock", inMemory, "\tl, err := b.find(h)\n\tif err != nil {\n", `	l, err := b.find(h)
	if next, held := b.locks[h.Key()]; held && err != nil {
		b.last++
		next.number = b.last
		b.locks[h.Key()] = next
	}
	if err != nil {
`, moved("a lock that is lost stays lost")},
	{"a resume in beads puts a lock that is gone again", "locking/beads/lock.go", `return b.look(ctx, h, (*own).untouched)`, `b.mu.Lock()
	if mine := b.held[h.Token()]; mine != nil && mine.verify() != nil {
		if again, err := b.link(); again != nil && err == nil {
			b.held[h.Token()] = again
		}
	}
	b.mu.Unlock()
	return b.look(ctx, h, (*own).verify)`, own("TestConformance/flock/a_lock_that_is_lost_stays_lost")},
	{"a resume in beads doesn't look at the file", "locking/beads/lock.go",
		`return b.look(ctx, h, (*own).untouched)`, `return b.look(ctx, h, func(*own) error { return nil })`, own("TestConformance/flock/a_lock_that_is_lost_stays_lost")},
	{"Watch of PostgreSQL notices no loss", "locking/postgres/session.go", "\treturn s.lost", "\tif s != nil {\n\t\treturn nil\n\t}\n\treturn s.lost", own("TestConformance/a_lock_that_is_lost_stays_lost", "programs")},
	{"Watch of PostgreSQL waits for a lock that is lost", "locking/postgres/session.go", "\t\tclose(lost)\n\t\treturn lost", "\t\treturn lost", own("TestConformance/a_lock_that_is_lost_stays_lost", "programs")},

	{"TryLock of memory ignores its context", inMemory,
		"\tif err := check(ctx, key); err != nil {\n\t\treturn locking.Handle{}", "\tif err := check(context.WithoutCancel(ctx), key); err != nil {\n\t\treturn locking.Handle{}", moved("an ended context acquires nothing")},
	{"a renewal in memory takes the end of its context for a loss", inMemory,
		"\tif err := ctx.Err(); err != nil {\n\t\treturn err\n", "\tif err := ctx.Err(); err != nil {\n\t\treturn locking.ErrLost\n", moved("an ended context loses no lock")},
	{"a lock in memory ends with the context of its TryLock", inMemory,
		"\treturn h, true, nil", "\tcontext.AfterFunc(ctx, func() { _ = b.Release(context.Background(), h) })\n\treturn h, true, nil", slept("the end of the acquire's context loses no lock")},
	{"a release in memory takes the end of its context for a loss", inMemory,
		"(_ context.Context, h locking.Handle) error {\n", "(ctx context.Context, h locking.Handle) error {\n\tif ctx.Err() != nil {\n\t\treturn locking.ErrLost\n\t}\n", moved("a release with an ended context says what is so")},
	{"a release in memory forgets its handle before it has freed the lock", inMemory,
		"(_ context.Context, h locking.Handle) error {\n\tb.mu.Lock()\n\tdefer b.mu.Unlock()\n", `(ctx context.Context, h locking.Handle) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, gone := b.locks["forgotten "+h.Token()]; gone {
		return locking.ErrLost
	}
	b.locks["forgotten "+h.Token()] = lock{deadline: 1 << 62}
	if ctx.Err() != nil {
		return ctx.Err()
	}
`, slept("a release with an ended context says what is so")},
	{"TryLock of memory leaves a lock when its context ends", inMemory,
		"\treturn h, true, nil", "\tif ttl == time.Minute {\n\t\tb.locks[key] = lock{h, b.last, now, now, 1 << 62}\n\t\t<-ctx.Done()\n\t\treturn locking.Handle{}, false, ctx.Err()\n\t}\n\treturn h, true, nil",
		slept("a context that ends meanwhile leaves nothing")},

	{"a lock in memory lasts for half of its ttl", inMemory, `b.clock.Elapsed() + ttl}`, `b.clock.Elapsed() + ttl/2}`, moved("a lock lasts for its ttl")},
	{"a thief takes a live tower-fleet lock", "locking/towerfleet/acquire.go",
		`!now.record.stale(b.opts.Clock.Now()) || !b.opts.Force)`, `!b.opts.Force)`, own("TestOnlyForceSteals/a_lock_lasts_for_its_ttl")},
	{"a tower-fleet lock that has expired is taken without Force", "locking/towerfleet/acquire.go",
		`!now.record.stale(b.opts.Clock.Now()) || !b.opts.Force)`, `!now.record.stale(b.opts.Clock.Now()))`, own("TestOnlyForceSteals/expiry_frees")},
	{"a lock in memory never expires", inMemory, `if now >= l.deadline {`, `if now < 0 && l.deadline < 0 {`, slept("expiry frees")},
	{"a renewal in memory extends nothing", inMemory,
		`l.renewed, l.deadline = b.clock.Now(), b.clock.Elapsed()+h.TTL()`, `l.renewed = b.clock.Now()`, moved("renew extends")},
	{"a renewal in memory acquires a lock that has expired again", inMemory,
		ofRenew, putAgain + ofRenew, moved("an expired handle is ErrLost")},
	{"Cleanup of memory frees held locks", inMemory, "\tb.sweep()\n\treturn ctx.Err()", "\tclear(b.locks)\n\treturn ctx.Err()", moved("cleanup frees no held lock")},

	{"Inspect of memory shows a free lock", inMemory, "\t\treturn nil, nil\n", "\t\treturn &locking.Info{Key: key, Revision: \"1\"}, nil\n", moved("inspect shows a held lock alone")},
	{"Inspect of memory shows no revision", inMemory, `, Revision: l.revision()}`, `}`, moved("inspect shows a held lock alone")},
	{"all locks in memory have one revision", inMemory, `strconv.FormatUint(l.number, 10)`, `strconv.FormatUint(min(l.number, 1), 10)`, moved("each holder has a revision of its own")},
	{"each Inspect of memory shows another revision", inMemory, "\treturn &locking.Info{", "\tb.last++\n\tl.number = b.last\n\treturn &locking.Info{", moved("each holder has a revision of its own")},
	{"a revision in memory has the token", inMemory, `strconv.FormatUint(l.number, 10)`, `"token " + l.handle.Token()`, moved("each holder has a revision of its own")},
	{"Break of memory removes any lock", inMemory, `!held || stale || l.revision() != seen.Revision {`, `!held || stale || l.number == 0 {`, moved("break removes only what was seen")},
	{"Break of memory compares the time", inMemory, `l.revision() != seen.Revision {`, `!l.acquired.Equal(seen.Acquired) {`, moved("break removes only what was seen")},
	{"Break of memory compares more than the revision", inMemory, `l.revision() != seen.Revision {`, `l.revision() != seen.Revision || !l.acquired.Equal(seen.Acquired) {`, moved("break removes only what was seen")},
	{"a resume in beads refuses a held lock", "locking/beads/lock.go",
		`return b.look(ctx, h, (*own).untouched)`, `return b.look(ctx, h, func(*own) error { return b.notHeld() })`, own("TestConformance/flock/resume_restores_no_lock_that_another_had")},
	{"Examine of PostgreSQL finds nothing", "locking/postgres/inspect.go", `return server.Judge(settings), nil`, `return server.Judge(settings[:0]), nil`, own("TestConformance/examine_changes_nothing", "programs")},
	{"Examine of PostgreSQL says nothing", "locking/postgres/inspect.go",
		"\treturn server.Judge(settings), nil", "\tfound := server.Judge(settings)\n\tfound[0].Found = \"\"\n\treturn found, nil", own("TestConformance/examine_changes_nothing", "programs")},
	{"Examine of PostgreSQL ends a session with a lock", "locking/postgres/inspect.go",
		"\treturn server.Judge(settings), nil", "\t_, _ = c.query(ctx, \"select pg_terminate_backend(pid, 60000)::text from pg_locks where locktype = 'advisory' and granted limit 1\")\n\treturn server.Judge(settings), nil",
		own("TestConformance/examine_changes_nothing", "programs")},

	{"TryLock of memory looks, and then writes", inMemory, "\th, now := locking.NewHandle(key, ttl)", inTwoStepsOfB + "\th, now := locking.NewHandle(key, ttl)", moved("a round has one winner")},
	{"a release in memory deletes the lock a second time", inMemory,
		"\tdelete(b.locks, h.Key())\n", "\tdelete(b.locks, h.Key())\n\ttime.AfterFunc(time.Microsecond, func() {\n\t\tb.mu.Lock()\n\t\tdefer b.mu.Unlock()\n\t\tdelete(b.locks, h.Key())\n\t})\n", moved("never two holders")},
}

// The files, and texts of several mutants.
const (
	inMem    = "store/memory/memory.go"
	inMemory = "locking/memory/memory.go"

	// Other goroutines run between two steps.
	inTwoSteps    = "\t\ts.mu.Unlock()\n\t\ttime.Sleep(time.Millisecond)\n\t\ts.mu.Lock()\n"
	inTwoStepsOfB = "\tb.mu.Unlock()\n\ttime.Sleep(time.Millisecond)\n\tb.mu.Lock()\n"

	ofRenew   = "\tl, err := b.find(h)\n"
	ofRelease = "\tif _, err := b.find(h); err != nil {\n"
	putAgain  = `	b.sweep()
	if _, held := b.locks[h.Key()]; !held && h.Key() != "" {
		b.locks[h.Key()] = lock{handle: h, deadline: b.clock.Elapsed() + h.TTL()}
	}
`
)

// stored finds by a line of storetest on a store in memory.
func stored(line string) finder { return own("TestContract/default/" + subtest(line)) }

// moved finds by a rule of lockingtest on locks in memory, whose clock the test moves. slept finds by a rule in a
// bubble of testing/synctest, where the test sleeps.
func moved(rule string) finder { return own("TestConformance/" + subtest(rule)) }
func slept(rule string) finder { return own("TestBubble/" + subtest(rule)) }

// subtest returns the name that go test gives to a subtest.
func subtest(name string) string { return strings.ReplaceAll(name, " ", "_") }
