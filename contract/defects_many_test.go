package contract_test

import (
	"context"
	"errors"
	"slices"

	locco "github.com/locco-go/locco/core"
)

// setDefects are about several keys in one step.
var setDefects = []defect{
	{
		name:     "HalfASetIsStored",
		caughtBy: []string{"ManyAcquire/OneHeldKeyStoresNothing", "ManyAcquire/RefusalChangesNothing"},
		seed: func(r reference, f *faulty) {
			f.acquireMany = func(ctx context.Context, ls []locco.Lease) (grants []locco.Grant, refused int, err error) {
				for i, l := range ls {
					g, err := r.Acquire(ctx, l)
					if !g.OK || err != nil {
						return nil, i, err
					}
					grants = append(grants, g)
				}
				return grants, -1, nil
			}
		},
	},
	{
		name:     "RefusedIsAlwaysTheFirst",
		caughtBy: []string{"ManyAcquire/RefusedIsAHeldKey"},
		seed: manyAcquire(func(r reference, ctx context.Context, ls []locco.Lease) ([]locco.Grant, int, error) {
			grants, refused, err := r.AcquireMany(ctx, ls)
			return grants, min(refused, 0), err
		}),
	},
	{
		name:     "SetHasTheLeaseOfItsFirstKey",
		caughtBy: []string{"ManyAcquire/EachKeyHasItsLease", "ManyExtend/EachKeyHasItsLease"},
		seed: func(r reference, f *faulty) {
			same := func(ls []locco.Lease) []locco.Lease {
				ls = slices.Clone(ls)
				for i := range ls {
					ls[i].TTL = ls[0].TTL
				}
				return ls
			}
			f.acquireMany = func(ctx context.Context, ls []locco.Lease) ([]locco.Grant, int, error) {
				return r.AcquireMany(ctx, same(ls))
			}
			f.extendMany = func(ctx context.Context, ls []locco.Lease) []locco.Verdict { return r.ExtendMany(ctx, same(ls)) }
		},
	},
	{
		name:     "SetHasTheTokenOfItsFirstKey",
		caughtBy: []string{"ManyAcquire/EachKeyHasItsToken", "ManyAcquire/FreeKeysAreGranted"},
		seed: manyAcquire(func(r reference, ctx context.Context, ls []locco.Lease) ([]locco.Grant, int, error) {
			ls = slices.Clone(ls)
			for i := range ls {
				ls[i].Token = ls[0].Token
			}
			return r.AcquireMany(ctx, ls)
		}),
	},
	{
		name:     "SetRefusesEndedLeases",
		caughtBy: []string{"ManyAcquire/EndedLeasesAreFree"},
		seed: manyAcquire(func(r reference, ctx context.Context, ls []locco.Lease) ([]locco.Grant, int, error) {
			for i, l := range ls {
				if r.leases[l.Key] != nil && !l.Again {
					return nil, i, nil
				}
			}
			return r.AcquireMany(ctx, ls)
		}),
	},
	{
		name:     "SetAgainIsIgnored",
		caughtBy: []string{"ManyAcquire/Again"},
		seed: manyAcquire(func(r reference, ctx context.Context, ls []locco.Lease) ([]locco.Grant, int, error) {
			ls = slices.Clone(ls)
			for i := range ls {
				ls[i].Again = false
			}
			return r.AcquireMany(ctx, ls)
		}),
	},
	{
		name:     "SetOfMoreThan32KeysFails",
		caughtBy: []string{"ManyAcquire/FiftyKeys"},
		seed: manyAcquire(func(r reference, ctx context.Context, ls []locco.Lease) ([]locco.Grant, int, error) {
			if len(ls) > 32 {
				return nil, -1, errDefect
			}
			return r.AcquireMany(ctx, ls)
		}),
	},
	{
		name:     "SetOfOneKeyIsNotStored",
		caughtBy: []string{"ManyAcquire/OneKey"},
		seed: manyAcquire(func(r reference, ctx context.Context, ls []locco.Lease) ([]locco.Grant, int, error) {
			if len(ls) == 1 {
				return []locco.Grant{{OK: true}}, -1, nil
			}
			return r.AcquireMany(ctx, ls)
		}),
	},
	{
		name:     "EmptySetIsRefused",
		caughtBy: []string{"ManyAcquire/NoKeysAreHarmless"},
		seed: manyAcquire(func(r reference, ctx context.Context, ls []locco.Lease) ([]locco.Grant, int, error) {
			if len(ls) == 0 {
				return nil, 0, nil
			}
			return r.AcquireMany(ctx, ls)
		}),
	},
	{
		name:     "UnsupportedSetIsHalfStored",
		caughtBy: []string{"ManyAcquire/UnsupportedSetStoresNothing"},
		seed: manyAcquire(func(r reference, ctx context.Context, ls []locco.Lease) ([]locco.Grant, int, error) {
			_, _, _ = r.AcquireMany(ctx, ls[:1])
			return nil, -1, errors.ErrUnsupported
		}),
	},
	{
		name:     "VerdictsAreReversed",
		caughtBy: []string{"ManyExtend/VerdictsAreInOrder", "ManyExtend/BadEntryHarmsNoOther"},
		seed: manyExtend(func(r reference, ctx context.Context, ls []locco.Lease) []locco.Verdict {
			verdicts := r.ExtendMany(ctx, ls)
			slices.Reverse(verdicts)
			return verdicts
		}),
	},
	{
		name:     "OneBadEntryFailsAll",
		caughtBy: []string{"ManyExtend/BadEntryHarmsNoOther", "ManyExtend/RefusalChangesNothing"},
		seed: manyExtend(func(r reference, ctx context.Context, ls []locco.Lease) []locco.Verdict {
			for _, l := range ls {
				if ours, _ := r.Holds(ctx, l.Key, l.Token); !ours {
					return make([]locco.Verdict, len(ls))
				}
			}
			return r.ExtendMany(ctx, ls)
		}),
	},
	{
		name:     "BadEntryIsAnError",
		caughtBy: []string{"ManyExtend/BadEntryHarmsNoOther", "ManyExtend/NothingIsCreated", "ManyExtend/OneKey"},
		seed: manyExtend(func(r reference, ctx context.Context, ls []locco.Lease) []locco.Verdict {
			verdicts := r.ExtendMany(ctx, ls)
			for i := range verdicts {
				if !verdicts[i].OK {
					verdicts[i].Err = errDefect
				}
			}
			return verdicts
		}),
	},
	{
		name:     "OnlyAHundredAreExtended",
		caughtBy: []string{"ManyExtend/TwoHundredKeys"},
		seed: manyExtend(func(r reference, ctx context.Context, ls []locco.Lease) []locco.Verdict {
			verdicts := make([]locco.Verdict, len(ls))
			copy(verdicts, r.ExtendMany(ctx, ls[:min(len(ls), 100)]))
			return verdicts
		}),
	},
	{
		name:     "NoLeasesHaveAVerdict",
		caughtBy: []string{"ManyExtend/NoKeysAreHarmless"},
		seed: manyExtend(func(r reference, ctx context.Context, ls []locco.Lease) []locco.Verdict {
			if len(ls) == 0 {
				return []locco.Verdict{{OK: true}}
			}
			return r.ExtendMany(ctx, ls)
		}),
	},
}

func manyAcquire(acquire func(r reference, ctx context.Context, ls []locco.Lease) ([]locco.Grant, int, error)) func(reference, *faulty) {
	return func(r reference, f *faulty) {
		f.acquireMany = func(ctx context.Context, ls []locco.Lease) ([]locco.Grant, int, error) { return acquire(r, ctx, ls) }
	}
}

func manyExtend(extend func(r reference, ctx context.Context, ls []locco.Lease) []locco.Verdict) func(reference, *faulty) {
	return func(r reference, f *faulty) {
		f.extendMany = func(ctx context.Context, ls []locco.Lease) []locco.Verdict { return extend(r, ctx, ls) }
	}
}
