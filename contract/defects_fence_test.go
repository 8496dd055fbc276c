package contract_test

import (
	"context"
	"sync/atomic"
	"time"

	locco "github.com/locco-go/locco/core"
)

// fenceDefects are about fencing tokens.
var fenceDefects = []defect{
	{
		name:     "FencedLocksAreKeptApart",
		caughtBy: []string{"Fencing/UnfencedHoldersAreSeen", "Fencing/GrowsWithAgain"},
		seed: func(r reference, f *faulty) {
			f.acquire = func(ctx context.Context, l locco.Lease) (locco.Grant, error) {
				if l.Fenced {
					l.Key += ":fenced"
				}
				return r.Acquire(ctx, l)
			}
		},
	},
	{
		name:     "FenceIsConstant",
		caughtBy: []string{"Fencing/GrowsAfterRelease", "Fencing/GrowsOverEveryPath"},
		seed:     fence(func(_ locco.Lease, _ int64) int64 { return 7 }),
	},
	{
		name:     "FenceBeginsAtZero",
		caughtBy: []string{"Fencing/IsPositiveAndBelow2To53"},
		seed:     fence(func(_ locco.Lease, n int64) int64 { return n - 1 }),
	},
	{
		name:     "FenceIsInNanoseconds",
		caughtBy: []string{"Fencing/IsPositiveAndBelow2To53"},
		seed:     fence(func(_ locco.Lease, n int64) int64 { return 1_700_000_000_000_000_000 + n }),
	},
	{
		name:     "FenceIsTheClock",
		caughtBy: []string{"Fencing/GrowsAfterRelease", "Fencing/KeysDoNotDisturbEachOther"},
		seed:     fence(func(locco.Lease, int64) int64 { return time.Now().UnixMicro() }),
	},
	{
		name:     "FenceIsRandom",
		caughtBy: []string{"Fencing/GrowsAfterRelease", "Fencing/KeysDoNotDisturbEachOther"},
		seed:     fence(func(l locco.Lease, n int64) int64 { return 1 + n ^ int64(l.Token[0]) }),
	},
	{
		name:     "FenceIsGivenUnasked",
		caughtBy: []string{"Fencing/UnfencedGrantHasNone"},
		seed: func(_ reference, f *faulty) {
			f.rewrite(func(l *locco.Lease) { l.Fenced = true })
		},
	},
	{
		name:     "FenceIsForgottenOnRelease",
		caughtBy: []string{"Fencing/GrowsAfterRelease", "Fencing/GrowsAfterRefusals", "Fencing/GrowsAcrossClients"},
		seed: func(r reference, f *faulty) {
			f.release = func(ctx context.Context, key, token string) (bool, error) {
				ours, err := r.Release(ctx, key, token)
				if ours {
					r.forget(key)
				}
				return ours, err
			}
		},
	},
	{
		name:     "FenceIsForgottenOnExpiry",
		caughtBy: []string{"Fencing/GrowsAfterExpiry"},
		seed: func(r reference, f *faulty) {
			f.acquire = func(ctx context.Context, l locco.Lease) (locco.Grant, error) {
				r.mu.Lock()
				ended := r.leases[l.Key] != nil && r.live(l.Key) == nil
				r.mu.Unlock()
				if ended {
					r.forget(l.Key)
				}
				return r.Acquire(ctx, l)
			}
		},
	},
	{
		name:     "FenceIsForgottenByUnfencedGrants",
		caughtBy: []string{"Fencing/GrowsAfterUnfencedGrants"},
		seed: func(r reference, f *faulty) {
			f.acquire = func(ctx context.Context, l locco.Lease) (locco.Grant, error) {
				g, err := r.Acquire(ctx, l)
				if g.OK && !l.Fenced {
					r.forget(l.Key)
				}
				return g, err
			}
		},
	},
	{
		name:     "FenceIsForgottenByExtensions",
		caughtBy: []string{"Fencing/GrowsAfterExtend"},
		seed: func(r reference, f *faulty) {
			f.extend = func(ctx context.Context, l locco.Lease) (bool, error) {
				r.forget(l.Key)
				return r.Extend(ctx, l)
			}
		},
	},
	{
		name:     "FenceIsSetBackByRefusals",
		caughtBy: []string{"Fencing/GrowsAfterRefusals"},
		seed: func(r reference, f *faulty) {
			f.acquire = func(ctx context.Context, l locco.Lease) (locco.Grant, error) {
				g, err := r.Acquire(ctx, l)
				if l.Fenced && !g.OK {
					r.fences[l.Key]--
				}
				return g, err
			}
		},
	},
	{
		name:     "FenceOfAnotherKeyIsForgotten",
		caughtBy: []string{"Fencing/KeysDoNotDisturbEachOther"},
		seed: func(r reference, f *faulty) {
			f.acquire = func(ctx context.Context, l locco.Lease) (locco.Grant, error) {
				for key := range r.fences {
					if key != l.Key {
						r.forget(key)
					}
				}
				return r.Acquire(ctx, l)
			}
		},
	},
	{
		name:     "AgainKeepsTheFence",
		caughtBy: []string{"Fencing/GrowsWithAgain"},
		seed: func(r reference, f *faulty) {
			f.acquire = func(ctx context.Context, l locco.Lease) (locco.Grant, error) {
				if ours, err := r.Holds(ctx, l.Key, l.Token); l.Again && ours {
					return locco.Grant{OK: true, Fence: r.fences[l.Key]}, err
				}
				return r.Acquire(ctx, l)
			}
		},
	},
	{
		name:     "TransferKeepsTheFence",
		caughtBy: []string{"Fencing/GrowsWithTransfer", "Fencing/GrowsOverEveryPath"},
		seed: func(r reference, f *faulty) {
			f.transfer = func(ctx context.Context, from string, to locco.Lease) (locco.Grant, error) {
				to.Fenced = false
				g, err := r.Transfer(ctx, from, to)
				g.Fence = r.fences[to.Key]
				return g, err
			}
		},
	},
	{
		name:     "SetsHaveAFenceOfTheirOwn",
		caughtBy: []string{"Fencing/GrowsWithAcquireMany"},
		seed: func(r reference, f *faulty) {
			var counter atomic.Int64
			f.acquireMany = func(ctx context.Context, ls []locco.Lease) ([]locco.Grant, int, error) {
				grants, refused, err := r.AcquireMany(ctx, ls)
				for i := range grants {
					grants[i].Fence = counter.Add(1)
				}
				return grants, refused, err
			}
		},
	},
	{
		name:     "FenceIsCountedByTheClient",
		caughtBy: []string{"Fencing/GrowsAcrossClients"},
		peer: func(r reference, _ *faulty) locco.Backend {
			return newFaulty(func(_ reference, f *faulty) {
				f.acquire, f.release = r.Acquire, r.Release
				counter := int64(0)
				f.acquire = func(ctx context.Context, l locco.Lease) (locco.Grant, error) {
					g, err := r.Acquire(ctx, l)
					counter++
					g.Fence = counter
					return g, err
				}
			})
		},
	},
	{
		name:     "FenceIsDrawnBeforeTheKeyIsWon",
		caughtBy: []string{"Concurrency/FencesGrow"},
		seed: func(r reference, f *faulty) {
			var counter atomic.Int64
			f.acquire = func(ctx context.Context, l locco.Lease) (locco.Grant, error) {
				n := counter.Add(1)
				time.Sleep(time.Duration(l.Token[0]%8) * time.Millisecond)
				g, err := r.Acquire(ctx, l)
				if g.OK {
					g.Fence = n
				}
				return g, err
			}
		},
	},
}

// forget loses the fence counter of key.
func (s *store) forget(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.fences, key)
}

// fence seeds a defect in the fences of single grants: n is the right one.
func fence(change func(l locco.Lease, n int64) int64) func(reference, *faulty) {
	return func(r reference, f *faulty) {
		f.acquire = func(ctx context.Context, l locco.Lease) (locco.Grant, error) {
			g, err := r.Acquire(ctx, l)
			if g.OK && l.Fenced {
				g.Fence = change(l, g.Fence)
			}
			return g, err
		}
	}
}
