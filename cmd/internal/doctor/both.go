package doctor

import (
	"context"
	"errors"
	"slices"

	"github.com/repolock/repolock/store"
)

// Both tries out two ways to one repository, as through two gateways: an object written
// through either must be in the listings through the other. The report is about writes through
// the first way, its Also about writes through the second. opts.Others are more handles of the
// first way.
func Both(ctx context.Context, s, also store.Store, opts Options) (Report, error) {
	there, back := opts, opts
	there.Others = append(slices.Clone(opts.Others), also)
	back.Others = []store.Store{s}
	report, err := Run(ctx, s, there)
	if err != nil && !apart(report, err) {
		return report, err
	}
	other, err := Run(ctx, also, back)
	report.Also = &other
	if apart(other, err) {
		err = nil
	}
	return report, err
}

// apart reports whether an examination ended because the ways lead to two places, which its
// report already says.
func apart(r Report, err error) bool {
	c, _ := r.Check(ListAfterWrite)
	return c.Result == Fail && errors.Is(err, store.ErrNotFound)
}

// Fitness returns that of the store, or of the other way to it if that is worse.
func (r *Report) Fitness() Fitness {
	if r.Also == nil || r.Verdict.Fitness == Unfit || r.Also.Verdict.Fitness == Fit {
		return r.Verdict.Fitness
	}
	return r.Also.Verdict.Fitness
}
