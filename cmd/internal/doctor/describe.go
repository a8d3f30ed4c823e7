package doctor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/repolock/repolock/store"
)

// describe asks the server whether it keeps what is overwritten or deleted. Not every server
// answers.
func (x *exam) describe(ctx context.Context) error {
	var is store.Description
	if d, ok := x.writer().(store.Describer); ok {
		var err error
		is, err = repeat(ctx, x, func(within time.Duration) (store.Description, error) {
			return once(ctx, x, within, "describe", "", d.Describe)
		})
		if err != nil && !settled(err) && !errors.Is(err, store.ErrConditionUnsupported) {
			return fmt.Errorf("asking the store about itself: %w", err)
		}
	}
	x.report.Server = is.Server
	say := func(name string, a store.Answer, yes, no string) {
		c := Check{Name: name, Result: OK, Detail: no}
		switch a {
		case store.Yes:
			c.Detail = yes
		case store.Unknown:
			c.Result, c.Detail = Unknown, "the store doesn't tell"
		}
		x.add(c)
	}
	say(Versioning, is.Versioning, "on: what is overwritten or deleted stays as a version, until a rule of the bucket or its writer removes it", "off")
	say(ObjectLock, is.ObjectLock, "on: versions may have to stay; locks work all the same", "off")
	return nil
}
