package doctor

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/repolock/repolock/store"
)

// wrongETag is the ETag of no body.
const wrongETag = "00000000000000000000000000000000"

// rightETag is the step that a server refuses if it compares ETags in another form.
const rightETag = "a put with the right ETag"

const matched = "a wrong ETag was refused, and the right one taken"

// ifMatch tries out a put that must only replace the object that was seen: one caller at a
// time, and several at once.
func (x *exam) ifMatch(ctx context.Context) error {
	o, detail, err := x.afresh(ctx, "if-match", matched, func(key string) []step { return x.matchSteps(ctx, key) })
	if err != nil {
		return err
	}
	if o == ignored && strings.Contains(detail, rightETag) {
		detail += "; Ceph's gateway takes it without quotes: an s3: URL says so by if-match=unquoted"
	}
	x.conditional(IfMatch, o, detail, nil)
	if o != kept {
		return nil // an increment would prove nothing more
	}
	if err := x.ifMatchRace(ctx); err != nil {
		return err
	}
	return x.onAbsent(ctx, ifMatchAbsent, func(key string) []step { return x.absentSteps(ctx, key) })
}

func (x *exam) matchSteps(ctx context.Context, key string) []step {
	var first, second string // ETags
	swap := func(etag *string, key, body string, out *string) func() error {
		return func() error {
			if *etag == "" {
				return fmt.Errorf("%w: the store reports no ETag", store.ErrConditionUnsupported)
			}
			o, err := x.putOnce(ctx, key, body, store.PutOptions{IfMatch: *etag})
			if err == nil && out != nil {
				*out, err = x.etagOf(ctx, key, o)
			}
			return err
		}
	}
	wrong := wrongETag
	return []step{
		{"a plain put", nil, func() (err error) { first, err = x.putTagged(ctx, key, "1"); return err }},
		{"a put with a wrong ETag", unmet, swap(&wrong, key, "2", nil)},
		{rightETag, nil, swap(&first, key, "3", &second)},
		{"a put with the ETag before", unmet, swap(&first, key, "4", nil)},
		{"a put with the next ETag", nil, swap(&second, key, "5", nil)},
	}
}

// putTagged puts an object and returns its ETag.
func (x *exam) putTagged(ctx context.Context, key, body string) (string, error) {
	o, err := x.put(ctx, key, body)
	if err != nil {
		return "", err
	}
	return x.etagOf(ctx, key, o)
}

// etagOf returns the ETag of an object that was put. Some answers to a put leave it out.
func (x *exam) etagOf(ctx context.Context, key string, o store.Object) (string, error) {
	if o.ETag != "" {
		return o.ETag, nil
	}
	c, err := x.get(ctx, 0, key)
	return c.object.ETag, err
}

// increments is how often each of the racers counts up.
const increments = 3

