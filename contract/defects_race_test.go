package contract_test

import (
	"context"
	"slices"

	locco "github.com/locco-go/locco/core"
)

// raceDefects are not atomic.
var raceDefects = []defect{
	{
		name:     "AcquireChecksThenSets",
		caughtBy: []string{"Concurrency/OneWinner", "Concurrency/OneWinnerAfterExpiry", "Concurrency/OneGrantOfAToken", "Concurrency/MutualExclusion"},
		seed: func(r reference, f *faulty) {
			f.acquire = func(ctx context.Context, l locco.Lease) (locco.Grant, error) {
				refused, err := do(ctx, r.store, func() bool { return r.refuses(l) })
				if refused || err != nil {
					return locco.Grant{}, err
				}
				pause()
				return do(ctx, r.store, func() locco.Grant { return r.put(l) })
			}
		},
	},
	{
		name:     "ReleaseChecksThenDeletes",
		caughtBy: []string{"Concurrency/OneReleaseCounts"},
		seed: func(r reference, f *faulty) {
			f.release = func(ctx context.Context, key, token string) (bool, error) {
				ours, err := r.Holds(ctx, key, token)
				if ours {
					pause()
					_, err = r.Release(ctx, key, token)
				}
				return ours, err
			}
		},
	},
	{
		name:     "ExtendChecksThenSets",
		caughtBy: []string{"Concurrency/ExtendNeverOutlivesRelease"},
		seed: func(r reference, f *faulty) {
			f.extend = func(ctx context.Context, l locco.Lease) (bool, error) {
				ours, err := r.Holds(ctx, l.Key, l.Token)
				if !ours {
					return false, err
				}
				pause()
				_, err = do(ctx, r.store, func() locco.Grant { return r.put(l) })
				return true, err
			}
		},
	},
	{
		name:     "TransferChecksThenSets",
		caughtBy: []string{"Concurrency/OneTransferWins"},
		seed: func(r reference, f *faulty) {
			f.transfer = func(ctx context.Context, from string, to locco.Lease) (locco.Grant, error) {
				ours, err := r.Holds(ctx, to.Key, from)
				if !ours {
					return locco.Grant{}, err
				}
				pause()
				return do(ctx, r.store, func() locco.Grant { return r.put(to) })
			}
		},
	},
	{
		name:     "SetsAreCheckedThenStored",
		caughtBy: []string{"Concurrency/SetsAreAtomic", "Concurrency/SetsAndSingleKeys"},
		seed: func(r reference, f *faulty) {
			f.acquireMany = func(ctx context.Context, ls []locco.Lease) (grants []locco.Grant, refused int, err error) {
				refused, err = do(ctx, r.store, func() int { return slices.IndexFunc(ls, r.refuses) })
				if refused != -1 || err != nil {
					return nil, refused, err
				}
				for _, l := range ls {
					pause()
					g, err := do(ctx, r.store, func() locco.Grant { return r.put(l) })
					if err != nil {
						return nil, -1, err
					}
					grants = append(grants, g)
				}
				return grants, -1, nil
			}
		},
	},
}
