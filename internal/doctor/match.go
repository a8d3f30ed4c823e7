package doctor

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/repolock/repolock/store"
)

// wrongETag is one that no body has.
const wrongETag = "00000000000000000000000000000000"

// rightETag is the step that a server refuses which compares ETags in another form.
const rightETag = "a put with the right ETag"

// ifMatch tries out a put that must only replace what was seen: one caller at a
// time, and several at once.
func (x *exam) ifMatch(ctx context.Context) error {
	declared := x.writer().Properties().IfMatch
	o, detail, err := x.afresh(ctx, "if-match", func(key string) []step { return x.matchSteps(ctx, key) })
	if err != nil {
		return err
	}
	switch {
	case o == kept:
		detail = "a wrong ETag was refused, and the right one taken"
	case o == ignored && strings.Contains(detail, rightETag):
		detail += "; Ceph's gateway takes it without quotes: an s3: URL says so by if-match=unquoted"
	}
	x.ifMatchIs = o
	x.add(conditional(IfMatch, o, declared, detail, nil))
	if o != kept {
		return nil // an increment would prove nothing more
	}
	if err := x.ifMatchRace(ctx, declared); err != nil {
		return err
	}
	return x.ifMatchAbsent(ctx, declared)
}

func (x *exam) matchSteps(ctx context.Context, key string) []step {
	var first, second string // ETags
	swap := func(etag *string, key, body string, out *string) func() error {
		return func() error {
			if *etag == "" {
				return fmt.Errorf("%w: the store tells no ETag", store.ErrConditionUnsupported)
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
		{"a plain put", done, func() (err error) { first, err = x.putTagged(ctx, key, "1"); return err }},
		{"a put with a wrong ETag", unmet, swap(&wrong, key, "2", nil)},
		{rightETag, done, swap(&first, key, "3", &second)},
		{"a put with the ETag before", unmet, swap(&first, key, "4", nil)},
		{"a put with the next ETag", done, swap(&second, key, "5", nil)},
	}
}

// putTagged puts an object and gives its ETag.
func (x *exam) putTagged(ctx context.Context, key, body string) (string, error) {
	o, err := x.put(ctx, key, body)
	if err != nil {
		return "", err
	}
	return x.etagOf(ctx, key, o)
}

// etagOf is the ETag of what was put, which some answers to a put leave out.
func (x *exam) etagOf(ctx context.Context, key string, o store.Object) (string, error) {
	if o.ETag != "" {
		return o.ETag, nil
	}
	c, err := x.get(ctx, 0, key)
	return c.object.ETag, err
}

// increments is how often each of the racers counts up.
const increments = 3

// ifMatchRace has several count up one number, each of which reads it and puts
// the next if it is still as it was.
func (x *exam) ifMatchRace(ctx context.Context, declared store.Condition) error {
	key := x.scratch + "if-match/count"
	if _, err := x.put(ctx, key, "0"); err != nil {
		return err
	}
	var counted, unanswered atomic.Int32
	err := parallel(ctx, racers, func(ctx context.Context, i int) error {
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
	c, err := x.get(ctx, 0, key)
	if err != nil {
		return err
	}
	total, err := strconv.Atoi(c.body)
	if err != nil {
		return fmt.Errorf("%w: %q isn't a number", errWrong, key)
	}
	n := int(counted.Load())
	lost := max(n-total, 0)
	o, detail := kept, fmt.Sprintf("none of %d concurrent increments was lost", n)
	if lost > 0 {
		o, detail = racy, fmt.Sprintf("racy: %d of %d concurrent increments were lost", lost, n)
	}
	x.ifMatchIs = o
	x.add(conditional(IfMatchRace, o, declared, detail, map[string]int{
		"increments": n, "lost": lost, "unanswered": int(unanswered.Load()),
	}))
	return nil
}

// maxRefusals is more than what all others together can bring about.
const maxRefusals = 4 * racers * increments

// increment counts up once. After a put that got no answer it gives up: whether
// it counted isn't known.
func (x *exam) increment(ctx context.Context, i int, key string, unanswered *atomic.Int32) (bool, error) {
	for range maxRefusals {
		c, err := x.get(ctx, i, key)
		if err != nil {
			return false, err
		}
		n, err := strconv.Atoi(c.body)
		if err != nil {
			return false, fmt.Errorf("%w: %q isn't a number", errWrong, key)
		}
		_, err = x.putOnce(ctx, key, strconv.Itoa(n+1), store.PutOptions{IfMatch: c.object.ETag})
		switch a, failure := sorted(err); {
		case ctx.Err() != nil:
			return false, context.Cause(ctx)
		case failure != nil && store.Permanent(failure):
			return false, failure
		case failure != nil:
			unanswered.Add(1)
			return false, nil
		case a == done:
			return true, nil
		}
	}
	return false, nil
}