// ifMatchRace lets several racers count up one number: each reads it, and puts the next if it
// hasn't changed.
func (x *exam) ifMatchRace(ctx context.Context) error {
	key := x.scratch + "if-match/count"
	if _, err := x.put(ctx, key, "0"); err != nil {
		return err
	}
	var counted, unanswered atomic.Int32
	err := inParallel(ctx, racers, func(ctx context.Context, i int) error {
		for range increments {
			ok, err := x.increment(ctx, i, key, &unanswered)
			if err != nil {
				return err
			}
			if ok {
				counted.Add(1)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	total, _, err := x.number(ctx, 0, key)
	if err != nil {
		return err
	}
	n := int(counted.Load())
	lost := max(n-total, 0)
	o, detail := kept, fmt.Sprintf("none of %d concurrent increments was lost", n)
	if lost > 0 {
		o, detail = racy, fmt.Sprintf("racy: %d of %d concurrent increments were lost", lost, n)
	}
	x.conditional(IfMatchRace, o, detail, map[string]int{"increments": n, "lost": lost, "unanswered": int(unanswered.Load())})
	return nil
}

// number reads a number, and returns the ETag of its object as well.
func (x *exam) number(ctx context.Context, reader int, key string) (n int, etag string, err error) {
	c, err := x.get(ctx, reader, key)
	if err != nil {
		return 0, "", err
	}
	if n, err = strconv.Atoi(c.body); err != nil {
		return 0, "", fmt.Errorf("%w: %q isn't a number", errWrong, key)
	}
	return n, c.object.ETag, nil
}

// maxRefusals is more than all other racers together can cause.
const maxRefusals = 4 * racers * increments

// increment counts up once. After a put that got no answer it gives up: it isn't known
// whether it counted.
func (x *exam) increment(ctx context.Context, i int, key string, unanswered *atomic.Int32) (bool, error) {
	for range maxRefusals {
		n, etag, err := x.number(ctx, i, key)
		if err != nil {
			return false, err
		}
		switch _, err = x.putOnce(ctx, key, strconv.Itoa(n+1), store.PutOptions{IfMatch: etag}); {
		case err == nil:
			return true, nil
		case unapplied(err):
		case store.Permanent(err):
			return false, err
		default:
			unanswered.Add(1)
			return false, nil
		}
	}
	return false, nil
}

// ifMatchAbsent is a put with If-Match on a key without an object. On a server that carries it
// out, a refresh could put a broken lock back.
var ifMatchAbsent = absentTrial{
	IfMatchAbsent, "if-match-absent", "a put with If-Match on a key that isn't there was refused",
	"the server takes If-Match on a key that isn't there (MinIO before September 2025)",
	", so that a refresh would put a broken lock back: leave conditions=kept out of the URL",
	": repolock looks before each put instead",
}

// absentSteps try a key that was never there, and one that was deleted, as that of a broken
// lock.
func (x *exam) absentSteps(ctx context.Context, key string) []step {
	put := func(key, etag string) error {
		_, err := x.putOnce(ctx, key, "revived", store.PutOptions{IfMatch: etag})
		if errors.Is(err, store.ErrNotFound) {
			return unmet // as good an answer
		}
		return err
	}
	steps := []step{{"a put where nothing ever was", unmet, func() error { return put(key+"-never", wrongETag) }}}
	if len(x.lacking(Delete)) > 0 {
		return steps
	}
	deleted, etag := key+"-deleted", ""
	return append(steps,
		step{"a plain put", nil, func() (err error) { etag, err = x.putTagged(ctx, deleted, "1"); return err }},
		step{"a deletion", nil, func() error { return x.remove(ctx, deleted) }},
		step{"a put with the ETag of what was deleted", unmet, func() error { return put(deleted, etag) }},
	)
}

// conditionalDelete tries out a deletion of only the object that was seen. The lock doesn't
// need it.
func (x *exam) conditionalDelete(ctx context.Context) error {
	d, ok := x.writer().(store.ConditionalDeleter)
	if !ok {
		x.add(Check{Name: ConditionalDelete, Result: Unknown, Detail: "this backend doesn't offer it; repolock doesn't need it"})
		return nil
	}
	remove := func(key, etag string) error {
		_, err := once(ctx, x, timeout, "delete if-match", key, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, d.DeleteIfMatch(ctx, key, etag)
		})
		return err
	}
	o, detail, err := x.afresh(ctx, "delete-if-match", matched, func(key string) []step {
		var etag string
		return []step{
			{"a plain put", nil, func() (err error) { etag, err = x.putTagged(ctx, key, "1"); return err }},
			{"a deletion with a wrong ETag", unmet, func() error { return remove(key, wrongETag) }},
			{"a deletion with the right ETag", nil, func() error { return remove(key, etag) }},
		}
	})
	if err != nil {
		return err
	}
	c := x.add(Check{Name: ConditionalDelete, Result: o.verdict(store.Claimed), Detail: detail + "; repolock doesn't need it"})
	if o == forbidden {
		c.Result = Warn
	}
	return nil
}
